"""Message bytes into columns: every format with good, bad and odd messages, small and large."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from tidemark.compute.jsonb import canonical
from tidemark.errors import InvalidUsage, Unsupported
from tidemark.spark.session import LARGE, SMALL, kafka_jars, session_for
from tidemark.storage.kafka.decode import avro_columns, decoder, protobuf_columns, schema_ids
from tidemark.storage.kafka.spec import Format, RegistryConnection
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
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    numeric,
)

Message = bytes | None
Decode = Callable[..., list[dict[str, Any]]]

needs_avro = pytest.mark.skipif(not kafka_jars(), reason="`make kafka` brings Spark's Avro")
few = settings(
    max_examples=4,  # a Spark job each, of many messages
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
REGISTRY = RegistryConnection("http://registry")


@pytest.fixture(params=["small", "large"])
def decode(spark: SparkSession, request: pytest.FixtureRequest) -> Decode:
    session = session_for(spark, SMALL if request.param == "small" else LARGE)

    def run(format: Format, messages: Sequence[Message], **options: Any) -> list[dict[str, Any]]:
        rows = [(i, None if m is None else bytearray(m)) for i, m in enumerate(messages)]
        frame = session.createDataFrame(rows, "i INT, m BINARY").repartition(1)
        found = frame.select("i", decoder(format, **options)(F.col("m")).alias("d"))
        kinds = {f.name: f.dataType for f in found.schema["d"].dataType}  # pyright: ignore
        wanted = {c.name: F.lit(None).cast(c.type.spark) for c in format.shape}
        typed = session.range(1).select(*(v.alias(k) for k, v in wanted.items())).schema
        assert list(kinds) == ["_error", "_there", *wanted]
        assert {f.name: f.dataType for f in typed} == {k: kinds[k] for k in wanted}
        found = found.orderBy("i").select("d.*").collect()
        return [row.asDict() for row in found]

    return run


def values(row: dict[str, Any]) -> list[Any]:
    return [bytes(v) if isinstance(v, bytearray) else v for v in list(row.values())[2:]]


def good(row: dict[str, Any]) -> Any:
    """The values of a row that decoded; of a single one itself."""
    assert (row["_error"], row["_there"]) == (None, True)
    found = values(row)
    return found[0] if len(found) == 1 else found


def reason(row: dict[str, Any]) -> str:
    """Why a message did not decode."""
    assert row["_there"]
    assert set(values(row)) == {None}
    head, _, rest = row["_error"].partition(" (original text: ")
    assert rest.endswith('")')
    return head.partition(": ")[2]


def is_absent(row: dict[str, Any]) -> bool:
    return (row["_error"], row["_there"], {*values(row)}) == (None, False, {None})


def outcome(row: dict[str, Any]) -> None:
    """Whatever the bytes: an error and no values, or no error."""
    assert row["_there"] is True
    assert row["_error"] is None or set(values(row)) == {None}


# Text, bytes, CSV


def test_text_is_utf8(decode: Decode):
    rows = decode(Format("text"), [b"", "ü\x00".encode(), b"\xff", b"a\xed\xa0\x80", None])
    assert [good(row) for row in rows[:2]] == ["", "ü\x00"]
    assert [reason(row) for row in rows[2:4]] == ["invalid UTF-8"] * 2
    assert is_absent(rows[4])


def test_bytes_are_anything(decode: Decode):
    rows = decode(Format("bytes"), [b"", b"\xff\x00", None])
    assert [good(row) for row in rows[:2]] == [b"", b"\xff\x00"]
    assert is_absent(rows[2])


def test_an_error_shows_the_start_of_its_message(decode: Decode):
    short, long = decode(Format("text"), [b"a\xff", b"\xfe" * 300])
    assert short["_error"] == (
        'Failed to decode text: invalid UTF-8 (original text: a�, original bytes: "61ff")'
    )
    assert f'"{"fe" * 256}...")' in long["_error"]


CSV = Format("csv", (Column("a", TEXT), Column("b", TEXT)))


def test_csv(decode: Decode):
    cases = {
        b"1,2": ["1", "2"],
        b"1,2\r\n": ["1", "2"],
        b",": ["", ""],
        b' a ,"b"': [" a ", "b"],
        b'"a,b",c': ["a,b", "c"],
        b'"a""b",""': ['a"b', ""],
        b'"""",c': ['"', "c"],
        b'"a\nb",c': ["a\nb", "c"],
        b"\\,$1": ["\\", "$1"],
    }
    assert [good(row) for row in decode(CSV, list(cases))] == list(cases.values())


