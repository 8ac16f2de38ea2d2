"""Message bytes into columns, by Spark's own functions.

`decoder(format)` is a function from a column of bytes to a column of structs:

    _error    what is wrong with the message, null if nothing
    _there    false if there is no row: null bytes, or a change event without `after`
    a, b, …   the format's columns, null if there is an error or no row

What is wrong with a message is a value of its row and never fails a query, and the same bytes
always decode to the same, on every replica: nothing here reads a clock or a locale.

json      An object; a field that is missing or null is null, other fields are not looked at, and
          of a field that is there twice the last counts. Numbers and booleans must be just that;
          numeric also takes a string ("1.50", as Debezium writes decimals) and rounds to its
          scale; text takes what is not a string as its JSON text; dates and timestamps are
          ISO 8601 strings, with a space or a T, UTC where no zone is said (a timestamp ignores
          it, as in PostgreSQL); bytea is base64, as Kafka Connect writes it.
jsonb     Canonical text: keys sorted, no spaces, no key twice (an error), numbers by value
          (1.50 is 1.5) and exact up to 38 digits; those written with an exponent are doubles. A
          number of more digits, or too large for a double, is an error rather than another one.
csv       One record by RFC 4180, whose line end may be there; all columns are text and an empty
          field is an empty string. A quote in the middle of a field is an error.
text      UTF-8, whole.
avro      See avro.py. Protobuf: see protobuf.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.errors import InvalidUsage
from tidemark.spark.frames import quoted
from tidemark.storage.kafka.avro import avro_columns, avro_reader, schema_ids
from tidemark.storage.kafka.protobuf import protobuf_columns, protobuf_reader
from tidemark.storage.kafka.reads import ERROR, THERE, Read, first_reason, let, result, utf8
from tidemark.storage.kafka.spec import Format
from tidemark.types import Column as SqlColumn
from tidemark.types import SqlType

__all__ = ["avro_columns", "decoder", "protobuf_columns", "schema_ids"]

ORIGINAL_BYTES = 256
"""An error shows this much of its message."""


def decoder(
    format: Format, *, debezium: bool = False, writers: Mapping[int, str] | None = None
) -> Callable[[Column], Column]:
    """The function from a column of messages to the struct of what they say."""
    read = _reader(format, debezium, writers or {})
    label = {"json": "JSON", "csv": "CSV", "avro": "Avro", "protobuf": "Protobuf"}
    name = label.get(format.kind, format.kind)

    def finished(message: Column, found: Column) -> Column:
        reason = F.when(message.isNotNull(), found[ERROR])
        there = message.isNotNull() & (reason.isNotNull() | F.coalesce(found[THERE], F.lit(True)))
        columns = (
            F.when(there & reason.isNull(), found[c.name]).cast(c.type.spark).alias(c.name)
            for c in format.shape
        )
        error = F.when(reason.isNotNull(), _described(name, reason, message))
        return F.struct(error.alias(ERROR), there.alias(THERE), *columns)

    def decode(message: Column) -> Column:
        # Read outside of the lambda: a Python function cannot be called in one.
        both = F.struct(message.alias("message"), read(message).alias("found"))
        return let(both, lambda both: finished(both["message"], both["found"]))

    return decode


def _described(name: str, reason: Column, message: Column) -> Column:
    start = F.substring(message, 1, ORIGINAL_BYTES)
    more = F.when(F.length(message) > ORIGINAL_BYTES, "...").otherwise("")
    return F.concat(
        F.lit(f"Failed to decode {name}: "),
        reason,
        F.lit(" (original text: "),
        F.make_valid_utf8(start.cast("string")),
        more,
        F.lit(', original bytes: "'),
        F.lower(F.hex(start)),
        more,
        F.lit('")'),
    )


def _reader(format: Format, debezium: bool, writers: Mapping[int, str]) -> Read:
    match format.kind:
        case "json" if not format.columns:
            return _json_event if debezium else _json_document
        case "json":
            return lambda message: _json_columns(message, format.columns, debezium)
    if debezium and format.kind != "avro":
        raise InvalidUsage(f"ENVELOPE DEBEZIUM needs JSON or Avro values, not {format.kind}")
    match format.kind:
        case "text":
            return _text
        case "bytes":
            return lambda message: result(F.lit(None), {"data": message})
        case "csv":
            _check_delimiter(format.delimiter)
            return lambda message: _csv(message, format)
        case "avro":
            return avro_reader(format, debezium, writers)
        case "protobuf":
            return protobuf_reader(format)
    raise InvalidUsage(f"unknown format {format.kind}")


def _text(message: Column) -> Column:
    reason = first_reason((~F.is_valid_utf8(message.cast("string")), "invalid UTF-8"))
    return result(reason, {"text": message.cast("string")})


# JSON

_CORRUPT = "_corrupt"
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
_ZONE = r"(Z|[+-]\d{2}(?::\d{2})?)?"
_MOMENT = rf"^((?!0000)\d{{4}}-\d{{2}}-\d{{2}})([T ]\d{{2}}:\d{{2}}(?::\d{{2}}(?:\.\d{{1,9}})?)?)? ?{_ZONE}$"

_WIDE_NUMBER = r"[0-9]{39}|[0-9.]{40}"
_LARGE_EXPONENT = r"[0-9][eE]\+?0*[1-9][0-9]{2}"


def _json_document(message: Column) -> Column:
    """All of it as one jsonb."""
    return let(
        utf8(message),
        lambda text: let(
            F.to_json(F.try_parse_json(text)),
            lambda data: result(
                first_reason(
                    (text.isNull(), "invalid UTF-8"),
                    (data.isNull() | ~_one_document(text), "malformed JSON"),
                    (_inexact(text, data), "a number is too large to be kept exactly"),
                ),
                {"data": data},
            ),
        ),
    )


def _json_event(message: Column) -> Column:
    """`after` of a change event as one jsonb."""

    def read(text: Column, event: Column) -> Column:
        after = F.coalesce(event.payload.after, event.after)
        data = F.to_json(F.when(~F.is_variant_null(after), after))
        reason = first_reason(
            *_not_json(text, event),
            (event[_CORRUPT].isNotNull(), "malformed JSON"),
            (data.isNull() & ~_says_after(text), _NO_EVENT),
            (_inexact(text, data), "a number is too large to be kept exactly"),
        )
        return result(reason, {"data": data}, data.isNotNull())

    return _parsed(message, _event_schema("VARIANT"), read)


def _json_columns(message: Column, columns: tuple[SqlColumn, ...], debezium: bool) -> Column:
    row_schema = ", ".join(f"{quoted(c.name)} {_json_type(c.type)}" for c in columns)

    def read(text: Column, found: Column) -> Column:
        row = F.coalesce(found.payload.after, found.after) if debezium else found
        values = {c.name: _json_value(row[c.name], c.type) for c in columns}
        return let(
            F.struct(*(value.alias(name) for name, value in values.items())),
            lambda made: judged(text, found, row, made),
        )

    def judged(text: Column, found: Column, row: Column, made: Column) -> Column:
        there = row.isNotNull()
        unread = [
            (
                row[c.name].isNotNull() & made[c.name].isNull(),
                f'"{c.name}" is not a valid {c.type}',
            )
            for c in columns
            if _json_type(c.type) in ("STRING", "DOUBLE")
        ]
        loose = [made[c.name] for c in columns if _json_type(c.type) == "VARIANT"]
        said = F.concat(*(F.coalesce(each, F.lit("")) for each in loose)) if loose else F.lit("")
        reason = first_reason(
            *_not_json(text, found),
            (found[_CORRUPT].isNotNull(), _mistyped(text, made, columns, debezium)),
            *([(~there & ~_says_after(text), _NO_EVENT)] if debezium else []),
            *unread,
            *([(_inexact(text, said), "a number is too large to be kept exactly")] * bool(loose)),
        )
        return result(reason, {c.name: made[c.name] for c in columns}, there)

    if debezium:
        return _parsed(message, _event_schema(f"STRUCT<{row_schema}>"), read)
    return _parsed(message, f"{row_schema}, {_CORRUPT} STRING", read)


def _parsed(message: Column, schema: str, read: Callable[[Column, Column], Column]) -> Column:
    options = {**_JSON_OPTIONS, "columnNameOfCorruptRecord": _CORRUPT}
    return let(
        utf8(message),
        lambda text: let(F.from_json(text, schema, options), lambda found: read(text, found)),
    )


def _event_schema(row: str) -> str:
    """A change event, alone or with Kafka Connect's schema around it."""
    return f"payload STRUCT<after: {row}>, after {row}, {_CORRUPT} STRING"


