"""Joins, set operations, limits, WITH, subqueries and grouping sets as plans; what is refused."""

from __future__ import annotations

import pytest
from plans_shown import show

from tidemark.bench.tpch_queries import QUERIES, TABLES
from tidemark.compute.plan import Get, LetRec, Plan, inputs_of
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.sql.correlation import outer_columns
from tidemark.errors import SqlError
from tidemark.types import BIGINT, INTEGER, TEXT, Column, numeric, type_named

T = Get("t", (Column("a", INTEGER), Column("b", TEXT)))
U = Get("u", (Column("a", INTEGER), Column("d", INTEGER)))
V = Get("v", (Column("a", BIGINT), Column("k", INTEGER, False)), keys=((1,),))


class Catalog:
    relations = {"t": T, "u": U, "v": V}  # noqa: RUF012

    def resolve(self, parts: tuple[str, ...]) -> Plan:
        if parts[-1] in self.relations:
            return self.relations[parts[-1]]
        if parts == ("a_view",):
            return plan("WITH x AS (SELECT a FROM t) SELECT p.a FROM x p, x q", view=True)
        if parts[-1] in TABLES:
            types = TABLES[parts[-1]].items()
            return Get(parts[-1], tuple(Column(name, _type(type_)) for name, type_ in types))
        raise SqlError(f'relation "{parts[-1]}" does not exist', sqlstate="42P01")


def _type(name: str):
    return numeric(15, 2) if name.startswith("numeric") else type_named(name)


def plan(sql: str, *, view: bool = False) -> Plan:
    return plan_query(parse_query(sql), Catalog(), view=view)


