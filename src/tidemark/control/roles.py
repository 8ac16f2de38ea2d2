"""Roles: who there is, what they may do by themselves, and who is a member of whom.

A role is a row of the catalog. A user is a role that may log in, a group one that others are
members of: who is a member of a role has its privileges, and owns what it owns. Its attributes
(SUPERUSER, CREATEROLE, ...) are its own: they are had only after SET ROLE.

    tidemark      there without having been created, a superuser, and a row only once it was changed
    PUBLIC        everybody; no role, but what a grant may name
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.errors import SqlError

ROW = "role-"
"""What the keys of their rows begin with."""

PUBLIC = "p"
"""Stands for everybody where ids of roles stand."""

FIRST_OID = 16_384
"""PostgreSQL's first free one, as for objects: roles have their ids from the same counter."""


class Role(msgspec.Struct, frozen=True, omit_defaults=True):
    """`verifier` is what is kept of its password; `settings` are what its sessions begin with;
    `member_of` are ids."""

    id: str
    name: str
    login: bool = False
    superuser: bool = False
    createrole: bool = False
    createdb: bool = False
    createcluster: bool = False
    verifier: str | None = None
    settings: dict[str, str] = {}
    member_of: tuple[str, ...] = ()

    @property
    def oid(self) -> int:
        return 10 if self.id == SUPERUSER.id else FIRST_OID + int(self.id[1:])

    @property
    def row(self) -> dict[str, str | None]:
        return {ROW + self.id: msgspec.json.encode(self).decode()}


ATTRIBUTES = ("superuser", "createrole", "createdb", "createcluster")

SUPERUSER = Role(
    "s1",
    "tidemark",
    login=True,
    superuser=True,
    createrole=True,
    createdb=True,
    createcluster=True,
)

_ROLE = msgspec.json.Decoder(Role)


class Roles:
    """All roles, out of the catalog's rows; made anew when those change."""

    def __init__(self, rows: Mapping[str, str]):
        found = [_ROLE.decode(text) for key, text in rows.items() if key.startswith(ROW)]
        created = sorted(found, key=lambda role: (role.id != SUPERUSER.id, int(role.id[1:])))
        self.by_id = {SUPERUSER.id: SUPERUSER} | {role.id: role for role in created}
        self.by_name = {role.name: role for role in self.by_id.values()}
        self._reached: dict[str, frozenset[str]] = {}

    def named(self, name: str) -> Role:
        found = self.by_name.get(name)
        if found is None:
            raise SqlError(
                f'role "{name}" does not exist',
                hint=f"SHOW ROLES lists those there are; CREATE ROLE {name} makes one",
                sqlstate="42704",
            )
        return found

    def reach(self, id_: str) -> frozenset[str]:
        """The role, and all that it is a member of, directly or not."""
        known = self._reached.get(id_)
        if known is None:
            found: set[str] = set()
            waiting = [id_]
            while waiting:
                each = waiting.pop()
                if each not in found and each in self.by_id:
                    found.add(each)
                    waiting += self.by_id[each].member_of
            known = self._reached[id_] = frozenset(found)
        return known

    def name_of(self, id_: str) -> str:
        return "PUBLIC" if id_ == PUBLIC else self.by_id[id_].name
