from __future__ import annotations

import contextlib
import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.pgwire import Param
from tidemark.control.pgwire.params import decode_params
from tidemark.errors import DataError, TidemarkError

BINARY = [
    (16, b"\1", "t"),
    (16, b"\0", "f"),
    (21, struct.pack("!h", -5), "-5"),
    (23, struct.pack("!i", 5), "5"),
    (20, struct.pack("!q", -(2**63)), "-9223372036854775808"),
    (26, b"\xff\xff\xff\xff", "4294967295"),
    (700, struct.pack("!f", 0.1), "0.1"),
    (700, struct.pack("!f", float("inf")), "Infinity"),
    (700, struct.pack("!f", float("nan")), "NaN"),
    (701, struct.pack("!d", 0.1), "0.1"),
    (25, "ä".encode(), "ä"),
    (1043, b"x", "x"),
    (705, b"x", "x"),
    (0, b"x", "x"),
    (1082, struct.pack("!i", 0), "2000-01-01"),
    (1082, struct.pack("!i", 2**31 - 1), "infinity"),
    (1114, struct.pack("!q", 1_500_000), "2000-01-01 00:00:01.5"),
    (1184, struct.pack("!q", 0), "2000-01-01 00:00:00+00"),
    (1184, struct.pack("!q", -(2**63)), "-infinity"),
    (1700, struct.pack("!HhHH3H", 3, 1, 0, 3, 1, 2345, 6780), "12345.678"),
    (1700, struct.pack("!HhHH1H", 1, 1, 0x4000, 0, 5), "-50000"),
    (1700, struct.pack("!HhHH1H", 1, -2, 0, 8, 5), "0.00000005"),
    (1700, struct.pack("!HhHH", 0, 0, 0, 2), "0.00"),
    (1700, struct.pack("!HhHH", 0, 0, 0xC000, 0), "NaN"),
    (1700, struct.pack("!HhHH", 0, 0, 0xF000, 0), "-Infinity"),
    (2950, bytes(range(16)), str(UUID(bytes=bytes(range(16))))),
    (1186, struct.pack("!qii", -1_500_000, 2, -14), "-14 mons 1 day 23:59:58.5"),
]


@pytest.mark.parametrize(("oid", "value", "expected"), BINARY)
def test_binary_parameters(oid: int, value: bytes, expected: str) -> None:
    assert decode_params((oid,), (1,), (value,)) == (Param(expected, oid),)


def test_formats_are_none_one_or_one_for_each() -> None:
    values = (b"\0\0\0\5", b"\0\0\0\6")
    both = (Param("5", 23), Param("6", 23))
    assert decode_params((23, 23), (1,), values) == both
    assert decode_params((23, 23), (1, 1), values) == both
    assert decode_params((23, 25), (), (b"5", None)) == (Param("5", 23), Param(None, 25))
    assert decode_params((), (), ()) == ()


@pytest.mark.parametrize(
    ("oids", "formats", "values", "sqlstate"),
    [
        ((23,), (), (), "08P01"),
        ((23, 23, 23), (0, 0), (b"1",) * 3, "08P01"),
        ((23,), (2,), (b"1",), "22023"),
        ((23,), (1,), (b"\1",), "22P03"),
        ((1700,), (1,), (b"\0",), "22P03"),
        ((1700,), (1,), (struct.pack("!HhHH1H", 1, 0, 0, 0, 10_000),), "22P03"),
        ((2950,), (1,), (b"short",), "22P03"),
        ((1082,), (1,), (struct.pack("!i", 2**31 - 2),), "22P03"),
        ((25,), (0,), (b"\xff",), "22021"),
        ((25,), (0,), (b"a\0b",), "22021"),
        ((1007,), (1,), (b"an array",), "22P03"),
        ((600,), (1,), (b"a point",), "0A000"),
    ],
)
def test_parameters_that_cannot_be_taken(
    oids: tuple[int, ...],
    formats: tuple[int, ...],
    values: tuple[bytes | None, ...],
    sqlstate: str,
) -> None:
    with pytest.raises(TidemarkError) as caught:
        decode_params(oids, formats, values)
    assert caught.value.sqlstate == sqlstate


@given(st.sampled_from(sorted({oid for oid, _, _ in BINARY})), st.binary(max_size=24))
def test_garbage_never_crashes(oid: int, value: bytes) -> None:
    with contextlib.suppress(DataError):
        decode_params((oid,), (1,), (value,))
