"""References from a subquery to the queries around it, and the plans that contain them.

Inside a plan that is not finished, a column of an enclosing query is a `Col` with a negative
index that says how many queries out it is (`level`, from 1) and which column it is there. A plan
without such columns means something by itself; the others are made so by `decorrelate.py`, query
by query, from the inside out. No finished plan contains an outer column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import msgspec

from tidemark.compute.expr import Col, Expr, columns_of, substitute
from tidemark.compute.plan import (
    MOST_NODES,
    Aggregate,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    Local,
    Plan,
    Project,
    Reduce,
    Window,
    inputs_of,
    size,
    too_large,
    with_inputs,
)
from tidemark.compute.plan import OuterJoin as OuterJoinNode
from tidemark.types import Column

_LEVEL = 100_000_000


def outer_col(level: int, col: Col) -> Col:
    """Column `col` of the query that is `level` queries out."""
    return Col(-(level * _LEVEL + col.index) - 1, col.type)


def level_of(col: Col) -> int:
    """How far out a column is from; 0 is a column of the plan's own input."""
    return 0 if col.index >= 0 else (-col.index - 1) // _LEVEL


def index_of(col: Col) -> int:
    return col.index if col.index >= 0 else (-col.index - 1) % _LEVEL


def outward(expr: Expr, by: int = 1) -> Expr:
    """An expression of the enclosing query, as its subquery writes it."""
    return substitute(expr, lambda col: outer_col(level_of(col) + by, Col(index_of(col), col.type)))


def inward(col: Col) -> Col:
    """An outer column, seen from one query further out."""
    level, at = level_of(col), Col(index_of(col), col.type)
    return at if level == 1 else outer_col(level - 1, at)


def has_outer(expr: Expr) -> bool:
    return any(index < 0 for index in columns_of(expr))


def has_own(expr: Expr) -> bool:
    return any(index >= 0 for index in columns_of(expr))


# Expressions of plans --------------------------------------------------------------------------


def map_aggregate(aggregate: Aggregate, change: Callable[[Expr], Expr]) -> Aggregate:
    return msgspec.structs.replace(
        aggregate,
        args=tuple(change(arg) for arg in aggregate.args),
        filter=None if aggregate.filter is None else change(aggregate.filter),
        order_by=tuple(
            msgspec.structs.replace(order, expr=change(order.expr)) for order in aggregate.order_by
        ),
    )


def map_expressions(plan: Plan, change: Callable[[Expr], Expr]) -> Plan:
    """The node with each of its own expressions changed."""
    replace = msgspec.structs.replace
    match plan:
        case Filter(predicate=predicate):
            return replace(plan, predicate=change(predicate))
        case Project(outputs=outputs):
            return replace(plan, outputs=tuple(change(expr) for expr in outputs))
        case FlatMap(args=args):
            return replace(plan, args=tuple(change(arg) for arg in args))
        case Join(on=on) | OuterJoinNode(on=on):
            return replace(plan, on=tuple(change(expr) for expr in on))
        case Reduce(keys=keys, aggregates=aggregates):
            return replace(
                plan,
                keys=tuple(change(key) for key in keys),
                aggregates=tuple(map_aggregate(each, change) for each in aggregates),
            )
        case Window(functions=functions):
            changed = (replace(fn, args=tuple(change(arg) for arg in fn.args)) for fn in functions)
            return replace(plan, functions=tuple(changed))
        case _:
            return plan


def expressions_of(plan: Plan) -> Iterator[Expr]:
    match plan:
        case Filter(predicate=predicate):
            yield predicate
        case Project(outputs=outputs):
            yield from outputs
        case FlatMap(args=args):
            yield from args
        case Join(on=on) | OuterJoinNode(on=on):
            yield from on
        case Reduce(keys=keys, aggregates=aggregates):
            yield from keys
            for aggregate in aggregates:
                yield from aggregate_expressions(aggregate)
        case Window(functions=functions):
            for function in functions:
                yield from function.args
        case _:
            return


