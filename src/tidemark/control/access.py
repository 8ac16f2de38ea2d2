"""What can be owned and granted, and who has it: one row of the catalog for each that has been.

    access-object-u7     {"owner": "u3", "grants": {"u4": ["SELECT"], "p": ["SELECT"]}}

Without a row it is `tidemark`'s, and what everybody may do with it is in `DEFAULTS`: all that
there was before there were roles. A grant is always the owner's to make, so nobody is named as who
made it.

Another kind of thing is added here: its privileges, the word GRANT has for it, and its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidemark.control.hierarchy import DATABASE, quoted
from tidemark.control.roles import PUBLIC, SUPERUSER, Roles

if TYPE_CHECKING:
    from tidemark.control.catalog import ClusterItem, Item
    from tidemark.control.hierarchy import DatabaseItem, SchemaItem

ROW = "access-"
"""What the keys of their rows begin with."""

RELATIONS = ("table", "source", "subsource", "progress", "view", "materialized view")
_READ_WRITE = ("SELECT", "INSERT", "UPDATE", "DELETE")

PRIVILEGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(RELATIONS, _READ_WRITE),
    "connection": ("USAGE",),
    "secret": ("USAGE",),
    "sink": (),
    "index": (),
    "cluster": ("USAGE", "CREATE"),
    "schema": ("USAGE", "CREATE"),
    "database": ("USAGE", "CREATE"),
}
"""By kind, as SQL calls it; what cannot be granted can still be owned."""

LETTERS = {
    "INSERT": "a",
    "SELECT": "r",
    "UPDATE": "w",
    "DELETE": "d",
    "USAGE": "U",
    "CREATE": "C",
}
"""As PostgreSQL abbreviates them, and in its order."""


class Access(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ids of roles; privileges in the order of `PRIVILEGES`."""

    owner: str = SUPERUSER.id
    grants: dict[str, tuple[str, ...]] = {}

    def granted(self, role: str, privileges: tuple[str, ...], kind: str) -> Access:
        had = self.grants.get(role, ())
        has = tuple(p for p in PRIVILEGES[kind] if p in had or p in privileges)
        return msgspec.structs.replace(self, grants=self.grants | {role: has})

    def revoked(self, role: str, privileges: tuple[str, ...]) -> Access:
        left = tuple(p for p in self.grants.get(role, ()) if p not in privileges)
        others = {each: has for each, has in self.grants.items() if each != role}
        return msgspec.structs.replace(self, grants=others | ({role: left} if left else {}))

    def owned_by(self, role: str) -> Access:
        """What was granted to the new owner it has anyway."""
        others = {each: has for each, has in self.grants.items() if each != role}
        return Access(role, others)

    def row(self, key: str) -> dict[str, str | None]:
        return {ROW + key: msgspec.json.encode(self).decode()}


class Securable(NamedTuple):
    """Something that can be owned: its kind, the key of its row, and its name."""

    kind: str
    key: str
    name: str

    @property
    def privileges(self) -> tuple[str, ...]:
        return PRIVILEGES[self.kind]

    @property
    def word(self) -> str:
        """As GRANT calls it."""
        return "TABLE" if self.kind in RELATIONS else self.kind.upper()

    @property
    def alter_word(self) -> str:
        """As ALTER ... OWNER TO calls it."""
        is_part = self.kind in ("subsource", "progress")
        return "SOURCE" if is_part else self.kind.upper()


def of_item(item: Item) -> Securable:
    return Securable(item.kind_name, item_key(item.id), item.shown)


def of_cluster(cluster: ClusterItem) -> Securable:
    return Securable("cluster", cluster_key(cluster.id), cluster.name)


def of_schema(schema: SchemaItem) -> Securable:
    where = "" if schema.database == DATABASE else f"{quoted(schema.database)}."
    return Securable("schema", f"schema-{schema.id}", where + quoted(schema.name))


def of_database(database: DatabaseItem) -> Securable:
    return Securable("database", f"database-{database.id}", quoted(database.name))


def item_key(id_: str) -> str:
    return f"object-{id_}"


def cluster_key(id_: str) -> str:
    return f"cluster-{id_}"


DEFAULTS = {
    "cluster-s1": Access(grants={PUBLIC: ("USAGE", "CREATE")}),
    "schema-s2": Access(grants={PUBLIC: ("USAGE", "CREATE")}),
    "database-s1": Access(grants={PUBLIC: ("USAGE",)}),
}
"""Everybody may use what is there from the start, and create in it."""

_ACCESS = msgspec.json.Decoder(Access)


def read_access(rows: Mapping[str, str]) -> dict[str, Access]:
    """By key."""
    found = {
        key.removeprefix(ROW): _ACCESS.decode(text)
        for key, text in rows.items()
        if key.startswith(ROW)
    }
    return DEFAULTS | found


OWNER: ContextVar[str] = ContextVar("owner", default=SUPERUSER.id)
"""Whose what is created will be: the id of the role that the statement runs for. It is set where a
statement begins, and read where the catalog is changed; what is between need not know."""


def acl(access: Access, kind: str, roles: Roles) -> list[str] | None:
    """As PostgreSQL shows it: `alice=arw/tidemark`; None is what the owner has by itself."""
    if not access.grants:
        return None
    owner = roles.name_of(access.owner)
    found = {access.owner: PRIVILEGES[kind]} | access.grants
    return [
        f"{'' if role == PUBLIC else _quoted(roles.name_of(role))}={_letters(has)}/{_quoted(owner)}"
        for role, has in found.items()
    ]


def _letters(privileges: tuple[str, ...]) -> str:
    return "".join(letter for name, letter in LETTERS.items() if name in privileges)


def _quoted(name: str) -> str:
    plain = name.replace("_", "a")
    return name if plain.isalnum() else '"' + name.replace('"', '""') + '"'
