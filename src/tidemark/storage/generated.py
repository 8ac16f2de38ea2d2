"""A load generator as an upstream: one partition, whose offsets are the generator's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidemark.persist import WriteHandle
from tidemark.persist.updates import DIFF, ERR, TIME
from tidemark.storage.generators import Generator
from tidemark.storage.remap import Binding, Offsets
from tidemark.storage.source import Batch, Counts, Output, Statistics, Stretch
from tidemark.types import arrow_schema

MAX_CATCH_UP_MS = 10_000
"""After a pause a generator makes up for at most this much of it."""


class Generated:
    """A step every `tick_ms`, up to step `up_to` if given."""

    def __init__(self, generator: Generator, *, tick_ms: int, up_to: int | None = None):
        self.outputs = {
            name: Output(arrow_schema(spec.columns), spec.key)
            for name, spec in generator.tables.items()
        }
        self._generator = generator
        self._tick_ms = tick_ms
        self._up_to = up_to

    def probe(self, bound: Offsets, since: int, now: int) -> Offsets:
        if not bound:
            return {0: 1}  # Step 0 loads what is there from the beginning.
        # Ticks lie on a grid of absolute times, so none is lost between two bindings. What is
        # bound at the minimum time was bound just before.
        since = max(since, now - MAX_CATCH_UP_MS) if since else now
        offset = bound[0] + now // self._tick_ms - since // self._tick_ms
        if self._up_to is not None:
            offset = max(bound[0], min(offset, self._up_to))
        return {0: offset}

    def write(
        self, stretch: Stretch, writers: Mapping[str, WriteHandle], statistics: Statistics
    ) -> Mapping[str, Batch]:
        start, stop = stretch.start.get(0, 0), stretch.stop.get(0, 0)
        updates = self._generator.updates(start, stop)
        statistics.messages_received += stop - start
        timed = {
            name: _timed(updates[name], stretch.bindings, writer.schema)
            for name, writer in writers.items()
        }
        return {name: Batch(table, Counts.of(table)) for name, table in timed.items()}

    def close(self) -> None:
        pass


def _timed(updates: pa.Table, bindings: Sequence[Binding], schema: pa.Schema) -> pa.Table:
    """Offsets turned into the times they are bound to."""
    offsets = np.array([binding.offsets[0] for binding in bindings], dtype=np.int64)
    times = np.array([binding.time for binding in bindings], dtype=np.int64)
    at = np.searchsorted(offsets, updates["_offset"].to_numpy(), side="right")
    rows = {name: updates[name] for name in schema.names[:-3]}
    real = pa.array(times[at] if len(times) else np.zeros(0, dtype=np.int64))
    errors = pa.nulls(updates.num_rows, pa.string())
    return pa.table({**rows, TIME: real, DIFF: updates[DIFF], ERR: errors}).cast(schema)
