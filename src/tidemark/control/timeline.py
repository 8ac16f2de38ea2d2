"""One timeline: its oracle, its group commit, and the read holds of running statements.

The oracle is the tables' commit log. Its upper is durable and only grows; the last time before it
is the read timestamp of strict serializable reads. Every second, on the second, the log is
advanced even if nobody writes, so that reads keep up with the sources, which mint their times on
the same seconds. Should the wall clock be set back, they go on from where they were (`Onward`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import structlog

from tidemark.clock import Clock, Onward
from tidemark.control.turns import outcome
from tidemark.errors import Fenced, Indeterminate, SqlError, TidemarkError, Unavailable
from tidemark.storage.tables import Tables, Write

log = structlog.get_logger("timeline")

HEARTBEAT_MS = 1_000
MAX_BATCH = 1_000
RESOLVE_EVERY = 0.5


class Reads(NamedTuple):
    """What a transaction has read: tables by shard, with their names, and when."""

    as_of: int
    tables: Mapping[str, str]


class _Group(NamedTuple):
    """What one transaction writes, if nothing that it has read has changed."""

    writes: list[Write]
    reads: Reads | None
    done: asyncio.Future[int]


class Timeline:
    """All writes go through one committer; writes that wait together commit together."""

    def __init__(self, tables: Tables, clock: Clock, *, lost: asyncio.Event | None = None):
        self.tables = tables
        self._clock = Onward(clock, lambda: tables.upper.time or 0)
        self._queue: asyncio.Queue[_Group] = asyncio.Queue()
        self._begun: list[_Group] = []
        self._exclusive = asyncio.Lock()
        # One thread: the log and the catalog are written by one hand.
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._task: asyncio.Task | None = None
        self._failed: TidemarkError | None = None
        self.commits = 0
        self.writes = 0
        self.lost = lost or asyncio.Event()
        self._moved = asyncio.Event()

    @property
    def read_ts(self) -> int:
        """The oracle's read timestamp: every acknowledged write is at or before it."""
        upper = self.tables.upper.time
        assert upper
        return upper - 1

    def start(self) -> None:
        self._task = asyncio.create_task(self._commit_loop(), name="group-commit")

    async def stop(self, why: TidemarkError | None = None) -> None:
        self._failed = self._failed or why
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.executor.shutdown(wait=True)
        self._refuse_all()

    async def write(self, writes: list[Write], *, reads: Reads | None = None) -> int:
        """Commit writes, grouped with whatever else is waiting; 40001 if what they rest on was
        written to since it was read."""
        async with self._exclusive:
            group = self._enqueue(writes, reads)
        return await self._outcome(group)

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
        return await self._outcome(self._enqueue(writes))

    async def reaches(self, time: int) -> None:
        """Until every strict serializable read is at `time` or later."""
        while self.read_ts < time:
            await self._moved.wait()

    async def run(self, function, *args):
        """Run something that changes what the committer looks after, in its thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.executor, function, *args)
        except Fenced as error:
            log.error("this process can write nothing more", error=str(error))
            self.lost.set()
            raise

    def _enqueue(self, writes: list[Write], reads: Reads | None = None) -> _Group:
        if self._failed is not None:
            raise self._failed
        group = _Group(writes, reads, asyncio.get_running_loop().create_future())
        self._queue.put_nowait(group)
        return group

    async def _outcome(self, group: _Group) -> int:
        """When it was committed. Who is cancelled takes it back, as long as it waits. Once it is
        being committed it is too late for that: nobody shall be told that what happens was
        cancelled, so they wait for it, unless their session ends."""
        try:
            return await asyncio.shield(group.done)
        except asyncio.CancelledError as cancelled:
            begun = any(each is group for each in self._begun)
            if not begun and not group.done.done():
                group.done.cancel()
                raise
            try:
                return await outcome(group.done)
            except SqlError:
                raise cancelled from None  # It has not happened.

    async def _commit_loop(self) -> None:
        try:
            while await self._commit_next():
                pass
        finally:
            self._refuse_all()

    async def _commit_next(self) -> bool:
        """Commit what waits, or a heartbeat; False if nothing can be committed any more."""
        batch = self._begun = await self._next_batch()
        refused: list[SqlError | None] = []
        try:
            time, refused = await self.run(self._commit, batch)
            while time is None:
                await asyncio.sleep(RESOLVE_EVERY)
                time = await self.run(self._resolve)
        except Fenced as error:
            self._failed = error
            self._end([why or in_doubt() for why in refused] or [error] * len(batch))
            return False
        except Exception as error:
            self._end([error] * len(batch))
            if not batch:
                log.warning("heartbeat failed, will try again", error=str(error))
                await asyncio.sleep(0.5)
            return True
        self._moved.set()
        self._moved = asyncio.Event()
        accepted = refused.count(None)
        self.commits += accepted > 0
        self.writes += accepted
        self._end([why or time for why in refused])
        return True

    def _end(self, results: Sequence[int | Exception]) -> None:
        """What has become of those that have begun."""
        begun, self._begun = self._begun, []
        for group, result in zip(begun, results, strict=True):
            self._settle(group, result)

    def _refuse_all(self) -> None:
        """Those that wait, too: nothing is committed any more."""
        self._failed = self._failed or Unavailable("the server is stopping")
        self._end([in_doubt() for _ in self._begun])
        while not self._queue.empty():
            self._settle(self._queue.get_nowait(), self._failed)

    def _settle(self, group: _Group, result: int | Exception) -> None:
        if group.done.done():
            pass
        elif isinstance(result, int):
            group.done.set_result(result)
        elif isinstance(result, TidemarkError):
            group.done.set_exception(result)
        else:
            group.done.set_exception(Unavailable(f"the write failed: {result}"))
        self._queue.task_done()

    async def _next_batch(self) -> list[_Group]:
        """Everything that waits; or nothing, when the next second has come."""
        upper = self.tables.upper.time or 0
        due = max(upper, (self._clock.now_ms() // HEARTBEAT_MS + 1) * HEARTBEAT_MS)
        try:
            timeout = max(0.0, (due - self._clock.now_ms()) / 1000)
            async with asyncio.timeout(timeout):  # `wait_for` may lose the cancel that stops us.
                batch = [await self._queue.get()]
        except TimeoutError:
            return []
        while len(batch) < MAX_BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        wanted = [group for group in batch if not group.done.cancelled()]
        for _ in range(len(batch) - len(wanted)):
            self._queue.task_done()
        return wanted

    def _commit(self, groups: list[_Group]) -> tuple[int | None, list[SqlError | None]]:
        """Commit all groups that can be: when, or None if that is for `_resolve` to find out; and
        why not, for each that is refused."""
        refused: list[SqlError | None] = []
        writes: list[Write] = []
        for group in groups:
            error = self._refusal(group, {write.shard_id for write in writes})
            refused.append(error)
            if error is None:
                writes += group.writes
        now = self._clock.now_ms()
        not_before = now if writes else now - now % HEARTBEAT_MS
        if not writes and not_before <= self.read_ts:
            return self.read_ts, refused  # Woken too early: nothing has come to an end yet.
        try:
            return self.tables.commit(writes, not_before=not_before), refused
        except Unavailable as error:
            if not self.tables.in_doubt:
                raise
            log.warning("a commit may have happened, will look", error=str(error))
            return None, refused

    def _resolve(self) -> int | None:
        """When the commit that may have happened did; None if that is still not known."""
        try:
            return self.tables.resolve()
        except Unavailable as error:
            log.warning("a commit may have happened, will look again", error=str(error))
            return None

    def _refusal(self, group: _Group, before: set[str]) -> SqlError | None:
        """Why it cannot be committed after those that write to `before` at the same time."""
        if any(write.shard_id not in self.tables for write in group.writes):
            return SqlError(
                "a table that this writes to was dropped; nothing was written", sqlstate="42P01"
            )
        as_of, tables = group.reads or Reads(0, {})
        for shard, name in tables.items():
            if shard in before or self.tables.written_after(shard, as_of):
                return SqlError(
                    f'could not serialize access: table "{name}" was written to'
                    " after this transaction had read it; nothing was written",
                    hint="run the transaction again",
                    sqlstate="40001",
                )
        return None


def in_doubt() -> Indeterminate:
    return Indeterminate(
        "it is not known whether this was written",
        hint="look whether it is there before you write it again",
        sqlstate="08007",
    )


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

    @contextmanager
    def at(self, ts: int) -> Iterator[None]:
        hold = self.acquire(ts)
        try:
            yield
        finally:
            self.release(hold)

    def least(self) -> int | None:
        return min(self._held.values(), default=None)
