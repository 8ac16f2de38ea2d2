"""Functions and casts: overloads, result types, what is rendered and what is refused."""

from __future__ import annotations

import pytest

from tidemark.compute.casts import CASTS, common_type
from tidemark.compute.expr import Call, Cast, Col, Expr, Lit
from tidemark.compute.functions import FUNCTIONS, call, cast
from tidemark.compute.literals import UNKNOWN, number_literal, spark_literal, typed
from tidemark.compute.render_expr import error, value
from tidemark.errors import DataError, SqlError
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    numeric,
    type_named,
)

CENTS = numeric(10, 2)


def col(type_: SqlType, index: int = 0) -> Col:
    return Col(index, type_)


def name(index: int) -> str:
    return f"c{index}"


RESULTS: list[tuple[str, tuple[SqlType, ...], SqlType]] = [
    ("+", (SMALLINT, SMALLINT), SMALLINT),
    ("+", (SMALLINT, INTEGER), INTEGER),
    ("+", (INTEGER, BIGINT), BIGINT),
    ("+", (INTEGER, CENTS), numeric(13, 2)),
    ("+", (CENTS, CENTS), numeric(11, 2)),
    ("+", (NUMERIC, CENTS), NUMERIC),
    ("+", (numeric(38, 2), CENTS), numeric(38, 2)),
    ("+", (NUMERIC, DOUBLE), DOUBLE),
    ("+", (DATE, INTEGER), DATE),
    ("-", (DATE, DATE), INTEGER),
    ("*", (CENTS, CENTS), numeric(20, 4)),
    ("*", (CENTS, INTEGER), numeric(20, 2)),
    ("*", (numeric(38, 2), CENTS), numeric(38, 4)),
    ("/", (INTEGER, INTEGER), INTEGER),
    ("/", (CENTS, INTEGER), NUMERIC),
    ("%", (CENTS, INTEGER), CENTS),
    ("mod", (BIGINT, INTEGER), BIGINT),
    ("round", (INTEGER,), DOUBLE),
    ("round", (CENTS,), numeric(9, 0)),
    ("floor", (DOUBLE,), DOUBLE),
    ("power", (INTEGER, INTEGER), DOUBLE),
    ("=", (INTEGER, DOUBLE), BOOLEAN),
    ("greatest", (INTEGER, BIGINT, CENTS), numeric(21, 2)),
    ("coalesce", (DATE, TIMESTAMP), TIMESTAMP),
    ("nullif", (INTEGER, BIGINT), INTEGER),
    ("||", (TEXT, INTEGER), TEXT),
    ("date_trunc", (UNKNOWN, DATE), TIMESTAMPTZ),
    ("date_part", (UNKNOWN, DATE), DOUBLE),
]


@pytest.mark.parametrize(("fn", "types", "result"), RESULTS)
def test_result_types(fn: str, types: tuple[SqlType, ...], result: SqlType) -> None:
    args: tuple[Expr, ...] = tuple(
        Lit("year", UNKNOWN) if type_ == UNKNOWN else col(type_, at)
        for at, type_ in enumerate(types)
    )
    assert call(fn, args).type == result


def test_quoted_literals_take_the_type_of_the_other_side() -> None:
    assert call("=", (col(DATE), Lit("2024-1-2", UNKNOWN))) == Call(
        "=", (col(DATE), Lit("2024-01-02", DATE)), BOOLEAN
    )
    # The type is taken over, not its limits.
    compared = call("=", (col(CENTS), Lit("1.005", UNKNOWN)))
    assert isinstance(compared, Call)
    assert compared.args[1] == Lit("1.005", NUMERIC)


REFUSED: list[tuple[str, tuple[SqlType, ...], str]] = [
    ("foo", (TEXT,), "function foo(text) does not exist"),
    ("lower", (INTEGER,), "function lower(integer) does not exist"),
    ("lower", (TEXT, TEXT), "function lower(text, text) does not exist"),
    ("+", (TEXT, INTEGER), "operator does not exist: text + integer"),
    ("||", (INTEGER, INTEGER), "operator does not exist: integer || integer"),
    ("%", (DOUBLE, DOUBLE), "operator does not exist: double precision % double precision"),
    ("=", (BOOLEAN, INTEGER), "operator does not exist: boolean = integer"),
    ("in", (INTEGER, TEXT), "operator does not exist: integer = text"),
    ("round", (DOUBLE, INTEGER), "function round(double precision, integer) does not exist"),
    ("like", (INTEGER, TEXT), "operator does not exist: integer ~~ text"),
]


@pytest.mark.parametrize(("fn", "types", "message"), REFUSED)
def test_no_such_function(fn: str, types: tuple[SqlType, ...], message: str) -> None:
    with pytest.raises(SqlError) as caught:
        call(fn, tuple(col(type_, at) for at, type_ in enumerate(types)))
    assert (caught.value.sqlstate, caught.value.message) == ("42883", message)


