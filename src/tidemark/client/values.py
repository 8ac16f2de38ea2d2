"""Values as they come over the wire, in PostgreSQL's text format, into Arrow columns.

Text, because both ends then work on whole columns: the server prints a column with Arrow's
kernels, psycopg cuts rows into strings in C, and Arrow's casts read them; no value is looked at by
Python, except elements of arrays, which psycopg takes apart. The types are those of
`tidemark.types`; what is in none of them (a catalog's `regclass`, say) stays the text that it is.

    numeric(10,2)  ->  decimal128(10, 2)        numeric  ->  decimal128(38, 16)
    jsonb          ->  string, its text         integer[]  ->  list<int32>
    interval       ->  duration[us]
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from decimal import Decimal

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.types.string import TextLoader

from tidemark.errors import DataError
from tidemark.types import (
    INTERVAL,
    SCALARS,
    SYSTEM_SCALARS,
    TEXT,
    Column,
    SqlType,
    array_of,
    numeric,
)

Cells = Sequence[str | None] | Sequence[list[str | None] | None]
"""One column: texts, or for an array lists of them."""


def _by_oid() -> dict[int, SqlType]:
    found: dict[int, SqlType] = {}
    for name, scalar in {**SYSTEM_SCALARS, **SCALARS}.items():
        found[scalar.oid] = SqlType(name)
        found[scalar.array_oid] = array_of(SqlType(name))
    return found


_TYPES = _by_oid()


def load_texts(connection: psycopg.Connection) -> None:
    """Have this connection give texts, and lists of them for arrays, whatever the type."""
    for oid, type_ in _TYPES.items():
        if type_.element is None:
            connection.adapters.register_loader(oid, TextLoader)


def columns_of(cursor: psycopg.Cursor) -> tuple[Column, ...]:
    return tuple(
        Column(each.name, _type(each.type_code, each.precision, each.scale))
        for each in cursor.description or ()
    )


def _type(oid: int, precision: int | None, scale: int | None) -> SqlType:
    known = _TYPES.get(oid, TEXT)
    if known.name == "numeric" and precision is not None:
        return numeric(precision, scale or 0)
    return known


def arrow_type(type_: SqlType) -> pa.DataType:
    """What a client gets: as stored, but an array is a list and an interval a duration."""
    if type_.element is not None:
        return pa.list_(arrow_type(type_.element))
    return _DURATION if type_ == INTERVAL else type_.arrow


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def record_batch(rows: Sequence[tuple], columns: Sequence[Column]) -> pa.RecordBatch:
    """Rows of texts into a batch with the columns' types."""
    schema = arrow_schema(columns)
    if not columns:
        # Rows without columns: Arrow counts them by a struct that has none.
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [arrow(cell, column.type) for cell, column in zip(cells, columns, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def arrow(cells: Cells, type_: SqlType) -> pa.Array:
    """A column of texts as what it says."""
    if type_.element is not None:
        return _lists(cells, type_.element)  # type: ignore[arg-type]
    texts = pa.array(cells, pa.string())
    try:
        return _READERS.get(type_.name, _cast)(texts, type_)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a value of type {type_} cannot be an Arrow value: {error}",
            hint="select it as text: column::text",
            sqlstate="22003",
        ) from error


def _lists(cells: Sequence[list[str | None] | None], element: SqlType) -> pa.Array:
    lengths = [0 if cell is None else len(cell) for cell in cells]
    offsets = pa.array([0, *itertools.accumulate(lengths)], pa.int32())
    flat = arrow([each for cell in cells for each in cell or ()], element)
    absent = pa.array([cell is None for cell in cells], pa.bool_())
    return pa.ListArray.from_arrays(offsets, flat, mask=absent)


def _cast(texts: pa.Array, type_: SqlType) -> pa.Array:
    return texts.cast(type_.arrow)


def _boolean(texts: pa.Array, _: SqlType) -> pa.Array:
    return pc.equal(texts, "t")


def _bytea(texts: pa.Array, _: SqlType) -> pa.Array:
    r"""Each is `\x` and two digits per byte: all digits at once are all bytes at once."""
    digits = pc.utf8_slice_codeunits(texts, 2)
    lengths = pc.fill_null(pc.binary_length(digits), 0).to_pylist()
    offsets = pa.array([0, *itertools.accumulate(n // 2 for n in lengths)], pa.int32())
    joined = bytes.fromhex("".join(pc.drop_null(digits).to_pylist()))
    present = pc.is_valid(texts)
    validity = None if texts.null_count == 0 else present.buffers()[1]
    buffers = [validity, offsets.buffers()[1], pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def _interval(texts: pa.Array, _: SqlType) -> pa.Array:
    """`-1 days -02:03:04.5`, of which either part may be missing."""
    parts = pc.extract_regex(texts, _INTERVAL)

    def part(name: str) -> pa.Array:
        found = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(found, ""), "0", found)

    def counted(name: str, micros: int) -> pa.Array:
        return pc.multiply_checked(part(name).cast(pa.int64()), micros)

    fraction = pc.utf8_rpad(part("fraction"), 6, "0").cast(pa.int64())
    clock = pc.add_checked(counted("hours", 3_600_000_000), counted("minutes", 60_000_000))
    clock = pc.add_checked(clock, pc.add_checked(counted("seconds", 1_000_000), fraction))
    clock = pc.if_else(pc.equal(part("sign"), "-"), pc.negate(clock), clock)
    return pc.add_checked(counted("days", 86_400_000_000), clock).cast(_DURATION)


_DURATION = pa.duration("us")
_INTERVAL = (
    r"^(?:(?P<days>-?\d+) days? ?)?"
    r"(?:(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?)?$"
)

_READERS: dict[str, Callable[[pa.Array, SqlType], pa.Array]] = {
    "boolean": _boolean,
    "bytea": _bytea,
    "interval": _interval,
}


def python_values(cells: Cells, type_: SqlType) -> list:
    """A column as Python values: those of psycopg, so `jsonb` is what it means, and a `numeric`
    has the digits that the server sent."""
    if type_.element is not None:
        of = type_.element
        return [None if cell is None else python_values(cell, of) for cell in cells]  # type: ignore[arg-type]
    read = _PYTHON.get(type_.name)
    if read is None:
        return arrow(cells, type_).to_pylist()
    return [None if cell is None else read(cell) for cell in cells]  # type: ignore[arg-type]


_PYTHON: dict[str, Callable[[str], object]] = {"numeric": Decimal, "jsonb": json.loads}
