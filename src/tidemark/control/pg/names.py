"""The relations that PostgreSQL's catalog lists, their oids, and names as SQL writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidemark.control.catalog import Catalog, Item
from tidemark.control.hierarchy import quoted
from tidemark.types import Column

if TYPE_CHECKING:
    from tidemark.control.pg.seen import Seen

SYSTEM_OIDS = {
    "pg_catalog": 11,
    "information_schema": 13_000,
    "mz_catalog": 13_001,
    "mz_internal": 13_002,
}
_FIRST = {"s1": 5, "s2": 2200}
"""The oids of the database and the schema that are there from the start, as in PostgreSQL."""

OWNER = 10
"""The oid of the one role."""

RELKINDS = {
    "table": "r",
    "source": "r",
    "subsource": "r",
    "progress": "r",
    "view": "v",
    "materialized-view": "m",
    "index": "i",
}
"""As PostgreSQL abbreviates them; other kinds of objects are no relations."""

_FIRST_FREE = 16_384
_FIRST_OURS = 12_000
_WELL_KNOWN = {
    "pg_type": 1247,
    "pg_attribute": 1249,
    "pg_proc": 1255,
    "pg_class": 1259,
    "pg_authid": 1260,
    "pg_database": 1262,
    "pg_am": 2601,
    "pg_attrdef": 2604,
    "pg_constraint": 2606,
    "pg_depend": 2608,
    "pg_description": 2609,
    "pg_index": 2610,
    "pg_inherits": 2611,
    "pg_namespace": 2615,
    "pg_rewrite": 2618,
    "pg_trigger": 2620,
    "pg_enum": 3501,
    "pg_collation": 3456,
    "pg_extension": 3079,
    "pg_tablespace": 1213,
}
"""Clients know some catalogs by their oids."""

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s]+))\s*(\.|$)')


class Listed(NamedTuple):
    """A relation that can be seen in `pg_class`; `item` is None for a system relation."""

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[Column, ...]
    item: Item | None = None

    def default(self, column: Column) -> str | None:
        """What a column is if nobody says it, as it was written."""
        return self.item.defaults.get(column.name) if self.item is not None else None


def oid_of(item_id: str) -> int:
    return _FIRST.get(item_id) or _FIRST_FREE + int(item_id[1:])


def namespaces(catalog: Catalog, database: str) -> dict[str, int]:
    """The schemas of a database, and their oids."""
    own = (each for each in catalog.schemas.values() if each.database == database)
    return SYSTEM_OIDS | {each.name: oid_of(each.id) for each in own}


def listed(seen: Seen) -> Iterator[Listed]:
    for at, each in enumerate(seen.system):
        oid = _WELL_KNOWN.get(each.name, _FIRST_OURS + at)
        yield Listed(oid, each.schema, each.name, "v", each.columns)
    yield from listed_items(seen)


def listed_items(seen: Seen) -> Iterator[Listed]:
    items = seen.items
    for item in items.values():
        columns = item.columns
        if item.kind not in RELKINDS or (item.kind == "source" and item.shard is None):
            continue
        if item.kind == "index":
            by_name = {column.name: column for column in items[item.depends[0]].columns}
            columns = tuple(by_name[name] for name in item.key)
        yield Listed(oid_of(item.id), item.schema, item.name, RELKINDS[item.kind], columns, item)


class Directory:
    """The relations by their oids and by their names."""

    def __init__(self, seen: Seen):
        self._seen = seen
        everything = list(listed(seen))
        self._by_oid = {each.oid: each for each in everything}
        self._by_name = {(each.schema, each.name): each for each in everything}

    def by_oid(self, oid: int) -> Listed | None:
        return self._by_oid.get(oid)

    def oid(self, text: str) -> int | None:
        """Of the relation that `text` names, or whose oid it is; None if there is none."""
        if text.isdecimal():
            return int(text)
        *schemas, name = split_name(text) or [""]
        if schemas[:-1] not in ([], [self._seen.database]):
            return None
        found = self._found(schemas[-1:] or (*self._seen.searched, "mz_catalog"), name)
        return found.oid if found is not None else None

    def is_visible(self, relation: Listed) -> bool:
        """Whether its name alone finds it."""
        return self._found(self._seen.searched, relation.name) == relation

    def shown_name(self, relation: Listed) -> str:
        """As a regclass prints: with its schema where that is needed."""
        name = quoted(relation.name)
        return name if self.is_visible(relation) else f"{quoted(relation.schema)}.{name}"

    def _found(self, schemas: Iterable[str], name: str) -> Listed | None:
        found = (self._by_name.get((schema, name)) for schema in schemas)
        return next((each for each in found if each is not None), None)


def split_name(text: str) -> list[str]:
    """`Public."A b"` as [`public`, `A b`]; empty for what is no name."""
    found, at = [], 0
    while part := _PART.match(text, at):
        quoted, plain, end = part.groups()
        found.append(quoted.replace('""', '"') if quoted is not None else plain.lower())
        at = part.end()
        if not end:
            return found
    return []
