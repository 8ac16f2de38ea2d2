"""Avro into columns: schemas, writers that evolve, messages that are not what they say."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
from decoding import (
    EVERYTHING,
    NEW,
    OLD,
    ONE,
    Decode,
    avro,
    everything,
    framed,
    good,
    is_absent,
    long,
    needs_avro,
    reason,
    record,
    sized,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemark.errors import InvalidUsage, Unsupported
from tidemark.storage.kafka.decode import avro_columns, schema_ids


def test_avro_columns():
    found = {column.name: str(column.type) for column in avro_columns(record(EVERYTHING))}
    assert found == {
        **{"a": "jsonb", "m": "jsonb", "s": "jsonb", "b": "bytea", "x": "bytea", "e": "text"},
        **{"d": "numeric(10,2)", "u": "text", "ts": "timestamp", "lt": "timestamp"},
        **{"day": "date", "f": "double precision", "o": "integer"},
    }
    assert [c.nullable for c in avro_columns(record({"a": "int", "b": ["int", "null"]}))] == [
        False,
        True,
    ]
    for fields in ({"u": ["int", "string"]}, {"n": "null"}, {"r": ["null", "r"]}):
        with pytest.raises(Unsupported):
            avro_columns(record(fields))
    with pytest.raises(InvalidUsage, match="must be a record"):
        avro_columns('"int"')


@needs_avro
def test_avro(decode: Decode):
    (row,) = decode(avro(record(EVERYTHING)), [everything()])
    assert good(row) == [
        "[1,2]",
        '{"a":"q","z":null}',
        '{"z":"/w=="}',
        b"\xde\xad",
        b"\x00\x01",
        "TWO",
        Decimal("123.45"),
        "uuid",
        dt.datetime(1970, 1, 1, 0, 0, 1),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5),
        dt.date(1970, 1, 2),
        1.0,
        None,
    ]


@needs_avro
def test_avro_that_is_not_as_its_schema_says(decode: Decode):
    whole = everything()
    no_record = [
        *(b"", whole[:-1], whole + b"\x00", whole + whole, b"\xff" * 30),
        everything(e=long(2)),
        everything(d=sized(b"\x7f" * 9)),
        everything(ts=long(2**62)),
        # An array, and a map, of far more items than memory has room for.
        everything(a=long(2**30)),
        everything(m=long(2**30) + sized(b"z") + long(0)),
    ]
    rows = decode(avro(record(EVERYTHING)), no_record)
    assert {reason(row) for row in rows} == {"not a record of the schema it is written with"}
    (row,) = decode(avro(record(EVERYTHING)), [framed(7, whole)])
    assert "it may have the header of a registry" in reason(row)
    unfit = {"u": sized(b"\xff"), "ts": long(4 * 10**14), "day": long(2**31 - 1)}
    rows = decode(avro(record(EVERYTHING)), [everything(**{k: v}) for k, v in unfit.items()])
    for name, row in zip(unfit, rows, strict=True):
        assert reason(row).startswith(f'"{name}" is not a valid ')


@needs_avro
def test_a_record_of_nulls_is_no_error(decode: Decode):
    (row, bad) = decode(avro(record({"o": ["null", "int"]})), [long(0), b""])
    assert good(row) is None
    assert reason(bad)


@needs_avro
def test_avro_writers_evolve(decode: Decode):
    new = long(2) + long(0) + sized(b"x")
    messages = [framed(1, ONE), framed(2, new), framed(2, ONE), framed(3, ONE)]
    odd = [b"\x01" + framed(1, ONE)[1:], b"\x00\x00", b"", framed(2**32 - 1, ONE)]
    rows = decode(avro(NEW, registry=True), [*messages, *odd, None], writers={1: OLD, 2: NEW})
    assert [good(row) for row in rows[:2]] == [[1, "abc", "default"], [2, None, "x"]]
    assert [reason(row) for row in rows[2:8]] == [
        "not a record of the schema it is written with",
        "unknown schema id 3",
        "it does not begin with 0x00",
        "too short for a schema id",
        "too short for a schema id",
        "unknown schema id 4294967295",
    ]
    assert is_absent(rows[8])
    (row,) = decode(avro(NEW, registry=True), [framed(1, ONE)])
    assert reason(row) == "unknown schema id 1"


def test_schema_ids(spark: SparkSession):
    messages = [framed(7, b""), framed(2**32 - 1, b"x"), b"\x01\x00\x00\x00\x07", b"\x00\x00", None]
    frame = spark.createDataFrame([(m,) for m in messages], "m BINARY").coalesce(1)
    found = frame.select(schema_ids(F.col("m")).alias("id")).collect()
    assert [row.id for row in found] == [7, 2**32 - 1, None, None, None]


@needs_avro
def test_debezium_avro(decode: Decode):
    value = json.loads(record({"i": "int"}, "Value"))
    schema = record({"before": ["null", value], "after": ["null", "Value"], "op": "string"}, "Env")
    update = long(1) + long(1) + long(1) + long(2) + sized(b"u")
    delete = long(1) + long(1) + long(0) + sized(b"d")
    rows = decode(avro(schema, debezium=True), [update, delete, None, b"?"], debezium=True)
    assert good(rows[0]) == 2
    assert is_absent(rows[1])
    assert is_absent(rows[2])
    assert reason(rows[3])
