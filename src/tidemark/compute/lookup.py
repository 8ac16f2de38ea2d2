"""Look-ups that were asked together, by one key of one index: what a replica finds for all of them.

    keys        ('k1'), ('k2'), ('k3')          no two alike
    found       c0, c1, ...  with `which`       rows of k1, then of k2, then of k3
                             0 0 1 2 2

Nothing is filtered or computed: the rows of a key are the answer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.index import Indexes
from tidemark.compute.peek_arrow import copied
from tidemark.compute.protocol import LookUp
from tidemark.ipc import decode_table

WHICH = "which"


def look_up(indexes: Indexes, asked: LookUp) -> pa.Table | None:
    """The rows by the order of their keys; None if the index cannot say."""
    there = (each for each in indexes.of_shard(asked.shard) if each.spec.key == asked.key)
    index = next(there, None)
    if index is None:
        return None
    keys = decode_table(asked.keys)
    # Whoever asks has seen the shard come there, so this does not wait for long.
    found = index.lookup(keys, asked.as_of, lambda: False)
    if found is None:
        return None
    found = copied(found)
    which = places([found[name] for name in asked.key], keys.columns)
    if keys.num_rows > 1:
        order = np.argsort(which, kind="stable")
        found, which = found.take(pa.array(order)), which[order]
    columns = [found[name] for name in asked.columns]
    labels = [f"c{i}" for i in range(len(columns))]
    return pa.table([*columns, pa.array(which, pa.int32())], [*labels, WHICH])


def places(found: list[pa.ChunkedArray], keys: list[pa.ChunkedArray]) -> np.ndarray:
    """For each row the place of its key among the keys, all of which are there and not null."""
    if len(keys[0]) == 1:
        return np.zeros(len(found[0]), np.int64)
    codes, known = np.zeros(len(found[0]), np.int64), np.zeros(len(keys[0]), np.int64)
    for column, wanted in zip(found, keys, strict=True):
        distinct = pc.unique(wanted.cast(column.type))
        codes = codes * len(distinct) + _among(column, distinct)
        known = known * len(distinct) + _among(wanted.cast(column.type), distinct)
    order = np.argsort(known)
    return order[np.searchsorted(known[order], codes)]


def _among(column: pa.ChunkedArray, distinct: pa.Array) -> np.ndarray:
    return pc.index_in(column, value_set=distinct).to_numpy().astype(np.int64)
