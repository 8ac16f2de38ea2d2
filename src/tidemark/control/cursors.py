"""Cursors that SQL declares: rows kept by name, and handed out as far as they are asked for.

    DECLARE c CURSOR FOR SELECT …      the rows of one timestamp; FETCH gives the next ones
    DECLARE c CURSOR FOR SUBSCRIBE …   rows that are still to come; FETCH has to wait for them

A FETCH from a SUBSCRIBE returns what there is as soon as there is something, or with a timeout
when it has as many rows as it was asked for, or the time is up. A cursor ends with its
transaction; WITH HOLD, which only a SELECT can be, with the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pyarrow as pa

from tidemark.control.pgwire import Rows
from tidemark.control.pgwire.portal import Cursor
from tidemark.errors import SqlError
from tidemark.types import Column

_PIECE_ROWS = 10_000

MOST = 100
"""Open at once: each may keep a whole result."""


class _Arriving:
    """Batches of which the next can be waited for without losing it when the wait is over."""

    def __init__(self, batches: AsyncIterator[pa.RecordBatch]):
        self._batches = batches
        self._next: asyncio.Future[pa.RecordBatch | None] | None = None

    def begin(self) -> asyncio.Future[pa.RecordBatch | None]:
        """Have the next one fetched, if that is not so already."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._batches, None))
        return self._next

    async def arrives(self, seconds: float | None) -> bool:
        arriving = self.begin()
        await asyncio.wait({arriving}, timeout=seconds)
        return arriving.done()

    def __aiter__(self) -> _Arriving:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        await self.arrives(None)
        assert self._next is not None
        arrived, self._next = self._next, None
        batch = arrived.result()
        if batch is None:
            raise StopAsyncIteration
        return batch

    async def aclose(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        aclose = getattr(self._batches, "aclose", None)
        if aclose is not None:
            await aclose()


class _Declared(msgspec.Struct, eq=False):
    columns: tuple[Column, ...]
    rows: Cursor
    arriving: _Arriving | None
    """Set if the rows are a SUBSCRIBE's."""
    binary: bool
    hold: bool
    committed: bool
    """WITH HOLD, and of a transaction that is over: the next one's end does not concern it."""


Open = tuple[_Declared, ...]
"""Cursors that are open at some moment; one that is declared later is another, whatever its name."""


class Cursors:
    """The cursors of one session."""

    def __init__(self) -> None:
        self._declared: dict[str, _Declared] = {}

    def columns(self, name: str) -> tuple[Column, ...] | None:
        declared = self._declared.get(name)
        return None if declared is None else declared.columns

    def check_free(self, name: str) -> None:
        if name in self._declared:
            raise SqlError(f'cursor "{name}" already exists', sqlstate="42P03")
        if len(self._declared) >= MOST:
            raise SqlError(
                f"a session can have {MOST} cursors at most",
                hint="CLOSE those that are not needed, or end the transaction",
                sqlstate="54000",
            )

    def declare(self, name: str, rows: Rows, *, live: bool, hold: bool, binary: bool) -> None:
        self.check_free(name)
        arriving = _Arriving(rows.batches) if live else None
        if arriving is not None:
            # However late the first FETCH is: from here on what it reads is held.
            arriving.begin()
        cursor = Cursor(arriving or rows.batches)
        self._declared[name] = _Declared(rows.columns, cursor, arriving, binary, hold, False)

    def fetch(self, name: str, count: int | None, timeout: float | None) -> Rows:
        """The next `count` rows, or all; `timeout` in seconds."""
        declared = self.named(name)
        pieces = _pieces(declared, count, timeout)
        return Rows(declared.columns, pieces, verb="FETCH", binary=declared.binary)

    def named(self, name: str) -> _Declared:
        if name not in self._declared:
            raise SqlError(f'cursor "{name}" does not exist', sqlstate="34000")
        return self._declared[name]

    async def close(self, name: str) -> None:
        await self.named(name).rows.close()
        del self._declared[name]

    async def close_all(self) -> None:
        for name in list(self._declared):
            await self.close(name)

    def open(self) -> Open:
        return tuple(self._declared.values())

    async def close_others(self, than: Open) -> None:
        for name, declared in list(self._declared.items()):
            if declared not in than:
                await self.close(name)

    async def end_transaction(self, *, committed: bool) -> None:
        for name, declared in list(self._declared.items()):
            if declared.hold and (committed or declared.committed):
                declared.committed = True
            else:
                await self.close(name)


async def _pieces(
    declared: _Declared, count: int | None, timeout: float | None
) -> AsyncIterator[pa.RecordBatch]:
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    taken = 0
    while count is None or taken < count:
        if declared.arriving is not None and not declared.rows.has_rows:
            patience: float | None = 0.0 if taken else None
            if deadline is not None:
                patience = max(0.0, deadline - loop.time())
            if not await declared.arriving.arrives(patience):
                return
        piece = await declared.rows.take(_PIECE_ROWS if count is None else count - taken)
        if piece is None:
            return
        taken += piece.num_rows
        yield piece
