"""A plan as one plain Spark SQL query: how one-off SELECTs run, and what views are verified with.

Every node becomes a subquery with columns c0, c1, ...; Catalyst does the rest. Where a maintained
view would contain an error row, a query fails with that error.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.compute.delta import accumulators, finish_exprs, sum_type
from tidemark.compute.expr import Col, Expr
from tidemark.compute.plan import Constant, Filter, Finish, Get, Join, Plan, Project, Reduce
from tidemark.compute.render_expr import error, value
from tidemark.compute.shape import Block, Shape, reduction_of
from tidemark.errors import Unsupported
from tidemark.types import Column


def batch_sql(plan: Plan, relation: Callable[[Get], str]) -> str:
    """`relation` names the view that holds a collection's rows, as columns c0, c1, ..."""
    match plan:
        case Get(columns=columns):
            return f"SELECT {_list(_names(columns))} FROM {relation(plan)}"
        case Constant(rows=(), columns=columns):
            nulls = [f"CAST(NULL AS {c.type.spark}) AS c{i}" for i, c in enumerate(columns)]
            return f"SELECT {_list(nulls)} WHERE false"
        case Constant(rows=rows, columns=columns) if not columns:
            return f"SELECT 1 AS none FROM range({len(rows)})"
        case Constant(rows=rows, columns=columns):
            tuples = [f"({_list(value(cell, _column) for cell in row)})" for row in rows]
            return f"SELECT * FROM VALUES {_list(tuples)} AS t({_list(_names(columns))})"
        case Filter(input=input_, predicate=predicate):
            return f"SELECT * FROM ({batch_sql(input_, relation)}) WHERE {_checked(predicate)}"
        case Project(input=input_, outputs=outputs):
            picked = [f"{_checked(expr)} AS c{i}" for i, expr in enumerate(outputs)]
            return f"SELECT {_list(picked)} FROM ({batch_sql(input_, relation)})"
        case Join():
            return _join(plan, relation)
        case Reduce():
            return _reduce(plan, relation)
        case Finish():
            return _finish(plan, relation)
        case _:
            raise Unsupported(f"{type(plan).__name__} cannot be queried yet")


def _join(plan: Join, relation: Callable[[Get], str]) -> str:
    columns, places = [], []
    for at, input_ in enumerate(plan.inputs):
        for i in range(len(input_.columns)):
            columns.append(f"j{at}.c{i} AS c{len(columns)}")
            places.append(f"j{at}.c{i}")
    sides = [f"({batch_sql(side, relation)}) j{at}" for at, side in enumerate(plan.inputs)]
    on = [_checked(expr, places.__getitem__) for expr in plan.on]
    where = f" WHERE {' AND '.join(on)}" if on else ""
    return f"SELECT {_list(columns)} FROM {' CROSS JOIN '.join(sides)}{where}"


def _reduce(plan: Reduce, relation: Callable[[Get], str]) -> str:
    """The same accumulators as a maintained view's, so that both round alike."""
    outputs, reduction = reduction_of(plan)
    cols = tuple(Col(i, column.type) for i, column in enumerate(plan.columns))
    names = tuple(column.name for column in plan.columns)
    shape = Shape(Block((), (), outputs), reduction, (), cols, names)
    acc = accumulators(shape.block, reduction)
    keys = [f"k{i}" for i in range(len(acc.keys))]
    inner = [*keys, *(f"a{i}" for i in range(len(acc.args)))]
    picked = [f"{_checked(e)} AS {name}" for e, name in zip(outputs, inner, strict=True)]
    measured = [
        *keys,
        "count(1) AS n",
        *(f"count(a{i}) AS n{i}" for i in acc.counted),
        *(f"sum(CAST(a{i} AS {sum_type(acc.args[i]).spark})) AS s{i}" for i in acc.summed),
    ]
    for i in acc.ordered:
        measured += [f"min(a{i}) AS lo{i}", f"max(a{i}) AS hi{i}"]
    source = f"SELECT {_list(picked or ['1 AS one'])} FROM ({batch_sql(plan.input, relation)})"
    group = f" GROUP BY {_list(keys)}" if keys else ""
    finished, _ = finish_exprs(shape, acc)
    places = [column.name for column in acc.columns]
    final = [f"{_checked(e, places.__getitem__)} AS c{i}" for i, e in enumerate(finished)]
    return f"SELECT {_list(final)} FROM (SELECT {_list(measured)} FROM ({source}){group})"


def _finish(plan: Finish, relation: Callable[[Get], str]) -> str:
    orders = []
    for order in plan.order_by:
        nulls_first = order.nulls_first if order.nulls_first is not None else order.descending
        orders.append(
            f"c{order.index} {'DESC' if order.descending else 'ASC'}"
            f" NULLS {'FIRST' if nulls_first else 'LAST'}"
        )
    return " ".join(
        [
            f"SELECT {_list(_names(plan.columns))} FROM ({batch_sql(plan.input, relation)})",
            *([f"ORDER BY {_list(orders)}"] if orders else []),
            *([f"LIMIT {plan.limit}"] if plan.limit is not None else []),
            *([f"OFFSET {plan.offset}"] if plan.offset else []),
        ]
    )


def _checked(expr: Expr, column: Callable[[int], str] | None = None) -> str:
    """The expression's value, or a failed query where it fails."""
    column = column or _column
    plain, failed = value(expr, column), error(expr, column)
    if failed is None:
        return plain
    return f"CASE WHEN ({failed}) IS NULL THEN {plain} ELSE raise_error({failed}) END"


def _column(index: int) -> str:
    return f"c{index}"


def _names(columns: tuple[Column, ...]) -> list[str]:
    return [f"c{i}" for i in range(len(columns))]


def _list(items) -> str:
    return ", ".join(items)
