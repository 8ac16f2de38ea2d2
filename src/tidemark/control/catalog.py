"""The catalog: what exists. Itself a shard, one row per object, written by one leader at a time."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tidemark.compute.plan import Get, Plan
from tidemark.control.connections import Target, Uses
from tidemark.errors import SqlError
from tidemark.persist import PersistClient
from tidemark.storage.definitions import Definitions, read_definitions
from tidemark.types import Column

SHARD, STORAGE_SHARD, LOG_SHARD = "catalog", "storage", "txns"
LAST_ID = "last_id"

_OURS = re.compile(rf"{SHARD}|{STORAGE_SHARD}|{LOG_SHARD}|u\d+(-.*)?")


def is_ours(shard_id: str) -> bool:
    """Whether the server makes shards of such a name; all others are left alone."""
    return _OURS.fullmatch(shard_id) is not None


Kind = Literal[
    "table",
    "source",
    "subsource",
    "progress",
    "view",
    "materialized-view",
    "connection",
    "secret",
    "sink",
]
UNREADABLE = ("connection", "secret", "sink")


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object. `depends` are ids of what it needs; `parent` is the source of a subsource, or
    of a relation of its progress; `uses` are the connections of a source or sink. What flows into
    a source and out of a sink is STORAGE's to know, by the id `work` or the object's own.
    `keys` are sets of columns, by place, of which no two rows have the same. `owners` are the
    views that a view's fragments are named after (`compute/view.py`)."""

    id: str
    name: str
    kind: Kind
    sql: str
    columns: tuple[Column, ...] = ()
    keys: tuple[tuple[int, ...], ...] = ()
    shard: str | None = None
    depends: tuple[str, ...] = ()
    plan: Plan | None = None
    as_of: int = 0
    work: str | None = None
    uses: Uses | None = None
    connection: Target | None = None
    parent: str | None = None
    owners: dict[str, str] = {}

    @property
    def get(self) -> Get:
        return Get(self.id, self.columns, self.keys)

    @property
    def runs_as(self) -> str:
        """The id of what does its work on a cluster."""
        return self.work or self.parent or self.id

    @property
    def kind_name(self) -> str:
        """As SQL calls it."""
        return self.kind.replace("-", " ")


class Catalog:
    """The objects, as this leader has made them; another's first change is this one's last."""

    def __init__(self, client: PersistClient):
        self._definitions = Definitions(client, SHARD)
        self.epoch = self._definitions.epoch
        self.items = _items(self._definitions.rows)

    def named(self, name: str) -> Item | None:
        return next((item for item in self.items.values() if item.name == name), None)

    def next_ids(self, count: int = 1) -> list[str]:
        """Fresh ids; never given out twice, not even after a drop."""
        last = int(self._definitions.rows.get(LAST_ID, "0"))
        self._definitions.change({LAST_ID: str(last + count)})
        return [f"u{last + 1 + i}" for i in range(count)]

    def add(self, *items: Item, instead_of: Item | None = None) -> None:
        for item in items:
            if (found := self.named(item.name)) not in (None, instead_of):
                raise exists(found)
        gone: dict[str, str | None] = {instead_of.id: None} if instead_of is not None else {}
        self._change(gone | {item.id: msgspec.json.encode(item).decode() for item in items})

    def remove(self, ids: list[str]) -> None:
        self._change(dict.fromkeys(ids))

    def dependents(self, id_: str) -> list[Item]:
        """What reads `id_`, directly, and a source's subsources' readers."""
        parts = {id_} | {item.id for item in self.items.values() if item.parent == id_}
        return [item for item in self.items.values() if parts & set(item.depends)]

    def _change(self, rows: dict[str, str | None]) -> None:
        self._definitions.change(rows)
        self.items = _items(self._definitions.rows)


def exists(item: Item) -> SqlError:
    kind = item.kind if item.kind in UNREADABLE else "relation"
    return SqlError(f'{kind} "{item.name}" already exists', sqlstate="42P07")


def read_items(client: PersistClient) -> dict[str, Item]:
    """The objects that exist now, for someone who only reads (a Spark job, a tool)."""
    return _items(read_definitions(client, SHARD))


def _items(rows: dict[str, str]) -> dict[str, Item]:
    found = [msgspec.json.decode(text, type=Item) for id_, text in rows.items() if id_ != LAST_ID]
    return {item.id: item for item in sorted(found, key=lambda item: int(item.id[1:]))}
