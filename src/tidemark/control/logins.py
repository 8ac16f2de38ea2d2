"""Who has to say a password, and which: roles have theirs in the catalog, others in the file.

    --passwords FILE, or a password of role tidemark      everybody has to say one
    neither                                               roles that have one; others are believed

Without the first, a name that is no role's acts as tidemark (`identity.py`): that is why
tidemark's own password closes the door for everybody. A role's password counts before a line of the
file. What is asked is asked of the catalog as it is then, so that ALTER ROLE takes effect at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tidemark.control.pgwire import scram
from tidemark.control.pgwire.passwords import Passwords
from tidemark.control.roles import SUPERUSER, Roles
from tidemark.errors import Unavailable


class Logins:
    """A `pgwire.passwords.Guard`."""

    def __init__(self, file: Passwords | None, roles: Callable[[], Roles]):
        self._file = file
        self._roles = roles

    @property
    def always(self) -> bool:
        if self._file is not None:
            return True
        try:
            return self._roles().by_id[SUPERUSER.id].verifier is not None
        except Unavailable:
            return False  # While the server starts nobody is let in anyway.

    def asks(self, user: str) -> bool:
        role = self._roles().by_name.get(user)
        return self.always or (role is not None and role.verifier is not None)

    def may_enter(self, user: str) -> bool:
        """With the right password, if one is asked for."""
        return not self.asks(user) or self.verifier(user)[1]

    def verifier(self, user: str) -> tuple[scram.Verifier, bool]:
        return self._known().verifier(user)

    def check(self, user: str, password: str) -> None:
        self._known().check(user, password)

    def _known(self) -> Passwords:
        found = dict(self._file.verifiers) if self._file is not None else {}
        for role in self._roles().by_id.values():
            if role.verifier is not None:
                found[role.name] = scram.read_verifier(role.verifier)
        if self._file is not None:
            return Passwords(found, self._file.secret)
        own = self._roles().by_id[SUPERUSER.id].verifier or ""
        return Passwords(found, hashlib.sha256(own.encode()).digest())
