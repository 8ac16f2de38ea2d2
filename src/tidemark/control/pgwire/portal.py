"""A bound statement and how far its rows have been sent.

Bind -> Portal(statement, params, formats)
Execute(max_rows=2)  -> rows 1, 2        PortalSuspended
Execute(max_rows=2)  -> rows 3           CommandComplete "SELECT 1"
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
import pyarrow as pa

from tidemark.control.pgwire import codec, text
from tidemark.control.pgwire.session import Param, Result, Statement
from tidemark.control.pgwire.wire import Wire
from tidemark.types import Column

_SLICE_ROWS = 1024
_SLICE_BYTES = 1024 * 1024


class Cursor:
    """Rows handed out in slices, so that neither memory nor the event loop is held for long."""

    def __init__(self, batches: AsyncIterator[pa.RecordBatch]):
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._offset = 0
        self._slice_rows = 0

    @property
    def has_rows(self) -> bool:
        """Whether `take` need not wait."""
        return self._batch is not None and self._offset < self._batch.num_rows

    async def take(self, limit: int) -> pa.RecordBatch | None:
        """The next rows, at most `limit`; None at the end."""
        while self._batch is None or self._offset == self._batch.num_rows:
            self._batch = await anext(self._batches, None)
            self._offset = 0
            if self._batch is None:
                return None
            row_bytes = self._batch.nbytes // max(self._batch.num_rows, 1)
            self._slice_rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES // max(row_bytes, 1)))
        piece = self._batch.slice(self._offset, min(limit, self._slice_rows))
        self._offset += piece.num_rows
        return piece

    async def close(self) -> None:
        self._batch = None
        aclose = getattr(self._batches, "aclose", None)
        if aclose is not None:
            await aclose()


async def stream(
    wire: Wire,
    cursor: Cursor,
    encode: Callable[[pa.RecordBatch], Iterable[bytes]],
    max_rows: int | None = None,
) -> tuple[int, bool]:
    """Send rows until the end or `max_rows`: how many were sent, and whether that was the end."""
    sent = 0
    while max_rows is None or sent < max_rows:
        piece = await cursor.take(_SLICE_ROWS if max_rows is None else max_rows - sent)
        if piece is None:
            return sent, True
        wire.send(*encode(piece))
        sent += piece.num_rows
        await wire.flush()
        await asyncio.sleep(0)  # a flush that need not wait does not let others run
    return sent, False


class Portal(msgspec.Struct):
    """Bound and perhaps begun; `result` and `cursor` are set by the first Execute."""

    statement: Statement | None
    """None is the empty statement."""
    params: tuple[Param, ...]
    formats: tuple[int, ...]
    result: Result | None = None
    cursor: Cursor | None = None

    async def close(self) -> None:
        cursor, self.cursor = self.cursor, None
        if cursor is not None:
            await cursor.close()


def data_rows(
    columns: tuple[Column, ...], formats: tuple[int, ...]
) -> Callable[[pa.RecordBatch], Iterable[bytes]]:
    return lambda piece: (codec.data_row(row) for row in text.rows(piece, columns, formats))
