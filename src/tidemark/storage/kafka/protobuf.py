"""Protobuf: messages of one type, decoded a batch at a time.

Spark's own Protobuf reader is not part of PySpark, so this is the one format that passes through
Python: `ptars` (Rust) makes an Arrow batch of an Arrow array of messages, and Spark goes on from
there. A batch that has a malformed message is halved until the message is alone.

    int32, sint32, ...     integer; int64: bigint; uint32: bigint; uint64: numeric(20, 0)
    float, double          double precision
    bool, string, bytes    boolean, text, bytea
    enum                   text, its name; the number if it has none
    Timestamp              timestamp, in UTC
    Int32Value, ...        as the value, nullable
    message, repeated,     jsonb
    map

A field without presence that is not set is its default, as Protobuf has it (0, ""); others are
null. Unknown fields are ignored. With a registry, messages begin with 0x00, a schema id, and the
place of their type in the schema's file (Confluent's framing); the type is `message` whatever the
id, because Protobuf's wire format does not need the writer's schema.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from ptars import HandlerPool, PtarsConfig
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type

from tidemark.errors import InvalidUsage, Unsupported
from tidemark.storage.kafka.reads import Read, first_reason, let, on_calendar, result, sql_value
from tidemark.storage.kafka.spec import Format
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DOUBLE,
    INTEGER,
    JSONB,
    TEXT,
    TIMESTAMP,
    SqlType,
    numeric,
)
from tidemark.types import Column as SqlColumn

_HEADER_BYTES = 5
_MOMENT = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in "Double Float Int64 UInt64 Int32 UInt32 Bool String Bytes".split()
)
_REFUSED = ("google.protobuf.Duration", "google.type.")
"""What ptars makes types of that SQL does not have here."""


class Scalar(NamedTuple):
    sql: SqlType
    arrow: pa.DataType


_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: Scalar(INTEGER, pa.int32()),
    FieldDescriptor.CPPTYPE_INT64: Scalar(BIGINT, pa.int64()),
    FieldDescriptor.CPPTYPE_UINT32: Scalar(BIGINT, pa.int64()),
    FieldDescriptor.CPPTYPE_UINT64: Scalar(numeric(20, 0), pa.decimal128(20, 0)),
    FieldDescriptor.CPPTYPE_DOUBLE: Scalar(DOUBLE, pa.float64()),
    FieldDescriptor.CPPTYPE_FLOAT: Scalar(DOUBLE, pa.float64()),
    FieldDescriptor.CPPTYPE_BOOL: Scalar(BOOLEAN, pa.bool_()),
    FieldDescriptor.CPPTYPE_ENUM: Scalar(TEXT, pa.string()),
    FieldDescriptor.CPPTYPE_STRING: Scalar(TEXT, pa.string()),
}


def protobuf_columns(schema: str, message: str) -> tuple[SqlColumn, ...]:
    """The columns of a message type in a base64 FileDescriptorSet."""
    descriptor = _descriptor(schema, message)
    if not descriptor.fields:
        raise Unsupported(f'the Protobuf message "{message}" has no fields')
    _refuse_recursion(descriptor, ())
    return tuple(_column(field) for field in descriptor.fields)


def protobuf_reader(format: Format) -> Read:
    schema, message = format.schema, format.message
    if schema is None or message is None:
        raise InvalidUsage("a Protobuf format must have a schema and the name of a message in it")
    columns = protobuf_columns(schema, message)
    place = _place(_descriptor(schema, message))
    row = _arrow_struct(_descriptor(schema, message))
    made = pa.struct([pa.field("error", pa.string()), pa.field("row", row)])

    def decoded(messages: pa.Array) -> pa.Array:
        return _decoded(messages, schema, message, made)

    # Typed as if it could not return structs.
    arrow_udf: Any = F.arrow_udf
    decode = arrow_udf(decoded, from_arrow_type(made, prefer_timestamp_ntz=True))

    def read(message: Column) -> Column:
        if format.registry is None:
            return let(decode(message), lambda found: judged([], found))
        framed, payload = _unframed(message, place)
        framing = [
            (F.length(message) < _HEADER_BYTES, "too short for a schema id"),
            (~message.startswith(F.lit(b"\x00")), "it does not begin with 0x00"),
            (~framed, f"it is not a {format.message}, but another message of its schema"),
        ]
        return let(decode(payload), lambda found: judged(framing, found))

    def judged(framing: list[tuple[Column, str]], found: Column) -> Column:
        values = {c.name: sql_value(found["row"][c.name], c.type) for c in columns}
        unfit = [
            (~on_calendar(values[c.name]), f'"{c.name}" is not a valid {c.type}')
            for c in columns
            if c.type == TIMESTAMP
        ]
        reason = first_reason(*framing, (found["error"].isNotNull(), found["error"]), *unfit)
        return result(reason, values)

    return read


def _unframed(message: Column, place: tuple[int, ...]) -> tuple[Column, Column]:
    """Whether the message is of the type at `place`, and then what is behind its frame."""
    spelled = b"".join(_zigzag(number) for number in (len(place), *place))
    # The first type of a file is mostly written as one 0.
    spellings = [spelled, b"\x00"] if place == (0,) else [spelled]
    rest = F.substring(message, F.lit(_HEADER_BYTES + 1), F.length(message))
    payload = F.coalesce(
        *(
            F.when(
                rest.startswith(F.lit(each)),
                F.substring(rest, F.lit(len(each) + 1), F.length(rest)),
            )
            for each in spellings
        )
    )
    payload = F.when(message.startswith(F.lit(b"\x00")), payload)
    return payload.isNotNull(), payload


def _zigzag(number: int) -> bytes:
    left, made = number << 1, bytearray()
    while left > 127:
        made.append(left & 127 | 128)
        left >>= 7
    return bytes((*made, left))


def _place(descriptor: Descriptor) -> tuple[int, ...]:
    """Where in its file the type is: its index, and those of the types that it is within."""
    outer = descriptor.containing_type
    if outer is None:
        names = [each.name for each in descriptor.file.message_types_by_name.values()]
        return (names.index(descriptor.name),)
    names = [each.name for each in outer.nested_types]
    return (*_place(outer), names.index(descriptor.name))


# In Spark's Python workers


def _decoded(messages: pa.Array, schema: str, message: str, made: pa.StructType) -> pa.Array:
    """`made` of every message, null for null."""
    handler = _handler(schema, message)
    parts = _bisected(handler, messages.cast(pa.binary()), made)
    found = pa.concat_arrays(parts) if parts else pa.array([], made)
    return pc.if_else(messages.is_valid(), found, pa.nulls(len(found), made))


def _bisected(handler: Any, messages: pa.Array, made: pa.StructType) -> list[pa.Array]:
    if not len(messages):
        return []
    row = made.field("row").type
    try:
        batch = handler.array_to_record_batch(messages)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        if len(messages) > 1:
            half = len(messages) // 2
            return [
                *_bisected(handler, messages[:half], made),
                *_bisected(handler, messages[half:], made),
            ]
        reason = str(error).removeprefix("failed to decode Protobuf message: ")
        return [_struct(made, pa.array([reason]), pa.nulls(1, row))]
    arrays = [_as(column, field.type) for column, field in zip(batch.columns, row, strict=True)]
    rows = pa.StructArray.from_arrays(arrays, fields=list(row))
    return [_struct(made, pa.nulls(len(messages), pa.string()), rows)]


def _struct(made: pa.StructType, error: pa.Array, row: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([error, row], fields=list(made))


def _as(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


@lru_cache(maxsize=100)
def _handler(schema: str, message: str) -> Any:
    descriptor = _descriptor(schema, message)
    # Microseconds, as everything here; no zone, because none is meant.
    config = PtarsConfig(timestamp_unit="us", timestamp_tz=None, enum_repr="string")
    return HandlerPool([descriptor.file], config=config).get_for_message(descriptor)


# Schemas


@lru_cache(maxsize=100)
def _descriptor(schema: str, message: str) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema, validate=True))
        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
        return pool.FindMessageTypeByName(message)
    except (binascii.Error, DecodeError, TypeError) as error:
        raise InvalidUsage(
            f"the Protobuf schema is not a base64 FileDescriptorSet: {error}"
        ) from None
    except KeyError:
        raise InvalidUsage(f'the Protobuf schema has no message "{message}"') from None


def _refuse_recursion(descriptor: Descriptor, within: tuple[str, ...]) -> None:
    if descriptor.full_name in within:
        raise Unsupported(f'the Protobuf message "{descriptor.full_name}" contains itself')
    if descriptor.full_name.startswith(_REFUSED):
        raise Unsupported(f"Protobuf type {descriptor.full_name}")
    for field in descriptor.fields:
        if field.message_type is not None:
            _refuse_recursion(field.message_type, (*within, descriptor.full_name))


def _column(field: FieldDescriptor) -> SqlColumn:
    if field.is_repeated:
        return SqlColumn(field.name, JSONB, nullable=False)
    inner = field.message_type
    if inner is None:
        type_ = BYTEA if field.type == FieldDescriptor.TYPE_BYTES else _SCALARS[field.cpp_type].sql
        return SqlColumn(field.name, type_, field.has_presence)
    if inner.full_name == _MOMENT:
        return SqlColumn(field.name, TIMESTAMP)
    if inner.full_name in _WRAPPERS:
        return SqlColumn(field.name, _column(inner.fields_by_name["value"]).type)
    return SqlColumn(field.name, JSONB)


def _arrow_struct(descriptor: Descriptor) -> pa.StructType:
    # In the order that ptars has them in.
    fields = sorted(descriptor.fields, key=lambda field: field.number)
    return pa.struct([pa.field(field.name, _arrow(field)) for field in fields])


def _arrow(field: FieldDescriptor) -> pa.DataType:
    """What Spark takes; it has no unsigned numbers."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        fields = inner.fields_by_name
        return pa.map_(_arrow_one(fields["key"]), _arrow_one(fields["value"]))
    one = _arrow_one(field)
    return pa.list_(one) if field.is_repeated else one


def _arrow_one(field: FieldDescriptor) -> pa.DataType:
    inner = field.message_type
    if inner is None:
        bytes_ = field.type == FieldDescriptor.TYPE_BYTES
        return pa.binary() if bytes_ else _SCALARS[field.cpp_type].arrow
    if inner.full_name == _MOMENT:
        return pa.timestamp("us")
    if inner.full_name in _WRAPPERS:
        return _arrow_one(inner.fields_by_name["value"])
    return _arrow_struct(inner)
