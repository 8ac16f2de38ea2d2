"""Look-ups of many sessions, asked of a replica together.

A look-up waits here while others like it are under way; those that wait are then asked as one. So
one alone goes at once, and of a thousand a second each costs a small part of what it would alone.

    session ──find(key)──┐
    session ──find(key)──┤ as_of, once for all ── LookUp ──▶ replica
    session ──find(key)──┘           rows by key ◀── Found ──

All of them are answered as of a time that the oracle gives after the last of them has come, so each
sees all that was acknowledged before it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from copy import copy
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import structlog

from tidemark.compute.lookup import WHICH
from tidemark.compute.protocol import LookUp
from tidemark.control.pgwire import codec, text
from tidemark.errors import TidemarkError, Unavailable
from tidemark.ipc import encode_table
from tidemark.types import Column, SqlType

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

log = structlog.get_logger("lookups")

MOST_KEYS = 500
MOST_UNDER_WAY = 1
"""Of one kind: two, of which one is answered while the next is on its way, are half as large each and
cost a third more CPU for the same look-ups."""

Key = tuple[int | str, ...]


class Way(NamedTuple):
    """What is asked of which index, whatever the keys."""

    cluster: str
    database: str
    shard: str
    key: tuple[str, ...]
    types: tuple[SqlType, ...]
    columns: tuple[str, ...]


class Found:
    """The rows of all look-ups that were asked together."""

    def __init__(self, table: pa.Table, keys: int):
        which = table[WHICH].to_numpy()
        self.rows = table.drop_columns([WHICH])
        self.nbytes = self.rows.nbytes
        self.starts: list[int] = np.searchsorted(which, np.arange(keys + 1)).tolist()
        self._encoded: dict[tuple[int, ...], list[bytes]] = {}

    def encoded(self, columns: tuple[Column, ...], formats: tuple[int, ...]) -> list[bytes]:
        """All rows as they go over the wire."""
        found = self._encoded.get(formats)
        if found is None:
            cells = text.rows(self.rows, columns, formats)
            found = self._encoded[formats] = [codec.data_row(row) for row in cells]
        return found


class Answer(NamedTuple):
    """The rows of one look-up."""

    found: Found
    start: int
    stop: int

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        for batch in self.found.rows.slice(self.start, self.stop - self.start).to_batches():
            yield batch


class Asking:
    """One look-up that waits."""

    __slots__ = ("answer", "key")

    def __init__(self, key: Key, answer: asyncio.Future[Answer | None]):
        self.key = key
        self.answer = answer


class Queue:
    """Those of one way: who waits, and how many batches are under way."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Asking] = []
        self.under_way = 0


class LookUps:
    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self._queues: dict[Way, Queue] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._ids = count(1)

    async def find(self, way: Way, key: Key) -> Answer | None:
        """The rows of a key; None if it takes a peek to know."""
        queue = self._queues.get(way)
        if queue is None:
            queue = self._queues[way] = Queue()
        asking = Asking(key, asyncio.get_running_loop().create_future())
        queue.waiting.append(asking)
        if queue.under_way < MOST_UNDER_WAY:
            self._begin(way, queue)
        return await asking.answer

    def _begin(self, way: Way, queue: Queue) -> None:
        queue.under_way += 1
        task = asyncio.create_task(self._work(way, queue), name="look-ups")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _work(self, way: Way, queue: Queue) -> None:
        """Ask for what waits until nothing does."""
        try:
            # Whoever comes in this very moment comes along.
            await asyncio.sleep(0)
            while queue.waiting:
                batch, queue.waiting = queue.waiting[:MOST_KEYS], queue.waiting[MOST_KEYS:]
                await self._answer(way, [each for each in batch if not each.answer.done()])
        finally:
            queue.under_way -= 1
            if not queue.under_way and not queue.waiting:
                self._queues.pop(way, None)

    async def _answer(self, way: Way, batch: list[Asking]) -> None:
        places: dict[Key, int] = {}
        for each in batch:
            places.setdefault(each.key, len(places))
        try:
            found = await self._ask(way, list(places))
        except Exception as error:
            for each in batch:
                if not each.answer.done():
                    # Of its own, as it will say where in its own statement it is.
                    own = copy(error) if isinstance(error, TidemarkError) else error
                    each.answer.set_exception(own)
            return
        except BaseException:
            for each in batch:
                each.answer.cancel()
            raise
        for each in batch:
            if not each.answer.done():
                at = places[each.key]
                answer = found and Answer(found, found.starts[at], found.starts[at + 1])
                each.answer.set_result(answer)

    async def _ask(self, way: Way, keys: Sequence[Key]) -> Found | None:
        if not keys:
            return None
        coordinator = self._coordinator
        as_of = coordinator.timestamp_of([way.shard], behind_ms=0, database=way.database)
        hold = coordinator.holds.acquire(as_of)
        try:
            await coordinator.readable.wait(way.shard, as_of)
            arrays = [
                pa.array([key[at] for key in keys], type_.arrow)
                for at, type_ in enumerate(way.types)
            ]
            asked = LookUp(
                f"look-up-{next(self._ids)}",
                way.shard,
                way.key,
                way.columns,
                as_of,
                encode_table(pa.table(arrays, [str(at) for at in range(len(arrays))])),
            )
            table = await coordinator.clusters.named(way.cluster).look_up(asked)
        except Unavailable as error:
            # A peek knows what to do about it, and how to say it.
            log.info("look-ups are asked one by one", error=error.message)
            return None
        finally:
            coordinator.holds.release(hold)
        return None if table is None else Found(table, len(keys))
