"""A run: updates sorted for binary search by the hash of their key, in memory or in a mapped file.

    columns   _hash, _diff, _time (a base has none: it is all as of one time), then the row's
    file      an Arrow IPC file of record batches of a bounded size, between two without rows; the
              metadata of the last says where each lies, its CRC-32, and every 512th hash
    position  batches count through: the run is one long table, and a group may span batches

A search goes through a *fence*, every 512th hash in one small array, and then through one page of
the file: binary search over all the hashes would miss the processor's caches a dozen times a key.

A mapped file is the kernel's memory, not the process's: it costs nothing private, and processes
that map the same file share its pages. A batch is checked when it is first touched, so opening a
large file is quick and nothing is believed unchecked.
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.errors import Corruption
from tidemark.persist.keyhash import HASH

_INDEX, _FENCE, _CHECK = b"tidemark.index", b"tidemark.fence", b"tidemark.check"
_READ = 1 << 20
_STRIDE = 512
_AT_ONCE = 2048
_FEW = 64
"""Hashes for which one call of NumPy's is quicker, however many caches it misses."""
_SHORT = 32
"""Bytes of a string that are as quickly gathered one by one."""
_STEPS = tuple(_STRIDE >> at for at in range(_STRIDE.bit_length()))


class Damaged(Corruption):
    """A file of the cache that does not read back as it was written: to be made again."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One record batch of a run."""

    rows: int
    offset: int = 0
    length: int = 0
    crc: int = 0


class Index(msgspec.Struct, frozen=True):
    blocks: list[Block]
    note: dict[str, int] = {}
    """What the writer wants to remember: for a base, when it is and of which state."""


_INDICES = msgspec.json.Decoder(Index)


class Found(NamedTuple):
    """Rows of a run and, for each, the number of the hash that it was found by."""

    table: pa.Table
    group: np.ndarray


