"""The catalog: what exists. Itself a shard, one row per object, written by one leader at a time.

Its time is a counter of its own: every change is one append at the shard's upper, so a second
leader's first append makes every later one of the first leader's fail.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pyarrow as pa

from tidemark.compute.plan import Get, Plan
from tidemark.compute.protocol import SourceSpec
from tidemark.control.connections import Target, Uses
from tidemark.errors import AsOfBeforeSince, Fenced, SqlError
from tidemark.frontier import Frontier
from tidemark.persist import CRITICAL, DIFF, PersistClient, UpperMismatch, as_updates
from tidemark.storage.kafka.spec import KafkaSink, KafkaSource
from tidemark.types import Column

SHARD, LOG_SHARD = "catalog", "txns"
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("definition", pa.string())])
LEADER = "leader"

_OURS = re.compile(rf"{SHARD}|{LOG_SHARD}|u\d+(-.*)?")


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
    of a relation of its progress; `uses` are the connections of a source or sink."""

    id: str
    name: str
    kind: Kind
    sql: str
    columns: tuple[Column, ...] = ()
    shard: str | None = None
    depends: tuple[str, ...] = ()
    plan: Plan | None = None
    as_of: int = 0
    source: SourceSpec | KafkaSource | None = None
    sink: KafkaSink | None = None
    uses: Uses | None = None
    connection: Target | None = None
    parent: str | None = None

    @property
    def get(self) -> Get:
        return Get(self.id, self.columns)

    @property
    def runs_as(self) -> str:
        """The id of what does its work on a cluster."""
        return self.sink.id if self.sink is not None else self.parent or self.id

    @property
    def kind_name(self) -> str:
        """As SQL calls it."""
        return self.kind.replace("-", " ")


class Catalog:
    def __init__(self, client: PersistClient):
        self._writer = client.open_writer(SHARD, schema=SCHEMA)
        self._hold = client.open_critical_since(SHARD, CRITICAL)
        self.epoch = self._lead(client)

    def named(self, name: str) -> Item | None:
        return next((item for item in self.items.values() if item.name == name), None)

    def next_ids(self, count: int = 1) -> list[str]:
        """Fresh ids; never given out twice, not even after a drop."""
        last = int(self._rows.get("last_id", "0"))
        self._change({"last_id": str(last + count)})
        return [f"u{last + 1 + i}" for i in range(count)]

    def add(self, *items: Item) -> None:
        for item in items:
            if (found := self.named(item.name)) is not None:
                raise exists(found)
        self._change({item.id: msgspec.json.encode(item).decode() for item in items})

    def remove(self, ids: list[str]) -> None:
        self._change(dict.fromkeys(ids))

    def dependents(self, id_: str) -> list[Item]:
        """What reads `id_`, directly, and a source's subsources' readers."""
        parts = {id_} | {item.id for item in self.items.values() if item.parent == id_}
        return [item for item in self.items.values() if parts & set(item.depends)]

    def _lead(self, client: PersistClient) -> int:
        """Taking the lead is a change like any other: it fences out who led before."""
        while True:
            self._rows, self._upper = _rows(client)
            epoch = int(self._rows.get(LEADER, "0")) + 1
            try:
                self._change({LEADER: str(epoch)})
                return epoch
            except Fenced:
                # Who led before has just changed something: it has to be read, too.
                continue

    def _change(self, rows: dict[str, str | None]) -> None:
        """Put or (None) delete rows, durably, all or none."""
        old = {id_: self._rows[id_] for id_ in rows if id_ in self._rows}
        new = {id_: text for id_, text in rows.items() if text is not None}
        table = pa.table(
            {
                "id": pa.array([*old, *new], pa.string()),
                "definition": pa.array([*old.values(), *new.values()], pa.string()),
                DIFF: pa.array([-1] * len(old) + [1] * len(new), pa.int64()),
            }
        )
        assert self._upper.time is not None
        time = self._upper.time
        upper = Frontier(time + 1)
        outcome = self._writer.compare_and_append(
            as_updates(table, time=time, schema=self._writer.schema), lower=self._upper, upper=upper
        )
        if isinstance(outcome, UpperMismatch):
            raise Fenced(
                "another control process has taken over; nothing was changed",
                hint="stop this process, or the other one",
            )
        self._upper = upper
        self._rows = {id_: text for id_, text in {**self._rows, **rows}.items() if text is not None}
        self.items = _items(self._rows)
        self._hold.downgrade(Frontier(time))


def exists(item: Item) -> SqlError:
    kind = item.kind if item.kind in UNREADABLE else "relation"
    return SqlError(f'{kind} "{item.name}" already exists', sqlstate="42P07")


def read_items(client: PersistClient) -> dict[str, Item]:
    """The objects that exist now, for someone who only reads (a Spark job, a tool)."""
    return _items(_rows(client)[0])


def _rows(client: PersistClient) -> tuple[dict[str, str], Frontier]:
    """All rows, and the upper up to which that is all."""
    reader = client.open_reader(SHARD)
    while True:
        upper = reader.upper
        if not upper.time:
            return {}, upper
        try:
            rows = reader.snapshot(upper.time - 1)
        except AsOfBeforeSince:
            continue  # The leader has changed something, and forgotten what was before.
        found = zip(rows["id"].to_pylist(), rows["definition"].to_pylist(), strict=True)
        return dict(found), upper


def _items(rows: dict[str, str]) -> dict[str, Item]:
    found = [
        msgspec.json.decode(text, type=Item)
        for id_, text in rows.items()
        if id_ not in (LEADER, "last_id")
    ]
    return {item.id: item for item in sorted(found, key=lambda item: int(item.id[1:]))}
