"""Who may log in: a file of verifiers, and the conversation in which a client proves itself.

# made with `tidemark password alice`
alice:SCRAM-SHA-256$4096:salt$StoredKey:ServerKey
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from pathlib import Path
from typing import Protocol

import msgspec

from tidemark.control.pgwire import codec, scram
from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.control.pgwire.wire import Wire
from tidemark.errors import InvalidUsage


class Guard(Protocol):
    """Who has to say which password."""

    @property
    def always(self) -> bool:
        """Whether everybody has to say one."""
        ...

    def asks(self, user: str) -> bool: ...

    def verifier(self, user: str) -> tuple[scram.Verifier, bool]: ...

    def check(self, user: str, password: str) -> None: ...


class Passwords(msgspec.Struct, frozen=True):
    """A `Guard` that asks everybody."""

    verifiers: dict[str, scram.Verifier]
    secret: bytes
    """From which unknown users get their salts: nobody's to guess, and the same after a restart."""

    @property
    def always(self) -> bool:
        return True

    def asks(self, _: str) -> bool:
        return True

    def verifier(self, user: str) -> tuple[scram.Verifier, bool]:
        """The user's, or one that looks like it; and whether the user exists."""
        known = self.verifiers.get(user)
        if known is not None:
            return known, True
        usual = Counter(each.iterations for each in self.verifiers.values()).most_common(1)
        iterations = usual[0][0] if usual else scram.DEFAULT_ITERATIONS
        return scram.mock_verifier(user, self.secret, iterations), False

    def check(self, user: str, password: str) -> None:
        """For who sends the password itself, as HTTP does; takes milliseconds, on purpose."""
        verifier, exists = self.verifier(user)
        if verifier.iterations > scram.MOST_ITERATIONS:  # The catalog may have it from before.
            raise wrong_password(user)
        given = scram.make_verifier(password, salt=verifier.salt, iterations=verifier.iterations)
        if not hmac.compare_digest(given.stored_key, verifier.stored_key) or not exists:
            raise wrong_password(user)


def wrong_password(user: str) -> ProtocolViolation:
    return ProtocolViolation(f'password authentication failed for user "{user}"', sqlstate="28P01")


def read_passwords(path: Path) -> Passwords:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidUsage(f"--passwords {path} cannot be read: {error}") from error
    verifiers: dict[str, scram.Verifier] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, rest = line.strip().rpartition(f":{scram.MECHANISM}$")
        try:
            if not user or user in verifiers:
                raise InvalidUsage(f'user "{user}" is there twice' if user else "no user")
            verifiers[user] = scram.read_verifier(f"{scram.MECHANISM}${rest}")
            scram.check_iterations(verifiers[user])
        except InvalidUsage as error:
            raise InvalidUsage(
                f"--passwords {path}, line {number}: {error.message}",
                hint="each line is user:SCRAM-SHA-256$…, as `tidemark password USER` prints it",
            ) from None
    return Passwords(verifiers, hashlib.sha256("\n".join(lines).encode()).digest())


def password_line(user: str, password: str) -> str:
    if not user or not password or user.startswith("#") or user.splitlines() != [user]:
        raise InvalidUsage("neither user nor password may be empty, nor a user more than a line")
    verifier = scram.make_verifier(password, salt=secrets.token_bytes(scram.SALT_BYTES))
    return f"{user}:{verifier}"


async def authenticate(wire: Wire, user: str, passwords: Guard, certificate: bytes | None) -> None:
    """Returns if the client has the user's password; a user who does not exist has none."""
    verifier, exists = passwords.verifier(user)
    nonce = secrets.token_urlsafe(18)
    exchange = scram.Exchange(verifier, nonce=nonce, certificate=certificate)
    wire.send(codec.authentication_sasl(exchange.mechanisms))
    await wire.flush()
    mechanism, first = codec.decode_sasl_initial(await wire.receive_password())
    wire.send(codec.authentication_sasl_continue(exchange.first(mechanism, first)))
    await wire.flush()
    proof = exchange.final(await wire.receive_password())
    if proof is None or not exists:
        raise wrong_password(user)
    wire.send(codec.authentication_sasl_final(proof))