def aggregate_expressions(aggregate: Aggregate) -> Iterator[Expr]:
    yield from aggregate.args
    if aggregate.filter is not None:
        yield aggregate.filter
    for order in aggregate.order_by:
        yield order.expr


def outer_columns(plan: Plan) -> frozenset[Col]:
    """The outer columns that occur anywhere in the plan."""
    found: set[Col] = set()

    def note(col: Col) -> Col:
        if col.index < 0:
            found.add(col)
        return col

    for expr in expressions_of(plan):
        substitute(expr, note)
    for input_ in inputs_of(plan):
        found |= outer_columns(input_)
    return frozenset(found)


def map_outer(plan: Plan, change: Callable[[Col], Expr]) -> Plan:
    """Every outer column of the plan, replaced."""

    def changed(expr: Expr) -> Expr:
        return substitute(expr, lambda col: change(col) if col.index < 0 else col)

    inputs = tuple(map_outer(input_, change) for input_ in inputs_of(plan))
    return map_expressions(with_inputs(plan, inputs), changed)


# Bindings --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Names:
    """Names for bindings, each given once."""

    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    nodes: int = 0
    """Of the views in the query."""

    def fresh(self, hint: str) -> str:
        return f"{hint}#{next(self.numbers)}"

    def put_in(self, view: Plan) -> Plan:
        """The plan of a view as part of the query."""
        self.nodes += size(view)
        if self.nodes > MOST_NODES:
            raise too_large()
        return freshened(view, self)


def map_locals(plan: Plan, change: Callable[[Local], Plan]) -> Plan:
    if isinstance(plan, Local):
        return change(plan)
    return with_inputs(plan, tuple(map_locals(input_, change) for input_ in inputs_of(plan)))


def uses(plan: Plan, name: str) -> int:
    if isinstance(plan, Local):
        return int(plan.name == name)
    return sum(uses(input_, name) for input_ in inputs_of(plan))


def bound(name: str, value: Plan, body: Plan, *, same_query: bool = False) -> Plan:
    """`body` with `name` bound to `value`: inlined if it is used once or is no work at all.

    Levels of outer columns count from where they stand, so what has some is inlined only if all
    of `body` is the `same_query`.
    """
    times = uses(body, name)
    if times == 0:
        return body
    if is_leaf(value) or (times == 1 and (same_query or not outer_columns(value))):
        return map_locals(body, lambda local: value if local.name == name else local)
    return Let(name, value, body)


def is_leaf(plan: Plan) -> bool:
    return isinstance(plan, Get | Local | Constant)


def freshened(plan: Plan, names: Names) -> Plan:
    """The plan with names of its own for what it binds, for when it becomes part of another."""
    match plan:
        case Let(name=name, value=value, body=body):
            new = names.fresh(name.partition("#")[0])
            renamed = _renamed_local(body, {name: new})
            return Let(new, freshened(value, names), freshened(renamed, names))
        case LetRec(bindings=bindings):
            renames = {each.name: names.fresh(each.name.partition("#")[0]) for each in bindings}
            plan = msgspec.structs.replace(
                plan,
                bindings=tuple(
                    msgspec.structs.replace(each, name=renames[each.name]) for each in bindings
                ),
            )
            inputs = tuple(_renamed_local(each, renames) for each in inputs_of(plan))
            return with_inputs(plan, tuple(freshened(each, names) for each in inputs))
        case _:
            return with_inputs(plan, tuple(freshened(each, names) for each in inputs_of(plan)))


def _renamed_local(plan: Plan, renames: dict[str, str]) -> Plan:
    return map_locals(plan, lambda local: Local(renames.get(local.name, local.name), local.columns))


# Small helpers for columns ---------------------------------------------------------------------


def cols_of(plan: Plan) -> tuple[Col, ...]:
    return tuple(Col(at, column.type) for at, column in enumerate(plan.columns))


def names_of(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def narrowed(plan: Plan, width: int) -> Plan:
    """Only the first `width` columns."""
    if len(plan.columns) == width:
        return plan
    return Project(plan, cols_of(plan)[:width], names_of(plan.columns[:width]))