class Run:
    """Sorted updates. Positions are those of one table, however many batches there are.

    It does not change, and threads may share it; of a mapped one, batches are read when needed.
    """

    def __init__(
        self,
        schema: pa.Schema,
        index: Index,
        fence: np.ndarray,
        batches: list[pa.RecordBatch | None],
        mapped: pa.Buffer | None = None,
        *,
        trusted: bool = True,
    ):
        self.schema = schema
        self.note = index.note
        self._blocks = index.blocks
        self._batches = batches
        self._mapped = mapped
        self._trusted = trusted
        counts = np.array([block.rows for block in index.blocks], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        # Where each stretch of the fence begins, and in which batch.
        stretches = -(-counts // _STRIDE)
        self._fence = fence
        self._batch_of = np.repeat(np.arange(len(counts)), stretches)
        within = positions_of(np.zeros(len(counts), dtype=np.int64), stretches) * _STRIDE
        self._fence_at = np.append(within + self._starts[self._batch_of], self._starts[-1])
        # All hashes are found in one array: add to a position what its batch is shifted by.
        self._shift = np.zeros(len(counts), dtype=np.int64)
        self._unread = len(counts)
        self._reading = threading.Lock()
        self._spreads: dict[str, Spread | None] = {}
        if mapped is not None:
            self._flat = np.frombuffer(mapped, np.uint64, count=mapped.size // 8)
        else:
            columns = [hashes_of(batch) for batch in batches if batch is not None]
            self._flat = np.concatenate(columns) if columns else np.zeros(0, np.uint64)
            self._unread = 0

    @staticmethod
    def of(table: pa.Table) -> Run:
        """A sorted table as a run in memory."""
        batches = [batch for batch in table.combine_chunks().to_batches() if batch.num_rows]
        index = Index([Block(batch.num_rows) for batch in batches])
        fences = [hashes_of(batch)[::_STRIDE] for batch in batches]
        fence = np.concatenate(fences) if fences else np.zeros(0, np.uint64)
        return Run(table.schema, index, fence, [*batches])

    @staticmethod
    def map(file: int, *, trusted: bool = False) -> Run:
        """The run in an open file; `trusted` if this process has just written it."""
        try:
            mapped = pa.py_buffer(mmap.mmap(file, 0, prot=mmap.PROT_READ))
            reader = pa.ipc.open_file(pa.BufferReader(mapped))
            last = reader.num_record_batches - 1
            metadata = reader.get_batch_with_custom_metadata(last).custom_metadata
            index = _INDICES.decode(metadata[_INDEX])
            if int(metadata[_CHECK]) != zlib.crc32(metadata[_FENCE], zlib.crc32(metadata[_INDEX])):
                raise Damaged("the index of a run has another checksum")
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise Damaged(f"not a run: {error}") from error
        if index.blocks and index.blocks[-1].offset + index.blocks[-1].length > mapped.size:
            raise Damaged("a run is shorter than its index says")
        fence = np.frombuffer(metadata[_FENCE], np.uint64)
        batches = [None] * len(index.blocks)
        return Run(reader.schema, index, fence, [*batches], mapped, trusted=trusted)

    @property
    def rows(self) -> int:
        return int(self._starts[-1])

    @property
    def is_mapped(self) -> bool:
        return self._mapped is not None

    @property
    def nbytes(self) -> int:
        if self._mapped is not None:
            return self._mapped.size
        return sum(batch.nbytes for batch in self._batches if batch is not None)

    def ranges(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and one-past-last position of each of the sorted `hashes`."""
        start = self._search(hashes, "left")
        stop = start.copy()
        some = np.flatnonzero(start < self.rows)
        some = some[self._hashes(start[some]) == hashes[some]]
        stop[some] += 1
        # Most keys have one row; only where there are more must the end be looked for.
        some = some[stop[some] < self.rows]
        some = some[self._hashes(stop[some]) == hashes[some]]
        stop[some] = self._search(hashes[some], "right")
        return start, stop

    def take(
        self, start: np.ndarray, stop: np.ndarray, *, columns: Sequence[str] | None = None
    ) -> Found:
        """The rows (or some columns) of these ranges, which rise and do not overlap."""
        counts = np.maximum(stop - start, 0)
        positions = positions_of(start, counts)
        group = np.repeat(np.arange(len(counts)), counts)
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        per_batch = np.diff(positions.searchsorted(self._starts))
        if np.count_nonzero(per_batch) > 1 and self._mapped is not None and not self._unread:
            return Found(self._gather(positions, per_batch, schema), group)
        return Found(self._take(positions, per_batch, schema), group)

    def _take(self, positions: np.ndarray, per_batch: np.ndarray, schema: pa.Schema) -> pa.Table:
        """The rows at rising positions, batch by batch."""
        taken, start = [], 0
        for at in np.flatnonzero(per_batch).tolist():
            batch = self.batch(at)
            if len(schema) < len(self.schema):
                batch = batch.select(schema.names)
            stop = start + per_batch[at]
            taken.append(batch.take(pa.array(positions[start:stop] - self._starts[at])))
            start = stop
        return pa.Table.from_batches(taken, schema)

    def _gather(self, positions: np.ndarray, per_batch: np.ndarray, schema: pa.Schema) -> pa.Table:
        """The same with simple columns read from all batches at once: most of a take from many
        batches is the calls."""
        arrays = {}
        for field in schema:
            spread = self._spread(field)
            array = spread.take(field.type, positions, per_batch) if spread is not None else None
            if array is not None:
                arrays[field.name] = array
        rest = pa.schema([field for field in schema if field.name not in arrays])
        if len(rest):
            others = self._take(positions, per_batch, rest)
            arrays |= {name: others[name] for name in rest.names}
        return pa.table([arrays[name] for name in schema.names], schema=schema)

    def _spread(self, field: pa.Field) -> Spread | None:
        if field.name not in self._spreads:
            assert self._mapped is not None
            columns = [self.batch(at).column(field.name) for at in range(len(self._blocks))]
            self._spreads[field.name] = Spread.of(self._mapped, columns, self._starts[:-1])
        return self._spreads[field.name]

    def rows_at(self, positions: np.ndarray) -> pa.Table:
        """One row for each position, in the order asked for, repeated if asked for repeatedly."""
        unique, inverse = np.unique(positions, return_inverse=True)
        return self.take(unique, unique + 1).table.take(pa.array(inverse))

    def slices(self, size: int) -> Iterator[pa.Table]:
        """All of it in order, about `size` bytes at a time, without copies."""
        rows = max(1, size * self.rows // max(self.nbytes, 1))
        for at, block in enumerate(self._blocks):
            for start in range(0, block.rows, rows):
                yield pa.Table.from_batches([self.batch(at).slice(start, rows)])

    def batch(self, at: int) -> pa.RecordBatch:
        batch = self._batches[at]
        return batch if batch is not None else self._first_read(at)

    def _first_read(self, at: int) -> pa.RecordBatch:
        with self._reading:
            batch = self._batches[at]
            if batch is None:
                batch = self._read(self._blocks[at])
                hashes = batch.column(HASH).buffers()[1]
                assert self._mapped is not None
                self._shift[at] = (hashes.address - self._mapped.address) // 8 - self._starts[at]
                # Last, as others may take what is there without the lock.
                self._batches[at] = batch
                self._unread -= 1
            return batch

    def _search(self, hashes: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
        """How many rows have a lesser hash ("right": or the same)."""
        if not len(self._fence) or not len(hashes):
            return np.zeros(len(hashes), dtype=np.int64)
        if self._mapped is None and len(hashes) <= _FEW:
            return self._flat.searchsorted(hashes, side)
        # A few at a time, so that what the steps work on stays in the processor's cache.
        parts = [hashes[at : at + _AT_ONCE] for at in range(0, len(hashes), _AT_ONCE)]
        return np.concatenate([self._search_some(part, side) for part in parts])

    def _search_some(self, hashes: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
        stretch = np.maximum(self._fence.searchsorted(hashes, side) - 1, 0)
        at = self._fence_at[stretch]
        rows = self._fence_at[stretch + 1] - at
        before = at + self._shifts(self._batch_of[stretch]) - 1
        count = np.zeros(len(hashes), dtype=np.int64)
        less = np.less if side == "left" else np.less_equal
        for step in _STEPS:
            more = count + step
            found = less(self._flat.take(before + np.minimum(more, rows)), hashes)
            count = np.where(found & (more <= rows), more, count)
        return at + count

    def _hashes(self, positions: np.ndarray) -> np.ndarray:
        batches = self._starts.searchsorted(positions, "right") - 1
        return self._flat.take(positions + self._shifts(batches))

    def _shifts(self, batches: np.ndarray) -> np.ndarray:
        if self._unread:
            for at in np.unique(batches).tolist():
                self.batch(at)
        return self._shift[batches]

    def _read(self, block: Block) -> pa.RecordBatch:
        assert self._mapped is not None
        message = self._mapped.slice(block.offset, block.length)
        if not self._trusted and zlib.crc32(message) != block.crc:
            raise Damaged(f"a batch of a run at byte {block.offset} has another checksum")
        try:
            return pa.ipc.read_record_batch(pa.BufferReader(message), self.schema)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"a batch of a run at byte {block.offset}: {error}") from error


class Spread(NamedTuple):
    """A column of all the batches of a file, seen as words of that file."""

    mapped: pa.Buffer
    words: np.ndarray
    width: int
    """Words that a value takes: buffers are aligned to eight bytes, and so are wider values."""
    offsets: np.ndarray
    """For each batch, what to add to a position (times the width) to find its word."""
    data: np.ndarray | None
    """For strings, whose words are their offsets: where the data of each batch begins."""

    @staticmethod
    def of(mapped: pa.Buffer, columns: list[pa.Array], starts: np.ndarray) -> Spread | None:
        """None if the column is not so simple, or has nulls."""
        kind, data = columns[0].type, None
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            size = 4
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            size = 8
        elif pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
            size = kind.byte_width
        else:
            return None
        if any(column.null_count for column in columns):
            return None
        buffers = [column.buffers() for column in columns]
        if len(buffers[0]) > 2:
            data = np.array([b[2].address - mapped.address if b[2] else 0 for b in buffers])
        word = min(size, 8)
        words = np.frombuffer(mapped, f"i{word}", count=mapped.size // word)
        first = np.array([b[1].address - mapped.address for b in buffers]) // word
        return Spread(mapped, words, size // word, first - starts * (size // word), data)

    def take(
        self, kind: pa.DataType, positions: np.ndarray, per_batch: np.ndarray
    ) -> pa.Array | None:
        """The values at rising positions; None if they are so long that this does not pay."""
        at = positions * self.width + np.repeat(self.offsets, per_batch)
        if self.data is None:
            if self.width > 1:
                at = (at[:, None] + np.arange(self.width)).ravel()
            buffers = [None, pa.py_buffer(self.words.take(at))]
            return pa.Array.from_buffers(kind, len(positions), buffers)
        start = self.words.take(at).astype(np.int64)
        lengths = self.words.take(at + 1) - start
        edges = np.concatenate([[0], np.cumsum(lengths)])
        if edges[-1] > _SHORT * len(positions):
            return None
        octets = np.frombuffer(self.mapped, np.uint8)
        octets = octets.take(positions_of(start + np.repeat(self.data, per_batch), lengths))
        edges = edges.astype(self.words.dtype)
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(octets)]
        return pa.Array.from_buffers(kind, len(positions), buffers)


class RunWriter:
    """Writes a sorted stream as a run into an open file, a batch at a time."""

    def __init__(self, file: int, schema: pa.Schema, *, batch_bytes: int):
        self._file = file
        self._limit = batch_bytes
        self._sink = pa.OSFile(f"/proc/self/fd/{file}", "wb")
        self._writer = pa.ipc.new_file(self._sink, schema)
        self._empty = pa.RecordBatch.from_pylist([], schema=schema)
        # The header only goes out with the first batch, which had better not be one of ours.
        self._writer.write_batch(self._empty)
        self._blocks: list[Block] = []
        self._fence: list[np.ndarray] = []
        self._waiting: list[pa.Table] = []
        self._size = 0

    def write(self, table: pa.Table) -> None:
        rows = max(1, table.num_rows * self._limit // max(table.nbytes, 1))
        for start in range(0, table.num_rows, rows):
            piece = table.slice(start, rows)
            if self._size + piece.nbytes > self._limit:
                self._flush()
            self._waiting.append(piece)
            self._size += piece.nbytes

    def finish(self, **note: int) -> Run:
        """The run, mapped. What `note` says can be read from the file by others."""
        self._flush()
        index = msgspec.json.encode(Index(self._blocks, note))
        fence = b"".join(hashes.tobytes() for hashes in self._fence)
        check = str(zlib.crc32(fence, zlib.crc32(index))).encode()
        self._writer.write_batch(
            self._empty, custom_metadata={_INDEX: index, _FENCE: fence, _CHECK: check}
        )
        self.close()
        return Run.map(self._file, trusted=True)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting, self._size = [], 0
        (batch,) = table.combine_chunks().to_batches()
        offset = self._sink.tell()
        self._writer.write_batch(batch)
        length = self._sink.tell() - offset
        self._blocks.append(Block(batch.num_rows, offset, length, self._crc(offset, length)))
        self._fence.append(hashes_of(batch)[::_STRIDE].copy())

    def _crc(self, offset: int, length: int) -> int:
        """Of what the file now holds, so that what we check later is what we check now."""
        crc = 0
        for start in range(offset, offset + length, _READ):
            crc = zlib.crc32(os.pread(self._file, min(_READ, offset + length - start), start), crc)
        return crc


def hashes_of(rows: pa.RecordBatch | pa.Table) -> np.ndarray:
    return rows.column(HASH).to_numpy()


def positions_of(start: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """start[0], start[0] + 1, … (counts[0] of them), then start[1], and so on, without a loop."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - (ends - counts), counts) + np.arange(total)