def test_bad_csv(decode: Decode):
    cases = {
        b"": "expected 2 fields, found 1",
        b"1": "expected 2 fields, found 1",
        b"1,2,3": "expected 2 fields, found 3",
        b'"1,2",3,4': "expected 2 fields, found 3",
        b"1,2\n3,4": "more than one record in a message",
        b"1,2\n\n": "more than one record in a message",
        b'"1,2': "a quote is not closed",
        b'a"b",c': "a quote in the middle of a field",
        b'"a"b,c': "a quote in the middle of a field",
        b"a\x00,b": "a NUL character",
        b"\xff,b": "invalid UTF-8",
    }
    assert [reason(row) for row in decode(CSV, list(cases))] == list(cases.values())


def test_csv_of_another_delimiter(decode: Decode):
    format = Format("csv", (Column("a", TEXT), Column("b", TEXT)), delimiter="|")
    assert good(decode(format, [b"1,|2"])[0]) == ["1,", "2"]
    with pytest.raises(InvalidUsage, match="one character"):
        decoder(Format("csv", (Column("a", TEXT),), delimiter="||"))


# JSON


def test_json_document_is_canonical_jsonb(decode: Decode):
    cases = {
        b'{"b": 1.50, "a": [true, null, {}]}': '{"a":[true,null,{}],"b":1.5}',
        b" null ": "null",
        b"12345678901234567890123456789012345678": "12345678901234567890123456789012345678",
        b"0.1": "0.1",
        b"-0.0": "0",
        b"1e3": "1000.0",
        b"1e-400": "0.0",
        b'"Infinity \\" 1e400 1111111111111111111111111111111111111111111"': (
            '"Infinity \\" 1e400 1111111111111111111111111111111111111111111"'
        ),
        '{"é": "\\u00e9\\u0000"}'.encode(): '{"é":"é\\u0000"}',
        '{"𝒳": 1, "\uffee": 2}'.encode(): '{"𝒳":1,"\uffee":2}',
    }
    rows = decode(Format("json"), list(cases))
    assert [good(row) for row in rows] == list(cases.values())
    assert [canonical(message.decode()) for message in cases] == list(cases.values())


def test_bad_json(decode: Decode):
    malformed = [
        *(b"", b" ", b"{", b'{"a":1} x', b"1 2", b"1,2", b"1],[2", b'1},"":{', b"{'a':1}", b"01"),
        *(b"[1,]", b"NaN", b'"\n"', b'{"a":1,"a":2}', b'"\\ud800"', b"1/**/", b"\xef\xbb\xbf1"),
        b"[" * 5_000 + b"]" * 5_000,
    ]
    rows = decode(Format("json"), malformed)
    assert {reason(row) for row in rows} == {"malformed JSON"}
    for message in malformed[:-1]:
        with pytest.raises(ValueError):
            canonical(message.decode())
    (row,) = decode(Format("json"), [b'"\xff"'])
    assert reason(row) == "invalid UTF-8"


def test_numbers_that_jsonb_cannot_keep_are_errors(decode: Decode):
    messages = [b"1e400", b"[-9e308]", b'{"a": 1' + b"0" * 38 + b"}", b"0." + b"1" * 39]
    rows = decode(Format("json"), messages)
    assert {reason(row) for row in rows} == {"a number is too large to be kept exactly"}
    for message in messages:
        with pytest.raises(ValueError):
            canonical(message.decode())


