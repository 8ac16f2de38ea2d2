"""The remap shard: which offsets of a source belong to which timestamps.

It is a collection of one row, the offset up to which the source is complete; at every binding the
old row goes and the new one comes. Bindings are compacted like anything else, but never
contradicted: who wants to bind again looks at what was bound.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemark.frontier import MIN_TIME, Frontier
from tidemark.persist import Appended, PersistClient, as_updates
from tidemark.persist.updates import DIFF, TIME

SCHEMA = pa.schema([pa.field("offset", pa.int64())])


class Binding(NamedTuple):
    """At `time` the source is complete up to (not including) `offset`."""

    time: int
    offset: int


class Remap:
    def __init__(self, client: PersistClient, shard_id: str):
        self.shard_id = shard_id
        self._writer = client.open_writer(shard_id, schema=SCHEMA)
        self._reader = client.open_reader(shard_id)

    @property
    def upper(self) -> Frontier:
        return self._writer.fetch_upper()

    def offset_at(self, time: int) -> int:
        """How far the source was at `time`; nothing at all before the first binding."""
        if time < MIN_TIME:
            return 0
        rows = self._reader.snapshot(time)
        return rows["offset"][0].as_py() if rows.num_rows else 0

    def bindings(self, lower: Frontier, upper: Frontier) -> list[Binding]:
        """Bindings made in [lower, upper), in order."""
        made = self._reader.updates(lower, upper)
        rows = zip(*(made[name].to_pylist() for name in (TIME, "offset", DIFF)), strict=True)
        return sorted(Binding(time, offset) for time, offset, diff in rows if diff > 0)

    def mint(self, time: int, offset: int) -> Frontier:
        """Bind `offset` at `time`; if someone else has bound meanwhile, theirs stands.

        The first binding is always made at the minimum time, so that the collection never looks
        empty at any readable time. Returns how far the source's time is now decided.
        """
        upper = self.upper
        assert upper.time is not None
        if not upper.time:
            time = MIN_TIME
        if time < upper.time:
            return upper
        before = self.offset_at(upper.time - 1)
        if offset <= before:
            updates = self._writer.schema.empty_table()
        else:
            rows = {"offset": [offset], DIFF: [1]}
            if upper.time:
                rows = {"offset": [before, offset], DIFF: [-1, 1]}
            updates = as_updates(pa.table(rows), time=time, schema=self._writer.schema)
        outcome = self._writer.compare_and_append(updates, lower=upper, upper=Frontier(time + 1))
        return Frontier(time + 1) if isinstance(outcome, Appended) else outcome.current
