"""Spark SQL as an input language: the same plans, where it means the same."""

from __future__ import annotations

import pytest
from plans_shown import show

from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql import parse_query, plan_query
from tidemark.errors import SqlError
from tidemark.types import INTEGER, TEXT, Column, numeric, type_named

T = Get("t", (Column("a", INTEGER), Column("b", TEXT), Column("c", numeric(5, 1))))
X = Get("x", (Column("a", INTEGER), Column("many", type_named("integer[]"))))


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Plan:
        return {"t": T, "x": X}[parts[-1]]


PLANS = {
    "SELECT `A` FROM `t`": "project[#0 a](t)",
    "SELECT a / 2 FROM t": "project[/(#0::double precision, 2) ?column?](t)",
    "SELECT a div 2 FROM t": "project[/(#0::bigint, 2) ?column?](t)",
    "SELECT nvl(a, 1), ifnull(b, 'x') FROM t": "project[coalesce(#0, 1) coalesce, coalesce(#1, x) coalesce](t)",
    "SELECT substr(b, 1, 2) FROM t": "project[substring(#1, 1, 2) substring](t)",
    "SELECT concat(b, 'x') AS y FROM t": "project[||(#1, x) y](t)",
    "SELECT if(a == 1, 2, 3) AS y FROM t": "project[case(=(#0, 1), 2, 3) y](t)",
    "SELECT a FROM t WHERE a <=> 1": "project[#0 a](filter[is not distinct from(#0, 1)](t))",
    "SELECT a FROM t LEFT SEMI JOIN x ON t.a = x.a": "project[#0 a](semi[=(#0, #3)](t, x))",
    "SELECT a FROM t LEFT ANTI JOIN x USING (a)": "project[#0 a](anti[=(#0, #3)](t, x))",
    "SELECT k FROM x LATERAL VIEW explode(many) s AS k": "project[#2 k](flat[unnest(#1)](x))",
    "SELECT a FROM t MINUS SELECT a FROM x": (
        "threshold(union(reduce[#0; ](project[#0 a](t)), -reduce[#0; ](project[#0 a](x))))"
    ),
    "SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP": (
        "project[#0 a, #1 count](union(project[#0 key0, #1 count](reduce[#0; count(*)](t)), "
        "project[null key0, #0 count](reduce[; count(*)](t))))"
    ),
}


@pytest.mark.parametrize("sql", PLANS)
def test_plans(sql: str) -> None:
    assert show(plan_query(parse_query(sql, dialect="spark"), Catalog())) == PLANS[sql]


def test_casts_are_named_as_in_postgresql() -> None:
    planned = plan_query(
        parse_query("SELECT cast(a AS int), int(c), 1L FROM t", "spark"), Catalog()
    )
    assert [column.name for column in planned.columns] == ["a", "c", "int8"]


def test_nulls_are_the_smallest_values() -> None:
    planned = plan_query(parse_query("SELECT a FROM t ORDER BY a LIMIT 1", "spark"), Catalog())
    theirs = plan_query(parse_query("SELECT a FROM t ORDER BY a NULLS FIRST LIMIT 1"), Catalog())
    assert planned == theirs


def test_a_lateral_view_may_keep_rows_that_have_nothing() -> None:
    sql = "SELECT a, k FROM x LATERAL VIEW OUTER explode(many) s AS k"
    shown = show(plan_query(parse_query(sql, "spark"), Catalog()))
    assert "left[" in shown
    assert "flat[unnest(" in shown


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("posexplode(many)", "posexplode is not supported"),
        ("many[0]", r"the first element is \[0\]"),
        ("array(1, 2)[0]", r"the first element is \[0\]"),
        ("substring('abc', -2, 1)", "substring from a place that is negative"),
        ("collect_list(a)", "leaves nulls out"),
        ("initcap('a')", "capitalises after blanks only"),
    ],
)
def test_what_means_something_else_is_refused(expr: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_query(f"SELECT {expr} FROM x", dialect="spark")