PLANS = {
    # Joins
    "SELECT b, d FROM t LEFT JOIN u ON t.a = u.a": ("project[#1 b, #3 d](left[=(#0, #2)](t, u))"),
    "SELECT b, d FROM t RIGHT JOIN u ON t.a = u.a": (
        "project[#1 b, #3 d](project[#2 a, #3 b, #0 a, #1 d](left[=(#2, #0)](u, t)))"
    ),
    "SELECT * FROM t FULL JOIN u USING (a)": (
        "project[coalesce(#0, #2) a, #1 b, #3 d](full[=(#0, #2)](t, u))"
    ),
    "SELECT a FROM t JOIN v USING (a)": ("project[#0::bigint a](join[=(#0::bigint, #2)](t, v))"),
    "SELECT * FROM t NATURAL JOIN u": "project[#0 a, #1 b, #3 d](join[=(#0, #2)](t, u))",
    "SELECT 1 FROM t, u LEFT JOIN v ON u.d = v.k": (
        "project[1 ?column?](join[](t, left[=(#1, #3)](u, v)))"
    ),
    "SELECT t.a, v.a FROM t JOIN u ON t.a = u.a LEFT JOIN v ON v.k = u.d JOIN t x ON x.b = t.b": (
        "project[#0 a, #4 a](join[=(#7, #1)](left[=(#5, #3)](join[=(#0, #2)](t, u), v), t))"
    ),
    # A condition that no padded row meets
    "SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE u.d > 1": (
        "project[1 ?column?](filter[>(#3, 1)](join[=(#0, #2)](t, u)))"
    ),
    "SELECT 1 FROM t LEFT JOIN u ON t.a = u.a WHERE u.d IS NULL": (
        "project[1 ?column?](filter[is null(#3)](left[=(#0, #2)](t, u)))"
    ),
    # Set operations
    "SELECT a FROM t UNION ALL SELECT a FROM v UNION ALL SELECT NULL": (
        "union(project[#0::bigint a](t), project[#0 a](v), project[null ?column?](values()))"
    ),
    "SELECT a FROM t UNION SELECT d FROM u ORDER BY a LIMIT 1": (
        "finish[#0; 1; 0; 1](reduce[#0; ](union(project[#0 a](t), project[#1 d](u))))"
    ),
    "SELECT a FROM t EXCEPT ALL SELECT a FROM u": (
        "threshold(union(project[#0 a](t), -project[#0 a](u)))"
    ),
    "SELECT a FROM t INTERSECT ALL SELECT a FROM u": (
        "let left#1 = project[#0 a](t) in "
        "union(left#1, -threshold(union(left#1, -project[#0 a](u))))"
    ),
    # Limits inside
    "SELECT x FROM (SELECT a AS x FROM t ORDER BY b DESC LIMIT 3 OFFSET 1) s": (
        "project[#0 x](project[#0 x](top[; #1 desc; 3; 1](project[#0 x, #1 ?order?](t))))"
    ),
    "SELECT DISTINCT ON (a) b FROM t ORDER BY a, b LIMIT 5": (
        "finish[#1, #0; 5; 0; 1](top[#1; #1, #0; 1; 0](project[#1 b, #0 ?order?](t)))"
    ),
    # WITH
    "WITH x AS (SELECT a FROM t) SELECT p.a FROM x p, x q": (
        "let x#1 = project[#0 a](t) in project[#0 a](join[](x#1, x#1))"
    ),
    "SELECT a_view.a FROM a_view, a_view w": (
        "project[#0 a](join[](let x#1 = project[#0 a](t) in project[#0 a](join[](x#1, x#1)), "
        "let x#2 = project[#0 a](t) in project[#0 a](join[](x#2, x#2))))"
    ),
    "WITH x AS (SELECT a FROM t) SELECT 1": "project[1 ?column?](values())",
    "WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT 9) r (a bigint) AS"
    " (SELECT a FROM t UNION SELECT a + 1 FROM r) SELECT a FROM r LIMIT 1": (
        "finish[; 1; 0; 1](rec r#1 = project[#0 a](reduce[#0; ](union(project[#0::bigint a](t), "
        "project[+(#0, 1) ?column?](r#1)))) until 9 returning in project[#0 a](r#1))"
    ),
    # EXISTS and IN in conditions
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND d > 1)": (
        "project[#0 a](semi[=(#2, #0)](t, filter[>(#1, 1)](u)))"
    ),
    "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a > t.a) AND b = 'x'": (
        "project[#0 a](anti[>(#2, #0)](filter[=(#1, x)](t), u))"
    ),
    "SELECT a FROM t WHERE a IN (SELECT d FROM u)": (
        "project[#0 a](semi[=(#0, #2)](t, project[#1 d](u)))"
    ),
    "SELECT a FROM t WHERE (a, 1) IN (SELECT a, d FROM u)": (
        "project[#0 a](semi[=(#0, #2), =(1, #3)](t, project[#0 a, #1 d](u)))"
    ),
    "SELECT a FROM t WHERE a >= ALL (SELECT d FROM u WHERE u.a = t.a)": (
        "project[#0 a](anti[=(#2, #0), is not true(>=(#0, #3))](t, u))"
    ),
    "SELECT a FROM v WHERE k NOT IN (SELECT k FROM v)": (
        "project[#0 a](anti[=(#1, #2)](v, project[#1 k](v)))"
    ),
    "SELECT a FROM t WHERE a NOT IN (SELECT d FROM u)": (
        "project[#0 a](project[#0 a, #1 b](filter[or(#2, and(not(#3), is not null(#0)))]"
        "(join[](anti[=(#0, #2)](t, project[#1 d](u)), project[=(#0, 0) empty, <(#1, #0) with_null]"
        "(reduce[; count(*), count(#0)](project[#1 d](u)))))))"
    ),
    # Values
    "SELECT (SELECT max(d) FROM u)": "project[#0 max](reduce[; max(#1)](u))",
    "SELECT a, (SELECT count(*) FROM u WHERE u.a = t.a) AS n FROM t": (
        "project[#0 a, coalesce(#3, 0) n](left[=(#0, #2)](t, reduce[#0; count(*)](u)))"
    ),
    "SELECT (SELECT a FROM v WHERE v.k = t.a) FROM t": (
        "project[#3 a](left[is not distinct from(#0, #2)](t, project[#0 outer0, #1 a]"
        "(filter[=(#2, #0)](join[](reduce[#0; ](project[#0 outer0](t)), v)))))"
    ),
    # Lateral
    "SELECT s.d FROM t, LATERAL (SELECT d FROM u WHERE u.a = t.a ORDER BY d LIMIT 1) s": (
        "project[#2 d](project[#0 a, #1 b, #2 d](join[=(#3, #0)](t, "
        "top[#1; #0; 1; 0](project[#1 d, #0 key0](u)))))"
    ),
    "SELECT g FROM t, generate_series(1, a) g": (
        "project[#2 g](flat[generate_series(1, #0, 1)](t))"
    ),
    # Grouping sets
    "SELECT a, b, grouping(b), count(*) FROM t GROUP BY ROLLUP (a, b)": (
        "project[#0 a, #1 b, #3 grouping, #2 count](union("
        "project[#0 key0, #1 key1, #2 count, 0 grouping](reduce[#0, #1; count(*)](t)), "
        "project[#0 key0, null key1, #1 count, 1 grouping](reduce[#0; count(*)](t)), "
        "project[null key0, null key1, #0 count, 1 grouping](reduce[; count(*)](t))))"
    ),
    # Windows
    "SELECT a, rank() OVER (PARTITION BY b ORDER BY a + 1) FROM t": (
        "project[#0 a, #3 rank](window[#1; #2; rank()](project[#0 a, #1 b, +(#0, 1) ?over?](t)))"
    ),
}


