"""COPY beside PostgreSQL's: the same bytes give the same rows or the same kind of error, and rows
are written as the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.control.copy_in import Reader
from tidemark.control.parse import parse
from tidemark.control.pgwire.copy_out import CopyEncoder
from tidemark.control.statements import CopyFrom, CopyTo
from tidemark.errors import TidemarkError
from tidemark.types import TEXT, Column, arrow_schema

COLUMNS = (Column("a", TEXT), Column("b", TEXT))
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))

CORRUPT_MARKER = "end-of-copy marker corrupt"

READ = (
    "",
    "DELIMITER '|' NULL 'x'",
    "WITH (FORMAT csv)",
    "CSV HEADER",
    "WITH (FORMAT csv, NULL 'x', DELIMITER '|')",
    "CSV QUOTE '|' ESCAPE 'x'",
    "WITH (FORMAT csv, ESCAPE '\\')",
)

pieces = st.lists(
    st.sampled_from(
        ["a", "x", ",", ",", "|", "\t", "\t", '"', '"', "\\", "\n", "\n", "\\N", "\\.", "é", "1"]
    ),
    max_size=16,
).map("".join)


@pytest.fixture(scope="module")
def postgres(postgres_uri: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE cp (a text, b text)")
        yield connection


def read_by_postgres(connection: psycopg.Connection, sql: str, data: bytes) -> object:
    connection.execute("TRUNCATE cp")
    try:
        with connection.cursor().copy(sql) as copy:
            copy.write(data)
    except psycopg.Error as error:
        return error.sqlstate, line(error.diag.context)
    return connection.execute("SELECT a, b FROM cp").fetchall()


def line(context: str | None) -> str:
    """Which line an error is about."""
    found = re.search("line [0-9]+", context or "")
    assert found is not None, context
    return found[0]


def without_line(found: object) -> object:
    return found[0] if isinstance(found, tuple) else found


def read_here(sql: str, data: bytes, cut: int) -> object:
    statement = parse(sql)
    assert isinstance(statement, CopyFrom)
    reader = Reader("cp", COLUMNS, (), statement.options, max_bytes=1 << 20)
    try:
        for at in range(0, len(data), cut):
            reader.add(data[at : at + cut])
            reader.parse()
        rows = reader.finish()
    except TidemarkError as error:
        if error.message == CORRUPT_MARKER:
            return error.message
        return error.sqlstate, line(error.context)
    return [tuple(row.values()) for row in rows.to_pylist()]


@pytest.mark.parametrize("options", READ)
@FUZZ
@given(data=pieces, cut=st.integers(1, 20))
def test_read(postgres: psycopg.Connection, options: str, data: str, cut: int) -> None:
    sql = f"COPY cp FROM STDIN {options}"
    if "HEADER" in options:
        data = f"h\n{data}"
    found = read_here(sql, data.encode(), cut)
    # After data in its line PostgreSQL takes the marker for an end, too; here it is an error.
    if found == CORRUPT_MARKER:
        return
    expected = read_by_postgres(postgres, sql, data.encode())
    if "csv" in sql.lower():
        # Newlines within quotes PostgreSQL counts only once it has seen how lines end.
        found, expected = without_line(found), without_line(expected)
    assert found == expected


@FUZZ
@given(
    lines=st.lists(st.sampled_from(["a\tb", "\t", '"\r"\tx', "\\\r\tx", "a\rb\tc"]), max_size=4),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=4, max_size=4),
    options=st.sampled_from(["", "CSV DELIMITER E'\t'"]),
)
def test_line_ends(
    postgres: psycopg.Connection, lines: list[str], ends: list[str], options: str
) -> None:
    data = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    sql = f"COPY cp FROM STDIN {options}"
    found, expected = read_here(sql, data, 100), read_by_postgres(postgres, sql, data)
    assert without_line(found) == without_line(expected)


values = st.one_of(st.none(), pieces, st.sampled_from(["", "\r\n", "\b\f\v", "\\.", "x"]))


@pytest.mark.parametrize("options", [*READ, "WITH (FORMAT binary)"])
@FUZZ
@given(rows=st.lists(st.tuples(values, values), max_size=3))
def test_write(postgres: psycopg.Connection, options: str, rows: list[tuple]) -> None:
    postgres.execute("TRUNCATE cp")
    with postgres.cursor() as cursor:
        cursor.executemany("INSERT INTO cp VALUES (%s, %s)", rows)
    sql = f"COPY cp TO STDOUT {options}"
    with postgres.cursor().copy(sql) as copy:
        expected = b"".join(copy)
    statement = parse(sql)
    assert isinstance(statement, CopyTo)
    encoder = CopyEncoder(COLUMNS, statement.options)
    arrays = [pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)]
    batch = pa.record_batch(arrays, schema=arrow_schema(COLUMNS)) if rows else None
    messages = [*encoder.begin(), *(encoder.rows(batch) if batch else ()), *encoder.end()]
    assert b"".join(message[5:] for message in messages) == bytes(expected)
