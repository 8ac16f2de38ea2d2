"""The remap shard: which offsets of a source belong to which timestamps.

It is a collection of one row for each partition, the offset up to which the partition is complete;
at every binding rows go and others come. It is readable like any collection, as the source's
progress. Bindings are compacted like anything else, but never contradicted: who wants to bind
again looks at what was bound.

    time 0       (0, 42) (1, 17)      the first binding is at the minimum time
    time 5000    (0, 57) (1, 17)      offsets 42..56 of partition 0 happened at time 5000
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from tidemark.frontier import MIN_TIME, Frontier
from tidemark.persist import Appended, PersistClient, ReadHandle, as_updates
from tidemark.persist.updates import DIFF, TIME
from tidemark.types import BIGINT, INTEGER, Column, arrow_schema

COLUMNS = (Column("partition", INTEGER), Column("offset", BIGINT))

Offsets = Mapping[int, int]
"""By partition, the offset up to which (not including) it is complete; 0 where none is named."""


class Binding(NamedTuple):
    """At `time` the source is complete up to `offsets`."""

    time: int
    offsets: Offsets


def read_offsets(reader: ReadHandle, time: int) -> dict[int, int]:
    """How far a source was at `time`, by its remap shard."""
    rows = reader.snapshot(time)
    found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return dict(sorted(found))


class Remap:
    def __init__(self, client: PersistClient, shard_id: str):
        self.shard_id = shard_id
        self._writer = client.open_writer(shard_id, schema=arrow_schema(COLUMNS))
        self._reader = client.open_reader(shard_id)

    @property
    def upper(self) -> Frontier:
        return self._writer.fetch_upper()

    def offsets_at(self, time: int) -> dict[int, int]:
        """How far the source was at `time`; nothing at all before the first binding."""
        return read_offsets(self._reader, time) if time >= MIN_TIME else {}

    def bindings(self, lower: Frontier, upper: Frontier) -> list[Binding]:
        """Bindings made in [lower, upper), in order; those that bound something new."""
        assert lower.time is not None
        made = self._reader.updates(lower, upper)
        names = (TIME, "partition", "offset", DIFF)
        rows = zip(*(made[name].to_pylist() for name in names), strict=True)
        offsets = self.offsets_at(lower.time - 1)
        found: dict[int, dict[int, int]] = {}
        for time, partition, offset, diff in sorted(rows):
            if diff > 0:
                offsets = {**offsets, partition: offset}
                found[time] = offsets
        return [Binding(time, offsets) for time, offsets in found.items()]

    def mint(self, time: int, offsets: Offsets) -> Frontier:
        """Bind `offsets` at `time`; if someone else has bound meanwhile, theirs stands.

        The first binding is always made at the minimum time, so that the collection never looks
        empty at any readable time. Returns how far the source's time is now decided.
        """
        upper = self.upper
        if upper.time is None:
            return upper
        if not upper.time:
            time = MIN_TIME
        if time < upper.time:
            return upper
        before = self.offsets_at(upper.time - 1)
        moved = {p: o for p, o in offsets.items() if o > before.get(p, -1)}
        gone = {p: before[p] for p in moved if p in before}
        rows = {
            "partition": pa.array([*gone, *moved], pa.int32()),
            "offset": pa.array([*gone.values(), *moved.values()], pa.int64()),
            DIFF: pa.array([-1] * len(gone) + [1] * len(moved), pa.int64()),
        }
        updates = as_updates(pa.table(rows), time=time, schema=self._writer.schema)
        outcome = self._writer.compare_and_append(updates, lower=upper, upper=Frontier(time + 1))
        return Frontier(time + 1) if isinstance(outcome, Appended) else outcome.current
