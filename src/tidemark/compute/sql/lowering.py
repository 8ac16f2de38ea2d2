"""A correlated plan over a set of outer rows: the general way to make a subquery plain.

    over(plan, domain)      columns of the domain, then those of the plan: for every row of the
                            domain, what the plan is for that row

The domain holds the distinct values of the outer columns that the plan mentions. It travels
through the plan from the leaves up: as more columns of a projection, more keys of a grouping, one
more input of a join. Only a grouping without keys needs care: it has a row even over nothing, so
the domain's rows that have none are put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tidemark.compute.expr import Col, Expr, Lit, substitute
from tidemark.compute.functions import call
from tidemark.compute.plan import (
    Aggregate,
    Binding,
    Constant,
    Join,
    Let,
    LetRec,
    Local,
    Negate,
    OrderBy,
    OuterJoin,
    Plan,
    Project,
    Reduce,
    TopK,
    Window,
    inputs_of,
    with_inputs,
)
from tidemark.compute.sql.correlation import (
    cols_of,
    inward,
    level_of,
    map_aggregate,
    map_expressions,
    map_outer,
    names_of,
    outer_columns,
)
from tidemark.types import BIGINT

ONE_ROW = Constant(((),), ())
"""What a SELECT without FROM selects from."""


def over(plan: Plan, domain: Plan, refs: Sequence[Col]) -> Plan:
    """`plan` for each row of `domain`, whose columns are the values of the outer columns `refs`."""
    return _Lowering(domain, {ref: at for at, ref in enumerate(refs)}).over(plan)


def joined(left: Plan, right: Plan, on: Sequence[Expr] = ()) -> Plan:
    """An inner join, kept flat; `on` is over the columns of both."""
    if left == ONE_ROW and not on:
        return right
    if right == ONE_ROW and not on:
        return left
    inputs: list[Plan] = []
    every: list[Expr] = []
    width = 0
    for side in (left, right):
        flat = isinstance(side, Join)
        inputs += side.inputs if flat else (side,)
        if flat:
            every += [_shifted(expr, width) for expr in side.on]
        width += len(side.columns)
    return Join(tuple(inputs), (*every, *on))


def same_row(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    """Equal column by column, nulls too."""
    return tuple(call("is not distinct from", pair) for pair in zip(left, right, strict=True))


def of_nothing(aggregate: Aggregate, result: Expr) -> Expr:
    """An aggregate's result where an outer join may have left it out: counts are then 0."""
    return call("coalesce", (result, Lit("0", BIGINT))) if aggregate.fn == "count" else result


def plain(plan: Plan) -> Plan:
    """A plan that mentions nothing of the query around it, seen from that query."""
    return map_outer(plan, inward)


def _shifted(expr: Expr, by: int) -> Expr:
    return substitute(expr, lambda c: Col(c.index + by, c.type) if c.index >= 0 else c)


