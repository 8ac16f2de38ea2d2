"""Avro: messages are records, read as a schema that was pinned when the source was made.

A message is written with its writer's schema: the pinned one, or with a registry the one whose id
the message begins with (0x00, then four bytes, the highest first). Avro's own rules make the
pinned schema's fields of the writer's: a new field is ignored, a missing one has its default, an
int is a long.

    union with null   nullable; of other unions only int|long and float|double
    decimal           numeric(p, s)
    date              date
    timestamp-*       timestamp, in UTC; local-timestamp-* too
    enum, uuid, time  text
    bytes, fixed      bytea
    record, array,    jsonb, with bytes in base64 and times in ISO 8601
    map

Spark's `from_avro` reads what it needs, does not look whether that was all, and makes a record of
nulls of what it cannot read. So every message gets a *seal* behind it, its MD5, and both are read
together, as one record: only of a message that was read to its end does the seal come out right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tidemark.errors import InvalidUsage, Unsupported
from tidemark.storage.kafka.reads import Read, first_reason, let, on_calendar, result, sql_value
from tidemark.storage.kafka.spec import Format
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    MAX_PRECISION,
    TEXT,
    TIMESTAMP,
    SqlType,
    numeric,
)
from tidemark.types import Column as SqlColumn

HEADER_BYTES = 5
NO_RECORD = "not a record of the schema it is written with"
FRAMED = f"{NO_RECORD}: it may have the header of a registry, which begins with 0x00"


def schema_ids(message: Column) -> Column:
    """The id of the schema that a message names, null if it names none."""
    framed = (F.length(message) >= HEADER_BYTES) & message.startswith(F.lit(b"\x00"))
    id_ = F.conv(F.hex(F.substring(message, 2, 4)), 16, 10).cast("bigint")
    return F.when(framed, id_)


def avro_columns(schema: str, debezium: bool = False) -> tuple[SqlColumn, ...]:
    """The columns of a reader's schema; those of `after` if it is of change events."""
    names: dict[str, Any] = {}
    record = _resolved(_parsed(schema), names, "")
    if debezium:
        fields = {field["name"]: field for field in record.get("fields", ())}
        if "after" not in fields:
            raise InvalidUsage("the Avro schema is not one of change events: it has no `after`")
        record, _ = _without_null(fields["after"]["type"])
    if not isinstance(record, dict) or record.get("type") != "record":
        raise InvalidUsage("the Avro schema must be a record")
    return tuple(_column(field) for field in record["fields"])


def avro_reader(format: Format, debezium: bool, writers: Mapping[int, str]) -> Read:
    schema = format.schema
    if schema is None:
        raise InvalidUsage("an Avro format must have a schema")
    columns = avro_columns(schema, debezium)

    def read(message: Column) -> Column:
        if format.registry is None:
            is_framed = schema_ids(message).isNotNull()

            def judged_raw(found: Column) -> Column:
                return judged([(found.isNull() & is_framed, FRAMED)], found)

            return let(_unsealed(message, schema, schema), judged_raw)
        id_ = schema_ids(message)
        unknown = F.concat(F.lit("unknown schema id "), id_.cast("string"))
        framing = [
            (F.length(message) < HEADER_BYTES, "too short for a schema id"),
            (id_.isNull(), "it does not begin with 0x00"),
            (~id_.isin(list(writers)) if writers else F.lit(True), unknown),
        ]
        if not writers:
            nothing = {c.name: F.lit(None).cast(c.type.spark) for c in columns}
            return result(first_reason(*framing), nothing)
        payload = F.substring(message, F.lit(HEADER_BYTES + 1), F.length(message))
        found = F.coalesce(
            *(
                F.when(id_ == number, _unsealed(payload, writer, schema))
                for number, writer in sorted(writers.items())
            )
        )
        return let(found, lambda found: judged(framing, found))

    def judged(framing: list[tuple[Column, str | Column]], found: Column) -> Column:
        row = found["after"] if debezium else found
        values = {c.name: sql_value(row[c.name], c.type) for c in columns}
        unfit = [
            (~check, f'"{name}" is not a valid {kind}')
            for name, kind, check in (
                (c.name, c.type, _fits(values[c.name], c.type)) for c in columns
            )
            if check is not None
        ]
        reason = first_reason(*framing, (found.isNull(), NO_RECORD), *unfit)
        return result(reason, values, row.isNotNull())

    return read


