"""Bind's parameters as text: a statement is re-planned with them put in as literals.

Text parameters pass as they are (the cast to the parameter's type is the planner's); binary ones
are decoded by their type into what PostgreSQL would print.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from uuid import UUID

import pyarrow as pa

from tidemark.compute.arrays import array_text
from tidemark.compute.intervals import interval_text
from tidemark.control.pgwire.binary import (
    ARRAY_DIMENSION,
    ARRAY_HEADER,
    EPOCH_DAYS,
    EPOCH_MICROS,
    INTERVAL,
    NEGATIVE,
    NUMERIC_HEADER,
)
from tidemark.control.pgwire.codec import utf8
from tidemark.control.pgwire.session import Param
from tidemark.control.pgwire.text import TEXT_FORMAT, double_text, texts
from tidemark.errors import DataError, SqlError, Unsupported
from tidemark.types import DATE, SCALARS, SYSTEM_SCALARS, TIMESTAMP, TIMESTAMPTZ, SqlType

_NUMERIC_SPECIAL = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}


def decode_params(
    oids: Sequence[int], formats: Sequence[int], values: Sequence[bytes | None]
) -> tuple[Param, ...]:
    if len(values) != len(oids):
        raise SqlError(
            f"bind message supplies {len(values)} parameters, but the prepared statement "
            f"requires {len(oids)}",
            sqlstate="08P01",
        )
    return tuple(
        Param(None if value is None else _decode(value, oid, wire_format), oid)
        for value, oid, wire_format in zip(
            values, oids, each_format(formats, len(values)), strict=True
        )
    )


def each_format(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """One format per value: none given means text, a single one stands for all."""
    if len(formats) == 0:
        return (TEXT_FORMAT,) * count
    if len(formats) not in (1, count):
        raise SqlError(
            f"bind message has {len(formats)} formats for {count} values; it must have none, "
            "one, or one for each",
            sqlstate="08P01",
        )
    for wire_format in formats:
        if wire_format not in (0, 1):
            raise SqlError(
                f"unsupported format code {wire_format}: 0 is text, 1 is binary", sqlstate="22023"
            )
    return tuple(formats) * count if len(formats) == 1 else tuple(formats)


def _decode(value: bytes, oid: int, wire_format: int) -> str:
    return _text(value) if wire_format == TEXT_FORMAT else decode_binary(value, oid)


def decode_binary(value: bytes, oid: int) -> str:
    """What PostgreSQL would print for a value in binary format."""
    decoder = _DECODERS.get(oid)
    if decoder is None:
        raise Unsupported(
            f"values of type oid {oid} are not supported in binary format",
            hint="Send it in text format.",
        )
    try:
        return decoder(value)
    except (struct.error, ValueError, pa.ArrowException):
        raise DataError(
            f"incorrect binary data format in a value of type oid {oid} ({len(value)} bytes)",
            sqlstate="22P03",
        ) from None


def _text(value: bytes) -> str:
    if b"\0" in value:
        raise DataError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return utf8(value)


def _boolean(value: bytes) -> str:
    (flag,) = struct.unpack("!?", value)
    return "t" if flag else "f"


def _integer(code: str) -> Callable[[bytes], str]:
    return lambda value: str(struct.unpack(code, value)[0])


def _float4(value: bytes) -> str:
    """The shortest text that reads back as the same float4, not as its float8 widening."""
    (number,) = struct.unpack("!f", value)
    for digits in range(6, 10):
        shortest = float(f"{number:.{digits}g}")
        if number != number or struct.pack("!f", shortest) == value:
            return double_text(shortest)
    return double_text(number)


def _float8(value: bytes) -> str:
    return double_text(struct.unpack("!d", value)[0])


def _numeric(value: bytes) -> str:
    count, weight, sign, dscale = NUMERIC_HEADER.unpack_from(value)
    if sign in _NUMERIC_SPECIAL:
        return _NUMERIC_SPECIAL[sign]
    groups = struct.unpack(f"!{count}H", value[NUMERIC_HEADER.size :])
    if any(group > 9999 for group in groups) or sign not in (0, NEGATIVE) or dscale > 0x3FFF:
        raise ValueError("not a numeric")
    # Group i counts 10000^(weight - i): write them all, from the units or higher, then cut.
    whole = "".join(f"{_group(groups, i):04d}" for i in range(weight + 1)).lstrip("0") or "0"
    after = range(weight + 1, weight + 1 + (dscale + 3) // 4)
    fraction = "".join(f"{_group(groups, i):04d}" for i in after)[:dscale]
    return ("-" if sign == NEGATIVE else "") + whole + (f".{fraction}" if fraction else "")


def _group(groups: tuple[int, ...], index: int) -> int:
    return groups[index] if 0 <= index < len(groups) else 0


def _interval(value: bytes) -> str:
    micros, days, months = INTERVAL.unpack(value)
    text = interval_text(Decimal(days * 86_400 * 1_000_000 + micros).scaleb(-6))
    return f"{months} mons {text}" if months else text


def _since_2000(
    code: str, epoch: int, arrow: pa.DataType, sql_type: SqlType
) -> Callable[[bytes], str]:
    """Dates and timestamps: a count from 2000-01-01, its extremes standing for infinity."""
    bits = 8 * struct.calcsize(code)
    infinities = {2 ** (bits - 1) - 1: "infinity", -(2 ** (bits - 1)): "-infinity"}

    def decode(value: bytes) -> str:
        (count,) = struct.unpack(code, value)
        if count in infinities:
            return infinities[count]
        column = pa.array([count + epoch], arrow).cast(sql_type.arrow)
        return texts(column, sql_type)[0].as_py()

    return decode


def _array(value: bytes) -> str:
    """An array of one dimension, of elements that can be decoded themselves."""
    dimensions, _, oid = ARRAY_HEADER.unpack_from(value)
    if dimensions == 0:
        return "{}"
    decode, at = _DECODERS.get(oid), ARRAY_HEADER.size
    if dimensions != 1 or decode is None:
        raise ValueError("not an array of one dimension")
    count, _ = ARRAY_DIMENSION.unpack_from(value, at)
    at += ARRAY_DIMENSION.size
    found: list[str | None] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", value, at)
        at += 4
        found.append(None if length < 0 else decode(value[at : at + length]))
        at += max(length, 0)
    return array_text(found)


_DECODERS: dict[int, Callable[[bytes], str]] = {
    0: _text,  # not specified
    16: _boolean,
    17: lambda value: "\\x" + value.hex(),
    18: _text,  # "char"
    19: _text,  # name
    20: _integer("!q"),
    21: _integer("!h"),
    23: _integer("!i"),
    25: _text,
    26: _integer("!I"),  # oid
    114: _text,  # json
    700: _float4,
    701: _float8,
    705: _text,  # unknown
    1042: _text,  # char(n)
    1043: _text,  # varchar
    1082: _since_2000("!i", EPOCH_DAYS, pa.int32(), DATE),
    1114: _since_2000("!q", EPOCH_MICROS, pa.int64(), TIMESTAMP),
    1184: _since_2000("!q", EPOCH_MICROS, pa.int64(), TIMESTAMPTZ),
    1186: _interval,
    1700: _numeric,
    3802: lambda value: _text(value[1:]),  # jsonb, behind a version
    2950: lambda value: str(UUID(bytes=value)),
    **{type_.array_oid: _array for type_ in (*SCALARS.values(), *SYSTEM_SCALARS.values())},
}