@dataclass(slots=True)
class _Lowering:
    domain: Plan
    places: dict[Col, int]
    lowered: set[str] = field(default_factory=set)

    @property
    def width(self) -> int:
        return len(self.places)

    def over(self, plan: Plan) -> Plan:
        if isinstance(plan, Negate):
            # It belongs to the Union around it, so it stays outside of the join.
            return Negate(self.over(plan.input))
        if not self._correlated(plan):
            return joined(self.domain, plain(plan))
        match plan:
            case Local(name=name):
                return Local(name, self.domain.columns + plan.columns)
            case Project(input=input_, outputs=outputs, names=names):
                return Project(
                    self.over(input_),
                    (*self._cols, *(self._expr(expr) for expr in outputs)),
                    (*names_of(self.domain.columns), *names),
                )
            case Join():
                return self._join(plan)
            case OuterJoin():
                return self._outer_join(plan)
            case Reduce():
                return self._reduce(plan)
            case TopK(input=input_, group=group, order_by=order_by):
                return msgspec.structs.replace(
                    plan,
                    input=self.over(input_),
                    group=(*range(self.width), *(at + self.width for at in group)),
                    order_by=self._order(order_by),
                )
            case Window(input=input_, partition=partition, order_by=order_by):
                window = msgspec.structs.replace(
                    plan,
                    partition=(*range(self.width), *(at + self.width for at in partition)),
                    order_by=self._order(order_by),
                )
                return with_inputs(map_expressions(window, self._expr), (self.over(input_),))
            case Let(name=name, value=value, body=body):
                if self._correlated(value):
                    value = self.over(value)
                    self.lowered.add(name)
                else:
                    value = plain(value)
                return Let(name, value, self.over(body))
            case LetRec(bindings=bindings):
                self.lowered |= {each.name for each in bindings}
                columns = self.domain.columns
                mine = tuple(
                    Binding(each.name, columns + each.columns, self.over(each.value))
                    for each in bindings
                )
                return msgspec.structs.replace(plan, bindings=mine, body=self.over(plan.body))
            case _:
                inputs = tuple(self.over(input_) for input_ in inputs_of(plan))
                return with_inputs(map_expressions(plan, self._expr), inputs)

    @property
    def _cols(self) -> tuple[Col, ...]:
        return cols_of(self.domain)

    def _expr(self, expr: Expr, shift: int | None = None) -> Expr:
        by = self.width if shift is None else shift

        def place(col: Col) -> Col:
            if col.index >= 0:
                return Col(col.index + by, col.type)
            if level_of(col) == 1:
                return Col(self.places[col], col.type)
            return inward(col)

        return substitute(expr, place)

    def _order(self, order_by: tuple[OrderBy, ...]) -> tuple[OrderBy, ...]:
        return tuple(
            msgspec.structs.replace(order, index=order.index + self.width) for order in order_by
        )

    def _correlated(self, plan: Plan) -> bool:
        if any(level_of(col) == 1 for col in outer_columns(plan)):
            return True
        return bool(self.lowered) and _mentions(plan, self.lowered)

    def _join(self, plan: Join) -> Plan:
        """The domain joins once; inputs that bring it along themselves must agree on it."""
        correlated = [self._correlated(input_) for input_ in plan.inputs]
        inputs: list[Plan] = [] if any(correlated) else [self.domain]
        at = 0 if any(correlated) else self.width
        domain: list[Expr] | None = None if any(correlated) else list(self._cols)
        places: list[Col] = []
        on: list[Expr] = []
        for input_, mine in zip(plan.inputs, correlated, strict=True):
            made = self.over(input_) if mine else plain(input_)
            cols = [Col(at + n, column.type) for n, column in enumerate(made.columns)]
            inputs.append(made)
            at += len(cols)
            if mine:
                brought = cols[: self.width]
                if domain is None:
                    domain = list(brought)
                else:
                    on += same_row(domain, brought)
                cols = cols[self.width :]
            places += cols
        assert domain is not None

        def place(col: Col) -> Expr:
            if col.index >= 0:
                return places[col.index]
            return domain[self.places[col]] if level_of(col) == 1 else inward(col)

        on += [substitute(expr, place) for expr in plan.on]
        result = Join(tuple(inputs), tuple(on))
        wanted = (*domain, *places)
        if wanted == cols_of(result):
            return result
        return Project(result, wanted, names_of(self.domain.columns + plan.columns))

    def _outer_join(self, plan: OuterJoin) -> Plan:
        left = self.over(plan.left)
        width, left_width = self.width, len(plan.left.columns)
        names = names_of(self.domain.columns + plan.columns)
        if plan.kind != "full" and not self._correlated(plan.right):
            on = tuple(self._expr(expr) for expr in plan.on)
            return OuterJoin(plan.kind, left, plain(plan.right), on)
        right = self.over(plan.right)
        second = len(left.columns)

        def place(col: Col) -> Col:
            if col.index >= left_width:
                return Col(col.index + 2 * width, col.type)
            if col.index >= 0:
                return Col(col.index + width, col.type)
            return Col(self.places[col], col.type) if level_of(col) == 1 else inward(col)

        others = tuple(Col(second + n, col.type) for n, col in enumerate(self._cols))
        on = same_row(self._cols, others) + tuple(substitute(expr, place) for expr in plan.on)
        result = OuterJoin(plan.kind, left, right, on)
        if plan.kind in ("semi", "anti"):
            return result
        domain: tuple[Expr, ...] = self._cols
        if plan.kind == "full":
            domain = tuple(call("coalesce", pair) for pair in zip(self._cols, others, strict=True))
        rest = tuple(place(col) for col in cols_of(plan))
        return Project(result, domain + rest, names)

    def _reduce(self, plan: Reduce) -> Plan:
        keys = (*self._cols, *(self._expr(key) for key in plan.keys))
        aggregates = tuple(map_aggregate(each, self._expr) for each in plan.aggregates)
        names = (*names_of(self.domain.columns), *plan.names)
        reduced = Reduce(self.over(plan.input), keys, aggregates, names)
        if plan.keys:
            return reduced
        # Every row of the domain has a group, even if it is empty.
        width = self.width
        there = tuple(Col(width + n, col.type) for n, col in enumerate(self._cols))
        padded = OuterJoin("left", self.domain, reduced, same_row(self._cols, there))
        results = tuple(
            of_nothing(each, Col(2 * width + n, each.type)) for n, each in enumerate(aggregates)
        )
        return Project(padded, self._cols + results, names)


def _mentions(plan: Plan, names: set[str]) -> bool:
    if isinstance(plan, Local):
        return plan.name in names
    return any(_mentions(input_, names) for input_ in inputs_of(plan))
