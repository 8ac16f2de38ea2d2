"""OVER: which window functions an expression asks for, and what is refused."""

from __future__ import annotations

import pytest

from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.plan import Aggregate
from tidemark.compute.sql import parse_query
from tidemark.compute.sql.dialect import identifier
from tidemark.compute.sql.expressions import Expressions
from tidemark.compute.sql.scope import Scope
from tidemark.compute.sql.windows import WINDOW_BASE, WindowCall
from tidemark.errors import SqlError
from tidemark.types import INTEGER, TEXT, Column, numeric

COLUMNS = (Column("a", INTEGER), Column("b", TEXT), Column("n", numeric(10, 2)))


def planned(sql: str) -> tuple[Expr, list[WindowCall], list[Aggregate]]:
    tree = parse_query(f"SELECT {sql}")
    scope = Scope()
    scope.add("t", COLUMNS, ())
    aggregates: list[Aggregate] = []
    windows: list[WindowCall] = []
    named = {identifier(window.this): window for window in tree.args.get("windows") or ()}
    planner = Expressions(scope, "SELECT", (), {}, aggregates, windows, None, named)
    return planner.plan(tree.expressions[0]), windows, aggregates


def shown(expr: Expr) -> str:
    match expr:
        case Col(index=index):
            return f"w{index - WINDOW_BASE}" if index >= WINDOW_BASE else f"#{index}"
        case Lit(value=value):
            return str(value)
        case Cast(arg=arg, type=type_):
            return f"{shown(arg)}::{type_}"
        case Call(fn=fn, args=args):
            return f"{fn}({', '.join(map(shown, args))})"


def over(window: WindowCall) -> str:
    function = window.function
    order = ", ".join(
        shown(each.expr)
        + (" desc" if each.descending else "")
        + {None: "", True: " first", False: " last"}[each.nulls_first]
        for each in window.order_by
    )
    parts = [
        f"{function.fn}({', '.join(map(shown, function.args))}) {function.type}",
        f"by {', '.join(map(shown, window.partition))}" if window.partition else "",
        f"order {order}" if order else "",
        function.frame or "",
    ]
    return "; ".join(part for part in parts if part)


OVER = {
    "row_number() OVER (PARTITION BY b ORDER BY a DESC)": (
        ["row_number() bigint; by #1; order #0 desc"]
    ),
    "rank() OVER w FROM t WINDOW w AS (ORDER BY a NULLS FIRST)": ["rank() bigint; order #0 first"],
    "rank() OVER (w ORDER BY a) FROM t WINDOW w AS (PARTITION BY b)": (
        ["rank() bigint; by #1; order #0"]
    ),
    "percent_rank() OVER (ORDER BY a ROWS 1 PRECEDING)": ["percent_rank() double precision; order #0"],
    "ntile(4) OVER (ORDER BY a)": ["ntile(4) integer; order #0"],
    "lag(a) OVER (ORDER BY n)": ["lag(#0, 1) integer; order #2"],
    "lead(n, 2, 0) OVER (ORDER BY a)": ["lead(#2::numeric(12,2), 2, 0.00) numeric(12,2); order #0"],
    "first_value(b) OVER (ORDER BY a ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)": (
        ["first_value(#1) text; order #0; ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING"]
    ),
    "nth_value(b, 2) OVER (ORDER BY a RANGE UNBOUNDED PRECEDING)": (
        ["nth_value(#1, 2) text; order #0"]
    ),
    "last_value(b) OVER (ORDER BY a RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": (
        ["last_value(#1) text; order #0; RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"]
    ),
    "last_value(b) OVER (RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)": (
        ["last_value(#1) text"]
    ),
    "count(*) OVER ()": ["count() bigint"],
    "sum(a) FILTER (WHERE a > 1) OVER ()": ["sum(case(>(#0, 1), #0, None)) bigint"],
    "avg(n) OVER (PARTITION BY a)": [
        "sum(#2) numeric(38,2); by #0",
        "count(#2) bigint; by #0",
    ],
    "bool_or(a > 1) OVER ()": [
        "count(>(#0, 1)) bigint",
        "count(case(>(#0, 1), 1, None)) bigint",
    ],
    "sum(count(*)) OVER (ORDER BY sum(a))": ["sum(#4) numeric(38,0); order #3"],
    "rank() OVER (ORDER BY a) + rank() OVER (ORDER BY a)": ["rank() bigint; order #0"],
}  # fmt: skip


@pytest.mark.parametrize("sql", OVER)
def test_window_calls(sql: str) -> None:
    _, windows, _ = planned(sql)
    assert [over(window) for window in windows] == OVER[sql]


def test_a_window_over_aggregates_collects_both() -> None:
    expr, windows, aggregates = planned("sum(count(*)) OVER () - sum(a)")
    assert (len(windows), [each.fn for each in aggregates]) == (1, ["count", "sum"])
    assert shown(expr) == "-(w0::numeric(37,0), #4::numeric(37,0))" or shown(expr).startswith(
        "-(w0"
    )


REFUSED = {
    "row_number()": ("42809", "requires an OVER clause"),
    "lower(b) OVER ()": ("42809", "lower is not a window function"),
    "count(DISTINCT a) OVER ()": ("0A000", "DISTINCT is not implemented for window functions"),
    "array_agg(a) OVER ()": ("0A000", "array_agg as a window function"),
    "rank() FILTER (WHERE true) OVER ()": ("0A000", "FILTER is not implemented"),
    "sum(rank() OVER ()) OVER ()": ("42P20", "cannot be nested"),
    "sum(rank() OVER ())": ("42803", "cannot contain window function calls"),
    "rank() OVER w": ("42704", 'window "w" does not exist'),
    "rank() OVER (w PARTITION BY a) FROM t WINDOW w AS (ORDER BY b)": (
        "42P20",
        "cannot override PARTITION BY",
    ),
    "sum(a) OVER (ORDER BY a GROUPS 1 PRECEDING)": ("0A000", "GROUPS"),
    "sum(a) OVER (ORDER BY a RANGE 1 PRECEDING)": ("0A000", "RANGE with offsets"),
    "sum(a) OVER (ORDER BY a ROWS 1 PRECEDING EXCLUDE TIES)": ("0A000", "EXCLUDE"),
    "sum(a) OVER (ORDER BY a ROWS -1 PRECEDING)": ("22013", "must not be negative"),
    "sum(a) OVER (ROWS BETWEEN CURRENT ROW AND 1 PRECEDING)": ("42P20", "preceding rows"),
    "sum(a) OVER (ROWS BETWEEN 1 FOLLOWING AND CURRENT ROW)": ("42P20", "from following row"),
    "sum(a) OVER (ROWS UNBOUNDED FOLLOWING)": ("42P20", "UNBOUNDED FOLLOWING"),
    "lag(a, a) OVER ()": ("0A000", "not a constant"),
    "ntile(0) OVER ()": ("22014", "greater than zero"),
    "rank(a) OVER ()": ("42883", "function rank(integer) does not exist"),
    "stddev(n::double precision) OVER ()": ("0A000", "cannot be kept exactly"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refused(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        planned(sql)
    sqlstate, message = REFUSED[sql]
    assert (caught.value.sqlstate, message in caught.value.message) == (sqlstate, True), (
        caught.value.message
    )
