"""The keys of a look-up: their hashes for the search, their values to tell collisions apart.

Keys are equal as SQL groups them: nulls are, NaN is NaN, -0.0 is 0.0. The caller's names and
widths are its own business: keys are cast to the types of the key's columns, and a value that
they cannot hold is a key that is not there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import InvalidUsage
from tidemark.persist.keyhash import key_hash
from tidemark.persist.updates import canonical


class Keys:
    """Distinct hashes in order, and the key (rarely: keys) behind each."""

    def __init__(self, keys: pa.Table, key: tuple[str, ...], schema: pa.Schema):
        if keys.num_columns < len(key):
            raise InvalidUsage(
                f"a key has {len(key)} columns ({', '.join(key)}), got {keys.num_columns}"
            )
        self._key = key
        self._layers: list[tuple[np.ndarray | None, pa.Table]] = []
        table, self._kept = _cast(keys, key, schema)
        hashes = key_hash(table, table.column_names)
        self.hashes, first, self._group = np.unique(hashes, return_index=True, return_inverse=True)
        if key:
            self._stack(table, first)

    def _stack(self, table: pa.Table, first: np.ndarray) -> None:
        """One key of each hash is a layer; keys that are none of them need another."""
        layer = table.take(pa.array(first))
        self._layers.append((None, layer))
        left = np.flatnonzero(~_equal_rows(table, layer.take(pa.array(self._group))))
        while left.size:
            groups, first = np.unique(self._group[left], return_index=True)
            slots = np.full(len(self.hashes), -1)
            slots[groups] = np.arange(len(groups))
            layer = table.take(pa.array(left[first]))
            self._layers.append((slots, layer))
            of = layer.take(pa.array(slots[self._group[left]]))
            left = left[~_equal_rows(table.take(pa.array(left)), of)]

    def totals(self, counts: np.ndarray) -> np.ndarray:
        """`counts`, one for each key that was given, summed by hash."""
        result = np.zeros(len(self.hashes), dtype=np.int64)
        np.add.at(result, self._group, np.asarray(counts)[self._kept])
        return result

    def crowded(self) -> np.ndarray:
        """Which hashes are those of several keys."""
        result = np.zeros(len(self.hashes), dtype=bool)
        for slots, _ in self._layers:
            if slots is not None:
                result |= slots >= 0
        return result

    def matches(self, table: pa.Table, group: np.ndarray) -> np.ndarray:
        """Which rows of `table`, found by the hash of number `group`, have one of the keys."""
        if not self._key:
            return np.ones(len(group), dtype=bool)
        # By position: a key may name a column twice.
        rows = pa.table([table[name] for name in self._key], _places(self._key))
        result = np.zeros(len(group), dtype=bool)
        for slots, layer in self._layers:
            if slots is None:
                result |= _equal_rows(rows, layer.take(pa.array(group)))
                continue
            at = slots[group]
            some = np.flatnonzero(at >= 0)
            equal = _equal_rows(rows.take(pa.array(some)), layer.take(pa.array(at[some])))
            result[some] |= equal
        return result


def _cast(keys: pa.Table, key: tuple[str, ...], schema: pa.Schema) -> tuple[pa.Table, np.ndarray]:
    """The first columns of `keys` as those of the key, and which rows they have a place for."""
    kept = np.ones(keys.num_rows, dtype=bool)
    columns = []
    for column, name in zip(keys.columns[: len(key)], key, strict=True):
        kind = schema.field(name).type
        if column.type != kind:
            try:
                cast = pc.cast(column, kind, safe=False)
                kept &= _equal(pc.cast(cast, column.type, safe=False), column)
                if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
                    # There and back it may still have changed its sign.
                    zeros = pa.scalar(0, kind), pa.scalar(0, column.type)
                    kept &= _equal(pc.less(cast, zeros[0]), pc.less(column, zeros[1]))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InvalidUsage(
                    f'the key\'s column "{name}" is {kind}, which {column.type} is not: {error}'
                ) from error
            column = cast
        columns.append(column.combine_chunks() if column.num_chunks != 1 else column)
    if not key:
        return keys.select([]).slice(0, min(keys.num_rows, 1)), np.arange(min(keys.num_rows, 1))
    table = canonical(pa.table(columns, _places(key)))
    if not kept.all():
        table = table.filter(pa.array(kept))
    return table, np.flatnonzero(kept)


def _places(key: tuple[str, ...]) -> list[str]:
    return [str(place) for place in range(len(key))]


def _equal_rows(left: pa.Table, right: pa.Table) -> np.ndarray:
    result = np.ones(left.num_rows, dtype=bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        result &= _equal(one, other)
    return result


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    """Where two columns agree, nulls with nulls and NaN with NaN."""
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if equal.null_count:
        equal = pc.fill_null(equal, False)
        equal = pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))
    return equal.to_numpy()
