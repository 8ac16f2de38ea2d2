"""Messages of every format, and what tests say of what they decode to."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, settings

from tidemark.storage.kafka.decode import avro_columns, protobuf_columns
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

needs_avro = pytest.mark.usefixtures("avro_jars")
few = settings(
    max_examples=4,  # a Spark job each, of many messages
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
REGISTRY = RegistryConnection("http://registry")


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


CSV = Format("csv", (Column("a", TEXT), Column("b", TEXT)))


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
