"""One timeline: its oracle, its group commit, and the read holds of running statements.

The oracle is the tables' commit log. Its upper is durable and only grows; the last time before it
is the read timestamp of strict serializable reads. Every second, on the second, the log is
advanced even if nobody writes, so that reads keep up with the sources, which mint their times on
the same seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import structlog

from tidemark.clock import Clock
from tidemark.errors import Fenced, SqlError, TidemarkError, Unavailable
from tidemark.storage.tables import Tables, Write

log = structlog.get_logger("timeline")

HEARTBEAT_MS = 1_000
MAX_BATCH = 1_000
DROPPED = SqlError("a table that this writes to was dropped; nothing was written", sqlstate="42P01")


class Timeline:
    """All writes go through one committer; blind writes that wait together commit together."""

    def __init__(self, tables: Tables, clock: Clock):
        self.tables = tables
        self._clock = clock
        self._queue: asyncio.Queue[tuple[list[Write], asyncio.Future[int]]] = asyncio.Queue()
        self._exclusive = asyncio.Lock()
        # One thread: the log and the catalog are written by one hand.
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._task: asyncio.Task | None = None
        self._failed: TidemarkError | None = None
        self.lost = asyncio.Event()

    @property
    def read_ts(self) -> int:
        """The oracle's read timestamp: every acknowledged write is at or before it."""
        upper = self.tables.upper.time
        assert upper
        return upper - 1

    def start(self) -> None:
        self._task = asyncio.create_task(self._commit_loop(), name="group-commit")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.executor.shutdown(wait=True)

    async def write(self, writes: list[Write]) -> int:
        """Commit blind writes, grouped with whatever else is waiting."""
        async with self._exclusive:
            done = self._enqueue(writes)
        return await asyncio.shield(done)

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[Timeline]:
        """No other write happens between a read in here and the write that follows it."""
        await self._exclusive.acquire()
        try:
            await self._queue.join()
            yield self
        finally:
            self._exclusive.release()

    async def write_exclusively(self, writes: list[Write]) -> int:
        """Commit inside `exclusively`."""
        return await asyncio.shield(self._enqueue(writes))

    async def run(self, function, *args):
        """Run something that changes what the committer looks after, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, function, *args)

    def _enqueue(self, writes: list[Write]) -> asyncio.Future[int]:
        if self._failed is not None:
            raise self._failed
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((writes, done))
        return done

    async def _commit_loop(self) -> None:
        while True:
            batch = await self._next_batch()
            try:
                time, refused = await self.run(self._commit, [group for group, _ in batch])
            except Exception as error:
                self._settle(batch, error)
                if isinstance(error, Fenced):
                    self._failed = error
                    self.lost.set()
                    return
                if not batch:
                    log.warning("heartbeat failed, will try again", error=str(error))
                    await asyncio.sleep(0.5)
                continue
            self._settle([one for one, no in zip(batch, refused, strict=True) if no], DROPPED)
            for _, done in (one for one, no in zip(batch, refused, strict=True) if not no):
                if not done.done():
                    done.set_result(time)
                self._queue.task_done()

    def _settle(self, batch: list, error: Exception) -> None:
        for _, done in batch:
            if not done.done():
                done.set_exception(
                    error
                    if isinstance(error, TidemarkError)
                    else Unavailable(f"the write failed: {error}")
                )
            self._queue.task_done()

    async def _next_batch(self) -> list[tuple[list[Write], asyncio.Future[int]]]:
        """Everything that waits; or nothing, when the next second has come."""
        upper = self.tables.upper.time or 0
        due = max(upper, (self._clock.now_ms() // HEARTBEAT_MS + 1) * HEARTBEAT_MS)
        try:
            timeout = max(0.0, (due - self._clock.now_ms()) / 1000)
            batch = [await asyncio.wait_for(self._queue.get(), timeout)]
        except TimeoutError:
            return []
        while len(batch) < MAX_BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _commit(self, groups: list[list[Write]]) -> tuple[int, list[bool]]:
        """Commit all groups but those that write to a table that is gone: when, and which."""
        refused = [any(w.shard_id not in self.tables for w in group) for group in groups]
        writes = [w for group, no in zip(groups, refused, strict=True) if not no for w in group]
        now = self._clock.now_ms()
        not_before = now if writes else now - now % HEARTBEAT_MS
        return self.tables.commit(writes, not_before=not_before), refused


class ReadHolds:
    """Timestamps that running statements still read at; since may not pass the least of them."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._next = 0

    def acquire(self, ts: int) -> int:
        self._next += 1
        self._held[self._next] = ts
        return self._next

    def release(self, hold: int) -> None:
        self._held.pop(hold, None)

    def least(self) -> int | None:
        return min(self._held.values(), default=None)
