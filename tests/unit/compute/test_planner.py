"""Queries to plans: what they mean, and what is refused, with PostgreSQL's wording."""

from __future__ import annotations

import pytest
from plans_shown import show

from tidemark.compute.expr import Col, Lit
from tidemark.compute.plan import (
    Aggregate,
    Filter,
    Finish,
    Get,
    OrderBy,
    Plan,
    Project,
    Reduce,
)
from tidemark.compute.sql import count_parameters, parse_query, plan_query
from tidemark.compute.sql.output_names import output_name
from tidemark.errors import SqlError
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    Column,
    numeric,
)

T = Get("u1", (Column("a", INTEGER), Column("b", TEXT), Column("c", NUMERIC)))
U = Get("u2", (Column("a", INTEGER), Column("d", DOUBLE), Column("f", BOOLEAN)))
V = Get("u3", (Column("a", BIGINT), Column("b", TEXT), Column("m", numeric(10, 2))))


class Catalog:
    relations = {"t": T, "u": U, "v": V, "Quoted": T}  # noqa: RUF012

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        if parts[-1] in self.relations and parts[:-1] in ((), ("public",)):
            return self.relations[parts[-1]]
        if parts == ("a_view",):
            return plan("SELECT a AS x, b AS y FROM t WHERE a > 0", view=True)
        raise SqlError(f'relation "{".".join(parts)}" does not exist', sqlstate="42P01")


def plan(sql: str, **options) -> Plan:  # pyright: ignore[reportMissingParameterType]
    return plan_query(parse_query(sql), Catalog(), **options)


