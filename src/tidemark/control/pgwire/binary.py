"""Arrow columns in PostgreSQL's binary format: big-endian numbers, times counted from 2000.

A numeric is its digits in base 10,000, most significant first, with the power of the first one:

    12345.678  ->  digits [1, 2345, 6780], weight 1 (the first digit counts 10000^1), dscale 3
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from tidemark.compute.jsonb import printed
from tidemark.errors import Unsupported
from tidemark.types import SqlType

EPOCH_DAYS = 10_957
"""Days from 1970-01-01, where Arrow counts from, to 2000-01-01, where PostgreSQL does."""
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000

NUMERIC_HEADER = struct.Struct("!HhHH")
"""Number of digits, weight of the first, sign, decimal places shown."""
INTERVAL = struct.Struct("!qii")
POSITIVE, NEGATIVE = 0x0000, 0x4000


def binaries(array: pa.Array, sql_type: SqlType) -> list[bytes | None]:
    """The values of a column, which is in its type's own Arrow form."""
    if sql_type.element is not None:
        return _arrays(array, sql_type.element)
    to_binary = _BINARIES.get(sql_type.name)
    if to_binary is None:
        raise Unsupported(
            f"values of type {sql_type} cannot be sent in binary format",
            hint="Ask for text format for this column.",
        )
    return to_binary(array, sql_type)


ARRAY_HEADER = struct.Struct("!iiI")
"""Number of dimensions, 1 if there are nulls, type of the elements."""
ARRAY_DIMENSION = struct.Struct("!ii")
"""Number of elements, index of the first."""


def elements(array: pa.Array, element: SqlType) -> tuple[pa.Array, list[int | None]]:
    """The elements of all arrays of a column, in their own Arrow form, and how many each has."""
    kept = [None if text is None else json.loads(text) for text in array.to_pylist()]
    flat = [each for one in kept if one is not None for each in one]
    lengths = [None if one is None else len(one) for one in kept]
    if element.name == "bytea":
        raw = [None if each is None else bytes.fromhex(each) for each in flat]
        return pa.array(raw, element.arrow), lengths
    texts = pa.array(flat, pa.string())
    if element.name == "timestamp with time zone":
        texts = texts.cast(pa.timestamp("us")).cast(pa.int64())
    return texts.cast(element.arrow), lengths


def _arrays(array: pa.Array, element: SqlType) -> list[bytes | None]:
    """Each a header, then every element with its length in front; a null's is -1."""
    flat, lengths = elements(array, element)
    cells = binaries(flat, element)
    out: list[bytes | None] = []
    at = 0
    for length in lengths:
        if length is None:
            out.append(None)
            continue
        mine = cells[at : at + length]
        at += length
        parts = [ARRAY_HEADER.pack(1 if mine else 0, int(None in mine), element.oid)]
        if mine:
            parts.append(ARRAY_DIMENSION.pack(length, 1))
        for cell in mine:
            parts.append(struct.pack("!i", -1 if cell is None else len(cell)) + (cell or b""))
        out.append(b"".join(parts))
    return out


def numeric_binary(value: Decimal, dscale: int) -> bytes:
    sign, decimal_digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "Arrow decimals are finite"
    # Line the digits up so that the decimal point falls between two groups of four.
    places = max(-exponent, 0)
    number = int("".join(map(str, decimal_digits))) * 10 ** max(exponent, 0)
    number *= 10 ** (-places % 4)
    groups: list[int] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - (places + 3) // 4
    while groups and groups[0] == 0:
        del groups[0]
    groups.reverse()
    header = NUMERIC_HEADER.pack(
        len(groups), weight if groups else 0, NEGATIVE if sign and groups else POSITIVE, dscale
    )
    return header + struct.pack(f"!{len(groups)}H", *groups)


def _packed(code: str, arrow: pa.DataType, shift: int = 0) -> Callable[..., list[bytes | None]]:
    pack = struct.Struct(code).pack

    def to_binary(array: pa.Array, _: SqlType) -> list[bytes | None]:
        values = array.cast(arrow).to_pylist()
        return [None if value is None else pack(value - shift) for value in values]

    return to_binary


def _vector(code: str, element_oid: int) -> Callable[..., list[bytes | None]]:
    """What is printed as `1 2` is sent as an array that begins at 0."""

    def one(text: str) -> bytes:
        cells = [struct.pack(code, int(number)) for number in text.split()]
        header = ARRAY_HEADER.pack(1, 0, element_oid) + ARRAY_DIMENSION.pack(len(cells), 0)
        return header + b"".join(struct.pack("!i", len(cell)) + cell for cell in cells)

    return lambda array, _: [None if text is None else one(text) for text in array.to_pylist()]


def _boolean(array: pa.Array, _: SqlType) -> list[bytes | None]:
    return [None if value is None else bytes((value,)) for value in array.to_pylist()]


def _text(array: pa.Array, _: SqlType) -> list[bytes | None]:
    return array.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()


def _jsonb(array: pa.Array, sql_type: SqlType) -> list[bytes | None]:
    version = b"\x01"
    texts = array.to_pylist()
    return [None if text is None else version + printed(text).encode() for text in texts]


def _numeric(array: pa.Array, sql_type: SqlType) -> list[bytes | None]:
    return [
        None if value is None else numeric_binary(value, _dscale(value, sql_type))
        for value in array.to_pylist()
    ]


def _interval(array: pa.Array, _: SqlType) -> list[bytes | None]:
    """Microseconds, days, and months, of which there are none."""
    return [
        None if value is None else INTERVAL.pack(*_time_and_days(value))
        for value in array.to_pylist()
    ]


def _time_and_days(seconds: Decimal) -> tuple[int, int, int]:
    """Both with the sign of the whole."""
    sign = -1 if seconds < 0 else 1
    days, micros = divmod(int(abs(seconds) * 1_000_000), 86_400_000_000)
    return sign * micros, sign * days, 0


def _dscale(value: Decimal, sql_type: SqlType) -> int:
    if sql_type.precision is not None:
        return sql_type.scale or 0
    shortest = format(value, "f").partition(".")[2].rstrip("0")
    return len(shortest)


_BINARIES: dict[str, Callable[[pa.Array, SqlType], list[bytes | None]]] = {
    "boolean": _boolean,
    "smallint": _packed("!h", pa.int16()),
    "integer": _packed("!i", pa.int32()),
    "bigint": _packed("!q", pa.int64()),
    "numeric": _numeric,
    "double precision": _packed("!d", pa.float64()),
    "text": _text,
    "bytea": lambda array, _: array.to_pylist(),
    "jsonb": _jsonb,
    "date": _packed("!i", pa.int32(), EPOCH_DAYS),
    "timestamp": _packed("!q", pa.int64(), EPOCH_MICROS),
    "timestamp with time zone": _packed("!q", pa.int64(), EPOCH_MICROS),
    "interval": _interval,
    "oid": _packed("!I", pa.uint32()),
    "name": _text,
    '"char"': _text,
    "int2vector": _vector("!h", 21),
    "oidvector": _vector("!I", 26),
}