COLUMNS = (
    Column("i", INTEGER),
    Column("l", BIGINT),
    Column("d", DOUBLE),
    Column("n", NUMERIC),
    Column("m", numeric(4, 1)),
    Column("t", TEXT),
    Column("j", JSONB),
    Column("b", BOOLEAN),
    Column("day", DATE),
    Column("ts", TIMESTAMP),
    Column("tz", TIMESTAMPTZ),
    Column("y", BYTEA),
)


def only(row: dict[str, Any]) -> Any:
    """The one value that is not null."""
    good(row)
    (found,) = [value for value in values(row) if value is not None]
    return found


def test_json_columns(decode: Decode):
    moment = dt.datetime(2024, 2, 29, 10, 11, 12, 123456)
    cases = {
        '{"i": -1, "other": [{"i": 2}]}': -1,
        '{"\\u0069": 7}': 7,
        '{"i": 1, "i": 2}': 2,
        '{"l": 9223372036854775807}': 2**63 - 1,
        '{"d": 1}': 1.0,
        '{"n": 1.5}': Decimal("1.5"),
        '{"n": "1.5"}': Decimal("1.5"),
        '{"n": 1234567890123456789012.1234567890123456}': Decimal(
            "1234567890123456789012.1234567890123456"
        ),
        '{"m": 0.05}': Decimal("0.1"),
        '{"t": "x\\ny"}': "x\ny",
        '{"t": 12345678901234567890.10}': "12345678901234567890.1",
        '{"t": {"b": 1, "a": 2}}': '{"a":2,"b":1}',
        '{"j": "x"}': '"x"',
        '{"j": {"b": 1, "a": [1, null]}}': '{"a":[1,null],"b":1}',
        '{"b": false}': False,
        '{"day": "2024-02-29"}': moment.date(),
        '{"day": "2024-02-29T23:59:59Z"}': moment.date(),
        '{"ts": "2024-02-29T10:11:12.123456789Z"}': moment,
        '{"ts": "2024-02-29 10:11:12.123456+02:00"}': moment,
        '{"ts": "2024-02-29"}': dt.datetime(2024, 2, 29),
        '{"tz": "2024-02-29T12:11:12.123456+02:00"}': moment,
        '{"tz": "2024-02-29 10:11:12.123456"}': moment,
        '{"tz": "2024-02-29T10:11Z"}': dt.datetime(2024, 2, 29, 10, 11),
        '{"tz": "2024-02-29"}': dt.datetime(2024, 2, 29),
        '{"y": "3q0="}': b"\xde\xad",
    }
    rows = decode(Format("json", COLUMNS), [case.encode() for case in cases])
    assert [only(row) for row in rows] == list(cases.values())


def test_json_nulls(decode: Decode):
    messages = [b"{}", b'{"i":null,"t":null,"j":null,"ts":null,"y":null}', None]
    rows = decode(Format("json", COLUMNS), messages)
    assert [set(good(row)) for row in rows[:2]] == [{None}, {None}]
    assert is_absent(rows[2])


def test_mistyped_json_names_the_column(decode: Decode):
    cases = {
        "i": ['"1"', "1.0", "2147483648", "true", "[]", "1e2"],
        "l": ["9223372036854775808"],
        "d": ["1e400", '"NaN"', '"1"'],
        "n": ["1e30", "1e999999999", '"x"', "true"],
        "m": ["1000"],
        "t": ['"\\ud800"'],
        "j": ['{"a":1,"a":2}'],
        "b": ["1", '"true"'],
        "day": ['"2024-02-30"', "2024", '"2024"', '"0000-01-01"'],
        "ts": ['"10:11"', '"T10:11"', '"now"', "1"],
        "tz": ['"10:11"', '"2024-02-29T25:00"', "1700000000"],
        "y": ['"!"', "1"],
    }
    named = [(name, text) for name, texts in cases.items() for text in texts]
    rows = decode(Format("json", COLUMNS), [f'{{"{n}":{text}}}'.encode() for n, text in named])
    for (name, _), row in zip(named, rows, strict=True):
        assert reason(row).startswith(f'"{name}" is not a valid ')


