"""An ingestion: brings a load generator's steps into shards, definitely and exactly once.

    STAGES   mint     bind how many steps have happened by now, in the remap shard
             write    generate exactly the bound steps, at their bound times
             append   append them to each table's shard, cutting off what is already there

Invariants:
    G1  no update is written whose time is not bound durably before
    G2  an update's time depends on its offset and the bindings alone, so a restart (or a second
        ingestion of the same source, racing this one) writes the very same updates
    G3  a shard's upper never passes the remap shard's

So after a crash at any point the ingestion takes each shard's upper, looks up the bindings from
there on, and goes on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemark.clock import Clock
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, UpperMismatch
from tidemark.persist.updates import DIFF, ERR, TIME, updates_schema
from tidemark.storage.generators import Generator
from tidemark.storage.remap import Binding, Remap
from tidemark.types import arrow_schema

MAX_CATCH_UP_MS = 10_000
"""After a pause a generator makes up for at most this much of it."""


class Ingestion:
    """Runs one generator into `shards` (table name to shard id)."""

    def __init__(
        self,
        id_: str,
        generator: Generator,
        *,
        client: PersistClient,
        remap: str,
        shards: dict[str, str],
        tick_ms: int,
        interval_ms: int,
        up_to: int | None = None,
        clock: Clock | None = None,
    ):
        self.id = id_
        self.interval_ms = interval_ms
        self._generator = generator
        self._remap = Remap(client, remap)
        self._client = client
        self._clock = clock or client.clock
        self._tick_ms = tick_ms
        self._up_to = up_to
        self._schemas = {
            table: updates_schema(arrow_schema(spec.columns))
            for table, spec in generator.tables.items()
        }
        self._writers = {
            table: client.open_writer(
                shards[table],
                schema=arrow_schema(spec.columns),
                key=spec.key,
            )
            for table, spec in generator.tables.items()
        }
        self._hold = client.open_critical_since(remap, f"ingestion-{id_}")

    def next_mint_ms(self) -> int:
        """When, by the clock, the next binding is due."""
        upper = self._remap.upper.time or 0
        now = self._clock.now_ms()
        due = now - now % self.interval_ms
        return due if due >= upper else due + self.interval_ms

    def step(self) -> Frontier:
        """Mint a binding if one is due, then write and append all that is bound."""
        upper = self._mint()
        lower = min(writer.fetch_upper() for writer in self._writers.values())
        if lower < upper:
            self._write_and_append(lower, upper)
        return upper

    def _mint(self) -> Frontier:
        upper = self._remap.upper
        assert upper.time is not None
        now = self._clock.now_ms()
        time = now - now % self.interval_ms
        if not upper.time:
            # Step 0 loads what is there from the beginning.
            upper = self._remap.mint(time, 1)
            assert upper.time is not None
        if time < upper.time:
            return upper
        before = self._remap.offset_at(upper.time - 1)
        # Ticks lie on a grid of absolute times, so none is lost between two bindings.
        since = max(upper.time - 1, time - MAX_CATCH_UP_MS)
        if upper.time == 1:
            since = time - self.interval_ms
        offset = before + time // self._tick_ms - since // self._tick_ms
        if self._up_to is not None:
            offset = max(before, min(offset, self._up_to))
        return self._remap.mint(time, offset)

    def _write_and_append(self, lower: Frontier, upper: Frontier) -> None:
        assert lower.time is not None
        start = self._remap.offset_at(lower.time - 1)
        bindings = self._remap.bindings(lower, upper)
        stop = bindings[-1].offset if bindings else start
        updates = self._generator.updates(start, stop)
        for table, writer in self._writers.items():
            batch = _timed(updates[table], bindings, self._schemas[table])
            outcome = writer.append(batch, lower=lower, upper=upper)
            # A gap cannot be: `lower` is the least upper of all, and uppers never go back.
            assert not isinstance(outcome, UpperMismatch), outcome
        if lower.time:
            self._hold.downgrade(Frontier(lower.time - 1))


def _timed(updates: pa.Table, bindings: list[Binding], schema: pa.Schema) -> pa.Table:
    """Offsets turned into the times they are bound to."""
    offsets = np.array([binding.offset for binding in bindings], dtype=np.int64)
    times = np.array([binding.time for binding in bindings], dtype=np.int64)
    at = np.searchsorted(offsets, updates["_offset"].to_numpy(), side="right")
    rows = {name: updates[name] for name in schema.names[:-3]}
    real = pa.array(times[at] if len(times) else np.zeros(0, dtype=np.int64))
    errors = pa.nulls(updates.num_rows, pa.string())
    return pa.table({**rows, TIME: real, DIFF: updates[DIFF], ERR: errors}).cast(schema)