PLANS = {
    # The select list
    "SELECT a, b FROM t": "project[#0 a, #1 b](u1)",
    "SELECT * FROM t": "project[#0 a, #1 b, #2 c](u1)",
    "SELECT t.*, a + 1 AS x FROM t": "project[#0 a, #1 b, #2 c, +(#0, 1) x](u1)",
    "TABLE t": "project[#0 a, #1 b, #2 c](u1)",
    "SELECT 1, 'x', NULL": "project[1 ?column?, x ?column?, null ?column?](values())",
    "SELECT x.a FROM t AS x": "project[#0 a](u1)",
    "SELECT public.t.a FROM public.t": "project[#0 a](u1)",
    'SELECT A, "a" FROM T': "project[#0 a, #0 a](u1)",
    'SELECT a FROM "Quoted"': "project[#0 a](u1)",
    "SELECT q FROM t AS x(p, q)": "project[#1 q](project[#0 p, #1 q, #2 c](u1))",
    "SELECT lower(b), a::bigint, CASE WHEN a > 1 THEN 1 END, count.a FROM t count": (
        "project[lower(#1) lower, #0::bigint a, case(>(#0, 1), 1, null) case, #0 a](u1)"
    ),
    # WHERE
    "SELECT a FROM t WHERE a > 2 AND b = 'x' AND c < 1": (
        "project[#0 a](filter[and(>(#0, 2), =(#1, x), <(#2, 1))](u1))"
    ),
    "SELECT a FROM t WHERE a BETWEEN 1 AND 2": (
        "project[#0 a](filter[and(>=(#0, 1), <=(#0, 2))](u1))"
    ),
    "SELECT a FROM t WHERE NOT b LIKE 'x%' ESCAPE '!' OR b IS NOT NULL": (
        "project[#0 a](filter[or(not(like(#1, x%)), is not null(#1))](u1))"
    ),
    "SELECT a FROM t WHERE b LIKE '50!%\\' ESCAPE '!'": (
        "project[#0 a](filter[like(#1, 50\\%\\\\)](u1))"
    ),
    # Intervals and temporal filters
    "SELECT date '1998-12-01' - interval '90' day": (
        "project[1998-09-02 00:00:00 ?column?](values())"
    ),
    "SELECT timestamp '2024-01-31 10:00' + interval '1 month 1 day 02:30:00.5'": (
        "project[2024-03-01 12:30:00.5 ?column?](values())"
    ),
    "SELECT '2024-01-31'::timestamptz - 3 * (interval '1-2' year to month - '1 mon'::interval)": (
        "project[2020-10-31 00:00:00+00 ?column?](values())"
    ),
    "SELECT a FROM t WHERE mz_now() <= a AND (c < mz_now() AND b = 'x')": (
        "project[#0 a](filter[and(<=(mz_now(), #0::bigint), and(>(mz_now(), floor(#2)::bigint), "
        "=(#1, x)))](u1))"
    ),
    "SELECT a FROM t WHERE mz_now() BETWEEN a AND '2024-01-01'::timestamp + interval '1' hour": (
        "project[#0 a](filter[and(>=(mz_now(), #0::bigint), <=(mz_now(), "
        "floor milliseconds(2024-01-01 01:00:00+00)))](u1))"
    ),
    "SELECT a FROM t WHERE c = mz_now()": (
        "project[#0 a](filter[and(>=(mz_now(), ceil(#2)::bigint), <=(mz_now(), floor(#2)::bigint))"
        "](u1))"
    ),
    # Joins
    "SELECT t.a, d FROM t, u WHERE t.a = u.a": (
        "project[#0 a, #4 d](filter[=(#0, #3)](join[](u1, u2)))"
    ),
    "SELECT t.a FROM t JOIN u ON t.a = u.a AND f": (
        "project[#0 a](join[and(=(#0, #3), #5)](u1, u2))"
    ),
    "SELECT * FROM t JOIN u USING (a)": (
        "project[#0 a, #1 b, #2 c, #4 d, #5 f](join[=(#0, #3)](u1, u2))"
    ),
    "SELECT a, u.a FROM t JOIN u USING (a)": "project[#0 a, #3 a](join[=(#0, #3)](u1, u2))",
    "SELECT * FROM u JOIN t USING (a) JOIN v USING (b)": (
        "project[#4 b, #0 a, #1 d, #2 f, #5 c, #6 a, #8 m](join[=(#0, #3), =(#4, #7)](u2, u1, u3))"
    ),
    "SELECT t.a FROM t CROSS JOIN u": "project[#0 a](join[](u1, u2))",
    "SELECT x.a FROM t x JOIN v y ON x.a = y.a": ("project[#0 a](join[=(#0::bigint, #3)](u1, u3))"),
    "SELECT v.a FROM (t JOIN u ON t.a = u.a) JOIN v ON v.a = u.a": (
        "project[#6 a](join[=(#0, #3), =(#6, #3::bigint)](u1, u2, u3))"
    ),
    # ON sees only its own chain, so `b` is v's although t has one too.
    "SELECT 1 FROM t, u JOIN v ON b = 'x'": "project[1 ?column?](join[=(#7, x)](u1, u2, u3))",
    # Subqueries, CTEs, views, VALUES
    "SELECT s.x FROM (SELECT a + 1 AS x FROM t ORDER BY 1) s": (
        "project[#0 x](project[+(#0, 1) x](u1))"
    ),
    "WITH x AS (SELECT a FROM t), y(k) AS (SELECT a FROM x) SELECT k FROM y": (
        "project[#0 k](project[#0 k](project[#0 a](u1)))"
    ),
    "SELECT x FROM a_view": "project[#0 x](project[#0 x, #1 y](filter[>(#0, 0)](u1)))",
    "VALUES (1, 'a'), (2, NULL)": "values(1, a)(2, null)",
    "VALUES (1), (2.5), (30000000000)": "values(1.0)(2.5)(30000000000.0)",
    "SELECT k FROM (VALUES (1, 'a'), (-2, 'b')) v(k, s)": (
        "project[#0 k](project[#0 k, #1 s](values(1, a)(-2, b)))"
    ),
    "VALUES (1 + 1, 5), (3, 6)": (
        "project[case(=(#0, 0), +(1, 1), 3) column1, #2 column2](values(0, null, 5)(1, 3, 6))"
    ),
    # Grouping
    "SELECT b, count(*), sum(a) FROM t GROUP BY b": (
        "project[#0 b, #1 count, #2 sum](reduce[#1; count(*), sum(#0)](u1))"
    ),
    "SELECT count(*) FROM t": "project[#0 count](reduce[; count(*)](u1))",
    "SELECT a % 2 AS k, max(c) + 1 FROM t GROUP BY k": (
        "project[#0 k, +(#1::numeric(37,16), 1.0000000000000000) ?column?]"
        "(reduce[%(#0, 2); max(#2)](u1))"
    ),
    "SELECT a % 2 FROM t GROUP BY 1 HAVING count(*) > 1 AND min(b) <> ''": (
        "project[#0 ?column?](filter[and(>(#1, 1), <>(#2, ))](reduce[%(#0, 2); count(*), min(#1)](u1)))"
    ),
    # An input column wins over an output name in GROUP BY, an output name in ORDER BY.
    "SELECT lower(b) AS b FROM t GROUP BY b": "project[lower(#0) b](reduce[#1; ](u1))",
    "SELECT lower(b) AS b FROM t ORDER BY b": "finish[#0; None; 0; 1](project[lower(#1) b](u1))",
    "SELECT DISTINCT b FROM t": "reduce[#0; ](project[#1 b](u1))",
    # Order and limit
    "SELECT a FROM t ORDER BY c DESC, 1 LIMIT 5 OFFSET 2": (
        "finish[#1 desc, #0; 5; 2; 1](project[#0 a, #2 ?order?](u1))"
    ),
    "SELECT b, count(*) FROM t GROUP BY b ORDER BY sum(a) DESC LIMIT 3": (
        "finish[#2 desc; 3; 0; 2](project[#0 b, #1 count, #2 ?order?]"
        "(reduce[#1; count(*), sum(#0)](u1)))"
    ),
    "SELECT a FROM t FETCH FIRST 5 ROWS ONLY": "finish[; 5; 0; 1](project[#0 a](u1))",
    "SELECT a FROM t LIMIT ALL": "project[#0 a](u1)",
    "VALUES (2), (1) ORDER BY 1": "finish[#0; None; 0; 1](project[#0 column1](values(2)(1)))",
    # Literals take the type of the other side
    "SELECT a FROM t WHERE a = '5'": "project[#0 a](filter[=(#0, 5)](u1))",
    "SELECT pg_catalog.upper(b) FROM t": "project[upper(#1) upper](u1)",
}


