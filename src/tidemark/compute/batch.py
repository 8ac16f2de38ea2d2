"""A plan as one plain Spark SQL query: how one-off SELECTs run, and what views are verified with.

Every node becomes a subquery with columns c0, c1, ... (one called `none` where there are none);
Catalyst does the rest. Where a maintained view would contain an error row, a query fails with that
error.

A `Let` is a WITH. Counts are copies of rows: below a `Negate` they have a sign, so rows are summed
up there with a column `_d` and laid out again where the sign ends (`_signed`). What cannot be one
query is a `LetRec`: `recursion.py` evaluates it first and leaves `Local`s that name views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidemark.compute.arrays import loaded
from tidemark.compute.batch_groups import reduce_sql, top_k_sql, window_sql
from tidemark.compute.batch_text import (
    checked,
    column_name,
    listed,
    names_of,
    ordered,
    selected,
    view_of,
)
from tidemark.compute.expr import Expr
from tidemark.compute.plan import (
    Constant,
    Filter,
    Finish,
    FlatMap,
    Get,
    Join,
    Let,
    Local,
    Negate,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
)
from tidemark.compute.table_functions import generator, rows_error
from tidemark.errors import Unsupported

Relation = Callable[[Get], str]

_OUTER = {"left": "LEFT", "full": "FULL", "semi": "LEFT SEMI", "anti": "LEFT ANTI"}


def batch_sql(plan: Plan, relation: Relation) -> str:
    """`relation` names the view that holds a collection's rows, as columns c0, c1, ...

    A `Local` that no `Let` of the plan binds is read from the view that `view_of` names.
    """
    if _has_sign(plan):
        return _without_sign(plan, relation)

    def of(input_: Plan) -> str:
        return batch_sql(input_, relation)

    match plan:
        case Get(columns=columns):
            return f"SELECT {selected(names_of(columns))} FROM {relation(plan)}"
        case Local(name=name, columns=columns):
            return f"SELECT {selected(names_of(columns))} FROM {view_of(name)}"
        case Constant(rows=(), columns=columns):
            nulls = [f"CAST(NULL AS {c.type.spark}) AS c{i}" for i, c in enumerate(columns)]
            return f"SELECT {selected(nulls)} WHERE false"
        case Constant(rows=rows, columns=columns) if not columns:
            return f"SELECT 1 AS none FROM range({len(rows)})"
        case Constant(rows=rows, columns=columns):
            tuples = [f"({listed(checked(cell) for cell in row)})" for row in rows]
            return f"SELECT * FROM VALUES {listed(tuples)} AS t({listed(names_of(columns))})"
        case Filter(input=input_, predicate=predicate):
            return f"SELECT * FROM ({of(input_)}) WHERE {checked(predicate)}"
        case Project(input=input_, outputs=outputs):
            return f"SELECT {_outputs(outputs)} FROM ({of(input_)})"
        case FlatMap():
            return _flat_map(plan, of(plan.input))
        case Union(inputs=inputs):
            return " UNION ALL ".join(f"({of(input_)})" for input_ in inputs)
        case Threshold(input=input_):
            # Nothing below has a sign, so every count is positive.
            return of(input_)
        case Join(inputs=inputs):
            return _join(plan, [of(input_) for input_ in inputs])
        case OuterJoin(left=left, right=right):
            return _outer_join(plan, of(left), of(right))
        case Reduce(input=input_):
            return reduce_sql(plan, of(input_))
        case TopK(input=input_):
            return top_k_sql(plan, of(input_))
        case Window(input=input_):
            return window_sql(plan, of(input_))
        case Let(name=name, value=bound, body=body):
            return f"WITH {view_of(name)} AS ({of(bound)}) SELECT * FROM ({of(body)})"
        case Finish(input=input_):
            return _finish(plan, of(input_))
        case _:
            raise Unsupported(f"{type(plan).__name__} is not one query")


def _outputs(outputs: Iterable[Expr]) -> str:
    return selected(f"{checked(expr)} AS c{i}" for i, expr in enumerate(outputs))


def _flat_map(plan: FlatMap, source: str) -> str:
    at = len(plan.input.columns)
    made = listed(f"c{at + i}" for i in range(len(plan.made)))
    args = [loaded(checked(arg), arg.type) for arg in plan.args]
    failed = rows_error(plan.fn, plan.args, column_name)
    rows = generator(plan.fn, args, len(plan.made), failed, f"raise_error({failed})")
    return f"SELECT {selected(names_of(plan.columns))} FROM ({source}) LATERAL VIEW {rows} made AS {made}"


def _join(plan: Join, sides: list[str]) -> str:
    columns, places = [], []
    for at, input_ in enumerate(plan.inputs):
        for i in range(len(input_.columns)):
            columns.append(f"j{at}.c{i} AS c{len(columns)}")
            places.append(f"j{at}.c{i}")
    on = [checked(expr, places.__getitem__) for expr in plan.on]
    where = f" WHERE {' AND '.join(on)}" if on else ""
    sources = " CROSS JOIN ".join(f"({side}) j{at}" for at, side in enumerate(sides))
    return f"SELECT {selected(columns)} FROM {sources}{where}"


def _outer_join(plan: OuterJoin, left: str, right: str) -> str:
    places = [f"l.c{i}" for i in range(len(plan.left.columns))]
    places += [f"r.c{i}" for i in range(len(plan.right.columns))]
    columns = [f"{places[i]} AS c{i}" for i in range(len(plan.columns))]
    on = " AND ".join(checked(expr, places.__getitem__) for expr in plan.on) or "true"
    return (
        f"SELECT {selected(columns)} FROM ({left}) l {_OUTER[plan.kind]} JOIN ({right}) r ON {on}"
    )


def _finish(plan: Finish, source: str) -> str:
    orders = [ordered(f"c{o.index}", o.descending, o.nulls_first) for o in plan.order_by]
    return " ".join(
        [
            f"SELECT {selected(names_of(plan.columns))} FROM ({source})",
            *([f"ORDER BY {listed(orders)}"] if orders else []),
            *([f"LIMIT {plan.limit}"] if plan.limit is not None else []),
            *([f"OFFSET {plan.offset}"] if plan.offset else []),
        ]
    )


def _has_sign(plan: Plan) -> bool:
    """Whether a `Negate` decides the counts of the plan's rows."""
    match plan:
        case Negate():
            return True
        case Union(inputs=inputs):
            return any(_has_sign(input_) for input_ in inputs)
        case Filter(input=input_) | Project(input=input_) | Threshold(input=input_):
            return _has_sign(input_)
        case _:
            return False


