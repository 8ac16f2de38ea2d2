"""Expected texts were taken from PostgreSQL 15's own output."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pgwire_harness as harness
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.pgwire import text
from tidemark.control.pgwire.copy_out import copy_lines
from tidemark.control.pgwire.params import decode_params
from tidemark.errors import InvalidUsage, Unsupported
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    array_of,
    numeric,
    type_named,
)

DAY_BC = -719_163
BC_MICROS = -63_517_788_000_000_000  # 0044-03-15 10:00 BC
MICROS_2020 = 1_577_836_800_000_000

CASES: list[tuple[SqlType, Any, str]] = [
    (BOOLEAN, True, "t"),
    (BOOLEAN, False, "f"),
    (SMALLINT, -32768, "-32768"),
    (INTEGER, 7, "7"),
    (BIGINT, 2**63 - 1, "9223372036854775807"),
    (numeric(10, 2), Decimal("1.5"), "1.50"),
    (numeric(10, 2), Decimal(0), "0.00"),
    (numeric(12, 10), Decimal("-0.0000000001"), "-0.0000000001"),
    (numeric(10), Decimal(100), "100"),
    (NUMERIC, Decimal(0), "0"),
    (NUMERIC, Decimal(100), "100"),
    (NUMERIC, Decimal("1.50"), "1.5"),
    (NUMERIC, Decimal("-0.00000001"), "-0.00000001"),
    (NUMERIC, Decimal("1234567890123456789012.5"), "1234567890123456789012.5"),
    (DOUBLE, 0.0, "0"),
    (DOUBLE, -0.0, "-0"),
    (DOUBLE, 1.5, "1.5"),
    (DOUBLE, 0.1, "0.1"),
    (DOUBLE, 1e14, "100000000000000"),
    (DOUBLE, 123456789012345.5, "123456789012345.5"),
    (DOUBLE, 999999999999999.9, "999999999999999.9"),
    (DOUBLE, 1e15, "1e+15"),
    (DOUBLE, -1234567890123456.0, "-1.234567890123456e+15"),
    (DOUBLE, 12345678901234567.0, "1.2345678901234568e+16"),
    (DOUBLE, 1e20, "1e+20"),
    (DOUBLE, 1e100, "1e+100"),
    (DOUBLE, 0.0001, "0.0001"),
    (DOUBLE, 0.00001, "1e-05"),
    (DOUBLE, 1.5e-7, "1.5e-07"),
    (DOUBLE, 5e-324, "5e-324"),
    (DOUBLE, float("nan"), "NaN"),
    (DOUBLE, float("inf"), "Infinity"),
    (DOUBLE, float("-inf"), "-Infinity"),
    (TEXT, "", ""),
    (TEXT, "a\tb ä 😀", "a\tb ä 😀"),
    (DATE, 0, "1970-01-01"),
    (DATE, DAY_BC + 1, "0001-01-01"),
    (DATE, DAY_BC, "0001-12-31 BC"),
    (DATE, 2_932_897, "10000-01-01"),
    (TIMESTAMP, MICROS_2020, "2020-01-01 00:00:00"),
    (TIMESTAMP, MICROS_2020 + 100_000, "2020-01-01 00:00:00.1"),
    (TIMESTAMP, MICROS_2020 + 1, "2020-01-01 00:00:00.000001"),
    (TIMESTAMP, -1, "1969-12-31 23:59:59.999999"),
    (TIMESTAMP, BC_MICROS, "0044-03-15 10:00:00 BC"),
    (TIMESTAMPTZ, MICROS_2020, "2020-01-01 00:00:00+00"),
    (TIMESTAMPTZ, MICROS_2020 + 500_000, "2020-01-01 00:00:00.5+00"),
    (TIMESTAMPTZ, BC_MICROS + 500_000, "0044-03-15 10:00:00.5+00 BC"),
    (INTERVAL, Decimal(0), "00:00:00"),
    (INTERVAL, Decimal("93784.5"), "1 day 02:03:04.5"),
    (INTERVAL, Decimal("-93784.000001"), "-1 days -02:03:04.000001"),
    (INTERVAL, Decimal(-60), "-00:01:00"),
    (INTERVAL, Decimal(172_800), "2 days"),
]


def ids(value: object) -> str | None:
    return str(value) if isinstance(value, SqlType | str) else None


@pytest.mark.parametrize(("kind", "value", "expected"), CASES, ids=ids)
def test_text_format(kind: SqlType, value: Any, expected: str) -> None:
    columns, batch = harness.table(c=(kind, [value, None]))
    assert list(text.rows(batch, columns, (0,))) == [(expected.encode(),), (None,)]


@pytest.mark.parametrize(("kind", "value", "expected"), CASES, ids=ids)
def test_binary_format_reads_back_as_the_same_text(
    kind: SqlType, value: Any, expected: str
) -> None:
    columns, batch = harness.table(c=(kind, [value, None]))
    (binary,), (null,) = text.rows(batch, columns, (1,))
    assert null is None
    (param,) = decode_params((kind.oid,), (1,), (binary,))
    assert param.value_text == expected


def test_a_table_of_several_chunks() -> None:
    columns, batch = harness.table(a=(INTEGER, [1, 2]), b=(TEXT, ["x", None]))
    table = pa.Table.from_batches([batch, batch])
    assert list(text.rows(table, columns, (0, 0))) == [(b"1", b"x"), (b"2", None)] * 2
    assert copy_lines(table, columns) == [b"1\tx\n", b"2\t\\N\n"] * 2


def test_arrow_types_that_only_nearly_fit_are_cast() -> None:
    columns = (Column("t", NUMERIC), Column("s", TEXT), Column("d", numeric(5, 2)))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([Decimal(10**30)], pa.decimal128(38, 0)),
            pa.array(["x"]).dictionary_encode(),
            pa.array([Decimal(3)], pa.decimal128(10, 1)),
        ],
        names=["t", "s", "d"],
    )
    assert list(text.rows(batch, columns, (0, 0, 0))) == [(b"1" + b"0" * 30, b"x", b"3.00")]


def test_copy_escapes_as_postgresql_does() -> None:
    columns, batch = harness.table(
        a=(TEXT, ["a\tb\nc\rd\\e\bf\fg\vh", "\\N", None]), b=(BOOLEAN, [True, None, False])
    )
    assert copy_lines(batch, columns) == [
        b"a\\tb\\nc\\rd\\\\e\\bf\\fg\\vh\tt\n",
        b"\\\\N\t\\N\n",
        b"\\N\tf\n",
    ]


def test_rows_without_columns() -> None:
    batch = pa.RecordBatch.from_arrays([], names=[])
    assert list(text.rows(batch, (), ())) == []
    assert copy_lines(batch, ()) == []


def test_a_batch_that_does_not_match_its_description() -> None:
    columns, batch = harness.table(a=(INTEGER, [1]))
    with pytest.raises(InvalidUsage, match="1 columns was given for 2"):
        list(text.rows(batch, columns * 2, (0, 0)))


@pytest.mark.parametrize("wire_format", [0, 1])
def test_an_unknown_type_is_refused(wire_format: int) -> None:
    array = pa.array([1])
    convert = text.binaries if wire_format else text.texts
    with pytest.raises(Unsupported) as caught:
        convert(array, SqlType("unknown"))
    assert caught.value.sqlstate == "0A000"


@given(st.floats())
def test_doubles_read_back_as_themselves(value: float) -> None:
    printed = text.double_text(value)
    assert repr(float(printed)) == repr(value)


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=16, min_value=-(10**21), max_value=10**21
    )
)
def test_bare_numerics_read_back_the_same_in_both_formats(value: Decimal) -> None:
    columns, batch = harness.table(c=(NUMERIC, [value]))
    ((printed,),) = text.rows(batch, columns, (0,))
    ((binary,),) = text.rows(batch, columns, (1,))
    assert printed is not None
    assert Decimal(printed.decode()) == value
    assert "E" not in printed.decode()
    assert decode_params((1700,), (1,), (binary,))[0].value_text == printed.decode()


ARRAYS: list[tuple[SqlType, str | None, str | None]] = [
    (INTEGER, '["1",null,"-3"]', "{1,NULL,-3}"),
    (INTEGER, "[]", "{}"),
    (INTEGER, None, None),
    (TEXT, '["a b","","null","say \\"hi\\"","x,y"]', '{"a b","","null","say \\"hi\\"","x,y"}'),
    (BOOLEAN, '["true","false"]', "{t,f}"),
    (NUMERIC, '["1.5","2"]', "{1.5,2}"),
    (numeric(10, 2), '["1.50"]', "{1.50}"),
    (DOUBLE, '["1.0E20","NaN"]', "{1e+20,NaN}"),
    (DATE, '["2024-02-29"]', "{2024-02-29}"),
    (TIMESTAMP, '["2024-02-29 10:00:00.5"]', '{"2024-02-29 10:00:00.5"}'),
    (TIMESTAMPTZ, '["2024-02-29 10:00:00"]', '{"2024-02-29 10:00:00+00"}'),
    (INTERVAL, '["93784.500000",null]', '{"1 day 02:03:04.5",NULL}'),
    (type_named("bytea"), '["dead"]', '{"\\\\xdead"}'),
]


@pytest.mark.parametrize(("element", "kept", "expected"), ARRAYS)
def test_arrays(element: SqlType, kept: str | None, expected: str | None) -> None:
    column = Column("a", array_of(element))
    batch = pa.record_batch([pa.array([kept], pa.string())], names=["a"])
    ((shown,),) = text.rows(batch, [column], [0])
    assert shown == (None if expected is None else expected.encode())
    # What goes out in binary comes back as the same text.
    ((packed,),) = text.rows(batch, [column], [1])
    (param,) = decode_params([column.type.oid], [1], [packed])
    assert param.value_text == (None if expected is None else expected)