_NO_EVENT = "not a change event: it has no `after`"


def _says_after(text: Column) -> Column:
    """False for what is no change event at all, or one of no row (a truncation)."""
    inner = F.get_json_object(text, "$.payload")
    wrapped = F.array_contains(F.json_object_keys(text), "payload")
    keys = F.json_object_keys(F.when(wrapped, inner).otherwise(text))
    none = wrapped & (inner.isNull() | (inner == "null"))
    return none | F.coalesce(F.array_contains(keys, "after"), F.lit(False))


def _not_json(text: Column, found: Column) -> tuple[tuple[Column, str], ...]:
    return (
        (text.isNull(), "invalid UTF-8"),
        (found.isNull() | ~(_is_flat(text) | _one_document(text)), "malformed JSON"),
        (found[_CORRUPT].isNotNull() & ~text.rlike(r"^[ \t\r\n]*\{"), "not a JSON object"),
    )


def _is_flat(text: Column) -> Column:
    """True for most objects, and cheap: nothing follows an object whose only } is the last."""
    return F.instr(text, "}") == F.char_length(text)


def _one_document(text: Column) -> Column:
    """Spark's parsers stop after the first document; what follows it must be nothing.

    As the element of an array only "]" or "," could follow it, as the value of an object "}" or
    ","; and after a "," the array has another element.
    """
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    within = F.json_object_keys(F.concat(F.lit('{"":'), text, F.lit("}"))).isNotNull()
    return F.coalesce(alone & within, F.lit(False))


