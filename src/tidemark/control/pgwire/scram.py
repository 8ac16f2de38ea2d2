"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side; no I/O here.

The server keeps a verifier, from which nobody can log in, and proves in the end that it has it:

    client                                      server
    n,,n=user,r=CNONCE              ──►
                                    ◄──         r=CNONCE+SNONCE,s=SALT,i=ITERATIONS
    c=biws,r=CNONCE+SNONCE,p=PROOF  ──►         check the proof
                                    ◄──         v=SIGNATURE

A user who does not exist is asked for a password just the same, with a salt that is always the
same for that name (`mock_verifier`), and is refused where a wrong password is. With TLS there is
also SCRAM-SHA-256-PLUS: the client proves that it sees our certificate, so nobody is in between.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata

import msgspec

from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.errors import InvalidUsage

MECHANISM = "SCRAM-SHA-256"
MECHANISM_PLUS = "SCRAM-SHA-256-PLUS"
DEFAULT_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""Of a verifier that somebody else has made: over HTTP, it is the server that has to go through
all of them, at every login."""

SALT_BYTES = 16

_VERIFIER = re.compile(r"SCRAM-SHA-256\$([1-9][0-9]{0,8}):([^$:]+)\$([^$:]+):([^$:]+)")
_BINDING = "tls-server-end-point"


class Verifier(msgspec.Struct, frozen=True):
    """What is kept of a password, in the form that PostgreSQL keeps it in, too."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{MECHANISM}${self.iterations}:{salt}${stored}:{server}"


def read_verifier(text: str) -> Verifier:
    found = _VERIFIER.fullmatch(text)
    try:
        assert found is not None
        salt, stored, server = (
            base64.b64decode(part, validate=True) for part in found.groups()[1:]
        )
        assert len(stored) == len(server) == hashlib.sha256().digest_size
    except (AssertionError, binascii.Error):
        raise InvalidUsage(
            "not a SCRAM-SHA-256 verifier", hint="`tidemark password` prints one"
        ) from None
    return Verifier(int(found[1]), salt, stored, server)


def check_iterations(verifier: Verifier) -> None:
    if verifier.iterations > MOST_ITERATIONS:
        raise InvalidUsage(
            f"a verifier of {verifier.iterations:,} iterations would keep the server busy",
            hint=f"at most {MOST_ITERATIONS:,}, usually {DEFAULT_ITERATIONS:,}",
        )


def make_verifier(password: str, *, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    return Verifier(iterations, salt, _sha256(client_key), _hmac(salted, b"Server Key"))


def mock_verifier(user: str, secret: bytes, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    """A verifier that nobody has the password of; the salt depends on nothing but the name."""
    salt = _hmac(secret, b"salt" + user.encode())[:SALT_BYTES]
    key = _hmac(secret, b"key" + user.encode())
    return Verifier(iterations, salt, key, key)


def prepared(password: str) -> bytes:
    """SASLprep (RFC 4013): spellings that look the same are the same password. One that it does
    not allow is taken as it is, as PostgreSQL and its clients do."""
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    text = unicodedata.normalize("NFKC", mapped)
    is_rtl = [stringprep.in_table_d1(char) for char in text]
    wrong_direction = any(is_rtl) and (
        any(stringprep.in_table_d2(char) for char in text) or not (is_rtl[0] and is_rtl[-1])
    )
    if not text or wrong_direction or any(_prohibited(char) for char in text):
        return password.encode()
    return text.encode()


def _prohibited(char: str) -> bool:
    return stringprep.in_table_a1(char) or any(
        table(char)
        for table in (
            stringprep.in_table_c12,
            stringprep.in_table_c21_c22,
            stringprep.in_table_c3,
            stringprep.in_table_c4,
            stringprep.in_table_c5,
            stringprep.in_table_c6,
            stringprep.in_table_c7,
            stringprep.in_table_c8,
            stringprep.in_table_c9,
        )
    )


class Exchange:
    """One client's attempt. `certificate` is our certificate's hash, if there is TLS to bind to."""

    def __init__(self, verifier: Verifier, *, nonce: str, certificate: bytes | None = None):
        self._verifier = verifier
        self._nonce = nonce
        self._certificate = certificate
        self._header = self._client_first = self._server_first = ""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (MECHANISM,) if self._certificate is None else (MECHANISM_PLUS, MECHANISM)

    def first(self, mechanism: str, message: bytes) -> bytes:
        """Answer the client's first message with salt and nonce."""
        if mechanism not in self.mechanisms:
            raise ProtocolViolation(f"client selected an invalid SASL mechanism: {mechanism!r}")
        flag, _, rest = _text(message).partition(",")
        authzid, _, bare = rest.partition(",")
        self._check_binding(mechanism, flag)
        if authzid:
            raise ProtocolViolation("SCRAM authorization identities are not supported")
        found = re.fullmatch(r"n=[^,]*,r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?", bare)
        if found is None:
            raise ProtocolViolation("malformed SCRAM message: expected n=user,r=nonce")
        self._header, self._client_first = f"{flag},{authzid},", bare
        self._nonce = found[1] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes | None:
        """Answer the client's proof with ours; None if it is no proof."""
        found = re.fullmatch(r"(c=([^,]*),r=([^,]*)(?:,.*)?),p=([^,]*)", _text(message))
        if found is None:
            raise ProtocolViolation("malformed SCRAM message: expected c=…,r=…,p=…")
        without_proof, binding, nonce, proof = found.groups()
        if _base64(binding) != self._expected_binding():
            raise ProtocolViolation("SCRAM channel binding check failed", sqlstate="28000")
        if nonce != self._nonce:
            raise ProtocolViolation("malformed SCRAM message: the nonce does not match")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        client_signature = _hmac(self._verifier.stored_key, signed)
        given = _base64(proof)
        if len(given) != len(client_signature):
            raise ProtocolViolation("malformed SCRAM message: a proof has 32 bytes")
        client_key = bytes(a ^ b for a, b in zip(given, client_signature, strict=True))
        if not hmac.compare_digest(_sha256(client_key), self._verifier.stored_key):
            return None
        signature = _hmac(self._verifier.server_key, signed)
        return b"v=" + base64.b64encode(signature)

    def _check_binding(self, mechanism: str, flag: str) -> None:
        if mechanism == MECHANISM_PLUS:
            if flag != f"p={_BINDING}":
                raise ProtocolViolation(
                    f"unsupported SCRAM channel-binding type {flag!r}", hint=f"use {_BINDING}"
                )
        elif flag == "y" and self._certificate is not None:
            # The client thinks that we cannot bind, though we said so: somebody is in between.
            raise ProtocolViolation("SCRAM channel binding negotiation error", sqlstate="28000")
        elif flag not in ("n", "y"):
            raise ProtocolViolation("malformed SCRAM message: unexpected channel-binding flag")

    def _expected_binding(self) -> bytes:
        bound = self._header.startswith("p=")
        return self._header.encode() + ((self._certificate or b"") if bound else b"")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("malformed SCRAM message: not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolViolation("malformed SCRAM message: not base64") from None


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
