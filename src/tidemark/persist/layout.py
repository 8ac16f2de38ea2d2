"""How an arrangement's runs are sorted, and sorting and merging them in bounded memory.

    without order   by (key hash, row hash): the run order of the shard (order.py), so a shard
                    that is arranged by its own key needs no sorting at all
    with order      by (key hash, key, order columns, hash of all columns but the key's)

Equal rows are neighbours either way, so merges can sum them up. Sorting is an external merge sort
whose runs begin wherever a piece does not follow the one before: what comes in order is one run,
and done when it is written.

A merge sorts what its buffers hold together. Up to the first place at which some buffer ends (and
its run does not) the result is final; rows equal to the one there wait for the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.persist.hot import Run, RunWriter, hashes_of
from tidemark.persist.keyhash import HASH, key_hash
from tidemark.persist.merge import equal_rows, taken
from tidemark.persist.order import Order, argsort, order
from tidemark.persist.updates import (
    DIFF,
    ERR,
    META_FIELDS,
    TIME,
    canonical,
    consolidate,
    row_names,
    split_errors,
)

ROW = "_row"
FAN_IN = 64
"""Runs that are merged at a time: more would leave each too small a buffer."""

_DIGITS = 18
"""Of decimals whose lower half is the whole."""

MakeWriter = Callable[[pa.Schema], RunWriter]


class Sizes(NamedTuple):
    """Bytes of a record batch of a run, and of what is sorted at a time."""

    batch: int
    sort: int


class Layout:
    """`errors`: error rows are rows like others, with their error as one more column."""

    def __init__(self, key: tuple[str, ...], order: tuple[str, ...] = (), *, errors: bool = False):
        self.key = key
        self.order = order
        self.errors = errors
        self._within = [*dict.fromkeys([*key, *order])] if order else []

    def prepare(self, updates: pa.Table, *, timed: bool) -> pa.Table:
        """Updates (the good ones) in a run's columns; unsorted."""
        updates = canonical(updates)
        rows = updates if self.errors else split_errors(updates)[0]
        hashes = pa.array(key_hash(rows, self.key))
        meta = [DIFF, TIME] if timed else [DIFF]
        rows = rows.select([*meta, *self.columns(rows.schema)])
        return rows.add_column(0, HASH, hashes)

    def columns(self, updates: pa.Schema) -> list[str]:
        """What a run has of an update's columns, besides those of `META_FIELDS`."""
        return [ERR, *row_names(updates)] if self.errors else row_names(updates)

    def sort(self, table: pa.Table, *, sums: bool = False) -> pa.Table:
        table = self.with_row_hash(table)
        at = self.argsort(table)
        if not (at[1:] > at[:-1]).all():
            table = taken(table, at)
        return (_summed(table, self) if sums else table).drop_columns([ROW])

    def argsort(self, table: pa.Table) -> np.ndarray:
        """Row numbers in the run's order; `table` has its row hashes."""
        hashes, rows = hashes_of(table), table[ROW].to_numpy()
        if not self.order:
            return argsort(Order(hashes, rows), np.arange(len(hashes)))
        values = [_numbers(table[name]) for name in self.order if name not in self.key]
        if all(of_column is not None for of_column in values) and not self._collide(table):
            first, *rest = (*values, rows, np.arange(len(hashes)))
            return argsort(Order(hashes, first), *rest)
        at = hashes.argsort(kind="stable")
        new = np.ones(len(at), dtype=bool)
        np.not_equal(hashes[at[1:]], hashes[at[:-1]], out=new[1:])
        tied = ~new
        tied[:-1] |= ~new[1:]
        tied = np.flatnonzero(tied)
        if tied.size:
            chosen = at[tied]
            ties = table.select([*self._within, ROW]).take(pa.array(chosen))
            ties = ties.append_column(HASH, pa.array(np.cumsum(new[tied])))
            names = [HASH, *self._within, ROW]
            found = pc.sort_indices(ties, sort_keys=[(name, "ascending") for name in names])
            at[tied] = chosen[found.to_numpy()]
        return at

    def with_row_hash(self, table: pa.Table) -> pa.Table:
        """`table` with what, within a key, equal rows have in common and others hardly ever do."""
        names = columns_of(table.schema)
        rows = table.select([n for n in names if n not in self.key] if self.order else names)
        if ERR not in rows.column_names:
            # A row that is no error has none; nulls do not count.
            rows = rows.append_column(META_FIELDS[2], pa.nulls(table.num_rows, pa.string()))
        return table.append_column(ROW, pa.array(order(rows, ()).row))

    def _collide(self, table: pa.Table) -> bool:
        """Whether two keys have the same hash."""
        both = table.select(dict.fromkeys([HASH, *self.key]))
        keys = both.group_by(both.column_names, use_threads=False).aggregate([])
        return pc.count_distinct(keys[HASH]).as_py() < keys.num_rows

    def follows(self, before: pa.Table, after: pa.Table, *, sums: bool) -> bool:
        """Whether two sorted tables, one after the other, are sorted (and summed up)."""
        if sums:
            # Of two that share a key, neither knows whether they share a row: the merge does.
            return bool(hashes_of(before)[-1] < hashes_of(after)[0])
        edge = pa.concat_tables([before.slice(before.num_rows - 1), after.slice(0, 1)])
        return bool((self.argsort(self.with_row_hash(edge)) == [0, 1]).all())