def _inexact(text: Column, made: Column) -> Column:
    """True if a number became another one in the jsonb `made`."""
    # Most texts do not look like it, and need not be searched without their strings.
    suspect = F.contains(made, F.lit("Infinity")) | text.rlike("[0-9.]{39}")
    unescaped = F.replace(F.replace(text, F.lit("\\\\"), F.lit("")), F.lit('\\"'), F.lit(""))
    numbers = F.regexp_replace(unescaped, '"[^"]*"', '""')
    overflown = numbers.rlike(_LARGE_EXPONENT) & F.contains(made, F.lit("Infinity"))
    return F.when(suspect, numbers.rlike(_WIDE_NUMBER) | overflown).otherwise(False)


def _json_type(type_: SqlType) -> str:
    """As what from_json reads it. Spark's own reading of dates and times is too free for us (a
    time without a date is one of today), and of text not exact (a number goes through double)."""
    match type_.name:
        case "text" | "jsonb":
            return "VARIANT"
        case "date" | "timestamp" | "timestamp with time zone" | "bytea":
            return "STRING"
    return type_.spark


def _json_value(value: Column, type_: SqlType) -> Column:
    """What from_json read as the column's type; null if it is not one."""
    match type_.name:
        case "text":
            return F.try_variant_get(value, "$", "string")
        case "jsonb":
            return F.to_json(F.when(~F.is_variant_null(value), value))
        case "bytea":
            return F.try_to_binary(value, F.lit("base64"))
        case "date":
            return F.regexp_extract(value, _MOMENT, 1).try_cast("date")
        case "timestamp":
            return _local(value).try_cast("timestamp_ntz")
        case "timestamp with time zone":
            zone = _or(F.regexp_extract(value, _MOMENT, 3), "Z")
            return F.concat(_local(value), zone).try_cast("timestamp_ltz")
        case "double precision":
            return F.when(F.abs(value) != float("inf"), value)
    return value