@pytest.mark.parametrize("sql", PLANS)
def test_plans(sql: str) -> None:
    assert show(plan(sql)) == PLANS[sql]


TYPES = {
    "a + 1": INTEGER,
    "a / 2": INTEGER,
    "a::bigint + a": BIGINT,
    "c / 3": NUMERIC,
    "c + 1": NUMERIC,
    "1.5": numeric(2, 1),
    "1.5 * 2.25": numeric(5, 3),
    "a + 1.5": numeric(12, 1),
    "sum(a)": BIGINT,
    "sum(a::bigint)": numeric(38, 0),
    "sum(c)": NUMERIC,
    "sum(c::numeric(10,2))": numeric(38, 2),
    "avg(a)": NUMERIC,
    "count(b)": BIGINT,
    "max(b)": TEXT,
    "coalesce(a, 1.5)": numeric(11, 1),
    "'x'": TEXT,
    "NULL": TEXT,
    "-2147483648": INTEGER,
    "-9223372036854775808": BIGINT,
    "9223372036854775808": numeric(19, 0),
    "extract(year FROM DATE '2020-01-01')": numeric(10, 0),
    "date_part('year', DATE '2020-01-01')": DOUBLE,
    "date_trunc('day', DATE '2020-01-01')": TIMESTAMPTZ,
    "DATE '2020-01-01' + 1": DATE,
    "DATE '2020-01-02' - DATE '2020-01-01'": INTEGER,
    "round(2.567, 2)": numeric(4, 2),
    "a = 1 AND b LIKE 'x'": BOOLEAN,
}


@pytest.mark.parametrize("expr", TYPES)
def test_types(expr: str) -> None:
    grouped = " GROUP BY a, b, c" if "(" not in expr.split("(")[0] else ""
    columns = plan(f"SELECT {expr} FROM t{grouped}").columns
    assert columns[0].type == TYPES[expr]


