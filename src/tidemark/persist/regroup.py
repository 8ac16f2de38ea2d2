"""Runs that are each in the order of their keys' hashes, as one stream of whole keys.

    run 1   | 03 03 11 | 20 35 ...        hashes; `|` are where pieces end
    run 2   | 03 11    | 20 20 28 ...     up to a hash that no buffer is past, everything is known

To sort within keys, it is enough to have all of a key together: what is sorted of one piece then
follows what is sorted of the piece before, and nothing need be merged (layout.sort_stream). A key
that is larger than a piece may be comes in several, and is merged after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemark.persist.hot import hashes_of

MOST = 3
"""Pieces that are held before a key comes in several."""


def by_key(streams: Iterable[Iterator[pa.Table]], size: int) -> Iterator[pa.Table]:
    """Pieces of about `size` bytes of tables with hashes, in whose order each stream is."""
    buffers = [_Buffer(stream) for stream in streams]
    scale = 1
    while buffers:
        for buffer in buffers:
            buffer.fill(scale * size // (2 * len(buffers)))
        buffers = [buffer for buffer in buffers if buffer.held]
        limit = min((b.last for b in buffers if not b.ended), default=None)
        found = [table for buffer in buffers for table in buffer.cut(limit)]
        if not found and sum(buffer.nbytes for buffer in buffers) > MOST * size:
            found = [table for buffer in buffers for table in buffer.cut(None)]
        # Nothing is known yet if one key fills a buffer: then it must hold more of it.
        scale = 1 if found else 2 * scale
        if found:
            yield pa.concat_tables(found)


class _Buffer:
    """What has been read of a stream and is in no piece yet."""

    def __init__(self, stream: Iterator[pa.Table]):
        self._stream = stream
        self.held: list[pa.Table] = []
        self.nbytes = 0
        self.ended = False

    def fill(self, quota: int) -> None:
        while not self.ended and self.nbytes <= quota:
            table = next(self._stream, None)
            if table is None:
                self.ended = True
            elif table.num_rows:
                self.held.append(table)
                self.nbytes += table.nbytes

    @property
    def last(self) -> int:
        return int(hashes_of(self.held[-1])[-1])

    def cut(self, limit: int | None) -> list[pa.Table]:
        """Take off what has a lesser hash; all there is if there is no limit."""
        found, kept = [], []
        for table in self.held:
            count = table.num_rows
            if limit is not None:
                count = int(hashes_of(table).searchsorted(limit))
            found.append(table.slice(0, count))
            kept.append(table.slice(count))
        self.held = [table for table in kept if table.num_rows]
        self.nbytes = sum(table.nbytes for table in self.held)
        return [table for table in found if table.num_rows]