def _without_sign(plan: Plan, relation: Relation) -> str:
    """Rows as often as they count; what counts less than once is not there."""
    match plan:
        case Threshold(input=Union(inputs=(left, Negate(input=right)))) if not (
            _has_sign(left) or _has_sign(right)
        ):
            return f"({batch_sql(left, relation)}) EXCEPT ALL ({batch_sql(right, relation)})"
        case Union(
            inputs=(left, Negate(input=Threshold(input=Union(inputs=(same, Negate(input=right))))))
        ) if left == same and not (_has_sign(left) or _has_sign(right)):
            return f"({batch_sql(left, relation)}) INTERSECT ALL ({batch_sql(right, relation)})"
    columns = names_of(plan.columns) or ["none"]
    return (
        f"SELECT {listed(columns)} FROM ({_summed(plan, relation)})"
        " LATERAL VIEW explode(array_repeat(1, CAST(_d AS INT))) copies AS _copy"
    )


def _summed(plan: Plan, relation: Relation) -> str:
    columns = listed(names_of(plan.columns) or ["none"])
    summed = f"SELECT {columns}, sum(_d) AS _d FROM ({_signed(plan, relation)}) GROUP BY {columns}"
    return f"SELECT * FROM ({summed}) WHERE _d > 0"


def _signed(plan: Plan, relation: Relation) -> str:
    """The plan's rows with a column `_d`: how often each counts."""
    match plan:
        case Negate(input=input_):
            columns = listed(names_of(plan.columns) or ["none"])
            return f"SELECT {columns}, -_d AS _d FROM ({_signed(input_, relation)})"
        case Union(inputs=inputs) if _has_sign(plan):
            return " UNION ALL ".join(f"({_signed(input_, relation)})" for input_ in inputs)
        case Filter(input=input_, predicate=predicate) if _has_sign(plan):
            return f"SELECT * FROM ({_signed(input_, relation)}) WHERE {checked(predicate)}"
        case Project(input=input_, outputs=outputs) if _has_sign(plan):
            return f"SELECT {_outputs(outputs)}, _d FROM ({_signed(input_, relation)})"
        case Threshold() if _has_sign(plan):
            return _summed(plan.input, relation)
        case _:
            return f"SELECT *, 1L AS _d FROM ({batch_sql(plan, relation)})"
