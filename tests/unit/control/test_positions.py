"""Errors say where in the text they are, as the client sent it."""

from __future__ import annotations

import pytest

from tidemark.compute.expr import Lit
from tidemark.compute.plan import Get
from tidemark.compute.sql import plan_query
from tidemark.control import statements as s
from tidemark.control.lexer import apart, locate
from tidemark.control.parse import parse
from tidemark.errors import SqlError, TidemarkError
from tidemark.types import BIGINT, TEXT, Column

T = Get("u1", (Column("amount", BIGINT), Column("name", TEXT)))


class Relations:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        if parts != ("t",):
            raise SqlError(f'relation "{parts[-1]}" does not exist', sqlstate="42P01")
        return T


def error_of(sql: str) -> TidemarkError:
    with pytest.raises(TidemarkError) as caught:
        planned(sql)
    locate(caught.value, sql)
    return caught.value


def planned(sql: str) -> None:
    statement = parse(sql)
    assert isinstance(statement, s.Select)
    plan_query(statement.query.tree, Relations(), params=(Lit(None, BIGINT),) * 3)


@pytest.mark.parametrize(
    "sql",
    [
        "^SELEKT 1",
        "  SELECT * FORM ^t",
        "SELECT 1^)",
        "SELECT 1 +^",
        "SELECT 1 + ^) FROM t",
        "CREATE TABLE x (^)",
        "CREATE TABLE x (a ^int int)",
        "CREATE TABLE x (a ^uuid)",
        "EXECUTE p(^",
        "SELECT amount,\n  ^nothing FROM t",
        "SELECT ^x.amount FROM t",
        "SELECT * FROM ^nowhere",
        "-- ü\nSELECT ^nofunction(amount) FROM t;",
        "SELECT ^sum(name) FROM t",
        "SELECT ^amount + name FROM t",
        "SELECT amount FROM t WHERE ^name",
        "SELECT ^'x'::bigint",
        "SELECT $1,$2, ^nothing FROM t",
        "SELECT '$1', $1 ,$2, /* $3 */ ^nothing FROM t",
    ],
)
def test_an_error_is_where_the_mark_is(sql: str):
    place = sql.index("^")
    assert error_of(sql.replace("^", "")).position == place + 1


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT amout FROM t", "did you mean amount?"),
        ("SELECT zzz FROM t", None),
        ("SELECT orders.amount FROM t AS order_s", "did you mean order_s?"),
        ("SELECT upperr(name) FROM t", "did you mean upper?"),
        ("SELECT conut(*) FROM t", "did you mean count or cot?"),
        ("SELECT strng_agg(name, ',') FROM t", "did you mean string_agg?"),
    ],
)
def test_a_name_that_is_nearly_right_is_hinted(sql: str, hint: str | None):
    assert error_of(sql).hint == hint


@pytest.mark.parametrize(
    ("message", "sql", "position"),
    [
        ('relation "nowhere" does not exist', "INSERT INTO nowhere VALUES ('nowhere')", 13),
        ('relation "No" does not exist', 'DROP TABLE "No"', 12),
        ('relation "x" does not exist', "UPDATE x SET a = x.b", None),
        ('relation "x.y" does not exist', "DELETE FROM x.y -- x", 13),
    ],
)
def test_a_name_that_stands_there_once_is_the_place(message: str, sql: str, position: int | None):
    error = SqlError(message, sqlstate="42P01")
    locate(error, sql)
    assert error.position == position


def test_parameters_are_set_apart_and_nothing_else():
    assert apart("SELECT $1,$2") == "SELECT $1 ,$2 "
    assert apart("SELECT '$1' /* $2 */") == "SELECT '$1' /* $2 */"
