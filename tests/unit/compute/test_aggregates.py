"""Aggregates: their normal form, their types, and what the whole ones give on Spark."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from pyspark.sql import SparkSession

from tidemark.compute.aggregates import aggregate, composed, result_type, whole_error, whole_value
from tidemark.compute.expr import Col, Expr, Lit
from tidemark.compute.literals import UNKNOWN
from tidemark.compute.plan import Aggregate, Order
from tidemark.compute.render_expr import error, value
from tidemark.errors import SqlError
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    NUMERIC,
    SMALLINT,
    TEXT,
    SqlType,
    array_of,
    numeric,
)

CENTS = numeric(10, 2)
X, S, N, F = Col(0, INTEGER), Col(1, TEXT), Col(2, CENTS), Col(3, BOOLEAN)
NAMES = ("i", "s", "n", "f")
ROWS = r"""VALUES (1, 'b', 1.50BD, true), (2, 'a', NULL, false), (2, 'a', 3.00BD, NULL),
    (NULL, 'it\'s "q"', 0.00BD, true) AS t(i, s, n, f)"""

TYPES: list[tuple[str, tuple[SqlType, ...], SqlType]] = [
    ("count", (), BIGINT),
    ("count", (JSONB,), BIGINT),
    ("sum", (SMALLINT,), BIGINT),
    ("sum", (BIGINT,), numeric(38, 0)),
    ("sum", (CENTS,), numeric(38, 2)),
    ("sum", (DOUBLE,), DOUBLE),
    ("avg", (INTEGER,), NUMERIC),
    ("avg", (DOUBLE,), DOUBLE),
    ("min", (DATE,), DATE),
    ("every", (BOOLEAN,), BOOLEAN),
    ("stddev", (INTEGER,), NUMERIC),
    ("array_agg", (CENTS,), array_of(CENTS)),
    ("string_agg", (TEXT, TEXT), TEXT),
    ("jsonb_agg", (DATE,), JSONB),
    ("jsonb_object_agg", (TEXT, INTEGER), JSONB),
]


@pytest.mark.parametrize(("name", "types", "expected"), TYPES)
def test_types(name: str, types: tuple[SqlType, ...], expected: SqlType) -> None:
    assert result_type(name, types) == expected


REFUSED: list[tuple[str, tuple[SqlType, ...], str]] = [
    ("var_pop", (DOUBLE,), "0A000"),
    ("stddev", (DOUBLE,), "0A000"),
    ("sum", (TEXT,), "42883"),
    ("min", (BOOLEAN,), "42883"),
    ("max", (JSONB,), "42883"),
    ("max", (BYTEA,), "42883"),
    ("bool_or", (INTEGER,), "42883"),
    ("string_agg", (INTEGER, TEXT), "42883"),
    ("string_agg", (TEXT,), "42883"),
    ("array_agg", (array_of(TEXT),), "0A000"),
]


@pytest.mark.parametrize(("name", "types", "sqlstate"), REFUSED)
def test_what_there_is_not(name: str, types: tuple[SqlType, ...], sqlstate: str) -> None:
    with pytest.raises(SqlError) as caught:
        result_type(name, types)
    assert caught.value.sqlstate == sqlstate


def test_the_normal_form() -> None:
    assert aggregate("max", (X,), distinct=True) == Aggregate("max", (X,), INTEGER)
    assert aggregate("sum", (X,), order_by=(Order(S),)) == Aggregate("sum", (X,), BIGINT)
    filtered = aggregate("sum", (X,), filter=F)
    assert filtered.filter is None
    assert (
        value(filtered.args[0], NAMES.__getitem__)
        == "CASE WHEN f THEN i ELSE CAST(NULL AS INT) END"
    )
    kept = aggregate("string_agg", (S, Lit(",", UNKNOWN)), filter=F, order_by=(Order(X),))
    assert kept == Aggregate("string_agg", (S, Lit(",", TEXT)), TEXT, False, F, (Order(X),))


def test_distinct_orders_by_its_arguments_only() -> None:
    with pytest.raises(SqlError, match="ORDER BY expressions must appear in argument list"):
        aggregate("array_agg", (X,), distinct=True, order_by=(Order(S),))


SEPARATED = (S, Lit(", ", UNKNOWN))
WHOLE: list[tuple[Aggregate, object]] = [
    (aggregate("array_agg", (X,)), '["1","2","2",null]'),
    (aggregate("array_agg", (X,), distinct=True), '["1","2",null]'),
    (aggregate("array_agg", (X,), distinct=True, order_by=(Order(X, True),)), '[null,"2","1"]'),
    (aggregate("array_agg", (X,), order_by=(Order(X, True, False),)), '["2","2","1",null]'),
    (aggregate("array_agg", (S,), order_by=(Order(X, True), Order(N))), '["it\'s \\"q\\"","a","a","b"]'),
    (aggregate("array_agg", (X,), filter=F), '["1",null]'),
    (aggregate("string_agg", SEPARATED), 'a, a, b, it\'s "q"'),
    (aggregate("string_agg", SEPARATED, distinct=True), 'a, b, it\'s "q"'),
    (aggregate("string_agg", SEPARATED, order_by=(Order(X, True, False), Order(N))), 'a, a, b, it\'s "q"'),
    (aggregate("string_agg", (S, S)), 'aaabbit\'s "q"it\'s "q"'),
    (aggregate("jsonb_agg", (X,)), "[1,2,2,null]"),
    (aggregate("jsonb_agg", (N,)), "[0,1.5,3,null]"),
    (aggregate("jsonb_agg", (S,), order_by=(Order(S, True),)), r'["it' "'" r's \"q\"","b","a","a"]'),
    (aggregate("jsonb_agg", (F,), distinct=True), "[false,true,null]"),
    (aggregate("jsonb_object_agg", (S, N)), r'{"a":null,"b":1.5,"it' "'" r's \"q\"":0}'),
    (aggregate("jsonb_object_agg", (S, N), order_by=(Order(N, True),)), r'{"a":3,"b":1.5,"it' "'" r's \"q\"":0}'),
]  # fmt: skip


def rendered(agg: Aggregate) -> tuple[str, str]:
    args = tuple(value(arg, NAMES.__getitem__) for arg in agg.args)
    order = tuple(value(each.expr, NAMES.__getitem__) for each in agg.order_by)
    passes = value(agg.filter, NAMES.__getitem__) if agg.filter else None
    return whole_value(agg, args, order, passes), whole_error(agg, args, passes) or "NULL"


def test_whole_aggregates_on_spark(spark: SparkSession) -> None:
    columns = [f"{rendered(agg)[0]} AS a{at}" for at, (agg, _) in enumerate(WHOLE)]
    found = spark.sql(f"SELECT {', '.join(columns)} FROM {ROWS}").collect()[0]
    assert list(found) == [expected for _, expected in WHOLE]
    nothing = spark.sql(f"SELECT {', '.join(columns)} FROM {ROWS} WHERE i > 5").collect()[0]
    assert list(nothing) == [None] * len(WHOLE)


def test_a_key_must_not_be_null(spark: SparkSession) -> None:
    made, message = rendered(aggregate("jsonb_object_agg", (X, S)))
    found = spark.sql(f"SELECT {made}, {message} FROM {ROWS}").collect()[0]
    assert list(found) == ['{"1":"b","2":"a"}', "field name must not be null"]


COMPOSED = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


def of_parts(spark: SparkSession, names: tuple[str, ...], type_: SqlType, cells: list[str]) -> list:
    """What the composed aggregates of a column give, message or value."""
    parts: list[Aggregate] = []

    def column(agg: Aggregate) -> Expr:
        parts.append(agg)
        return Col(len(parts) - 1, agg.type)

    exprs = [composed(aggregate(name, (Col(0, type_),)), column) for name in names]
    measured: list[str] = []
    for at, agg in enumerate(parts):
        arg = value(agg.args[0], lambda _: "x")
        total = f"coalesce(sum(CAST({arg} AS DECIMAL(38,{agg.type.decimal[1]}))), 0)"
        made = f"count({arg})" if agg.fn == "count" else f"CAST({total} AS {agg.type.spark})"
        measured.append(f"{made} AS c{at}")
    selected: list[str] = []
    for expr in exprs:
        assert expr is not None
        selected.append(value(expr, lambda at: f"c{at}"))
        selected.append(error(expr, lambda at: f"c{at}") or "NULL")
    rows = ", ".join(f"(CAST({cell} AS {type_.spark}))" for cell in cells)
    sql = (
        f"SELECT {', '.join(selected)} FROM (SELECT {', '.join(measured)} FROM VALUES {rows} t(x))"
    )
    found = list(spark.sql(sql).collect()[0])
    return [b if b is not None else a for a, b in zip(found[::2], found[1::2], strict=True)]


DEVIATING: list[tuple[SqlType, list[str]]] = [
    (INTEGER, ["1", "2", "4", "NULL"]),
    (INTEGER, ["1000000001", "1000000002", "1000000004", "-2147483648"]),
    (SMALLINT, ["5", "5"]),
    (CENTS, ["12345678.91", "12345678.92", "-0.07", "3.00"]),
    (NUMERIC, ["1.1234567890123456", "1.1234567890123457", "2.5"]),
    (BIGINT, ["10000000001", "10000000002"]),
]


@pytest.mark.parametrize(("type_", "cells"), DEVIATING)
def test_variances_are_exact_to_the_last_decimals(
    spark: SparkSession, type_: SqlType, cells: list[str]
) -> None:
    with localcontext(prec=60):
        values = [Decimal(cell) for cell in cells if cell != "NULL"]
        n, mean = len(values), sum(values) / len(values)
        squares = sum((each - mean) ** 2 for each in values)
        wanted = [squares / n, squares / (n - 1)]
        wanted += [each.sqrt() for each in wanted]
        found = of_parts(spark, COMPOSED, type_, cells)
        assert all(abs(a - b) <= Decimal("2e-16") for a, b in zip(found, wanted, strict=True)), (
            found
        )


def test_one_value_has_no_sample_and_large_ones_overflow(spark: SparkSession) -> None:
    assert of_parts(spark, COMPOSED, INTEGER, ["3"]) == [0, None, 0, None]
    assert of_parts(spark, COMPOSED, INTEGER, ["NULL"]) == [None] * 4
    large = of_parts(spark, ("var_pop",), BIGINT, ["1000000000001", "-10000000000002"])
    assert large == ["numeric field overflow"]


def test_truth_of_all_and_any(spark: SparkSession) -> None:
    both = ("bool_and", "bool_or")
    assert of_parts(spark, both, BOOLEAN, ["true", "NULL"]) == [True, True]
    assert of_parts(spark, both, BOOLEAN, ["true", "false"]) == [False, True]
    assert of_parts(spark, both, BOOLEAN, ["false"]) == [False, False]
    assert of_parts(spark, both, BOOLEAN, ["NULL"]) == [None, None]