def _numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """Integers in the order of the values, which sort several times faster than these; None for
    types of which that is not easily had."""
    kind, types = column.type, pa.types
    if column.null_count:
        return None
    if types.is_decimal128(kind) and kind.precision <= _DIGITS:
        words = [
            np.frombuffer(chunk.buffers()[1], np.int64, 2 * len(chunk), 16 * chunk.offset)[::2]
            for chunk in column.chunks
            if len(chunk)
        ]
        return np.concatenate(words) if words else np.zeros(0, dtype=np.int64)
    if types.is_signed_integer(kind):
        return column.to_numpy().astype(np.int64, copy=False)
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return column.cast(f"int{kind.bit_width}").to_numpy().astype(np.int64, copy=False)
    return None


def columns_of(schema: pa.Schema) -> list[str]:
    """The row's own columns of a run: of the others only the error begins with an underscore."""
    return [name for name in schema.names if name == ERR or not name.startswith("_")]


def shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with the columns of `schema`; those that came to the shard later are null."""
    if table.schema.equals(schema):
        return table
    known = set(table.column_names)
    return pa.table(
        [
            table[field.name] if field.name in known else pa.nulls(table.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def sort_stream(
    tables: Iterable[pa.Table],
    layout: Layout,
    schema: pa.Schema,
    make: MakeWriter,
    sizes: Sizes,
    *,
    sums: bool = False,
) -> RunWriter:
    """All of `tables` (prepared, in any order) as one run, written but not finished; `sums` adds
    up the diffs of equal rows."""
    runs: list[Run] = []
    writer, before = make(schema), None
    for chunk in _gathered(tables, sizes.sort):
        chunk = layout.sort(chunk, sums=sums)
        if not chunk.num_rows:
            continue
        if before is not None and not layout.follows(before, chunk, sums=sums):
            runs.append(writer.finish())
            writer = make(schema)
        writer.write(chunk)
        # A copy of its own: a slice would keep the chunk.
        before = chunk.slice(chunk.num_rows - 1).take(pa.array([0]))
        del chunk
    if not runs:
        return writer
    runs.append(writer.finish())
    while len(runs) > FAN_IN:
        some, runs = runs[:FAN_IN], runs[FAN_IN:]
        merged = merge(slices(some, sizes), layout, sizes, sums=sums)
        runs.append(write(make(schema), merged).finish())
    return write(make(schema), merge(slices(runs, sizes), layout, sizes, sums=sums))


def write(writer: RunWriter, tables: Iterable[pa.Table]) -> RunWriter:
    for table in tables:
        writer.write(table)
        del table
    return writer


def slices(runs: list[Run], sizes: Sizes) -> list[Iterator[pa.Table]]:
    """Runs as streams for a merge, which holds a few slices of each."""
    return [run.slices(sizes.sort // (2 * len(runs))) for run in runs]


def merge(
    streams: Iterable[Iterator[pa.Table]], layout: Layout, sizes: Sizes, *, sums: bool = False
) -> Iterator[pa.Table]:
    """Sorted streams as one; `sums` adds up the diffs of equal rows (at equal times, if any)."""
    buffers = [_Buffer(stream, layout) for stream in streams]
    scale = 1
    while buffers:
        quota = scale * max(1, sizes.sort // len(buffers))
        for buffer in buffers:
            buffer.fill(quota)
        buffers = [buffer for buffer in buffers if buffer.rows]
        # Of runs that begin after all that can be known now, nothing comes yet.
        limit = min((b.last for b in buffers if not b.ended), default=None)
        active = [b for b in buffers if limit is None or b.first <= limit]
        if not active:
            return
        table, counts = _step(active, layout)
        for buffer, count in zip(active, counts, strict=True):
            buffer.cut(int(count))
        # Nothing is known yet if one row fills the buffers: then they must hold more of it.
        scale = 1 if table.num_rows else 2 * scale
        if sums:
            table = _summed(table, layout)
        if table.num_rows:
            yield table.drop_columns([ROW])
        del table


def _step(buffers: list[_Buffer], layout: Layout) -> tuple[pa.Table, np.ndarray]:
    """What is final of the buffers' rows, sorted, and how many rows of each that takes."""
    table = pa.concat_tables([buffer.held for buffer in buffers])
    ends = np.cumsum([buffer.rows for buffer in buffers])
    if len(buffers) == 1 and buffers[0].ended:
        return table, ends
    at = layout.argsort(table) if len(buffers) > 1 else np.arange(len(table))
    count = len(at)
    open_ends = [end - 1 for end, buffer in zip(ends, buffers, strict=True) if not buffer.ended]
    if open_ends:
        rank = np.empty(len(at), dtype=np.int64)
        rank[at] = np.arange(len(at))
        count = int(rank[open_ends].min())
        hashes, rows = hashes_of(table)[at[: count + 1]], table[ROW].to_numpy()[at[: count + 1]]
        other = np.flatnonzero((hashes != hashes[-1]) | (rows != rows[-1]))
        count = int(other[-1]) + 1 if other.size else 0
    at = at[:count]
    taken = np.bincount(ends.searchsorted(at, "right"), minlength=len(buffers))
    return table.take(pa.array(at)), taken