def test_what_is_not_a_json_object(decode: Decode):
    cases = {
        **dict.fromkeys((b"", b"{", b'{"i":1', b'{"i":1} x', b'{"i":1}{}'), "malformed JSON"),
        **dict.fromkeys((b'{"i":1},{}', b'{"i":1}],[{}', b'{"i":1},"x":1'), "malformed JSON"),
        **dict.fromkeys((b"1", b"null", b"[]", b'[{"i":1}]'), "not a JSON object"),
        b'{"t":"\xff"}': "invalid UTF-8",
        b'{"j":1e400}': "a number is too large to be kept exactly",
    }
    rows = decode(Format("json", COLUMNS), list(cases))
    assert [reason(row) for row in rows] == list(cases.values())


def test_debezium_json(decode: Decode):
    format = Format("json", (Column("i", INTEGER), Column("t", TEXT)))
    present = [
        b'{"before":{"i":"?"},"after":{"i":1,"t":"x"},"op":"c"}',
        b'{"schema":{},"payload":{"before":null,"after":{"i":1,"t":"x"}}}',
    ]
    absent = [None, b'{"after":null}', b'{"payload":{"after":null}}', b'{"payload":null}']
    wrong = [
        b'{"op":"t"}',
        b'{"payload":{"op":"t"}}',
        b"{}",
        b'{"after":{"i":"x"}}',
        b'{"after":1}',
    ]
    rows = decode(format, [*present, *absent, *wrong], debezium=True)
    assert [good(row) for row in rows[:2]] == [[1, "x"]] * 2
    assert all(is_absent(row) for row in rows[2:6])
    assert [reason(row) for row in rows[6:]] == [
        *["not a change event: it has no `after`"] * 3,
        '"i" is not a valid integer',
        "malformed JSON",
    ]
    rows = decode(Format("json"), [*present, *absent, *wrong[:3]], debezium=True)
    assert [good(row) for row in rows[:2]] == ['{"i":1,"t":"x"}'] * 2
    assert all(is_absent(row) for row in rows[2:6])
    assert {reason(row) for row in rows[6:]} == {"not a change event: it has no `after`"}


# Avro

