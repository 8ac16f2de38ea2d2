"""Requests in, values out: the parts of HTTP that need no socket."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from tidemark.control.http.requests import hello_of, options_of, request_of
from tidemark.control.http.values import described, rows
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
    TEXT,
    TIMESTAMPTZ,
    Column,
    SqlType,
    array_of,
    numeric,
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"SELECT 1"',
        b"{}",
        b'{"query": 1}',
        b'{"query": null}',
        b'{"query": "SELECT 1", "queries": []}',
        b'{"query": "SELECT 1", "else": 1}',
        b'{"queries": [{"params": []}]}',
        b'{"queries": [{"query": "SELECT $1", "params": [1]}]}',
        b'{"queries": [{"query": "SELECT $1", "params": {"a": 1}}]}',
        b'{"query": "SELECT 1"} {"query": "SELECT 2"}',
        b"[" * 100_000,
        b'{"query": "\\ud800"}',
    ],
)
def test_what_is_no_request_is_refused_with_what_would_be_one(body: bytes):
    with pytest.raises(SqlError) as refused:
        request_of(body)
    assert refused.value.sqlstate == "08P01"
    assert refused.value.hint is not None
    assert '{"queries":' in refused.value.hint


def test_params_are_texts_and_nulls():
    found = request_of('{"queries": [{"query": "SELECT $1, $2", "params": ["1.50", null]}]}')
    assert found.queries is not None
    assert found.queries[0].params == ("1.50", None)


@pytest.mark.parametrize(
    "body",
    ['{"query": "\\u0000"}', '{"queries": [{"query": "SELECT $1", "params": [null, "\\u0000"]}]}'],
)
def test_there_is_no_zero_in_text(body: str):
    with pytest.raises(SqlError) as refused:
        request_of(body)
    assert refused.value.sqlstate == "22021"


def test_hello_and_options():
    assert hello_of("{}").options == {}
    assert hello_of('{"user": "u", "password": "p", "options": {"cluster": "c"}}').user == "u"
    assert hello_of('{"token": "t"}').user is None
    assert options_of(None) == {}
    assert options_of('{"cluster": "c"}') == {"cluster": "c"}
    for text in ("cluster=c", '{"cluster": 1}', "[]"):
        with pytest.raises(SqlError, match="malformed"):
            options_of(text)
    with pytest.raises(SqlError, match="malformed"):
        hello_of('{"query": "SELECT 1"}')


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (BOOLEAN, True, "true"),
        (INTEGER, 7, '"7"'),
        (BIGINT, 2**63 - 1, '"9223372036854775807"'),
        (NUMERIC, Decimal("0.1"), '"0.1"'),
        (numeric(10, 2), Decimal("1.50"), '"1.50"'),
        (DOUBLE, 0.1, '"0.1"'),
        (DOUBLE, float("nan"), '"NaN"'),
        (DOUBLE, float("-inf"), '"-Infinity"'),
        (TEXT, 'a "b"\n\u2028', '"a \\"b\\"\\n\u2028"'),
        (TEXT, "null", '"null"'),
        (BYTEA, b"\x00\xff", '"\\\\x00ff"'),
        (
            JSONB,
            '{"a":12345678901234567890.123,"b":[null]}',
            '{"a": 12345678901234567890.123, "b": [null]}',
        ),
        (JSONB, "null", "null"),
        (DATE, 0, '"1970-01-01"'),
        (TIMESTAMPTZ, 1_500_000, '"1970-01-01 00:00:01.5+00"'),
        (array_of(INTEGER), '["1",null]', '["1",null]'),
        (array_of(TEXT), '["a b","NULL",""]', '["a b","NULL",""]'),
        (array_of(BOOLEAN), '["true","false"]', "[true,false]"),
    ],
)
def test_values_are_exact(type_: SqlType, value: object, text: str | None):
    array = pa.array([value, None], type_.arrow)
    batch = pa.record_batch([array], names=["v"])
    found = msgspec.json.encode(list(rows(batch, [Column("v", type_)]))).decode()
    assert found == f"[[{value if text is None else text}],[null]]"


def test_rows_without_columns_are_still_rows():
    batch = pa.record_batch([pa.array([1, 2])], names=["v"]).select([])
    assert len(list(rows(batch, []))) == batch.num_rows


def test_columns_are_described_as_on_the_wire():
    columns = [Column("n", numeric(10, 2)), Column("t", TEXT)]
    assert described(columns)["columns"] == [
        {"name": "n", "type_oid": 1700, "type_len": -1, "type_mod": 655366},
        {"name": "t", "type_oid": 25, "type_len": -1, "type_mod": -1},
    ]
