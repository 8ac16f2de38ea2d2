"""The run order: how the updates within a run are sorted.

Rows are ordered by two numbers, the hash of their key and the hash of the whole row:

    position    (key hash, row hash)
    key hash    keyhash.key_hash over the shard's key columns; 0 if there are none
    row hash    sum of (column hash) * P^(i+1) modulo 2^64, mixed, over the columns that are not
                null; i is 0 for `_err` and then counts the row's columns from the left

So all updates of a key are together, and within them all updates of a row, whatever their times:
runs merge in one pass that holds no more than one row's history at a time (merge.py). Like the key
hash this is part of the stored format. Nulls count for nothing in it so that a run stays sorted
when its shard's schema grows by a nullable column at the end.

Different rows may share a position: 64 bits are many, but not a proof. Whoever relies on equal
positions compares the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.persist.keyhash import PRIME, array_hash, batches, combine, mix
from tidemark.persist.updates import ERR, TIME, row_names

_MANY, _SAMPLE = 16 * 1024, 1024
"""Rows that are worth a look at how many keys they have, and of how many that is judged."""


class Order(NamedTuple):
    """The positions of a table's rows: two uint64 arrays."""

    key: np.ndarray
    row: np.ndarray

    def slice(self, start: int, stop: int | None = None) -> Order:
        return Order(self.key[start:stop], self.row[start:stop])

    def at(self, index: int) -> tuple[int, int]:
        return int(self.key[index]), int(self.row[index])

    def before(self, position: tuple[int, int], *, inclusive: bool = False) -> int:
        """How many rows of a sorted table lie before `position` (or, inclusive, up to it)."""
        key, row = map(np.uint64, position)
        first = int(self.key.searchsorted(key, side="left"))
        last = int(self.key.searchsorted(key, side="right"))
        side = "right" if inclusive else "left"
        return first + int(self.row[first:last].searchsorted(row, side=side))


def order(table: pa.Table, key: tuple[str, ...]) -> Order:
    columns = [ERR, *row_names(table.schema)]
    keys = np.zeros(table.num_rows, dtype=np.uint64)
    rows = np.zeros(table.num_rows, dtype=np.uint64)
    for at, batch in batches(table.select(columns)):
        hashes = [array_hash(column) for column in batch.columns]
        if key:
            keys[at] = combine((hashes[columns.index(name)] for name in key), batch.num_rows)
        rows[at] = _row_hash(batch.columns, hashes)
    return Order(keys, rows)


def _row_hash(columns: list[pa.Array], hashes: list[np.ndarray]) -> np.ndarray:
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for at, (column, hashed) in enumerate(zip(columns, hashes, strict=True)):
        if column.null_count == len(column):
            continue
        terms = hashed * np.uint64(pow(int(PRIME), at + 1, 2**64))
        if column.null_count:
            terms[column.is_null().to_numpy(zero_copy_only=False)] = 0
        total += terms
    return mix(total)


def sort(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """`table` in run order; updates of one position by time, and else as they came."""
    positions = order(table, key)
    if is_sorted(positions):
        return table
    times = table[TIME].to_numpy()
    return table.take(pa.array(argsort(positions, times, np.arange(table.num_rows))))


def is_sorted(positions: Order) -> bool:
    key, row = positions
    if key.size and key[0] == key[-1] and not (key != key[0]).any():
        return bool((row[1:] >= row[:-1]).all())
    ordered = key[1:] > key[:-1]
    ordered |= (key[1:] == key[:-1]) & (row[1:] >= row[:-1])
    return bool(ordered.all())


def argsort(positions: Order, *ties: np.ndarray) -> np.ndarray:
    """Row numbers by position, and rows of one position by the integers of `ties`, in turn.

    One array after the other sorts only the rows that those before it leave tied: most have
    ties in few rows, and sorting one array of 64 bits is several times faster than np.lexsort.
    """
    key, *rest = (positions.key, positions.row, *ties)
    if key.size and key[0] == key[-1] and not (key != key[0]).any():
        key, *rest = rest
    if rest and (groups := _few(key)) is not None:
        values, *rest = rest
        result = _argsort_groups(groups, values)
        new = _starts(groups[result]) | _starts(values[result])
    else:
        result = key.argsort()
        new = _starts(key[result])
    for values in rest:
        tied = ~new
        tied[:-1] |= ~new[1:]
        tied = np.flatnonzero(tied)
        if not tied.size:
            break
        rows, groups = result[tied], np.cumsum(new[tied])
        within = _argsort_groups(groups, values[rows])
        result[tied] = rows = rows[within]
        new[tied] |= _starts(values[rows])
    return result


def _few(key: np.ndarray) -> np.ndarray | None:
    """The rank of each key, if there are so few different ones that they need not be sorted."""
    if len(key) < _MANY or len(np.unique(key[:: len(key) // _SAMPLE])) > _SAMPLE // 8:
        return None
    coded = pa.array(key).dictionary_encode()
    if len(coded.dictionary) > _SAMPLE:
        return None
    rank = np.empty(len(coded.dictionary), dtype=np.uint64)
    rank[coded.dictionary.to_numpy().argsort()] = np.arange(len(rank), dtype=np.uint64)
    return rank[coded.indices.to_numpy()]


def _argsort_groups(groups: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Numbers by (group, value), with both packed into one integer."""
    values = (values - values.min()).view(np.uint64)
    bits = int(values.max()).bit_length()
    lost = max(bits + int(groups.max()).bit_length() - 64, 0)
    packed = groups.astype(np.uint64) << np.uint64(bits - lost)
    packed |= values >> np.uint64(lost)
    result = packed.argsort()
    if lost:
        found, groups = values[result], groups[result]
        if ((found[1:] < found[:-1]) & (groups[1:] == groups[:-1])).any():
            return np.lexsort((values, groups))
    return result


def _starts(values: np.ndarray) -> np.ndarray:
    """Which of the sorted `values` differ from the one before."""
    result = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=result[1:])
    return result