EVERYTHING = {
    "a": {"type": "array", "items": "long"},
    "m": {"type": "map", "values": ["null", "string"]},
    "s": {"type": "record", "name": "S", "fields": [{"name": "z", "type": ["null", "bytes"]}]},
    "b": "bytes",
    "x": {"type": "fixed", "name": "X", "size": 2},
    "e": {"type": "enum", "name": "E", "symbols": ["ONE", "TWO"]},
    "d": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "u": {"type": "string", "logicalType": "uuid"},
    "ts": {"type": "long", "logicalType": "timestamp-millis"},
    "lt": {"type": "long", "logicalType": "local-timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "f": "float",
    "o": ["null", "int"],
}


def record(fields: dict[str, Any], name: str = "r", **defaults: Any) -> str:
    made = [{"name": k, "type": v} for k, v in fields.items()]
    for field in made:
        if field["name"] in defaults:
            field["default"] = defaults[field["name"]]
    return json.dumps({"type": "record", "name": name, "fields": made})


def avro(schema: str, *, debezium: bool = False, registry: bool = False) -> Format:
    columns = avro_columns(schema, debezium)
    return Format("avro", columns, schema=schema, registry=REGISTRY if registry else None)


def long(number: int) -> bytes:
    left, made = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        made.append(left & 127 | 128)
        left >>= 7
    return bytes((*made, left))


def sized(text: bytes) -> bytes:
    return long(len(text)) + text


def framed(id_: int, payload: bytes) -> bytes:
    return b"\x00" + id_.to_bytes(4, "big") + payload


OLD = record({"i": "int", "gone": "string", "t": ["null", "string"]})
NEW = record({"i": "long", "t": ["null", "string"], "more": "string"}, more="default")
ONE = long(1) + sized(b"?") + long(1) + sized(b"abc")


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


def everything(**given: bytes) -> bytes:
    parts = {
        "a": long(2) + long(1) + long(2) + long(0),
        "m": long(2) + sized(b"z") + long(0) + sized(b"a") + long(1) + sized(b"q") + long(0),
        "s": long(1) + sized(b"\xff"),
        "b": sized(b"\xde\xad"),
        "x": b"\x00\x01",
        "e": long(1),
        "d": sized(b"\x30\x39"),
        "u": sized(b"uuid"),
        "ts": long(1_000),
        "lt": long(5),
        "day": long(1),
        "f": b"\x00\x00\x80\x3f",
        "o": long(0),
    }
    return b"".join((parts | given).values())


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


# Protobuf


def protobuf_files() -> descriptor_pb2.FileDescriptorSet:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    enum = file.enum_type.add(name="E")
    enum.value.add(name="ZERO", number=0)
    enum.value.add(name="ONE", number=1)
    sub = file.message_type.add(name="Sub")
    sub.field.add(name="u", number=1, type=Field.TYPE_UINT32, label=1)
    all_ = file.message_type.add(name="All")
    entry = all_.nested_type.add(name="KvEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT64, label=1)
    scalars = "INT32 INT64 UINT32 UINT64 STRING BYTES FLOAT DOUBLE BOOL".split()
    # Not in the order of their numbers.
    for number, kind in reversed(list(enumerate(scalars, start=1))):
        type_ = Field.Type.Value(f"TYPE_{kind}")
        all_.field.add(name=kind.lower(), number=number, type=type_, label=1)
    typed = {
        "e": (Field.TYPE_ENUM, ".p.E", 1),
        "sub": (Field.TYPE_MESSAGE, ".p.Sub", 1),
        "subs": (Field.TYPE_MESSAGE, ".p.Sub", 3),
        "kv": (Field.TYPE_MESSAGE, ".p.All.KvEntry", 3),
        "ts": (Field.TYPE_MESSAGE, ".google.protobuf.Timestamp", 1),
        "w": (Field.TYPE_MESSAGE, ".google.protobuf.UInt64Value", 1),
    }
    for number, (name, (type_, of, label)) in enumerate(typed.items(), start=20):
        all_.field.add(name=name, number=number, type=type_, type_name=of, label=label)
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="l", number=1, type=Field.TYPE_MESSAGE, type_name=".p.Loop", label=1)
    made = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, wrappers_pb2):
        known.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.append(file)
    return made


FILES = protobuf_files()
PROTO = base64.b64encode(FILES.SerializeToString()).decode()


def protobuf_class(name: str) -> Any:
    pool = DescriptorPool()
    for file in FILES.file:
        pool.Add(file)  # pyright: ignore
    return GetMessageClass(pool.FindMessageTypeByName(name))


All = protobuf_class("p.All")
ALL_COLUMNS = protobuf_columns(PROTO, "p.All")
ALL = Format("protobuf", ALL_COLUMNS, schema=PROTO, message="p.All")


def all_of() -> Any:
    made = All(int32=-1, int64=2, uint32=2**32 - 1, uint64=2**64 - 1, string="é", bytes=b"\xff")
    made.float, made.double, made.bool, made.e = 1.5, 2.5, True, 1
    made.sub.u, made.ts.seconds, made.w.value = 2**32 - 1, 5, 2**64 - 1
    made.subs.add(u=1)
    made.kv["b"], made.kv["a"] = 1, 2
    return made