def _unsealed(payload: Column, writer: str, reader: str) -> Column:
    """The record that `payload` is, all of it; null if it is none."""
    seal = F.unhex(F.md5(payload))
    options = {"mode": "PERMISSIVE", "avroSchema": _sealed(reader)}
    read = from_avro(F.concat(payload, seal), _sealed(writer), options)
    return let(read, lambda read: F.when(read["seal"] == seal, read["value"]))


def _sealed(schema: str) -> str:
    seal = {"type": "fixed", "name": "tidemark_seal", "size": 16}
    fields = [{"name": "value", "type": json.loads(schema)}, {"name": "seal", "type": seal}]
    return json.dumps({"type": "record", "name": "tidemark_sealed", "fields": fields})


def _fits(value: Column, type_: SqlType) -> Column | None:
    match type_.name:
        case "text":
            return F.is_valid_utf8(value)
        case "date" | "timestamp":
            return on_calendar(value)
    return None


# Schemas

_PRIMITIVES = {
    "boolean": BOOLEAN,
    "int": INTEGER,
    "long": BIGINT,
    "float": DOUBLE,
    "double": DOUBLE,
    "string": TEXT,
    "bytes": BYTEA,
    "fixed": BYTEA,
    "enum": TEXT,
    "record": JSONB,
    "array": JSONB,
    "map": JSONB,
}
_LOGICAL = {
    ("int", "date"): DATE,
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): TIMESTAMP,
    ("long", "local-timestamp-micros"): TIMESTAMP,
    ("int", "time-millis"): TEXT,
    ("long", "time-micros"): TEXT,
}


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise InvalidUsage(f"the Avro schema is not JSON: {error}") from None


def _resolved(schema: Any, names: dict[str, Any], namespace: str) -> Any:
    """The schema with names replaced by what they name; a record within itself is refused."""
    if isinstance(schema, list):
        return [_resolved(each, names, namespace) for each in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVES or schema == "null":
            return {"type": schema}
        full = schema if "." in schema else f"{namespace}.{schema}".lstrip(".")
        found = names.get(full, names.get(schema))
        if found is None:
            raise InvalidUsage(f'the Avro schema uses "{schema}" and does not define it')
        if not found:
            raise Unsupported(f'the Avro record "{schema}" contains itself')
        return found
    if not isinstance(schema, dict) or "type" not in schema:
        raise InvalidUsage(f"not an Avro schema: {schema!r}")
    if not isinstance(schema["type"], str):
        return _resolved(schema["type"], names, namespace)
    kind = schema["type"]
    made = dict(schema)
    if kind in ("record", "enum", "fixed"):
        name = schema["name"]
        inner = name.rpartition(".")[0] or schema.get("namespace", namespace)
        full = f"{inner}.{name.rpartition('.')[2]}".lstrip(".")
        names[full] = {}
        if kind == "record":
            made["fields"] = [
                {**field, "type": _resolved(field["type"], names, inner)}
                for field in schema["fields"]
            ]
        names[full] = made
    elif kind == "array":
        made["items"] = _resolved(schema["items"], names, namespace)
    elif kind == "map":
        made["values"] = _resolved(schema["values"], names, namespace)
    elif kind not in _PRIMITIVES and kind != "null":
        return _resolved(kind, names, namespace)
    return made


def _without_null(schema: Any) -> tuple[Any, bool]:
    """What a union with null is else, and whether it is one."""
    if not isinstance(schema, list):
        return schema, False
    others = [each for each in schema if each["type"] != "null"]
    kinds = {each["type"] for each in others}
    if len(others) != 1:
        for wide in ({"int", "long"}, {"float", "double"}):
            if kinds == wide:
                return {"type": "long" if "long" in wide else "double"}, len(others) < len(schema)
        raise Unsupported(f"an Avro union of {', '.join(sorted(kinds)) or 'null alone'}")
    return others[0], len(schema) > 1


def _column(field: dict[str, Any]) -> SqlColumn:
    try:
        schema, nullable = _without_null(field["type"])
        return SqlColumn(field["name"], _type(schema), nullable)
    except Unsupported as error:
        raise Unsupported(f'Avro field "{field["name"]}": {error}') from None


def _type(schema: dict[str, Any]) -> SqlType:
    kind, logical = schema["type"], str(schema.get("logicalType"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        if schema["precision"] > MAX_PRECISION:
            raise Unsupported(f"a decimal of more than {MAX_PRECISION} digits")
        return numeric(schema["precision"], schema.get("scale", 0))
    if kind == "null":
        raise Unsupported("it can only be null")
    return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])
