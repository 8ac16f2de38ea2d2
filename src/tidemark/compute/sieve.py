"""Rows of a leaf that its own predicates drop for sure, dropped before anything is looked up.

    p_brand = 'Brand#23' AND l_quantity < 0.2 * c1       the first is asked here, the second is not

A tick's changes are looked up in arrangements and joined by a Spark query; most of them fail a
comparison with a constant. Here are only those predicates that Arrow answers exactly as Spark does
and that cannot fail; the query asks all of them again.
"""

from __future__ import annotations

import contextlib

import pyarrow as pa

from tidemark.compute.arrow_expr import answer
from tidemark.compute.expr import columns_of
from tidemark.compute.shape import Block


class Sieve:
    """What one leaf of a block asks of its rows."""

    def __init__(self, block: Block, leaf: int):
        start, columns = block.offset(leaf), block.leaves[leaf].columns
        own = range(start, start + len(columns))
        names = {start + at: column.name for at, column in enumerate(columns)}
        mine = [p for p in block.predicates if columns_of(p) and columns_of(p) <= set(own)]
        self._asked = [
            found for each in mine if (found := answer(each, names.__getitem__)) is not None
        ]

    def passed(self, rows: pa.Table) -> pa.Table:
        for asked in self._asked:
            if not rows.num_rows:
                break
            # A date may be too far away for a timestamp; Spark has a word on that.
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.filter(asked(rows))
        return rows
