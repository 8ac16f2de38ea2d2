"""Simple queries over rows that are here, answered by Arrow: filter, project, order, limit.

What comes out is what Spark would give: texts in the order of their bytes, NaN after every number,
nulls where PostgreSQL puts them. Rows that an order does not tell apart come in any order, as ever.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.arrow_expr import answer
from tidemark.compute.expr import Expr
from tidemark.compute.peek_plan import Simple
from tidemark.compute.plan import OrderBy
from tidemark.errors import Corruption
from tidemark.persist import DIFF
from tidemark.spark.collect import too_large


def answered(query: Simple, rows: pa.Table, *, max_bytes: int = 0) -> pa.Table:
    """The query over `rows` of its collection (with `_diff`), as columns c0, c1, ..."""
    names = [column.name for column in query.get.columns]
    for predicate in query.predicates:
        rows = _filtered(rows, _value(predicate, names, rows))
    most = None if query.limit is None else query.offset + query.limit
    if most is not None and not query.order_by:
        rows = rows.slice(0, most)
    rows = copied(rows, most=most, max_bytes=max_bytes)
    labels = [f"c{i}" for i in range(len(query.outputs))]
    outputs = [_column(_value(each, names, rows), rows.num_rows) for each in query.outputs]
    types = [each.type.arrow for each in query.outputs]
    found = pa.table(outputs, labels).cast(pa.schema(list(zip(labels, types, strict=True))))
    if query.order_by:
        found = found.take(_order(found, query.order_by))
    if query.offset or query.limit is not None:
        found = found.slice(query.offset, query.limit)
    found = found.select(labels[: query.keep])
    if max_bytes and found.nbytes > max_bytes:
        raise too_large(max_bytes)
    return found


def copied(rows: pa.Table, *, most: int | None = None, max_bytes: int = 0) -> pa.Table:
    """Rows as often as `_diff` says, though none more than `most` times."""
    copies = rows[DIFF].to_numpy()
    if (copies < 0).any():
        raise Corruption(
            "a collection holds a row a negative number of times",
            hint="VERIFY MATERIALIZED VIEW shows what a view has wrong, and CREATE OR REPLACE with"
            " the same query makes it anew",
        )
    if not (copies != 1).any():
        return rows
    if most is not None:
        copies = np.minimum(copies, most)
    if max_bytes and rows.num_rows:
        each = rows.nbytes / rows.num_rows
        if copies.sum() * each > max(max_bytes, rows.nbytes):
            raise too_large(max_bytes)
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), copies)))


def _value(expr: Expr, names: list[str], rows: pa.Table):
    asked = answer(expr, names.__getitem__)
    assert asked is not None
    return asked(rows)


def _filtered(rows: pa.Table, mask: pa.ChunkedArray | pa.Array | pa.Scalar) -> pa.Table:
    if isinstance(mask, pa.Scalar):
        return rows if mask.as_py() else rows.slice(0, 0)
    return rows.filter(mask)


def _column(value: pa.ChunkedArray | pa.Array | pa.Scalar, count: int):
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def _order(rows: pa.Table, order_by: tuple[OrderBy, ...]) -> pa.Array:
    """Arrow puts nulls and NaN at one end for all keys at once; so each is a key of its own."""
    keys, columns = [], {}
    for at, order in enumerate(order_by):
        column = rows.column(order.index)
        direction = "descending" if order.descending else "ascending"
        if column.null_count:
            first = order.descending if order.nulls_first is None else order.nulls_first
            columns[f"null{at}"] = pc.is_null(column)
            keys.append((f"null{at}", "descending" if first else "ascending"))
        if pa.types.is_floating(column.type):
            columns[f"nan{at}"] = pc.is_nan(column)
            keys.append((f"nan{at}", direction))
        columns[f"value{at}"] = column
        keys.append((f"value{at}", direction))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)