def test_protobuf(decode: Decode):
    plain, empty, absent = decode(ALL, [all_of().SerializeToString(), b"", None])
    good(plain)
    assert {k: bytes(v) if k == "bytes" else v for k, v in list(plain.items())[2:]} == {
        **{"bool": True, "double": 2.5, "float": 1.5, "bytes": b"\xff", "string": "é"},
        **{"uint64": Decimal(2**64 - 1), "uint32": 2**32 - 1, "int64": 2, "int32": -1},
        **{"e": "ONE", "sub": '{"u":4294967295}', "subs": '[{"u":1}]', "kv": '{"a":2,"b":1}'},
        **{"ts": dt.datetime(1970, 1, 1, 0, 0, 5), "w": Decimal(2**64 - 1)},
    }
    assert (empty["_error"], empty["int32"], empty["string"], empty["e"]) == (None, 0, "", "ZERO")
    assert (empty["sub"], empty["ts"], empty["w"], empty["subs"]) == (None, None, None, "[]")
    assert is_absent(absent)


def test_bad_protobuf_is_told_from_the_good_beside_it(decode: Decode):
    whole = all_of().SerializeToString()
    bad = {7: whole[:-1], 8: b"\x2a\x01\xff", 31: b"\x08", 99: b"\x00"}
    rows = decode(ALL, [bad.get(i, whole) for i in range(100)])
    assert {i for i, row in enumerate(rows) if row["_error"]} == set(bad)
    assert reason(rows[8]) == "invalid UTF-8"
    assert len({repr(good(row)) for i, row in enumerate(rows) if i not in bad}) == 1
    late = All()
    late.ts.seconds = 2**40
    (row,) = decode(ALL, [late.SerializeToString()])
    assert reason(row) == '"ts" is not a valid timestamp'


def test_framed_protobuf(decode: Decode):
    whole = all_of().SerializeToString()
    format = Format("protobuf", ALL_COLUMNS, schema=PROTO, message="p.All", registry=REGISTRY)
    messages = [
        framed(1, b"\x02\x02" + whole),
        framed(1, b"\x00" + whole),
        b"\x00\x00",
        b"\x01" * 9,
    ]
    rows = decode(format, [*messages, None])
    assert good(rows[0])
    assert [reason(row) for row in rows[1:4]] == [
        "it is not a p.All, but another message of its schema",
        "too short for a schema id",
        "it does not begin with 0x00",
    ]
    assert is_absent(rows[4])
    columns = protobuf_columns(PROTO, "p.Sub")
    first = Format("protobuf", columns, schema=PROTO, message="p.Sub", registry=REGISTRY)
    rows = decode(first, [framed(9, b"\x00\x08\x05"), framed(9, b"\x02\x00\x08\x05")])
    assert [good(row) for row in rows] == [5, 5]


def test_protobuf_schemas_that_are_refused():
    with pytest.raises(Unsupported, match="contains itself"):
        protobuf_columns(PROTO, "p.Loop")
    with pytest.raises(InvalidUsage, match="no message"):
        protobuf_columns(PROTO, "p.None")
    with pytest.raises(InvalidUsage, match="base64"):
        protobuf_columns("?", "p.All")


# Whatever the bytes

FORMATS = {
    "json": (Format("json"), {}),
    "json columns": (Format("json", COLUMNS), {}),
    "json event": (Format("json", COLUMNS[:3]), {"debezium": True}),
    "csv": (CSV, {}),
    "text": (Format("text"), {}),
    "avro": (avro(record(EVERYTHING)), {}),
    "avro framed": (avro(NEW, registry=True), {"writers": {1: OLD, 2: NEW}}),
    "protobuf": (ALL, {}),
}


def mangled(message: bytes) -> st.SearchStrategy[bytes]:
    """A good message with some bytes changed, cut off or added."""
    at = st.integers(0, len(message))
    return st.builds(lambda i, j, b: message[:i] + b + message[j:], at, at, st.binary(max_size=6))


ODD = st.one_of(
    st.binary(max_size=60),
    st.text('{}[]":,ijt1e.\\ u0 \n', max_size=30).map(str.encode),
    mangled(b'{"i": 1, "j": {"a": [1.5, "x"]}, "ts": "2024-02-29T10:11:12Z"}'),
    mangled(everything()),
    mangled(framed(1, ONE)),
    mangled(all_of().SerializeToString()),
)


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_are_an_error_or_a_value(name: str, decode: Decode):
    if name.startswith("avro") and not kafka_jars():
        pytest.skip("`make kafka` brings Spark's Avro")
    format, options = FORMATS[name]

    @few
    @given(st.lists(ODD, min_size=50, max_size=100))
    def check(messages: list[bytes]):
        rows = decode(format, messages, **options)
        for row in rows:
            if row["_there"] or not options.get("debezium"):
                outcome(row)
        assert decode(format, messages[::-1], **options)[::-1] == rows

    check()


