"""COPY … FROM STDIN without a server: values, errors and where they are, blocks and limits."""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.compute.expr import Lit
from tidemark.compute.literals import typed
from tidemark.control.copy_in import Reader
from tidemark.control.copy_values import BadValue, read_column
from tidemark.control.parse import parse
from tidemark.control.statements import CopyFrom
from tidemark.control.values import literal_array
from tidemark.errors import TidemarkError, TooLarge
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    SqlType,
    array_of,
    numeric,
)

TYPES = (
    BOOLEAN,
    SMALLINT,
    INTEGER,
    BIGINT,
    NUMERIC,
    numeric(6, 2),
    numeric(3, 3),
    numeric(38),
    DOUBLE,
    TEXT,
    BYTEA,
    JSONB,
    DATE,
    TIMESTAMP,
    TIMESTAMPTZ,
    array_of(INTEGER),
)

spelled = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.floats().map(repr),
    st.datetimes().map(str),
    st.dates().map(str),
    st.builds("{}{}".format, st.datetimes(), st.sampled_from(["+00", "Z", "+02", "-05:30"])),
    st.sampled_from(["t", "f", "true", "FALSE", " yes ", " 1 ", "+1", "-0", "1e3", "NaN", "inf"]),
    st.sampled_from(["2024-02-30", "2024-2-3", "0000-01-01", "2024-01-01T10:00:60", "10000-1-1"]),
    st.sampled_from(["{1,NULL}", '{"a": 1}', "\\x0aFF", "", "nonsense", "32768", "-32768"]),
)


def complaint(value: str | None, type_: SqlType) -> str | None:
    """What is wrong with a value by itself."""
    try:
        _ = value if value is None else typed(value, type_)
    except TidemarkError as error:
        return error.message
    return None


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(deadline=None)
@given(values=st.lists(spelled, max_size=5))
def test_columns_are_read_as_their_values_one_by_one(
    type_: SqlType, values: list[str | None]
) -> None:
    good: list[str | None] = []
    for value in values:
        wrong = complaint(value, type_)
        if wrong is None:
            good.append(value)
            continue
        with pytest.raises(BadValue, match=re.escape(wrong)) as caught:
            read_column(pa.array([*good, value], pa.large_string()), type_)
        assert caught.value.at == len(good)
    literals = [Lit(None, type_) if value is None else typed(value, type_) for value in good]
    found = read_column(pa.array(good, pa.large_string()), type_)
    assert found.type == type_.arrow
    assert str(found) == str(literal_array(literals, type_))  # a NaN is not equal to itself


def test_only_postgresqls_space_is_left_out_around_elements() -> None:
    texts = pa.array(["{ \t\u00a0x\u3000\v,\x1c\r,\x85}"], pa.large_string())
    (found,) = read_column(texts, array_of(TEXT)).to_pylist()
    assert json.loads(found) == ["\u00a0x\u3000", "\x1c", "\x85"]


COLUMNS = (Column("k", INTEGER, False), Column("v", TEXT), Column("n", NUMERIC))


def read(data: bytes, options: str = "", *, cut: int = 7, max_bytes: int = 1 << 20) -> list[tuple]:
    statement = parse(f"COPY t FROM STDIN {options}")
    assert isinstance(statement, CopyFrom)
    reader = Reader("t", COLUMNS, (), statement.options, max_bytes=max_bytes)
    for at in range(0, len(data), cut):
        reader.add(data[at : at + cut])
        reader.parse()
    return [tuple(row.values()) for row in reader.finish().to_pylist()]


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_blocks_may_be_cut_anywhere(cut: int) -> None:
    data = b'1,"a ""b""\r\nc",1.5\r\n2,,\r\n3,"",-1e2'
    assert read(data, "CSV", cut=cut) == [
        (1, 'a "b"\r\nc', Decimal("1.5")),
        (2, None, None),
        (3, "", Decimal(-100)),
    ]


@pytest.mark.parametrize(
    ("data", "options", "sqlstate", "context"),
    [
        (b"1\ta\t1\nx\tb\t2\n", "", "22P02", 'COPY t, line 2, column k: "x"'),
        # The first bad line counts, not the first bad column.
        (b"1\ta\tx\n2\ta\n", "", "22P02", 'COPY t, line 1, column n: "x"'),
        (b"1\ta\t1\n2\ta\nx\ta\t1\n", "", "22P04", 'COPY t, line 2: "2\ta"'),
        (b"\\N\ta\t1\n", "", "23502", 'COPY t, line 1: "\\N\ta\t1"'),
        (b"1\t\xff\t1\n", "", "22021", "COPY t, line 1"),
        (b"1\ta\t1\n1\t\\000\t1\n", "", "22021", "COPY t, line 2"),
        (b'h\n1,"a\n\n",1\n2,b', "CSV HEADER", "22P04", 'COPY t, line 5: "2,b"'),
        (b"k,v,m\n", "(FORMAT csv, HEADER MATCH)", "22P04", "COPY t, line 1"),
        (b"1\ta\t1\r\n2\ta\t1\n", "", "22P04", "COPY t, line 2"),
    ],
)
@pytest.mark.parametrize("cut", [1, 1000])
def test_errors_say_where(data: bytes, options: str, sqlstate: str, context: str, cut: int) -> None:
    with pytest.raises(TidemarkError) as caught:
        read(data, options, cut=cut)
    assert (caught.value.sqlstate, caught.value.context) == (sqlstate, context)


def test_a_header_that_matches() -> None:
    assert read(b"k,v,n\n1,a,\n", "(FORMAT csv, HEADER MATCH)") == [(1, "a", None)]


def test_nothing_after_the_end_marker_counts() -> None:
    assert read(b"1\ta\t1\n\\.\nnonsense\n") == [(1, "a", Decimal(1))]


def test_too_much() -> None:
    with pytest.raises(TooLarge, match="more than 10 bytes"):
        read(b"1\ta\t1\n" * 10, max_bytes=10)


# Binary ------------------------------------------------------------------------------------------

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
ROW = struct.pack("!hiiih", 3, 4, 7, 1, 0)[:-2] + b"a" + struct.pack("!i", -1)
END = b"\xff\xff"


@pytest.mark.parametrize("cut", [1, 1000])
def test_binary(cut: int) -> None:
    assert read(HEADER + ROW + ROW + END, "BINARY", cut=cut) == [(7, "a", None)] * 2
    assert read(HEADER + END, "BINARY", cut=cut) == []


@pytest.mark.parametrize(
    ("data", "context"),
    [
        (b"", "COPY t, line 0"),
        (b"1\ta\t1\n", "COPY t, line 0"),
        (HEADER, "COPY t, line 0"),
        (HEADER[:11] + b"\1" + HEADER[12:] + END, "COPY t, line 0"),
        (HEADER + ROW, "COPY t, line 1"),
        (HEADER + ROW + b"\0\2", "COPY t, line 2"),
        (HEADER + ROW + b"\0\3\0\0\0\1x", "COPY t, line 2"),
        (HEADER + ROW + b"\0\3\xff\0\0\0x", "COPY t, line 2"),
    ],
)
def test_binary_errors(data: bytes, context: str) -> None:
    with pytest.raises(TidemarkError) as caught:
        read(data, "BINARY")
    assert caught.value.context == context