@pytest.mark.parametrize("sql", PLANS)
def test_plans(sql: str) -> None:
    assert show(plan(sql)) == PLANS[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT (SELECT count(*) FROM u WHERE u.a > t.a) FROM t",
        "SELECT (SELECT (SELECT max(v.a) FROM v WHERE v.k = u.d AND v.a > t.a) FROM u LIMIT 1) FROM t",
        "SELECT (SELECT sum(x) FROM (SELECT d + t.a AS x FROM u UNION SELECT t.a) s) FROM t",
        "SELECT b FROM t GROUP BY b HAVING EXISTS (SELECT count(*) FROM u WHERE u.d = length(t.b))",
        "SELECT t.a FROM t LEFT JOIN LATERAL (SELECT d FROM u WHERE u.a < t.a LIMIT 1) s ON d > 1",
        "SELECT (WITH x AS (SELECT d FROM u WHERE u.a = t.a) SELECT 1 FROM x p, x q LIMIT 1) FROM t",
    ],
)
def test_nothing_of_the_outer_query_is_left_in_a_subquery(sql: str) -> None:
    assert not outer_columns(plan(sql))
    assert all(column.index >= 0 for column in outer_columns(plan(sql)))


REFUSED = {
    "SELECT 1 FROM t JOIN u": ("42601", "JOIN needs ON or USING"),
    "SELECT 1 FROM t JOIN u USING (b)": (
        "42703",
        'column "b" specified in USING clause does not exist in right table',
    ),
    "SELECT 1 FROM t RIGHT JOIN LATERAL (SELECT t.a) s ON true": ("42P10", "invalid reference"),
    "SELECT 1 FROM t, (SELECT t.a) s": ("42P01", 'missing FROM-clause entry for table "t"'),
    "SELECT a FROM t UNION SELECT a, d FROM u": (
        "42601",
        "each UNION query must have the same number of columns",
    ),
    "SELECT a FROM t UNION SELECT b FROM t": (
        "42804",
        "UNION types integer and text cannot be matched",
    ),
    "SELECT a FROM t UNION SELECT a FROM u ORDER BY a + 1": (
        "0A000",
        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
    ),
    "SELECT DISTINCT ON (a) a FROM t ORDER BY b": (
        "42P10",
        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
    ),
    "SELECT (SELECT a, d FROM u) FROM t": ("42601", "subquery must return only one column"),
    "SELECT a IN (SELECT b FROM t) FROM t": ("42883", "operator does not exist: integer = text"),
    "SELECT (a, b) IN (SELECT a FROM u) FROM t": ("42601", "subquery has too few columns"),
    "SELECT b, (SELECT max(d) FROM u WHERE u.a = t.a) FROM t GROUP BY b": (
        "42803",
        'subquery uses ungrouped column "t.a" from outer query',
    ),
    "SELECT (SELECT sum(t.a) FROM u) FROM t": ("0A000", "sum of an outer query's columns"),
    "SELECT 1 FROM t LEFT JOIN u ON t.a IN (SELECT 1)": (
        "0A000",
        "subqueries in the ON of a LEFT JOIN",
    ),
    "SELECT grouping(a) FROM t": ("42803", "arguments to GROUPING must be grouping expressions"),
    "SELECT grouping(b) FROM t GROUP BY a": ("42803", "arguments to GROUPING"),
    "SELECT generate_series(1, 0, 0)": ("22023", "step size cannot equal zero"),
    "SELECT 1 FROM t WHERE generate_series(1, a) > 1": (
        "0A000",
        "set-returning functions are not allowed in WHERE",
    ),
    "SELECT * FROM generate_series('a'::text, 'b')": ("42883", "function generate_series(text"),
    "SELECT * FROM nowhere(1)": ("0A000", "table functions are not supported: nowhere"),
    "SELECT a FROM t WHERE row_number() OVER () = 1": ("42P20", "window functions"),
    "WITH x AS (SELECT 1), x AS (SELECT 2) SELECT 1": ("42712", "specified more than once"),
    "WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r": ("0A000", "WITH RECURSIVE is not supported"),
    "WITH MUTUALLY RECURSIVE r (a int, b int) AS (SELECT 1) SELECT * FROM r": (
        "42P10",
        "declared 2 columns",
    ),
    "WITH MUTUALLY RECURSIVE r (a int) AS (SELECT b FROM t) SELECT * FROM r": (
        "42846",
        "cannot cast type text to integer",
    ),
    "SELECT a FROM t LIMIT a": ("42703", 'column "a" does not exist'),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refusals_carry_their_sqlstate(sql: str) -> None:
    sqlstate, message = REFUSED[sql]
    with pytest.raises(SqlError) as caught:
        plan(sql)
    assert message in caught.value.message
    assert caught.value.sqlstate == sqlstate


@pytest.mark.parametrize("name", QUERIES)
def test_tpch_queries_are_planned_without_a_domain(name: str) -> None:
    def kinds(node: Plan) -> set[str]:
        return {type(node).__name__}.union(*map(kinds, inputs_of(node)))

    planned = plan(QUERIES[name])
    assert not outer_columns(planned)
    assert "Let" not in kinds(planned) or name == "q15"
    assert not isinstance(planned, LetRec)
