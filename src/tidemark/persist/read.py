"""Reading a shard: all of it at one time, or what changed between two times.

A read at `as_of` is exact if since <= as_of < upper; it waits for the upper and fails below the
since. A handle reads the newest state it needs; if compaction replaces a part while it reads,
it looks at the state again, which holds the same updates in another part.

    snapshot(as_of)        everything up to as_of, summed up
    updates(lower, upper)  what happened in between
    listen(as_of)          what happens after as_of, as it happens
    subscribe(as_of)       the snapshot, then listen

A handle may read some `columns` only, and rows that pass a `filter` (see `filters`): parts that
cannot matter are not fetched. Iterators hold a lease, so what they have still to read stays
readable; each has an async twin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import NamedTuple

import pyarrow as pa

from tidemark.errors import Cancelled, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import filters
from tidemark.persist.filters import Filter
from tidemark.persist.holds import Lease, Leases, check_as_of, check_time
from tidemark.persist.machine import Machine
from tidemark.persist.part import MissingPart, read_chunks
from tidemark.persist.regroup import by_key
from tidemark.persist.runs import in_order, schema_of, split_runs, stream_runs
from tidemark.persist.source import PartSource
from tidemark.persist.state import Part, State
from tidemark.persist.updates import META_FIELDS, advance, between, concat, consolidate
from tidemark.persist.watch import Watch

_ATTEMPTS = 10


class Updates(NamedTuple):
    """Everything that happened in [lower, upper); `table` may be unconsolidated."""

    lower: Frontier
    upper: Frontier
    table: pa.Table


class ReadHandle:
    """Reads one shard. Holds nothing back by itself: pair it with a `SinceHandle` or a lease."""

    def __init__(
        self,
        machine: Machine,
        parts: PartSource,
        watch: Watch,
        leases: Leases,
        *,
        columns: list[str] | None = None,
        filter: Filter | None = None,
    ):
        self.shard_id = machine.shard_id
        self._machine = machine
        self._parts = parts
        self._watch = watch
        self._leases = leases
        self._columns = columns
        self._filter = filter

    @property
    def since(self) -> Frontier:
        return self._machine.refresh().since

    @property
    def upper(self) -> Frontier:
        return self._machine.seen().upper

    @property
    def schema(self) -> pa.Schema:
        """The newest schema of the updates that this handle reads; known from the first write."""
        state = self._machine.cached
        if not state.schemas:
            state = self._machine.refresh()
        if not state.schemas:
            raise InvalidUsage(f"shard {self.shard_id} is empty: nothing was ever appended to it")
        return projected(schema_of(state), self._columns)

    def wait_for_upper_past(self, time: int, *, timeout: float | None = None) -> Frontier | None:
        """Block until `time` is complete; None if `timeout` seconds passed first."""
        cached = self._machine.cached.upper
        if cached.covers(time):
            return cached
        return self._watch.wait_for(self.shard_id, self._reached(time), timeout)

    async def wait_for_upper_past_async(
        self, time: int, *, timeout: float | None = None
    ) -> Frontier | None:
        return await self._watch.wait_for_async(self.shard_id, self._reached(time), timeout)

    def snapshot(self, as_of: int, *, timeout: float | None = None) -> pa.Table:
        """The collection at `as_of`, consolidated, every time moved up to it."""
        self._await(as_of, timeout)

        def read(state: State) -> pa.Table:
            check_as_of(state, as_of)
            found = self._read(state, Frontier.MIN, Frontier(as_of + 1))
            return consolidate(advance(found, as_of))

        return self._stable(read)

    async def snapshot_async(self, as_of: int, *, timeout: float | None = None) -> pa.Table:
        check_time(self.shard_id, as_of)
        check_as_of(self._machine.cached, max(as_of, 0))
        await self.wait_for_upper_past_async(as_of, timeout=timeout)
        return await asyncio.to_thread(self.snapshot, as_of, timeout=0)

    def stream(self, as_of: int) -> Iterator[pa.Table]:
        """The snapshot in consolidated pieces, in bounded memory; whole rows, unfiltered."""
        self._await(as_of, None)
        with self.lease(as_of) as lease:
            merged = stream_runs(
                self._parts.blob,
                lease.state,
                split_runs(lease.batches()),
                horizon=as_of,
                until=as_of + 1,
                config=self._machine.config,
            )
            yield from _while_held(lease, merged)

    def stream_parts(self, as_of: int) -> Iterator[pa.Table]:
        """The same as updates up to `as_of`, as they are stored: unsorted, and not summed up."""
        self._await(as_of, None)
        with self.lease(as_of) as lease:
            yield from self._stored(lease, Frontier.MIN, Frontier(as_of + 1))

    def stream_keys(
        self, as_of: int, prepare: Callable[[pa.Table], pa.Table], size: int
    ) -> Iterator[pa.Table]:
        """The same `prepare`d, which adds the hashes of the shard's key, and regrouped so that all
        of a key comes together in a piece of about `size` bytes, if it fits in."""
        self._await(as_of, None)
        with self.lease(as_of) as lease:
            streams = in_order(
                self._parts.blob,
                lease.state,
                split_runs(lease.batches()),
                until=as_of + 1,
                config=self._machine.config,
            )
            prepared = (map(prepare, stream) for stream in streams)
            yield from _while_held(lease, by_key(prepared, size))

    def updates(self, lower: Frontier, upper: Frontier) -> pa.Table:
        """What happened in [lower, upper), unconsolidated. `upper` must have been reached.

        Reading from the minimum time is always possible: what happened before since comes at
        since, or (not compacted yet) somewhere before it.
        """
        self._check_reached(upper)
        return self._stable(lambda state: self._changes(state, lower, upper), cached=True)

    def stream_updates(self, lower: Frontier, upper: Frontier) -> Iterator[pa.Table]:
        """The same a part at a time, in bounded memory; whole rows, unfiltered."""
        self._check_reached(upper)
        with self.lease(lower.time - 1 if lower.time else None) as lease:
            yield from self._stored(lease, lower, upper)

    def listen(self, as_of: int, *, timeout: float | None = None) -> Iterator[Updates]:
        """Updates and progress strictly after `as_of`; ends with the shard or with the client.

        With a `timeout` it yields an empty step whenever that many seconds bring no progress, so
        that the caller can look up from its work.
        """
        return self._follow(self.hold(as_of), as_of, timeout)

    def subscribe(self, as_of: int, *, timeout: float | None = None) -> Iterator[Updates]:
        """The collection at `as_of` as the first step, then everything after it."""
        return self._begin(self.hold(as_of), as_of, timeout)

    async def listen_async(
        self, as_of: int, *, timeout: float | None = None
    ) -> AsyncGenerator[Updates]:
        """The same as an async iterator; `aclosing` it gives its lease up at once."""
        lease = await asyncio.to_thread(self.hold, as_of)
        try:
            lower = Frontier(as_of + 1)
            while lower.time is not None:
                upper = await self.wait_for_upper_past_async(lower.time, timeout=timeout)
                if upper is None and self._watch.closed:
                    return
                yield await asyncio.to_thread(self._step, lease, lower, upper)
                lower = upper or lower
        finally:
            await asyncio.to_thread(lease.release)

    async def subscribe_async(
        self, as_of: int, *, timeout: float | None = None
    ) -> AsyncGenerator[Updates]:
        lease = await asyncio.to_thread(self.hold, as_of)
        try:
            while await self.wait_for_upper_past_async(as_of, timeout=timeout) is None:
                if self._watch.closed:
                    return
                yield await asyncio.to_thread(self._step, lease, Frontier.MIN, None)
            yield Updates(Frontier.MIN, Frontier(as_of + 1), await self.snapshot_async(as_of))
            async with aclosing(self.listen_async(as_of, timeout=timeout)) as steps:
                async for step in steps:
                    yield step
        finally:
            await asyncio.to_thread(lease.release)

    def lease(self, as_of: int | None = None) -> Lease:
        """Pin the shard's parts and its since while someone else reads them: a Spark job, say.

        It is renewed in the background until it is released or this process ends.
        """
        return self._leases.take(self._machine, as_of, parts=True, purpose="read")

    def adopt(self, given: bytes) -> Lease:
        """The lease of another process, by its name. Detach it when done, do not release it."""
        return self._leases.adopt(self._machine, given)

    def hold(self, as_of: int | None = None) -> Lease:
        """Pin the shard's since alone: what comes after `as_of` stays apart from what was before,
        in whatever parts."""
        return self._leases.take(self._machine, as_of, parts=False, purpose="listen")

    def _follow(self, lease: Lease, as_of: int, timeout: float | None) -> Iterator[Updates]:
        with lease:
            lower = Frontier(as_of + 1)
            while lower.time is not None:
                upper = self.wait_for_upper_past(lower.time, timeout=timeout)
                if upper is None and self._watch.closed:
                    return
                yield self._step(lease, lower, upper)
                lower = upper or lower

    def _begin(self, lease: Lease, as_of: int, timeout: float | None) -> Iterator[Updates]:
        with lease:
            while self.wait_for_upper_past(as_of, timeout=timeout) is None:
                if self._watch.closed:
                    return
                yield self._step(lease, Frontier.MIN, None)
            yield Updates(Frontier.MIN, Frontier(as_of + 1), self.snapshot(as_of))
            yield from self._follow(lease, as_of, timeout)

    def _step(self, lease: Lease, lower: Frontier, upper: Frontier | None) -> Updates:
        """What came, and then the lease may follow: to the last time that was read, as the next
        step must still tell that from what comes after."""
        if upper is None:
            lease.check()
            return Updates(lower, lower, self.schema.empty_table())
        # The lease keeps this readable, so that a state seen a moment ago will do.
        found = self._stable(lambda state: self._changes(state, lower, upper), cached=True)
        if upper.time is not None:
            lease.downgrade(Frontier(upper.time - 1))
        return Updates(lower, upper, found)

    def _reached(self, time: int) -> Callable[[], Frontier | None]:
        def reached() -> Frontier | None:
            upper = self._machine.seen().upper
            return upper if upper.covers(time) else None

        return reached

    def _check_reached(self, upper: Frontier) -> None:
        reached = self.upper
        if not upper <= reached:
            raise InvalidUsage(f"shard {self.shard_id} is complete to {reached}, not {upper}")

    def _await(self, as_of: int, timeout: float | None) -> None:
        check_time(self.shard_id, as_of)
        if as_of < 0:
            raise InvalidUsage(f"shard {self.shard_id}: there is no time {as_of}")
        check_as_of(self._machine.cached, as_of)
        if self.wait_for_upper_past(as_of, timeout=timeout) is not None:
            return
        if self._watch.closed:
            raise Cancelled(f"the client was closed while shard {self.shard_id} was awaited")
        raise Cancelled(
            f"shard {self.shard_id} did not reach time {as_of} within {timeout} s: "
            f"it is complete to {self.upper}"
        )

    def _read(self, state: State, lower: Frontier, upper: Frontier) -> pa.Table:
        if not state.schemas:
            # Progress without data: there are no rows, and nobody knows of what kind.
            return pa.schema(META_FIELDS).empty_table()
        schema = schema_of(state)
        shape = projected(schema, self._columns)
        clauses = filters.clauses(self._filter, schema) if self._filter else None
        low, high = lower.time, upper.time
        if low is None:
            return shape.empty_table()
        tables = []
        for part in overlapping(state, lower, upper):
            table = self._parts.read(part, schema, columns=self._columns, clauses=clauses)
            if part.min_time < low or (high is not None and part.max_time >= high):
                table = between(table, low, high)
            tables.append(table)
        return concat(tables, shape)

    def _stored(self, lease: Lease, lower: Frontier, upper: Frontier) -> Iterator[pa.Table]:
        state = lease.state
        for part in overlapping(state, lower, upper):
            chunks = read_chunks(self._parts.blob, part, schema_of(state))
            for chunk in _while_held(lease, chunks):
                yield between(chunk, lower.time or 0, upper.time)

    def _changes(self, state: State, lower: Frontier, upper: Frontier) -> pa.Table:
        # From the minimum on there is nothing to tell apart: it is all the updates there are.
        if lower.time or state.since.is_empty:
            check_as_of(state, max((lower.time or 0) - 1, 0))
        return self._read(state, lower, upper)

    def _stable(self, read: Callable[[State], pa.Table], *, cached: bool = False) -> pa.Table:
        for attempt in range(_ATTEMPTS):
            try:
                return read(self._machine.cached if cached else self._machine.refresh())
            except MissingPart:
                cached = False
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def _while_held(lease: Lease, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    try:
        yield from tables
    except MissingPart:
        lease.renew()  # Says so, if the reader was so slow that its lease has ended.
        raise


def overlapping(state: State, lower: Frontier, upper: Frontier) -> Iterator[Part]:
    """The parts that hold updates in [lower, upper)."""
    if lower.time is not None:
        for part in state.parts:
            if part.max_time >= lower.time and upper.covers(part.min_time):
                yield part


def projected(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise InvalidUsage(
            f"no such columns: {', '.join(unknown)}", hint=f"columns: {', '.join(schema.names)}"
        )
    names = [*columns, *(f.name for f in META_FIELDS if f.name not in columns)]
    return pa.schema([schema.field(name) for name in names])