def _summed(table: pa.Table, layout: Layout) -> pa.Table:
    """The sorted `table` with the diffs of equal rows added up, which are neighbours."""
    hashes, rows = hashes_of(table), table[ROW].to_numpy()
    same = (hashes[1:] == hashes[:-1]) & (rows[1:] == rows[:-1])
    if not same.any():
        return table
    repeats = np.flatnonzero(same) + 1
    names = [n for n in table.column_names if n not in (HASH, ROW, DIFF)]
    if equal_rows(table, names, repeats, repeats - 1):
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        sums = np.add.reduceat(table[DIFF].to_numpy(), starts)
        kept = np.zeros(len(hashes), dtype=bool)
        kept[starts[sums != 0]] = True
        at = table.schema.get_field_index(DIFF)
        return table.filter(pa.array(kept)).set_column(
            at, META_FIELDS[1], pa.array(sums[sums != 0])
        )
    # Rows that differ share a hash, or come at several times.
    repeated = np.zeros(len(hashes), dtype=bool)
    repeated[1:] = same
    repeated[:-1] |= same
    sums = consolidate(table.filter(pa.array(repeated)))
    table = pa.concat_tables([table.filter(pa.array(~repeated)), sums])
    return table.take(pa.array(layout.argsort(table)))


def _gathered(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """`tables` joined until they have about `size` bytes; large ones are divided."""
    held, held_bytes = [], 0
    for table in tables:
        rows = max(1, table.num_rows * size // max(table.nbytes, 1))
        for start in range(0, table.num_rows, rows):
            held.append(table.slice(start, rows))
            held_bytes += held[-1].nbytes
            if held_bytes >= size:
                yield pa.concat_tables(held)
                held, held_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


class _Buffer:
    """What has been read of a stream and is not merged yet, with row hashes."""

    def __init__(self, stream: Iterator[pa.Table], layout: Layout):
        self._stream = stream
        self._layout = layout
        self._held: list[pa.Table] = []
        self._bytes = 0
        self.ended = False

    def fill(self, quota: int) -> None:
        """Read on until more than `quota` bytes are held or the stream has ended."""
        while not self.ended and self._bytes <= quota:
            table = next(self._stream, None)
            if table is None:
                self.ended = True
            elif table.num_rows:
                self._held.append(self._layout.with_row_hash(table))
                self._bytes += table.nbytes

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self._held)

    @property
    def held(self) -> pa.Table:
        return pa.concat_tables(self._held)

    @property
    def first(self) -> int:
        return self._held[0][HASH][0].as_py()

    @property
    def last(self) -> int:
        return self._held[-1][HASH][-1].as_py()

    def cut(self, count: int) -> None:
        """Drop the first `count` rows."""
        while count and count >= self._held[0].num_rows:
            count -= self._held.pop(0).num_rows
        if count:
            self._held[0] = self._held[0].slice(count)
        self._bytes = sum(table.nbytes for table in self._held)