# Round trips

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
ROWS = st.lists(
    st.tuples(
        st.none() | INTS,
        st.none() | LONGS,
        st.none() | FLOATS,
        st.none() | TEXTS,
        st.none() | st.booleans(),
        st.none() | MOMENTS,
        st.none() | st.binary(max_size=10),
    ),
    min_size=20,
    max_size=40,
)
TRIP = tuple(
    Column(name, type_)
    for name, type_ in zip(
        "ildtbsy", (INTEGER, BIGINT, DOUBLE, TEXT, BOOLEAN, TIMESTAMP, BYTEA), strict=True
    )
)


def json_row(row: tuple[Any, ...]) -> bytes:
    *plain, moment, data = row
    made: dict[str, Any] = dict(zip("ildtb", plain, strict=True))
    made["s"] = moment and moment.isoformat()
    made["y"] = None if data is None else base64.b64encode(data).decode()
    return json.dumps(made).encode()


def test_rows_come_back_from_json(decode: Decode):
    @few
    @given(ROWS)
    def check(rows: list[tuple[Any, ...]]):
        found = decode(Format("json", TRIP), [json_row(row) for row in rows])
        assert [tuple(good(each)) for each in found] == rows

    check()


# Before Java 19 some doubles are printed with a digit too many, but only those with an exponent.
PLAIN = st.floats(0.01, 999_999.0)

JSON = st.recursive(
    st.none() | st.booleans() | LONGS | PLAIN | TEXTS | st.decimals(-1000, 1000, places=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def test_jsonb_literals_are_as_spark_has_them(decode: Decode):
    @few
    @given(st.lists(JSON, min_size=20, max_size=40))
    def check(documents: list[Any]):
        texts = [json.dumps(each, default=float) for each in documents]
        found = [good(row) for row in decode(Format("json"), [t.encode() for t in texts])]
        assert found == [canonical(text) for text in texts]
        assert [json.loads(each) for each in found] == [json.loads(text) for text in texts]

    check()


@needs_avro
def test_rows_come_back_from_avro(decode: Decode, spark: SparkSession):
    kinds = ["int", "long", "double", "string", "boolean"]
    moment = {"type": "long", "logicalType": "local-timestamp-micros"}
    fields = dict(zip("ildtbsy", [*kinds, moment, "bytes"], strict=True))
    schema = record({name: ["null", kind] for name, kind in fields.items()})
    session = session_for(spark, SMALL)

    @few
    @given(ROWS)
    def check(rows: list[tuple[Any, ...]]):
        shape = ", ".join(f"{c.name} {c.type.spark}" for c in TRIP)
        frame = session.createDataFrame(rows, shape).coalesce(1)
        written = frame.select(to_avro(F.struct("*"), schema).alias("m")).collect()
        found = decode(avro(schema), [bytes(each.m) for each in written])
        assert [tuple(good(each)) for each in found] == rows

    check()


def test_rows_come_back_from_protobuf(decode: Decode):
    rows = st.tuples(INTS, LONGS, TEXTS, st.binary(max_size=9), FLOATS, st.integers(0, 2**64 - 1))
    names = ("int32", "int64", "string", "bytes", "double", "uint64")

    @few
    @given(st.lists(rows, min_size=20, max_size=40))
    def check(rows: list[tuple[Any, ...]]):
        messages = [All(**dict(zip(names, row, strict=True))) for row in rows]
        found = decode(ALL, [each.SerializeToString() for each in messages])
        assert all(each["_error"] is None for each in found)
        assert [tuple(each[name] for name in names) for each in found] == rows

    check()
