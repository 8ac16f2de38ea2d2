"""Window functions: where `fn(...) OVER (...)` stands in an expression, and the nodes they become.

`expressions.py` collects a `WindowCall` per OVER and puts `Col(WINDOW_BASE + n)` in its place;
after GROUP BY and HAVING, `with_windows` puts the `Window` nodes over the plan and says which
column each call has become.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.compute.expr import Col, Expr
from tidemark.compute.plan import Order, OrderBy, Plan, Project, Window, WindowFunction

WINDOW_BASE = 1_000_000
"""Columns from here on stand for window functions that are not planned yet."""


@dataclass(frozen=True, slots=True)
class WindowCall:
    """One `function OVER (PARTITION BY partition ORDER BY order_by)`, over the input's columns."""

    function: WindowFunction
    partition: tuple[Expr, ...] = ()
    order_by: tuple[Order, ...] = ()


def with_windows(plan: Plan, calls: Sequence[WindowCall]) -> tuple[Plan, list[Col]]:
    """The plan with a column per call behind its own: one Window per partition and order.

    Partitions and orders are columns in the plan, so expressions are projected first.
    """
    extra: list[Expr] = []
    width = len(plan.columns)

    def place(expr: Expr) -> int:
        if isinstance(expr, Col):
            return expr.index
        if expr not in extra:
            extra.append(expr)
        return width + extra.index(expr)

    windows: dict[tuple[tuple[int, ...], tuple[OrderBy, ...]], list[int]] = {}
    for at, call in enumerate(calls):
        partition = tuple(dict.fromkeys(place(expr) for expr in call.partition))
        order_by = tuple(
            OrderBy(place(order.expr), order.descending, order.nulls_first)
            for order in call.order_by
        )
        windows.setdefault((partition, order_by), []).append(at)
    if extra:
        kept = tuple(Col(at, column.type) for at, column in enumerate(plan.columns))
        names = tuple(column.name for column in plan.columns)
        plan = Project(plan, kept + tuple(extra), (*names, *("?over?" for _ in extra)))
    places: dict[int, Col] = {}
    for (partition, order_by), members in windows.items():
        functions = tuple(calls[at].function for at in members)
        first = len(plan.columns)
        plan = Window(plan, partition, order_by, functions, tuple(fn.fn for fn in functions))
        for n, at in enumerate(members):
            places[at] = Col(first + n, calls[at].function.type)
    return plan, [places[at] for at in range(len(calls))]
