"""Arrangements: a shard laid out by key, so that "the rows for these keys" costs what they cost.

The durable form is the shard itself. The hot form is a disposable local copy of its rows, sorted
by the hash of the key columns: one *base* run, a memory-mapped Arrow file, and a short *tail* of
newer batches in memory. When the tail has grown to a fair share of the base, it is merged in.

    lookup(keys, as_of)     binary search of each key's hash in every run, then one take
    heads(keys, counts)     with `order`: the last (or first) few rows of each key's group

Both may return *more* rows than asked for (hashes collide), never fewer: what is computed from
them applies every predicate again. Rows carry `_diff`; a row that was deleted comes back as +1
and -1, or as nothing.

A reader at `as_of` sees exactly the updates at times <= as_of, as long as it holds the
arrangement there (`hold`): the base never absorbs what some holder must not see yet.
"""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import AsOfBeforeSince, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist.keyhash import HASH, key_hash
from tidemark.persist.read import ReadHandle
from tidemark.persist.updates import DIFF, TIME, consolidate, row_names, split_errors

MAX_TAIL_RUNS = 8
MIN_TAIL_ROWS = 50_000
TAIL_SHARE = 0.2


class Run:
    """Updates sorted by key hash (and by `order` within it), ready for binary search."""

    def __init__(self, table: pa.Table):
        self.table = table
        hashes = table.column(HASH)
        self.hashes = hashes.chunk(0).to_numpy() if hashes.num_chunks == 1 else hashes.to_numpy()

    @property
    def rows(self) -> int:
        return self.table.num_rows

    def ranges(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and one-past-last position of each hash."""
        return (
            np.searchsorted(self.hashes, hashes, "left"),
            np.searchsorted(self.hashes, hashes, "right"),
        )

    def take(self, start: np.ndarray, stop: np.ndarray) -> pa.Table:
        return self.table.take(pa.array(_positions(start, stop)))


class Arrangement:
    """The rows of `reader`'s shard by `key`, ordered within it by `order` if given."""

    def __init__(
        self,
        reader: ReadHandle,
        key: tuple[str, ...],
        *,
        folder: Path,
        order: str | None = None,
        schema: pa.Schema | None = None,
    ):
        """`schema` (of updates) is only needed for a shard that nobody has written to yet."""
        self._reader = reader
        self._schema = schema
        self._key = key
        self._order = order
        self._folder = folder
        self._path = folder / f"{reader.shard_id}-{uuid4().hex[:8]}.arrow"
        self._lock = threading.RLock()
        self._holds: dict[str, int] = {}
        self._base: Run | None = None
        self._tail: list[Run] = []
        self._as_of = -1
        self._upper = Frontier.MIN

    @property
    def rows(self) -> int:
        return (self._base.rows if self._base else 0) + sum(run.rows for run in self._tail)

    def hold(self, holder: str, as_of: int) -> None:
        """`holder` will read at `as_of` or later, and the shard may forget what was before."""
        with self._lock:
            as_of = max(as_of, self._holds.get(holder, as_of))
            if self._base is None or as_of < self._as_of:
                self._load(as_of)
            self._holds[holder] = as_of
            self._catch_up(as_of)

    def release(self, holder: str) -> bool:
        """Drop the holder; True if it was the last, and the hot form is gone with it."""
        with self._lock:
            self._holds.pop(holder, None)
            if self._holds:
                return False
            self._base, self._tail = None, []
            self._path.unlink(missing_ok=True)
            return True

    def lookup(self, keys: pa.Table, as_of: int) -> pa.Table:
        """Rows up to `as_of` whose key (by hash) is among `keys`, consolidated."""
        hashes = np.unique(self._hashes(keys))
        with self._lock:
            self._catch_up(as_of)
            base = self._loaded()
            found = [base.take(*base.ranges(hashes)), *self._from_tail(hashes, as_of)]
        return self._tidy(found)

    def heads(self, keys: pa.Table, counts: np.ndarray, as_of: int, *, last: bool) -> pa.Table:
        """For each key at least the `counts` last (or first) live rows of its group.

        A group that has fewer comes back whole. Deleted rows may stand in the way, so the reach
        into each run grows until enough live rows are found; `keys` are distinct.
        """
        if self._order is None:
            raise InvalidUsage("this arrangement is not ordered within its key")
        hashes, inverse = np.unique(self._hashes(keys), return_inverse=True)
        wanted = np.zeros(len(hashes), dtype=np.int64)
        np.add.at(wanted, inverse, counts)
        found = []
        with self._lock:
            self._catch_up(as_of)
            runs = [self._loaded(), *self._tail]
            reach = wanted + 2
            while True:
                rows, complete = self._reach(runs, hashes, wanted, reach, as_of, last=last)
                done = np.isin(rows[HASH].to_numpy(), hashes[complete])
                found.append(rows.filter(pa.array(done)))
                if complete.all():
                    break
                hashes, wanted = hashes[~complete], wanted[~complete]
                reach = reach[~complete] * 4
        return pa.concat_tables(found).drop_columns([HASH])

    def _reach(
        self,
        runs: list[Run],
        hashes: np.ndarray,
        wanted: np.ndarray,
        reach: np.ndarray,
        as_of: int,
        *,
        last: bool,
    ) -> tuple[pa.Table, np.ndarray]:
        """Up to `reach` rows of each group from the end of every run, consolidated, and for which
        groups they hold `wanted` live rows for sure (or all there are)."""
        assert self._order is not None
        whole = self._collide(runs, hashes)
        exhausted = np.ones(len(hashes), dtype=bool)
        tables, horizons = [], []
        for run in runs:
            start, stop = run.ranges(hashes)
            count = np.where(whole, stop - start, np.minimum(stop - start, reach))
            cut = count < stop - start
            start, stop = (stop - count, stop) if last else (start, start + count)
            table = run.take(start, stop)
            tables.append(table.filter(pc.less_equal(table[TIME], as_of)))
            if cut.any():
                exhausted &= ~cut
                edges = np.where(cut, start if last else stop - 1, 0)
                horizons.append((cut, run.table[self._order].take(pa.array(edges))))
        columns = [name for name in tables[0].column_names if name != TIME]
        rows = consolidate(pa.concat_tables(table.select(columns) for table in tables))
        for cut, edges in horizons:
            # Beyond the last value read, a run that was cut short may hold anything; also more
            # of that very value, so only what lies strictly before it is known.
            group = np.searchsorted(hashes, rows[HASH].to_numpy())
            values, edges = rows[self._order], edges.take(pa.array(group))
            known = _exceeds(values, edges) if last else _exceeds(edges, values)
            rows = rows.filter(pc.or_(known, pa.array(~cut[group])))
        live = rows.filter(pc.greater(rows[DIFF], 0))[HASH].to_numpy()
        counts = np.bincount(np.searchsorted(hashes, live), minlength=len(hashes))
        return rows, exhausted | (counts >= wanted)

    def _collide(self, runs: list[Run], hashes: np.ndarray) -> np.ndarray:
        """Under which hashes more than one key is stored: their groups have no one order.

        Within a run rows are sorted by hash and key, so the ends of a group tell.
        """
        ends = []
        for run in runs:
            start, stop = run.ranges(hashes)
            start, stop = start[stop > start], stop[stop > start]
            ends.append(
                run.table.select([HASH, *self._key]).take(
                    pa.array(np.concatenate([start, stop - 1]))
                )
            )
        keys = pa.concat_tables(ends).group_by([HASH, *self._key], use_threads=False)
        found, counts = np.unique(keys.aggregate([])[HASH].to_numpy(), return_counts=True)
        return np.isin(hashes, found[counts > 1])

    def _hashes(self, keys: pa.Table) -> np.ndarray:
        # The key's columns come first, whatever the caller calls them.
        return key_hash(keys, keys.column_names[: len(self._key)])

    def _tidy(self, found: list[pa.Table]) -> pa.Table:
        columns = [name for name in found[0].column_names if name not in (HASH, TIME)]
        table = pa.concat_tables(table.select(columns) for table in found)
        # Only the tail deletes; without it the base is consolidated as it is.
        return consolidate(table) if sum(part.num_rows for part in found[1:]) else table

    def _loaded(self) -> Run:
        if self._base is None:
            raise InvalidUsage(f"nobody holds the arrangement of {self._reader.shard_id}")
        return self._base

    def _from_tail(self, hashes: np.ndarray, as_of: int) -> list[pa.Table]:
        found = []
        for run in self._tail:
            table = run.take(*run.ranges(hashes))
            if table.num_rows:
                table = table.filter(pc.less_equal(table[TIME], as_of))
            found.append(table)
        return found

    def _load(self, as_of: int) -> None:
        if as_of >= 0:
            rows = self._prepare(self._reader.snapshot(as_of))
        else:
            rows = self._prepare((self._schema or self._reader.schema).empty_table())
        self._tail = []
        self._as_of, self._upper = as_of, Frontier(as_of + 1)
        self._set_base(self._sorted(rows))

    def _catch_up(self, as_of: int) -> None:
        target = Frontier(as_of + 1)
        self._loaded()
        if as_of < self._as_of:
            raise InvalidUsage(
                f"the arrangement of {self._reader.shard_id} begins at {self._as_of}, it cannot "
                f"be read at {as_of}",
                hint="hold it at that time first",
            )
        if target <= self._upper:
            return
        try:
            fresh = self._prepare(self._reader.updates(self._upper, target))
        except AsOfBeforeSince:
            # Compaction overtook us; what it took away lies before every hold. Begin again there.
            least = min(self._holds.values())
            if least <= self._as_of:
                raise
            self._load(least)
            return self._catch_up(as_of)
        self._upper = target
        if fresh.num_rows:
            self._tail.append(Run(self._sorted(fresh)))
        if len(self._tail) > MAX_TAIL_RUNS:
            merged = pa.concat_tables(run.table for run in self._tail)
            self._tail = [Run(self._sorted(merged))]
        if sum(run.rows for run in self._tail) > self._tail_limit():
            self._absorb()

    def _tail_limit(self) -> float:
        return max(MIN_TAIL_ROWS, TAIL_SHARE * self._loaded().rows)

    def _absorb(self) -> None:
        """Merge into the base what every holder may already see."""
        base = self._loaded()
        assert self._upper.time is not None
        limit = min(*self._holds.values(), self._upper.time - 1)
        tail = pa.concat_tables(run.table for run in self._tail)
        old = pc.less_equal(tail[TIME], limit)
        fresh, rest = tail.filter(old), tail.filter(pc.invert(old))
        if fresh.num_rows <= self._tail_limit():
            return  # Some holder is far behind; rewriting the base would change little.
        start, stop = base.ranges(np.unique(fresh[HASH].to_numpy()))
        touched = _positions(start, stop)
        untouched = np.ones(base.rows, dtype=bool)
        untouched[touched] = False
        merged = pa.concat_tables([base.table.take(pa.array(touched)), fresh])
        merged = consolidate(
            merged.set_column(
                merged.column_names.index(TIME),
                TIME,
                pa.repeat(pa.scalar(limit, pa.int64()), merged.num_rows),
            )
        )
        table = pa.concat_tables([base.table.filter(pa.array(untouched)), merged])
        self._as_of = limit
        self._set_base(self._sorted(table))
        self._tail = [Run(self._sorted(rest))] if rest.num_rows else []

    def _prepare(self, updates: pa.Table) -> pa.Table:
        good, _ = split_errors(updates)
        good = good.select([*row_names(good.schema), TIME, DIFF])
        return good.append_column(HASH, pa.array(key_hash(good, self._key)))

    def _sorted(self, table: pa.Table) -> pa.Table:
        if self._order is None:
            # Stable sorting is linear on what is two sorted runs already.
            order = pa.array(table[HASH].to_numpy().argsort(kind="stable"))
        else:
            names = [HASH, *self._key, self._order]
            order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
        return table.take(order).combine_chunks()

    def _set_base(self, table: pa.Table) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".tmp")
        with pa.OSFile(str(aside), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=max(table.num_rows, 1))
        aside.replace(self._path)
        mapped = pa.ipc.open_file(pa.memory_map(str(self._path))).read_all()
        self._base = Run(mapped if mapped.column(HASH).num_chunks else table)


def _positions(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """start[0]..stop[0]-1, start[1]..stop[1]-1, and so on, without a loop."""
    counts = np.maximum(stop - start, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - (ends - counts), counts) + np.arange(total)


def _exceeds(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """left > right in the order that rows are sorted in: numbers, then NaN, then nulls."""
    exceeds = pc.fill_null(pc.greater(left, right), False)
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.invert(pc.is_nan(right)))
        exceeds = pc.or_(exceeds, pc.fill_null(nan, False))
    return pc.or_(exceeds, pc.and_(pc.is_null(left), pc.is_valid(right)))