REFUSED = {
    "SELECT lower(DISTINCT b) FROM t": ("0A000", "DISTINCT in a function"),
    "SELECT lower(b) FILTER (WHERE true) FROM t": ("42809", "lower is not an aggregate"),
    "SELECT count() FROM t": ("42809", "count(*) must be used"),
    "SELECT sum(*) FROM t": ("42883", "sum(*)"),
    "SELECT string_agg(DISTINCT b, ',' ORDER BY a) FROM t": ("42P10", "in an aggregate with"),
    "SELECT sum(a) FILTER (WHERE count(*) > 1) FROM t": (
        "42803",
        "aggregate functions are not allowed in FILTER",
    ),
    # Names
    "SELECT x FROM t": ("42703", 'column "x" does not exist'),
    "SELECT t.x FROM t": ("42703", "column t.x does not exist"),
    "SELECT y.a FROM t": ("42P01", 'missing FROM-clause entry for table "y"'),
    "SELECT t.a FROM t AS x": ("42P01", 'missing FROM-clause entry for table "t"'),
    "SELECT a FROM t, u": ("42702", 'column reference "a" is ambiguous'),
    "SELECT a FROM nothing": ("42P01", 'relation "nothing" does not exist'),
    "SELECT 1 FROM t, t": ("42712", 'table name "t" specified more than once'),
    'SELECT "A" FROM t': ("42703", 'column "A" does not exist'),
    "SELECT 1 FROM (SELECT a FROM t) s WHERE t.a = 1": (
        "42P01",
        'missing FROM-clause entry for table "t"',
    ),
    # Types
    "SELECT a FROM t WHERE a": (
        "42804",
        "argument of WHERE must be type boolean, not type integer",
    ),
    "SELECT a FROM t WHERE a AND true": (
        "42804",
        "argument of AND must be type boolean, not type integer",
    ),
    "SELECT a FROM t WHERE NOT a": (
        "42804",
        "argument of NOT must be type boolean, not type integer",
    ),
    "SELECT a FROM t WHERE a = b": ("42883", "operator does not exist: integer = text"),
    "SELECT a + b FROM t": ("42883", "operator does not exist: integer + text"),
    "SELECT -b FROM t": ("42883", "operator does not exist: - text"),
    "SELECT foo(b) FROM t": ("42883", "function foo(text) does not exist"),
    "SELECT lower(a) FROM t": ("42883", "function lower(integer) does not exist"),
    "SELECT CASE WHEN true THEN a ELSE b END FROM t": (
        "42804",
        "CASE types text and integer cannot be matched",
    ),
    "SELECT coalesce(a, b) FROM t": ("42804", "COALESCE types integer and text cannot be matched"),
    "SELECT 'abc'::int": ("22P02", 'invalid input syntax for type integer: "abc"'),
    "SELECT a = 'abc' FROM t": ("22P02", 'invalid input syntax for type integer: "abc"'),
    "SELECT DATE '2024-02-30'": ("22008", 'date/time field value out of range: "2024-02-30"'),
    "SELECT f::date FROM u": ("42846", "cannot cast type boolean to date"),
    "SELECT a::uuid FROM t": ("42704", 'type "uuid" is not supported'),
    "SELECT b::char(5) FROM t": ("42704", 'type "char(5)" is not supported'),
    "SELECT a < 1 = true FROM t": ("42601", "syntax error: comparisons do not chain"),
    "VALUES (1), ('a', 2)": ("42601", "VALUES lists must all be the same length"),
    # Grouping
    "SELECT a, count(*) FROM t": (
        "42803",
        'column "t.a" must appear in the GROUP BY clause or be used in an aggregate function',
    ),
    "SELECT a + 1 FROM t GROUP BY b": (
        "42803",
        'column "t.a" must appear in the GROUP BY clause or be used in an aggregate function',
    ),
    "SELECT a FROM t WHERE count(*) > 1": (
        "42803",
        "aggregate functions are not allowed in WHERE",
    ),
    "SELECT count(sum(a)) FROM t": ("42803", "aggregate function calls cannot be nested"),
    "SELECT count(*) FROM t GROUP BY 1": (
        "42803",
        "aggregate functions are not allowed in GROUP BY",
    ),
    "SELECT a FROM t GROUP BY 2": ("42P10", "GROUP BY position 2 is not in select list"),
    "SELECT a FROM t ORDER BY 2": ("42P10", "ORDER BY position 2 is not in select list"),
    "SELECT DISTINCT a FROM t ORDER BY b": (
        "42P10",
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    ),
    "SELECT sum(b) FROM t": ("42883", "function sum(text) does not exist"),
    "SELECT max(f) FROM u": ("42883", "function max(boolean) does not exist"),
    "SELECT stddev(d) FROM u": ("0A000", "stddev(double precision) is not supported"),
    "SELECT sum(DISTINCT d) FROM u": ("0A000", "sum(DISTINCT ...) is not supported"),
    # Not maintained (yet)
    "SELECT INTERVAL '1 month'": ("0A000", "an interval of months cannot be a value"),
    "SELECT INTERVAL '1 dya' + DATE '2020-01-01'": (
        "22007",
        "invalid input syntax for type interval",
    ),
    "SELECT 1.5 * a * INTERVAL '1 year' + DATE '2020-01-01' FROM t": (
        "0A000",
        "an interval of months cannot be a value",
    ),
    "SELECT a * INTERVAL '1 month' FROM t": ("0A000", "an interval of months cannot be a value"),
    "SELECT a + INTERVAL '1 day' FROM t": ("42883", "operator does not exist"),
    "SELECT sum(INTERVAL '1 month') FROM t": ("0A000", "an interval of months cannot be a value"),
    "SELECT a::INTERVAL FROM t": ("0A000", "cannot cast type integer to interval"),
    "SELECT a FROM t WHERE mz_now() > a OR a = 1": ("0A000", "mz_now() cannot be used here"),
    "SELECT a FROM t WHERE NOT mz_now() > a": ("0A000", "mz_now() cannot be used here"),
    "SELECT a FROM t WHERE mz_now() + 1 > a": ("0A000", "mz_now() cannot be used here"),
    "SELECT a FROM t WHERE mz_now() <> a": ("0A000", "mz_now() cannot be used here"),
    "SELECT a FROM t WHERE mz_now() > b": ("42883", "mz_timestamp = text"),
    "SELECT sum(a) FILTER (WHERE mz_now() > a) FROM t": ("0A000", "mz_now() cannot be used here"),
    "SELECT b ~ b FROM t": ("0A000", "a regular expression that is not a constant"),
    "SELECT b ~ '(' FROM t": ("2201B", "invalid regular expression"),
    "SELECT regexp_replace(b, 'a|ab', '') FROM t": (
        "0A000",
        "alternatives where the match is used",
    ),
    """SELECT "raise if"(true, 'x') FROM t""": (
        "42883",
        'function "raise if"(boolean, unknown) does',
    ),
    """SELECT "reverse order"(a) FROM t""": ("42883", 'function "reverse order"(integer) does'),
    "SELECT lowr(b) FROM t": ("42883", "function lowr(text) does not exist"),
    "SELECT regexp_split_to_table(b, '(') FROM t": ("2201B", "invalid regular expression"),
    "SELECT regexp_split_to_table(b, b) FROM t": ("0A000", "that is not a constant"),
    "SELECT regexp_split_to_table(b, 'x*') FROM t": ("0A000", "which matches the empty text"),
    "SELECT unnest(ARRAY[1, 2]) AS u, count(*) FROM t GROUP BY 1": ("0A000", "grouping by a set"),
    "SELECT generate_series(1, a) AS g, count(*) FROM t GROUP BY g": ("0A000", "grouping by a set"),
    "SELECT a FROM t ORDER BY b::jsonb": ("0A000", "ORDER BY jsonb is not supported"),
    "SELECT a FROM t ORDER BY ARRAY[a] LIMIT 1": ("0A000", "ORDER BY an array is not supported"),
    "SELECT array_agg(a ORDER BY ARRAY[a]) FROM t": ("0A000", "ORDER BY an array"),
    "SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING) FROM t": (
        "0A000",
        "a window's frame that is always empty",
    ),
    "SELECT ARRAY['a'] || 'q'": ("22P02", "malformed array literal"),
    "SELECT ARRAY[]": ("42P18", "cannot determine type of empty array"),
    "SELECT ARRAY[1, 'x'::text]": ("42804", "ARRAY types integer and text"),
    "SELECT (ARRAY[1,2,3])[1][2]": ("42883", "subscript"),
    "SELECT '{{1}}'::int[]": ("0A000", "more than one dimension"),
    "SELECT '{1'::int[]": ("22P02", "malformed array literal"),
    "SELECT ARRAY[1] < ARRAY[2]": ("0A000", "< of arrays"),
    "SELECT '{}'::jsonb @> b::jsonb FROM t": ("0A000", "jsonb containment"),
    "SELECT now() AT TIME ZONE 'CET'": ("0A000", "now is not supported here"),
    "SELECT '2024-01-01'::timestamp AT TIME ZONE 'Nowhere'": ("22023", 'time zone "Nowhere"'),
    "SELECT mz_now()": ("0A000", "mz_now() cannot be used here"),
    "SELECT now()": ("0A000", "now is not supported here"),
    "SELECT current_timestamp": ("0A000", "current_timestamp is not supported here"),
    "WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x": ("0A000", "WITH RECURSIVE"),
    "SELECT a FROM t FOR UPDATE": ("0A000", "FOR UPDATE and FOR SHARE is not supported"),
    "SELECT a FROM t TABLESAMPLE SYSTEM (10)": ("0A000", "SAMPLE on a table"),
    "SELECT a FROM t LIMIT -1": ("2201W", "LIMIT must not be negative"),
    "SELECT exp(c) FROM t": ("0A000", "function exp(numeric) is not supported"),
    "SELECT $1": ("42P02", "there is no parameter $1"),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_refusals_carry_their_sqlstate(sql: str) -> None:
    sqlstate, message = REFUSED[sql]
    with pytest.raises(SqlError if not sqlstate.startswith("22") else Exception) as caught:
        plan(sql)
    assert getattr(caught.value, "sqlstate", None) == sqlstate
    assert message in getattr(caught.value, "message", "")


NAMES = {
    "true": "?column?",
    "true::text": "text",
    "1::int::text": "text",
    "'{1,2}'::int[]": "int4",
    "(ARRAY[1, 2])[1]": "array",
    "(a::text)": "a",
    "lower(b)::text": "lower",
    "now() AT TIME ZONE 'UTC'": "timezone",
    "CASE WHEN a = 1 THEN 2 END": "case",
    "CASE WHEN a = 1 THEN 'x' ELSE lower(b) END": "lower",
    "(CASE WHEN a = 1 THEN 2 END)::text": "text",
    "interval '1 day'": "interval",
    "overlay(b placing 'x' from 1)": "overlay",
    "a AS select": "select",
    "(SELECT a)::text": "a",
    "-a": "?column?",
}
"""What PostgreSQL calls columns that have no alias."""


@pytest.mark.parametrize("expr", NAMES)
def test_names_of_columns(expr: str) -> None:
    (item,) = parse_query(f"SELECT {expr} FROM t").expressions
    assert (item.alias or output_name(item)) == NAMES[expr]


def test_quoted_texts_on_lines_of_their_own_are_one() -> None:
    assert show(plan("SELECT 'it''s '\n  -- and\n 'b'\n'c' AS x")) == "project[it's bc x](values())"
    with pytest.raises(SqlError) as caught:
        plan("SELECT 'a' 'b'")
    assert (caught.value.message, caught.value.position) == ("syntax error at or near \"'b'\"", 12)


def test_a_list_of_nothing_is_refused_where_it_is() -> None:
    with pytest.raises(SqlError) as caught:
        plan("SELECT a FROM t WHERE a IN ()")
    assert (caught.value.message, caught.value.position) == ('syntax error at or near ")"', 29)


def test_a_view_ignores_its_order_and_keeps_its_limit() -> None:
    assert show(plan("SELECT a FROM t ORDER BY b", view=True)) == "project[#0 a](u1)"
    assert show(plan("SELECT a FROM t ORDER BY b LIMIT 1", view=True)) == (
        "project[#0 a](top[; #1; 1; 0](project[#0 a, #1 ?order?](u1)))"
    )


def test_a_view_needs_distinct_column_names() -> None:
    with pytest.raises(SqlError, match='column "a" specified more than once'):
        plan("SELECT a, a FROM t", view=True)
    renamed = plan("SELECT a, a FROM t", view=True, names=("x", "y"))
    assert [column.name for column in renamed.columns] == ["x", "y"]


def test_parameters_are_typed_by_their_context() -> None:
    tree = parse_query("SELECT a FROM t WHERE a = $1 AND b = $2")
    assert count_parameters(tree) == 2
    unknown = tuple(Lit(text, Lit("", TEXT).type) for text in ("x", "y"))
    typed = (Lit("5", INTEGER), unknown[1])
    planned = plan_query(tree, Catalog(), params=typed)
    assert show(planned) == "project[#0 a](filter[and(=(#0, 5), =(#1, y))](u1))"


def test_session_functions_are_constants_of_one_query_and_refused_in_views() -> None:
    session = {"version": Lit("Tidemark", TEXT)}
    assert show(plan("SELECT version()", session=session)) == (
        "project[Tidemark version](values())"
    )
    with pytest.raises(SqlError, match="depends on the session"):
        plan("SELECT version()", session=session, view=True)


def test_equal_aggregates_are_computed_once() -> None:
    planned = plan("SELECT sum(a), sum(a) + 1 FROM t HAVING sum(a) > 0")
    assert isinstance(planned, Project)
    assert isinstance(planned.input, Filter)
    reduce = planned.input.input
    assert isinstance(reduce, Reduce)
    assert reduce.aggregates == (Aggregate("sum", (Col(0, INTEGER),), BIGINT),)


def test_null_placement_is_only_said_where_it_differs() -> None:
    planned = plan("SELECT a FROM t ORDER BY a, b DESC, c NULLS FIRST")
    assert isinstance(planned, Finish)
    assert planned.order_by == (OrderBy(0), OrderBy(1, True), OrderBy(2, False, True))
