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

from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist.keyhash import HASH, key_hash
from tidemark.persist.read import ReadHandle
from tidemark.persist.updates import DIFF, ERR, TIME, consolidate, row_names, split_errors

MAX_TAIL_RUNS = 8
MIN_TAIL_ROWS = 50_000
TAIL_SHARE = 0.2


class Run:
    """Updates sorted by key hash (and by `order` within it), ready for binary search."""

    def __init__(self, table: pa.Table):
        self.table = table
        hashes = table.column(HASH)
        self.hashes = (
            hashes.chunk(0).to_numpy() if hashes.num_chunks == 1 else hashes.to_numpy()
        )

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
        self, reader: ReadHandle, key: tuple[str, ...], *, folder: Path, order: str | None = None
    ):
        self._reader = reader
        self._key = key
        self._order = order
        self._folder = folder
        self._path = folder / f"{reader.shard_id}-{uuid4().hex[:8]}.arrow"
        self._lock = threading.RLock()
        self._holds: dict[str, int] = {}
        self._base: Run | None = None
        self._colliding = np.zeros(0, dtype=np.uint64)
        self._tail: list[Run] = []
        self._as_of = -1
        self._upper = Frontier.MIN

    @property
    def rows(self) -> int:
        return (self._base.rows if self._base else 0) + sum(run.rows for run in self._tail)

    def hold(self, holder: str, as_of: int) -> None:
        """`holder` will read at `as_of` or later; the first hold loads the arrangement."""
        with self._lock:
            known = self._holds.get(holder, -1)
            self._holds[holder] = max(as_of, known)
            if self._base is None or as_of < self._as_of:
                self._load(as_of)

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
        hashes = np.unique(key_hash(keys, keys.column_names))
        with self._lock:
            self._catch_up(as_of)
            base = self._loaded()
            found = [base.take(*base.ranges(hashes)), *self._from_tail(hashes, as_of)]
        return self._tidy(found)

    def heads(self, keys: pa.Table, counts: np.ndarray, as_of: int, *, last: bool) -> pa.Table:
        """For each key at least the `counts` last (or first) live rows of its group.

        A group that has fewer comes back whole. `keys` are distinct.
        """
        if self._order is None:
            raise InvalidUsage("this arrangement is not ordered within its key")
        hashes = key_hash(keys, keys.column_names)
        hashes, inverse = np.unique(hashes, return_inverse=True)
        wanted = np.zeros(len(hashes), dtype=np.int64)
        np.add.at(wanted, inverse, counts)
        with self._lock:
            self._catch_up(as_of)
            base = self._loaded()
            tail = self._from_tail(hashes, as_of)
            # Each row that the tail deletes may take one row of the head away.
            for table in tail:
                gone = table.filter(pc.less(table[DIFF], 0))[HASH].to_numpy()
                np.add.at(wanted, np.searchsorted(hashes, gone), 1)
            start, stop = base.ranges(hashes)
            whole = np.isin(hashes, self._colliding)
            if last:
                start = np.where(whole, start, np.maximum(start, stop - wanted))
            else:
                stop = np.where(whole, stop, np.minimum(stop, start + wanted))
            found = [base.take(start, stop), *tail]
        return self._tidy(found)

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
        rows = self._prepare(self._reader.snapshot(as_of)) if as_of >= 0 else None
        if rows is None:
            rows = self._prepare(self._reader.schema.empty_table())
        self._tail = []
        self._as_of, self._upper = as_of, Frontier(as_of + 1)
        self._set_base(self._sorted(rows))

    def _catch_up(self, as_of: int) -> None:
        target = Frontier(as_of + 1)
        if target <= self._upper:
            return
        fresh = self._prepare(self._reader.updates(self._upper, target))
        self._upper = target
        if fresh.num_rows:
            self._tail.append(Run(self._sorted(fresh)))
        if len(self._tail) > MAX_TAIL_RUNS:
            merged = pa.concat_tables(run.table for run in self._tail)
            self._tail = [Run(self._sorted(merged))]
        if sum(run.rows for run in self._tail) > max(
            MIN_TAIL_ROWS, TAIL_SHARE * self._loaded().rows
        ):
            self._absorb()

    def _absorb(self) -> None:
        """Merge into the base what every holder may already see."""
        base = self._loaded()
        limit = min(self._holds.values())
        tail = pa.concat_tables(run.table for run in self._tail)
        old = pc.less_equal(tail[TIME], limit)
        fresh, rest = tail.filter(old), tail.filter(pc.invert(old))
        start, stop = base.ranges(np.unique(fresh[HASH].to_numpy()))
        touched = _positions(start, stop)
        untouched = np.ones(base.rows, dtype=bool)
        untouched[touched] = False
        merged = pa.concat_tables([base.table.take(pa.array(touched)), fresh])
        merged = consolidate(merged.set_column(merged.column_names.index(TIME), TIME,
                                               pa.repeat(pa.scalar(limit, pa.int64()), merged.num_rows)))
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
        if self._order is not None:
            self._colliding = _colliding(self._base.table, self._key)


def _positions(start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """start[0]..stop[0]-1, start[1]..stop[1]-1, and so on, without a loop."""
    counts = np.maximum(stop - start, 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - (ends - counts), counts) + np.arange(total)


def _colliding(table: pa.Table, key: tuple[str, ...]) -> np.ndarray:
    """Hashes under which more than one key was stored: their groups are read whole."""
    if table.num_rows < 2:
        return np.zeros(0, dtype=np.uint64)
    hashes = table[HASH].to_numpy()
    same = hashes[1:] == hashes[:-1]
    differs = np.zeros(len(same), dtype=bool)
    for name in key:
        left, right = table[name].slice(0, len(same)), table[name].slice(1)
        unequal = pc.fill_null(pc.not_equal(left, right), False).to_numpy()
        nulls = pc.not_equal(pc.is_null(left), pc.is_null(right)).to_numpy()
        differs |= unequal | nulls
    return np.unique(hashes[1:][same & differs])


ARRANGED_WITHOUT = (HASH, TIME, ERR)
"""Columns of the stored updates that a look-up does not return."""
