"""What the state machine of `test_shard` knows: the model, its rows, the processes and their tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from tidemark.persist import (
    Config,
    Lease,
    PersistClient,
    Staged,
    Updates,
    WriteHandle,
)
from tidemark.persist.updates import ERR
from unreliable import RELIABLE, Chances, UnreliableBlob, UnreliableConsensus

MINUTE = 60_000
LEASE_MS = 15 * MINUTE

COLUMNS = (("k", pa.string()), ("v", pa.int64()), ("w", pa.string()))
SCHEMAS = [pa.schema(COLUMNS[:width]) for width in (1, 2, 3)]
KEY = ("k",)

CONFIGS = {
    "inline": Config(
        heartbeat=False,
        audit=1,
        rollup_every=5,
        small_batches=3,
        inline_batches=3,
        inline_bytes=1500,
    ),
    "blobs": Config(heartbeat=False, audit=1, rollup_every=4, small_batches=2, inline_total=0),
    "tiny": Config(
        heartbeat=False,
        audit=1,
        rollup_every=7,
        small_batches=3,
        inline_batches=3,
        inline_total=0,
        part_bytes=100,
        row_group_bytes=50,
        merge_memory=0,
    ),
}

Row = tuple[str | None, int | None, str | None]
Update = tuple[Row, int, int]
BOOM: Row = ("!boom", None, None)
"""Stands for an error row."""

processes = st.sampled_from(sorted(CONFIGS))
rows = st.tuples(
    st.sampled_from([None, "a", "b", "ä", "ä", "!boom"]),
    st.sampled_from([None, 0, 7]),
    st.sampled_from([None, "x"]),
).map(lambda row: BOOM if row[0] == BOOM[0] else row)
batches = st.lists(
    st.tuples(rows, st.integers(0, 2), st.sampled_from([-2, -1, 1, 1, 2])), max_size=4
)
FILTERS = {
    "v > 0": (2, [("v", ">", 0)], lambda row: row[1] is not None and row[1] > 0),
    "k = a": (1, [("k", "=", "a")], lambda row: row[0] == "a"),
    "k >= b or v = 0": (
        2,
        [[("k", ">=", "b")], [("v", "=", 0)]],
        lambda row: (row[0] or "") >= "b" or row[1] == 0,
    ),
    "w != x": (3, [("w", "!=", "x")], lambda row: row[2] not in (None, "x")),
}
TROUBLES = [
    ("consensus", "compare_and_set", "before"),
    *[("consensus", "compare_and_set", "after")] * 6,
    ("consensus", "compare_and_set", "refuse"),
    ("consensus", "scan", "refuse"),
    ("consensus", "truncate", "before"),
    ("blob", "set", "before"),
    ("blob", "set", "after"),
    ("blob", "set", "refuse"),
    ("blob", "open", "refuse"),
    ("blob", "delete", "before"),
    ("blob", "delete", "after"),
    ("blob", "list", "refuse"),
]


CHANCES = [
    RELIABLE,
    Chances(before=0.01, after=0.04, refuse=0.01),
    Chances(before=0.05, after=0.2, refuse=0.05),
]


class Model:
    """What the shard is: so many of each row at each time, complete up to a time."""

    def __init__(self) -> None:
        self.updates: Counter[tuple[Row, int]] = Counter()
        self.upper = 0

    def append(self, updates: list[Update], upper: int) -> None:
        for row, time, diff in updates:
            self.updates[row, time] += diff
        self.upper = upper

    def at(self, as_of: int) -> dict[Row, int]:
        return summed((row, diff) for (row, t), diff in self.updates.items() if t <= as_of)

    def between(self, lower: int, upper: int) -> dict[tuple[Row, int], int]:
        return {u: diff for u, diff in self.updates.items() if lower <= u[1] < upper and diff}

    def since(self, since: int) -> dict[tuple[Row, int], int]:
        """All that can be told apart from `since` on: equal if equal at every readable time."""
        return summed(((row, max(t, since)), diff) for (row, t), diff in self.updates.items())


def summed(pairs) -> dict:
    sums: Counter = Counter()
    for what, diff in pairs:
        sums[what] += diff
    return {what: diff for what, diff in sums.items() if diff}


def tabled(updates: list[Update], schema: pa.Schema) -> pa.Table:
    lines = []
    for row, time, diff in updates:
        good = dict(zip(("k", "v", "w"), row, strict=True)) if row != BOOM else {ERR: "boom"}
        lines.append({name: good.get(name) for name in schema.names} | meta(time, diff))
    return pa.Table.from_pylist(lines, schema)


def meta(time: int, diff: int) -> dict[str, int]:
    return {"_time": time, "_diff": diff}


def listed(table: pa.Table) -> Iterator[Update]:
    for line in table.to_pylist():
        row = (line.get("k"), line.get("v"), line.get("w"))
        yield BOOM if line[ERR] else row, line["_time"], line["_diff"]


def contents(table: pa.Table) -> dict[Row, int]:
    return summed((row, diff) for row, _, diff in listed(table))


def changes(table: pa.Table) -> dict[tuple[Row, int], int]:
    return summed(((row, time), diff) for row, time, diff in listed(table))


def narrowed(batch: list[Update], width: int) -> list[Update]:
    """The rows as a writer of fewer columns has them."""
    cut = lambda row: row if row == BOOM else (*row[:width], *[None] * (3 - width))  # noqa: E731
    return [(cut(row), time, diff) for row, time, diff in batch]


@dataclass
class Process:
    client: PersistClient
    consensus: UnreliableConsensus
    blob: UnreliableBlob
    writer: WriteHandle
    width: int


@dataclass
class Leased:
    """A lease, or a listener with its own; `least` and `most` are when it may expire."""

    lease: Lease
    as_of: int
    least: int
    most: int
    truth: dict[Row, int] | None = None
    steps: Iterator[Updates] | None = None


@dataclass
class Batched:
    data: bytes
    updates: list[Update]

    @property
    def keys(self) -> list[str]:
        return [part.key for part in Staged.from_bytes(self.data).parts if part.key]