INFALLIBLE: list[Expr] = [
    col(INTEGER),
    call("=", (col(INTEGER), col(BIGINT, 1))),
    call("+", (col(CENTS), col(CENTS, 1))),
    call("lower", (col(TEXT),)),
    call("like", (col(TEXT), Lit("a%", UNKNOWN))),
    call("%", (col(INTEGER), number_literal("2"))),
    call("and", (col(BOOLEAN), col(BOOLEAN, 1))),
    cast(col(INTEGER), BIGINT),
    cast(col(CENTS), NUMERIC),
]


@pytest.mark.parametrize("expr", INFALLIBLE)
def test_what_cannot_fail_renders_no_error(expr: Expr) -> None:
    assert error(expr, name) is None


def test_errors_follow_evaluation() -> None:
    division = call("/", (col(INTEGER), col(INTEGER, 1)))
    message = error(division, name)
    assert message is not None
    positive = call(">", (division, number_literal("0")))
    guarded = call("case", (col(BOOLEAN, 2), division, number_literal("0")))
    assert error(guarded, name) == f"CASE WHEN c2 THEN {message} ELSE NULL END"
    assert error(call("coalesce", (col(INTEGER, 3), division)), name) == (
        f"CASE WHEN c3 IS NULL THEN {message} END"
    )
    assert error(call("and", (col(BOOLEAN, 2), positive)), name) == (
        f"CASE WHEN NOT c2 OR ({message} IS NULL AND NOT {value(positive, name)})"
        f" THEN NULL ELSE {message} END"
    )


def test_every_cast_in_the_table_renders_or_is_refused() -> None:
    for (source, target), rule in CASTS.items():
        expr = Cast(col(type_named(source)), type_named(target))
        if rule.refused:
            with pytest.raises(SqlError, match=f"cannot cast type {source} to {target}"):
                cast(expr.arg, expr.type)
        else:
            text = value(expr, name).replace("[0-9]{", "").replace("'{\"\":'", "")
            assert "{" not in text


def test_no_function_has_an_argument_type_that_does_not_exist() -> None:
    families = {"int", "exact", "any", "each", "array", "element", "...", "double", "timestamptz"}
    for overloads in FUNCTIONS.values():
        for overload in overloads:
            for word in overload.args.split():
                assert word in families or type_named(word)


LITERALS = {
    Lit(None, INTEGER): "CAST(NULL AS INT)",
    Lit("true", BOOLEAN): "true",
    Lit("-5", INTEGER): "(-5)",
    Lit("5", BIGINT): "CAST('5' AS BIGINT)",
    Lit("1.50", CENTS): "CAST('1.50' AS DECIMAL(10,2))",
    Lit("it's \\ ${x}", TEXT): "'it\\'s \\\\ \\u0024{x}'",
    Lit("2024-01-02", DATE): "DATE'2024-01-02'",
}


@pytest.mark.parametrize("literal", LITERALS)
def test_literals_render_typed(literal: Lit) -> None:
    assert spark_literal(literal) == LITERALS[literal]


READ = [
    (" tRu ", BOOLEAN, "true"),
    ("off", BOOLEAN, "false"),
    (" +5 ", INTEGER, "5"),
    ("1e3", NUMERIC, "1000"),
    ("1.2345", CENTS, "1.23"),
    ("-1.235", CENTS, "-1.24"),
    ("inf", DOUBLE, "Infinity"),
    ("2024-2-9", DATE, "2024-02-09"),
    ("2024-02-09T10:30Z", TIMESTAMP, "2024-02-09 10:30:00"),
    ("2024-02-09 10:30:00.5+05:30", TIMESTAMPTZ, "2024-02-09 05:00:00.5+00"),
]


@pytest.mark.parametrize(("text", "type_", "expected"), READ)
def test_quoted_literals_are_read(text: str, type_: SqlType, expected: str) -> None:
    assert typed(text, type_) == Lit(expected, type_)


BAD = [
    ("maybe", BOOLEAN, "22P02"),
    ("1.5", INTEGER, "22P02"),
    ("32768", SMALLINT, "22003"),
    ("NaN", NUMERIC, "22P02"),
    ("123456789.00", CENTS, "22003"),
    ("1e400", DOUBLE, "22003"),
    ("2023-02-29", DATE, "22008"),
    ("tomorrow", TIMESTAMP, "22P02"),
]


@pytest.mark.parametrize(("text", "type_", "sqlstate"), BAD)
def test_bad_literals_fail_when_planned(text: str, type_: SqlType, sqlstate: str) -> None:
    with pytest.raises(DataError) as caught:
        typed(text, type_)
    assert caught.value.sqlstate == sqlstate


def test_common_types() -> None:
    assert common_type([INTEGER, BIGINT, SMALLINT]) == BIGINT
    assert common_type([UNKNOWN, UNKNOWN]) == TEXT
    assert common_type([CENTS, NUMERIC]) == NUMERIC
    assert common_type([numeric(38, 2), numeric(38, 0)]) == numeric(38, 2)
    assert common_type([CENTS, DOUBLE]) == DOUBLE
    assert common_type([DATE, TIMESTAMPTZ]) == TIMESTAMPTZ
    assert common_type([INTEGER, TEXT]) is None
