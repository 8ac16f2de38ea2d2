"""Reading a shard: all of it at one time, or what changed between two times.

A read at `as_of` is exact if since <= as_of < upper; it waits for the upper and fails below the
since. A handle reads the newest state it needs; if compaction replaces a part while it reads,
it looks at the state again, which holds the same updates in another part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from tidemark.errors import AsOfBeforeSince, Cancelled, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import state as commands
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart
from tidemark.persist.source import PartSource
from tidemark.persist.state import Batch, EpochMismatch, Hold, State
from tidemark.persist.updates import advance, between, concat, consolidate
from tidemark.persist.watch import Watch

LEASE_MS = 15 * 60 * 1000
_ATTEMPTS = 10


class Updates(NamedTuple):
    """Everything that happened in [lower, upper); `table` may be unconsolidated."""

    lower: Frontier
    upper: Frontier
    table: pa.Table


class ReadHandle:
    """Reads one shard. Holds nothing back by itself: pair it with a `SinceHandle` or a lease."""

    def __init__(self, machine: Machine, parts: PartSource, watch: Watch):
        self.shard_id = machine.shard_id
        self._machine = machine
        self._parts = parts
        self._watch = watch

    @property
    def since(self) -> Frontier:
        return self._machine.refresh().since

    @property
    def upper(self) -> Frontier:
        return self._machine.refresh().upper

    @property
    def schema(self) -> pa.Schema:
        """Schema of the updates; known from the first append on."""
        encoded = self._machine.cached.schema or self._machine.refresh().schema
        if encoded is None:
            raise InvalidUsage(f"shard {self.shard_id} is empty: nothing was ever appended to it")
        return pa.ipc.read_schema(pa.py_buffer(encoded))

    def wait_for_upper_past(self, time: int, *, timeout: float | None = None) -> Frontier | None:
        """Block until `time` is complete; None if `timeout` seconds passed first."""

        def reached() -> Frontier | None:
            upper = self._machine.refresh().upper
            return upper if upper.covers(time) else None

        cached = self._machine.cached.upper
        return cached if cached.covers(time) else self._watch.wait_for(reached, timeout)

    def snapshot(self, as_of: int, *, columns: list[str] | None = None) -> pa.Table:
        """The collection at `as_of`, consolidated, every time moved up to it."""
        if self.wait_for_upper_past(as_of) is None:
            raise Cancelled(f"the client was closed while shard {self.shard_id} was awaited")

        def read(state: State) -> pa.Table:
            check_as_of(state, as_of)
            found = self._read(state.batches, Frontier.MIN, Frontier(as_of + 1))
            if columns is not None:
                found = found.select([*columns, *found.column_names[-3:]])
            return consolidate(advance(found, as_of))

        return self._stable(read)

    def updates(self, lower: Frontier, upper: Frontier) -> pa.Table:
        """What happened in [lower, upper), unconsolidated. `upper` must have been reached.

        Reading from the minimum time is always possible: what happened before since comes at
        since, or (not compacted yet) somewhere before it.
        """
        return self._stable(lambda state: self._changes(state, lower, upper))

    def listen(self, as_of: int, *, timeout: float | None = None) -> Iterator[Updates]:
        """Updates and progress strictly after `as_of`; ends with the shard or with the client.

        With a `timeout` it yields an empty step whenever that many seconds bring no progress, so
        that the caller can look up from its work.
        """
        lower = Frontier(as_of + 1)
        while not lower.is_empty:
            assert lower.time is not None
            upper = self.wait_for_upper_past(lower.time, timeout=timeout)
            if upper is None and self._watch.closed:
                return
            if upper is None:
                yield Updates(lower, lower, self.schema.empty_table())
                continue
            found = self.updates(lower, upper)
            yield Updates(lower, upper, found)
            lower = upper

    def lease(self, as_of: int | None = None) -> Lease:
        """Pin the shard's parts and its since while someone else reads them (a Spark job)."""
        hold_id = f"lease-{uuid4().hex}"
        clock = self._machine.clock
        since = Frontier(as_of) if as_of is not None else Frontier.MIN
        self._machine.apply(
            lambda state: commands.set_hold(
                state,
                hold_id,
                Hold(since, expires_ms=clock.now_ms() + LEASE_MS),
                now_ms=clock.now_ms(),
            )
        )
        return Lease(self._machine, hold_id, as_of)

    def _changes(self, state: State, lower: Frontier, upper: Frontier) -> pa.Table:
        if not upper <= state.upper:
            raise InvalidUsage(f"shard {self.shard_id} is complete to {state.upper}, not {upper}")
        # From the minimum time on there is nothing to tell apart: it is all the updates there are.
        if lower.time or state.since.is_empty:
            check_as_of(state, max((lower.time or 0) - 1, 0))
        return self._read(state.batches, lower, upper)

    def _read(self, batches: tuple[Batch, ...], lower: Frontier, upper: Frontier) -> pa.Table:
        low, high = lower.time, upper.time
        if low is None:
            return self.schema.empty_table()
        tables = []
        for batch in batches:
            for part in batch.parts:
                if part.max_time < low or (high is not None and part.min_time >= high):
                    continue
                table = self._parts.read(part, self.schema)
                if part.min_time < low or (high is not None and part.max_time >= high):
                    table = between(table, low, high)
                tables.append(table)
        return concat(tables, self.schema) if self._machine.cached.schema else pa.table({})

    def _stable(self, read) -> pa.Table:
        for attempt in range(_ATTEMPTS):
            try:
                return read(self._machine.refresh())
            except MissingPart:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


