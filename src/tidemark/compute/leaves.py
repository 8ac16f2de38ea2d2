"""The tables that the leaves of a block's query are bound to.

A leaf's rows come with the number of the time at which they changed (`_t`), or as what was there
before (`PRIOR`), and with how often they count (`_d`); its columns are c0, c1, …
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from tidemark.compute.constants import constant_rows
from tidemark.compute.delta import Probe
from tidemark.compute.plan import Constant
from tidemark.compute.run import COUNT, RANK
from tidemark.compute.shape import Block, Leaf
from tidemark.persist import DIFF, TIME
from tidemark.persist.updates import row_names


def changed_rows(leaf: Leaf, good: dict[str, pa.Table]) -> pa.Table:
    """What changed of a leaf, of the changes of all inputs; a constant never does."""
    if isinstance(leaf, Constant):
        return constant_rows(leaf).slice(0, 0).append_column(TIME, pa.nulls(0, pa.int64()))
    table = good[leaf.id]
    return table.select([*row_names(table.schema), TIME, DIFF])


def probe_keys(
    block: Block, probe: Probe, changed: list[pa.Table], here: dict[int, pa.Table]
) -> pa.Table:
    """What to look for in the leaf that a probe leads into."""
    if not probe.into_columns:
        return pa.table({"all": [0]})
    leaf = probe.from_leaf
    names = [block.leaves[leaf].columns[column].name for column in probe.from_columns]
    tables = [changed[leaf], here[leaf]] if leaf in here else [changed[leaf]]
    # By position: one column may be equal to several of the other side.
    labels = [f"k{i}" for i in range(len(names))]
    return pa.concat_tables(
        pa.table([table[name] for name in names], names=labels) for table in tables
    )


def distinct_times(changes: Iterable[pa.Table]) -> np.ndarray:
    found = [table[TIME].to_numpy() for table in changes if table.num_rows]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def ranked(table: pa.Table, names: list[str], times: np.ndarray) -> pa.Table:
    return leaf_table(table, names, np.searchsorted(times, table[TIME].to_numpy()))


def leaf_table(table: pa.Table, names: list[str], ranks: np.ndarray | int) -> pa.Table:
    columns = [table[name] for name in names]
    labels = [f"c{i}" for i in range(len(names))]
    numbers = pa.array(np.broadcast_to(ranks, table.num_rows).astype(np.int32))
    return pa.table([*columns, numbers, table[DIFF]], names=[*labels, RANK, COUNT])
