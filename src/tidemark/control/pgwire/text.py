"""Arrow columns as PostgreSQL prints them.

A column becomes an Arrow column of strings (`texts`), with compute kernels where Arrow prints as
PostgreSQL does and a Python pass over the few values where it does not: floats, intervals, years
before Christ, and decimals that Arrow writes with an exponent. From there rows go out as DataRow values
(`rows`), or as the lines of a COPY (copy_out.py).

    numeric(10,2)   1.50        every digit of the scale
    numeric         1.5         no trailing zeros
    double          1e+20       shortest text that reads back the same
    timestamp       2024-05-01 10:00:00.25
    timestamptz     2024-05-01 10:00:00.25+00
    interval        1 day 02:03:04.5
    bytea           \\xdead
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.compute.arrays import array_text
from tidemark.compute.intervals import interval_text
from tidemark.compute.jsonb import printed
from tidemark.control.pgwire.binary import binaries, elements
from tidemark.errors import InvalidUsage, Unsupported
from tidemark.types import Column, SqlType

TEXT_FORMAT = 0
BINARY_FORMAT = 1

_STRING = pa.large_string()
_FIRST_DAY_AD = -719_162
_MICROS_PER_DAY = 86_400_000_000


def rows(
    batch: pa.RecordBatch | pa.Table, columns: Sequence[Column], formats: Sequence[int]
) -> Iterable[tuple[bytes | None, ...]]:
    """The rows of `batch`, each value in the format (0 text, 1 binary) asked for its column."""
    if not columns:
        return [()] * batch.num_rows
    values = [
        binaries(array, column.type)
        if wire_format == BINARY_FORMAT
        else texts(array, column.type).cast(pa.large_binary()).to_pylist()
        for (column, array), wire_format in zip(arrays(batch, columns), formats, strict=True)
    ]
    return zip(*values, strict=True)


def texts(array: pa.Array, sql_type: SqlType) -> pa.Array:
    """A column, in its type's own Arrow form, as an array of what PostgreSQL prints."""
    if sql_type.element is not None:
        return _arrays_text(array, sql_type.element)
    to_text = _TEXTS.get(sql_type.name)
    if to_text is None:
        raise Unsupported(f"values of type {sql_type} cannot be sent to a client")
    return to_text(array, sql_type)


def _arrays_text(array: pa.Array, element: SqlType) -> pa.Array:
    """Arrays as `{1,NULL,"a b"}`: the elements of all of them are printed as one column."""
    flat, lengths = elements(array, element)
    cells = texts(flat, element).to_pylist()
    out: list[str | None] = []
    at = 0
    for length in lengths:
        out.append(None if length is None else array_text(cells[at : at + length]))
        at += length or 0
    return pa.array(out, _STRING)


def arrays(
    batch: pa.RecordBatch | pa.Table, columns: Sequence[Column]
) -> Iterable[tuple[Column, pa.Array]]:
    """The columns of `batch`, each in its type's own Arrow form."""
    if batch.num_columns != len(columns):
        raise InvalidUsage(
            f"a batch of {batch.num_columns} columns was given for {len(columns)} described ones"
        )
    for column, array in zip(columns, batch.columns, strict=True):
        whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        yield column, _conform(whole, column.type)


def _conform(array: pa.Array, sql_type: SqlType) -> pa.Array:
    """The array in its type's own Arrow form; a bare numeric may be a decimal of any scale."""
    if array.type == sql_type.arrow:
        return array
    is_bare_numeric = sql_type.name == "numeric" and sql_type.precision is None
    if is_bare_numeric and pa.types.is_decimal(array.type):
        return array
    return array.cast(sql_type.arrow)


def _string(value: str) -> pa.Scalar:
    return pa.scalar(value, _STRING)


def _boolean(array: pa.Array, _: SqlType) -> pa.Array:
    return pc.if_else(array, _string("t"), _string("f"))


def _plain(array: pa.Array, _: SqlType) -> pa.Array:
    return array.cast(_STRING)


def _numeric(array: pa.Array, sql_type: SqlType) -> pa.Array:
    column = array.cast(_STRING)
    if pc.any(pc.match_substring(column, "E")).as_py():
        column = _map(lambda text: format(Decimal(text), "f") if "E" in text else text, column)
    if sql_type.precision is None and array.type.scale > 0:
        column = pc.utf8_rtrim(pc.utf8_rtrim(column, "0"), ".")
    return column


def _double(array: pa.Array, _: SqlType) -> pa.Array:
    return _map(double_text, array)


def double_text(value: float) -> str:
    """As PostgreSQL prints float8. Python's repr has the same digits, but keeps a `.0` and
    turns to an exponent one power of ten later."""
    text = repr(value)
    match text:
        case "nan":
            return "NaN"
        case "inf":
            return "Infinity"
        case "-inf":
            return "-Infinity"
    if "e" in text:
        return text
    text = text.removesuffix(".0")
    if abs(value) < 1e15:
        return text
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
    exponent = len(digits.partition(".")[0]) - 1
    digits = digits.replace(".", "").rstrip("0")
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e+{exponent}"


def _date(array: pa.Array, _: SqlType) -> pa.Array:
    before_christ = pc.less(array.cast(pa.int32()), _FIRST_DAY_AD)
    return _with_era(array.cast(_STRING), before_christ)


def _timestamp(array: pa.Array, sql_type: SqlType) -> pa.Array:
    micros = array.cast(pa.int64())
    column = micros.cast(pa.timestamp("us")).cast(_STRING)
    column = pc.utf8_rtrim(pc.utf8_rtrim(column, "0"), ".")
    if sql_type.name == "timestamp with time zone":
        column = pc.binary_join_element_wise(column, _string("+00"), _string(""))
    return _with_era(column, pc.less(micros, _FIRST_DAY_AD * _MICROS_PER_DAY))


def _with_era(column: pa.Array, before_christ: pa.Array) -> pa.Array:
    """Arrow's year 0 is PostgreSQL's 1 BC, its year -43 is 44 BC."""
    if not pc.any(before_christ).as_py():
        return column
    return pc.if_else(before_christ, _map(_bc, column), column)


def _bc(text: str) -> str:
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
    year, rest = digits.split("-", 1)
    return f"{1 - int(sign + year):04d}-{rest} BC"


def _map(function: Callable[[Any], str], array: pa.Array) -> pa.Array:
    return pa.array(
        [None if value is None else function(value) for value in array.to_pylist()], _STRING
    )


_TEXTS: dict[str, Callable[[pa.Array, SqlType], pa.Array]] = {
    "boolean": _boolean,
    "smallint": _plain,
    "integer": _plain,
    "bigint": _plain,
    "numeric": _numeric,
    "double precision": _double,
    "text": _plain,
    "bytea": lambda array, _: _map(lambda value: "\\x" + value.hex(), array),
    "jsonb": lambda array, _: _map(printed, array),
    "date": _date,
    "timestamp": _timestamp,
    "timestamp with time zone": _timestamp,
    "interval": lambda array, _: _map(interval_text, array),
    "oid": _plain,
    "name": _plain,
    '"char"': _plain,
    "int2vector": _plain,
    "oidvector": _plain,
}
