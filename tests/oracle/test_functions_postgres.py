"""Functions on Spark against PostgreSQL itself: the same expressions over the same rows.

Results and error messages must be the same, as text; numerics and doubles as numbers. Where we
differ on purpose, the expression is not here but in the unit tests, with what it gives instead.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from services import PostgresServer
from tidemark.compute.expr import Expr, Lit
from tidemark.compute.literals import typed
from tidemark.compute.plan import Get, Project
from tidemark.compute.render_expr import error, value
from tidemark.compute.sql import parse_query, plan_query
from tidemark.control.pgwire.text import texts
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    array_of,
    numeric,
)

COLUMNS = (
    Column("f", BOOLEAN),
    Column("i", INTEGER),
    Column("b", BIGINT),
    Column("m", numeric(10, 2)),
    Column("d", DOUBLE),
    Column("t", TEXT),
    Column("u", TEXT),
    Column("dt", DATE),
    Column("ts", TIMESTAMP),
    Column("tz", TIMESTAMPTZ),
    Column("j", JSONB),
    Column("ia", array_of(INTEGER)),
    Column("ta", array_of(TEXT)),
)

ROWS: list[tuple[str | None, ...]] = [
    ("true", "7", "7", "12.50", "2.5", "Hello wORLD-foo bar2x", "l", "2024-02-29",
     "2024-02-29 13:45:06.5", "2024-02-29 13:45:06.123456+00",
     '{"a": {"b": [10, "x", null]}, "s": "it\'s", "n": 1.5, "z": null, "7": true}',
     "{1,2,NULL,2}", '{a,"b c",NULL,""}'),
    ("false", "-3", "-9223372036854775808", "-0.01", "-2.5", "", "", "1999-12-31",
     "1999-12-31 23:59:59", "1999-12-31 23:59:59+00", '[1, "a", {"a": 2}, null]', "{}", "{}"),
    ("true", "0", "0", "99999999.99", "0", "aaa.bbb.ccc", ".", "2021-01-03",
     "2021-01-31 00:00:00", "2021-01-31 00:00:00.000001+00", "12", "{-3,0}", "{NULL}"),
    (None,) * 13,
    ("false", "65", "1099511627776", "3.14", "709.5", "日本語 n\tx\ny", "語", "1970-01-01",
     "1969-12-31 23:59:59.9999", "1970-01-01 00:00:00+00", '"str"', "{65}", "{x,y,z}"),
    ("true", "2", "-5", "0.00", "-1000", "a_b%c\\d", "b", "9998-12-31",
     "9998-12-31 12:00:00", "9998-12-31 12:00:00+00", "null", "{5,4,3,2,1}", "{b,b}"),
]  # fmt: skip

EXPRESSIONS = r"""
concat(t, i, f)
concat(t, null, u)
concat_ws(',', t, i, f, u)
concat_ws(u, 'x', t, 'y')
lpad(t, 5)
lpad(t, 12, 'xy')
lpad(t, i)
lpad('ab', i)
rpad('ab', i, 'xy')
rpad(t, 5)
rpad(t, 12, 'xy')
rpad(t, i, u)
repeat(t, i)
repeat(u, 3)
reverse(t)
translate(t, 'abl', 'AB')
initcap(t)
ascii(t)
chr(i)
chr(i + 19968)
chr(i * 100000000)
md5(t)
to_hex(i)
to_hex(b)
octet_length(t)
char_length(t)
length(t)
left(t, i)
right(t, i)
left(t, -2)
split_part(t, '.', i)
split_part(t, 'b', 2)
starts_with(t, u)
strpos(t, u)
position(u in t)
substring(t from 2 for 3)
substr(t, i)
replace(t, u, '<>')
trim(both 'a' from t)
ltrim(t, 'Ha')
btrim(t, u)
t ~ 'wORLD'
t ~ '^a+\.b'
t !~ '^$'
t ~* 'HELLO|BBB'
t !~* '[[:digit:]]'
t ~ '\d\w$'
t ~ 'n.x.y$'
regexp_replace(t, 'b+', '[\&]')
regexp_replace(t, 'b+', '[\&]', 'g')
regexp_replace(t, '(\w)(\w)', '\2\1')
regexp_replace(t, '(\w)(\w)', '\2\1', 'g')
regexp_replace(t, 'L', '$1', 'gi')
regexp_replace(t, '[^a-z]', '', 'g')
t like '%\%%'
upper(t) || lower(u)
sign(i)
sign(m)
sign(d)
exp(d)
exp(i)
ln(d)
ln(m::double precision)
log(d)
log(i)
sqrt(m)
sqrt(abs(m) * 2)
sqrt(d)
mod(i, 3)
i & 5
i | 8
b # 3
~i
i << 3
b >> 1
greatest(i, b, 3)
least(m, i)
nullif(i, 7)
abs(m)
round(m, 1)
round(m * 100, -2)
trunc(m, 1)
ceil(m)
floor(m)
date_trunc('month', ts)
date_trunc('week', ts)
date_trunc('quarter', tz)
date_trunc('hour', ts)
date_part('year', ts)
extract(isoyear from dt)
extract(decade from dt)
extract(century from ts)
extract(millennium from ts)
extract(milliseconds from ts)
extract(microseconds from tz)
extract(epoch from tz)
extract(dow from dt)
extract(week from dt)
make_date(2000 + i, 2, 29)
make_date(2024, i, 1)
to_timestamp(i * 1000000)
to_timestamp(d)
tz at time zone 'UTC'
ts at time zone 'UTC'
ts + interval '1 month'
ts - interval '1 month'
ts + interval '1 day 02:30:00.5'
tz + interval '90' minute
dt - interval '1 year 2 mons'
dt + interval '36 hours'
interval '1 hour' + ts
ts + 2 * interval '1.5 days'
ts - interval '10 days' / 4
ts + '1 week'
dt < ts
dt = '2024-02-29'::timestamp
ts <= tz
dt between date '2000-01-01' and timestamp '2024-02-29 10:00:00'
j -> 's'
j -> 0
j -> 'a' -> 'b' -> 1
j ->> 's'
j ->> 'n'
j ->> 'z'
j ->> 1
j #> '{a,b,0}'
j #>> '{a,b,1}'
j #>> '{7}'
j ? 's'
j ? 'a'
j ? 'str'
jsonb_typeof(j)
jsonb_typeof(j -> 'a')
jsonb_array_length(j)
jsonb_build_array(i, t, f, m, null)
jsonb_build_object('k', t, 'a', i, 'k', dt)
to_jsonb(t)
to_jsonb(m)
to_jsonb(ts)
to_jsonb(tz)
to_jsonb(ia)
to_jsonb(f)
(j -> 'n')::numeric
(j -> 'n')::int
(j -> 'n')::double precision
(j -> '7')::boolean
(j -> 's')::int
j::numeric
ia[1]
ia[i]
ta[2]
array_length(ia, 1)
array_length(ia, 2)
cardinality(ia)
array_position(ia, 2)
array_position(ta, null)
array_to_string(ia, ',')
array_to_string(ta, '|', '*')
string_to_array(t, '.')
string_to_array(t, u)
string_to_array(t, null)
string_to_array(t, ' ', 'wORLD-foo')
i = any(ia)
2 = any(ia)
i <> all(ia)
5 > all(ia)
t = any(array['aaa.bbb.ccc', u])
i = any('{7,0}')
ia || 9
9 || ia
ia || ia
ta || 'q'::text
ta || '{q}'
array_append(ia, null)
array_prepend(0, ia)
array_remove(ia, 2)
array[i, null, 3]
array[t, 'x']
array[m, 1.25]
ia = array[-3,0]
ia @> array[2]
ia <@ array[1,2,3]
ia && array[0,2]
'{1,NULL," x y ","a\"b"}'::text[]
'{1.5,2}'::numeric[]
coalesce(ia, '{}')
case when f then ia else array[0] end
"""


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get("t", COLUMNS)


def planned(sql: str) -> Expr:
    plan = plan_query(parse_query(f"SELECT {sql} FROM t"), Catalog())
    assert isinstance(plan, Project)
    return plan.outputs[0]


def on_postgres(server: PostgresServer, listed: list[str]) -> dict[str, list[str | None]]:
    types = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
    with psycopg.connect(server.uri()) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(f"CREATE TEMP TABLE t (k int, {types})")
        marks = ", ".join(f"%s::text::{column.type}" for column in COLUMNS)
        for k, row in enumerate(ROWS):
            connection.execute(f"INSERT INTO t VALUES (%s, {marks})", (k, *row))  # pyright: ignore
        connection.execute(
            "CREATE FUNCTION pg_temp.tried(e text, k int) RETURNS text LANGUAGE plpgsql AS $$"
            " DECLARE made text; BEGIN"
            " EXECUTE format('SELECT (%s)::text FROM t WHERE k = %s', e, k) INTO made;"
            " RETURN made; EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLERRM; END $$"
        )
        found = connection.execute(
            "SELECT e, array_agg(pg_temp.tried(e, k) ORDER BY k)"
            " FROM unnest(%s::text[]) e, generate_series(0, %s) k GROUP BY e",
            (listed, len(ROWS) - 1),
        ).fetchall()
    return dict(found)


def on_spark(spark: SparkSession, exprs: dict[str, Expr]) -> dict[str, list[str | None]]:
    selects = [
        f"SELECT {k} AS k, "
        + ", ".join(
            f"{value(Lit(None, c.type) if cell is None else typed(cell, c.type), name_of)} AS c{at}"
            for at, (cell, c) in enumerate(zip(row, COLUMNS, strict=True))
        )
        for k, row in enumerate(ROWS)
    ]
    frame = spark.sql(" UNION ALL ".join(selects)).coalesce(1).localCheckpoint()
    frame.createOrReplaceTempView("functions_postgres")
    results: dict[str, list[str | None]] = {}
    listed = list(exprs.items())
    for start in range(0, len(listed), 40):
        batch = listed[start : start + 40]
        outputs: list[str] = []
        for at, (_, expr) in enumerate(batch):
            outputs.append(f"{value(expr, name_of)} AS v{at}")
            outputs.append(f"CAST({error(expr, name_of) or 'NULL'} AS STRING) AS e{at}")
        table = spark.sql(
            f"SELECT {', '.join(outputs)} FROM functions_postgres ORDER BY k"
        ).toArrow()
        for at, (sql, expr) in enumerate(batch):
            cells = table.column(f"v{at}").combine_chunks().cast(expr.type.arrow)
            shown = texts(cells, expr.type).to_pylist()
            errors = table.column(f"e{at}").to_pylist()
            pairs = zip(shown, errors, strict=True)
            results[sql] = [f"!{failed}" if failed is not None else cell for cell, failed in pairs]
    return results


def name_of(index: int) -> str:
    return f"c{index}"


def same(got: Any, wanted: Any, type_: SqlType) -> bool:
    if got == wanted or got is None or wanted is None or "!" in (got[:1], wanted[:1]):
        return got == wanted
    if type_.name == "boolean":
        return {"t": "true", "f": "false"}[got] == wanted
    if type_.name == "double precision":
        return abs(float(got) - float(wanted)) <= 1e-14 * abs(float(wanted))
    if type_.name == "numeric":
        # A bare numeric keeps 16 decimals; PostgreSQL shows as many as it finds significant.
        shown = Decimal(1).scaleb(-min(16, len(wanted.partition(".")[2]))) / 2
        close = shown if type_ == NUMERIC else Decimal(0)
        return abs(Decimal(got) - Decimal(wanted)) <= close
    if type_ == JSONB:
        return typed(wanted, JSONB).value == typed(got, JSONB).value
    return False


@pytest.fixture(scope="module")
def compared(
    spark: SparkSession, postgres_server: PostgresServer
) -> dict[str, tuple[SqlType, list[str | None], list[str | None]]]:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    listed = EXPRESSIONS.strip().split("\n")
    exprs = {sql: planned(sql) for sql in listed}
    theirs, ours = on_postgres(postgres_server, listed), on_spark(spark, exprs)
    return {sql: (expr.type, ours[sql], theirs[sql]) for sql, expr in exprs.items()}


@pytest.mark.parametrize("sql", EXPRESSIONS.strip().split("\n"))
def test_same_as_postgres(compared: dict[str, Any], sql: str) -> None:
    type_, ours, theirs = compared[sql]
    wrong = [
        f"row {k}: {got!r}, PostgreSQL {wanted!r}"
        for k, (got, wanted) in enumerate(zip(ours, theirs, strict=True))
        if not same(got, wanted, type_)
    ]
    assert not wrong, "\n".join(wrong)