class Lease:
    """A leased read: while it lives, the parts it lists stay where they are."""

    def __init__(self, machine: Machine, hold_id: str, as_of: int | None):
        self._machine = machine
        self._hold_id = hold_id
        self.as_of = as_of

    def batches(self) -> tuple[Batch, ...]:
        state = self._machine.cached
        if self.as_of is not None:
            check_as_of(state, self.as_of)
        return state.batches

    def renew(self) -> None:
        """Keep it for another `LEASE_MS`; an error if it ended, as its parts may be gone."""
        clock = self._machine.clock

        def renewed(state: State) -> tuple[State, object]:
            now_ms = clock.now_ms()
            known = state.holds.get(self._hold_id)
            if known is None or (known.expires_ms or 0) < now_ms:
                return state, None
            hold = Hold(known.since, expires_ms=now_ms + LEASE_MS)
            return commands.set_hold(state, self._hold_id, hold, now_ms=now_ms)

        if self._machine.apply(renewed) is None:
            raise Unavailable(
                f"a lease on shard {self._machine.shard_id} has expired",
                hint="take a new lease and read again",
            )

    def release(self) -> None:
        self._machine.apply(lambda state: commands.release_hold(state, self._hold_id))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SinceHandle:
    """A durable, named claim on a shard's since, fenced by an epoch. Survives its process."""

    def __init__(self, machine: Machine, hold_id: str, epoch: int):
        self._machine = machine
        self._hold_id = hold_id
        self._epoch = epoch

    def downgrade(self, since: Frontier) -> Frontier | EpochMismatch:
        """Allow compaction up to `since`; returns where the hold now is."""
        return self._machine.apply(
            lambda state: commands.set_hold(
                state,
                self._hold_id,
                Hold(since, self._epoch),
                now_ms=self._machine.clock.now_ms(),
            )
        )

    def release(self) -> None:
        self._machine.apply(
            lambda state: commands.release_hold(state, self._hold_id, epoch=self._epoch)
        )


def check_as_of(state: State, as_of: int) -> None:
    if not state.since <= Frontier(as_of):
        raise AsOfBeforeSince(
            f"shard {state.shard_id} can be read from time {state.since} on, not at {as_of}",
            hint="read at a later time, or retain more history",
        )