def _local(value: Column) -> Column:
    day, time = (F.regexp_extract(value, _MOMENT, group) for group in (1, 2))
    # With a zone behind it, Spark wants the seconds. Without a day, it would take today.
    seconds = F.regexp_replace(_or(time, " 00:00"), r"^(.\d{2}:\d{2})$", "$1:00")
    return F.when(day != "", F.concat(day, seconds))


def _or(text: Column, default: str) -> Column:
    return F.when(text == "", default).otherwise(text)


def _mistyped(text: Column, made: Column, columns: tuple[SqlColumn, ...], debezium: bool) -> Column:
    """Names the first column that has a value in the text and got none."""
    if debezium:
        payload = F.get_json_object(text, "$.payload.after")
        text = F.coalesce(payload, F.get_json_object(text, "$.after"))
    given = F.from_json(text, "MAP<STRING, STRING>")
    bad = [
        (
            made[c.name].isNull() & F.element_at(given, c.name).isNotNull(),
            f'"{c.name}" is not a valid {c.type}',
        )
        for c in columns
    ]
    return F.coalesce(first_reason(*bad), F.lit("malformed JSON"))


# CSV

_HIDDEN = "\x00"
"""Stands for a delimiter within quotes; no text of PostgreSQL's has it."""


def _check_delimiter(delimiter: str) -> None:
    if len(delimiter) != 1 or delimiter in '"\r\n\x00':
        raise InvalidUsage(f"a CSV delimiter is one character, not {delimiter!r}")


def _csv(message: Column, format: Format) -> Column:
    columns, delimiter = format.columns, format.delimiter

    def read(text: Column, parts: Column) -> Column:
        # Between quotes are the parts 1, 3, 5, ...; a doubled quote opens and closes an empty one.
        hidden = F.transform(
            parts,
            lambda part, i: F.when(
                i % 2 == 1, F.replace(part, F.lit(delimiter), F.lit(_HIDDEN))
            ).otherwise(part),
        )
        fields = F.split(F.array_join(hidden, '"'), re.escape(delimiter), -1)
        return let(fields, lambda fields: judged(text, parts, fields))

    def judged(text: Column, parts: Column, fields: Column) -> Column:
        outside = F.filter(parts, lambda _, i: i % 2 == 0)
        found = F.size(fields)
        reason = first_reason(
            (text.isNull(), "invalid UTF-8"),
            (F.contains(text, F.lit(_HIDDEN)), "a NUL character"),
            (F.size(parts) % 2 == 0, "a quote is not closed"),
            (
                F.exists(outside, lambda part: part.rlike("[\r\n]")),
                "more than one record in a message",
            ),
            (
                found != len(columns),
                F.concat(F.lit(f"expected {len(columns)} fields, found "), found.cast("string")),
            ),
            (F.exists(fields, _misquoted), "a quote in the middle of a field"),
        )
        values = {c.name: _unquoted(F.get(fields, i), delimiter) for i, c in enumerate(columns)}
        return result(reason, values)

    return let(
        F.regexp_replace(utf8(message), r"\r?\n\z", ""),
        lambda text: let(F.split(text, '"', -1), lambda parts: read(text, parts)),
    )


def _misquoted(field: Column) -> Column:
    whole = field.startswith('"') & field.endswith('"') & (F.length(field) >= 2)
    doubled = F.replace(_inner(field), F.lit('""'), F.lit(""))
    return F.contains(field, F.lit('"')) & ~(whole & ~F.contains(doubled, F.lit('"')))


def _unquoted(field: Column, delimiter: str) -> Column:
    plain = F.replace(_inner(field), F.lit('""'), F.lit('"'))
    shown = F.replace(plain, F.lit(_HIDDEN), F.lit(delimiter))
    return F.when(field.startswith('"'), shown).otherwise(field)


def _inner(field: Column) -> Column:
    return F.substring(field, F.lit(2), F.length(field) - 2)
