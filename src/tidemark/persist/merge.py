"""The streaming merge of compaction: many sorted runs into one, in bounded memory.

Each run has a buffer. A step finds a bound up to which every buffer is complete, cuts what lies
before it off all of them, and consolidates that:

    run 1   | 03 11 12 20 | 35 41 ...        positions (order.py); `|` are cuts
    run 2   | 02 11       | 28 30 33 ...     bound 28: the least of the buffers' positions
    run 3   | 11 14 25    | 28 60 ...        number `quota`, here 2 or more

A buffer is filled before each step until it holds more than `quota` updates or its run has ended,
so steps have about the same size however small or large the chunks of the runs are. Memory: a
chunk of each run, a step (at most `chunk_rows` updates) and the output chunk that it goes to.

Equal rows have equal positions and the cut never divides a position, so the sums are exact. One
row with more than `quota` updates in a run would leave nothing before the bound; its updates are
then gathered from all runs and consolidated as they come.

A merge may be of one range of positions only (ranges.py): the rest is cut off as it is read.

Not here: where runs come from and where the result goes (compact.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import Corruption, InvalidUsage
from tidemark.persist.order import Order, argsort, is_sorted, order
from tidemark.persist.ranges import EVERYTHING, Range
from tidemark.persist.updates import (
    DIFF,
    ERR,
    TIME,
    advance,
    canonical,
    consolidate,
    row_names,
)

_KEY, _ROW = "_key_hash", "_row_hash"

_MANY, _SAMPLE = 16 * 1024, 1024
"""Rows that are worth a look at how often values repeat, and by how many that is judged."""


def merge_runs(
    runs: Sequence[Iterator[pa.Table]],
    *,
    key: tuple[str, ...],
    horizon: int | None,
    chunk_rows: int,
    within: Range = EVERYTHING,
) -> Iterator[pa.Table]:
    """The updates of `runs` that lie `within` a range, as one run, consolidated, with times before
    `horizon` moved up to it.

    Every chunk but the last has `chunk_rows` updates. A run that is not in order is Corruption.
    """
    if chunk_rows < 1:
        raise InvalidUsage(f"chunk_rows is {chunk_rows}; it must be at least 1")
    buffers = [_Buffer(number, iter(run), key, horizon, within) for number, run in enumerate(runs)]
    return _in_chunks(_steps(buffers, chunk_rows), chunk_rows)


def as_run(updates: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """`updates` in run order, equal ones summed up."""
    updates = canonical(updates)
    return _consolidate([_Piece(updates, order(updates, key))]).table


def _in_chunks(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """`tables` in chunks of `rows` rows; none of them is kept once it is taken."""
    held, count = [], 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        del table
        while count >= rows:
            whole = pa.concat_tables(held)
            held, count = [whole.slice(rows)], count - rows
            chunk = whole.slice(0, rows).combine_chunks()
            del whole
            yield chunk
            del chunk
    if count:
        yield pa.concat_tables(held).combine_chunks()


class _Piece:
    """Updates with their positions."""

    __slots__ = ("order", "table")

    def __init__(self, table: pa.Table, order: Order):
        self.table, self.order = table, order

    def __len__(self) -> int:
        return len(self.order.key)


class _Buffer:
    """What has been read of one run and is not merged yet."""

    def __init__(
        self,
        number: int,
        chunks: Iterator[pa.Table],
        key: tuple[str, ...],
        horizon: int | None,
        within: Range,
    ):
        self._number, self._chunks = number, chunks
        self._key, self._horizon, self._within = key, horizon, within
        self._held: _Piece | None = None
        self._last = (0, 0)
        self._ended = False

    def __len__(self) -> int:
        return len(self._held) if self._held else 0

    def before(self, position: tuple[int, int] | None, *, inclusive: bool = False) -> int:
        """How many updates lie before `position`; all if it is None."""
        if self._held is None or position is None:
            return len(self)
        return self._held.order.before(position, inclusive=inclusive)

    def position(self, index: int) -> tuple[int, int]:
        assert self._held is not None
        return self._held.order.at(index)

    def fill(self, quota: int) -> None:
        """Read on until more than `quota` updates are held or the run has ended."""
        if self._ended or len(self) > quota:
            return
        pieces = [_copy(self._held)] if self._held else []
        self._held, held = None, sum(map(len, pieces))
        while held <= quota:
            piece = self._read()
            if piece is None:
                break
            pieces.append(piece)
            held += len(piece)
        self._held = _concat(pieces) if held else None

    def _read(self) -> _Piece | None:
        for chunk in self._chunks:
            if chunk.num_rows:
                chunk = canonical(chunk)
                if self._horizon is not None:
                    chunk = advance(chunk, self._horizon)
                positions = order(chunk, self._key)
                if not is_sorted(positions) or positions.at(0) < self._last:
                    raise Corruption(
                        f"run {self._number} of a merge is not sorted by key and row hash "
                        f"(a chunk of {chunk.num_rows} updates after position {self._last})"
                    )
                self._last = positions.at(-1)
                if piece := self._clipped(_Piece(chunk, positions)):
                    return piece
                if self._ended:
                    return None
        self._ended = True
        return None

    def _clipped(self, piece: _Piece) -> _Piece:
        """What of it lies in the range; beyond the range the run has ended."""
        start, end = self._within
        first = piece.order.before(start) if start is not None else 0
        last = piece.order.before(end) if end is not None else len(piece)
        if last < len(piece):
            self._ended, self._chunks = True, iter(())
        if last - first == len(piece):
            return piece
        return _Piece(piece.table.slice(first, last - first), piece.order.slice(first, last))

    def cut(self, count: int) -> _Piece:
        """Take the first `count` updates off."""
        assert self._held is not None
        table, positions = self._held.table, self._held.order
        self._held = (
            _Piece(table.slice(count), positions.slice(count)) if count < len(self) else None
        )
        return _Piece(table.slice(0, count), positions.slice(0, count))


def _steps(buffers: list[_Buffer], rows: int) -> Iterator[pa.Table]:
    while buffers:
        quota = max(rows // len(buffers), 1)
        for buffer in buffers:
            buffer.fill(quota)
        buffers = [buffer for buffer in buffers if len(buffer)]
        bound = min(
            (buffer.position(quota) for buffer in buffers if len(buffer) > quota), default=None
        )
        counts = [buffer.before(bound) for buffer in buffers]
        if any(counts):
            # Nothing here may keep the cuts, and so their chunks, while the next are read.
            yield _consolidate([b.cut(n) for b, n in zip(buffers, counts, strict=True) if n]).table
        elif bound is not None:
            yield _gather(buffers, bound, rows)


def _gather(buffers: list[_Buffer], position: tuple[int, int], rows: int) -> pa.Table:
    """All updates at `position`, which no buffer has anything before."""
    pieces: list[_Piece] = []
    limit = rows
    for buffer in buffers:
        while count := buffer.before(position, inclusive=True):
            pieces.append(buffer.cut(count))
            buffer.fill(0)
            if sum(map(len, pieces)) > limit:
                pieces = [_consolidate(pieces)]
                limit = rows + 2 * len(pieces[0])
    return _consolidate(pieces).table


def _consolidate(pieces: list[_Piece]) -> _Piece:
    """As updates.consolidate, but sorted by position and time, by comparing neighbours only."""
    whole = _concat(pieces)
    table, positions = whole.table, whole.order
    times, diffs = table[TIME].to_numpy(), table[DIFF].to_numpy()
    at = argsort(positions, times)
    key, row, times = positions.key[at], positions.row[at], times[at]
    same = (key[1:] == key[:-1]) & (row[1:] == row[:-1])
    repeats = np.flatnonzero(same) + 1
    names = [*row_names(table.schema), ERR]
    if not equal_rows(table, names, at[repeats], at[repeats - 1]):
        return _consolidate_collided(table, positions)
    new = np.ones(len(whole), dtype=bool)
    new[1:] = ~same | (times[1:] != times[:-1])
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(diffs[at], starts)
    if not sums.all():
        starts, sums = starts[sums != 0], sums[sums != 0]
    if len(starts) < len(whole):
        at, key, row = at[starts], key[starts], row[starts]
    return _Piece(taken(table, at, {DIFF: pa.array(sums)}), Order(key, row))


def taken(table: pa.Table, at: np.ndarray, known: dict[str, pa.Array] | None = None) -> pa.Table:
    """The rows `at` these places, but for columns that are known already."""
    places = pa.array(at)

    def moved(name: str) -> pa.ChunkedArray | pa.Array:
        column = table[name]
        if known and name in known:
            return known[name]
        if column.null_count == len(column):
            return pa.nulls(len(at), column.type)
        if pa.types.is_string(column.type) and _repeats(column):
            # Strings are long to move, and what stands for them is short.
            coded = column.combine_chunks().dictionary_encode()
            chosen = coded.indices.take(places)
            return pa.DictionaryArray.from_arrays(chosen, coded.dictionary).dictionary_decode()
        return column.take(places)

    return pa.table([moved(name) for name in table.column_names], schema=table.schema)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether there are few different values among many, as far as a sample tells."""
    if len(column) < _MANY:
        return False
    sample = column.take(pa.array(np.arange(0, len(column), len(column) // _SAMPLE)))
    return pc.count_distinct(sample, mode="all").as_py() <= _SAMPLE // 8


def equal_rows(table: pa.Table, names: list[str], left: np.ndarray, right: np.ndarray) -> bool:
    """Whether each row of `left` equals its partner in `right` in these columns."""
    if not left.size:
        return True
    ones, others = pa.array(left), pa.array(right)
    return all(
        _bits(table[name].take(ones)).equals(_bits(table[name].take(others))) for name in names
    )


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as integers of the same bits, among which NaN equals itself."""
    if not pa.types.is_floating(column.type):
        return column
    kind = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width]
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _consolidate_collided(table: pa.Table, positions: Order) -> _Piece:
    """Different rows share a position, which 64 bits make rare: group by the rows themselves."""
    hashes = {_KEY: pa.array(positions.key), _ROW: pa.array(positions.row)}
    for name, values in hashes.items():
        table = table.append_column(name, values)
    names = [_KEY, _ROW, *row_names(table.drop_columns(list(hashes)).schema), ERR, TIME]
    table = consolidate(table).sort_by([(name, "ascending") for name in names])
    found = Order(table[_KEY].to_numpy(), table[_ROW].to_numpy())
    return _Piece(table.drop_columns(list(hashes)), found)


def _concat(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    return _Piece(
        pa.concat_tables([piece.table for piece in pieces]),
        Order(*(np.concatenate(arrays) for arrays in zip(*(p.order for p in pieces), strict=True))),
    )


def _copy(piece: _Piece) -> _Piece:
    """`piece` in memory of its own: a slice would keep all of its chunk."""
    table = piece.table.take(pa.array(np.arange(len(piece))))
    return _Piece(table, Order(piece.order.key.copy(), piece.order.row.copy()))
