"""Real clients against the real server: COPY both ways, cursors, pipelines; psql, psycopg, asyncpg."""

from __future__ import annotations

import asyncio
import io
import os
import select
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg import errors
from serving import DEADLINE, Serving, eventually

from services import program

ROWS = [
    (1, 'tab\t, "quotes" and \\ and\nnewline ü😀', Decimal("1.50"), date(2024, 2, 29), True),
    (2, None, None, None, None),
    (3, "", Decimal("-7.00"), date(1999, 1, 1), False),
    (4, "\\N", Decimal("0.00"), date(2024, 1, 1), True),
    (5, "\\.", None, None, False),
]


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute(
        "CREATE TABLE wc_t (k int NOT NULL, t text, n numeric(8, 2), day date, b boolean)"
    )
    yield "wc_t"
    connection.execute("DROP TABLE wc_t")


def contents(connection: psycopg.Connection) -> list[tuple]:
    return connection.execute("SELECT * FROM wc_t ORDER BY k").fetchall()


# psql --------------------------------------------------------------------------------------------


def psql(server: Serving, *commands: str) -> subprocess.CompletedProcess[str]:
    arguments = [part for command in commands for part in ("-c", command)]
    address = f"host=127.0.0.1 port={server.port} user=tidemark dbname=tidemark"
    return subprocess.run(
        [program("psql"), "-X", "-v", "ON_ERROR_STOP=1", *arguments, address],
        env=os.environ | {"PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize(
    "options",
    ["", "csv", "with (format csv, header, null '-')", "delimiter ';'", "with (format binary)"],
)
def test_psql_copies_out_and_in_again(
    server: Serving, connection: psycopg.Connection, table: str, tmp_path: Path, options: str
) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO wc_t VALUES (%s, %s, %s, %s, %s)", ROWS)
    file = tmp_path / "rows"
    out = psql(server, rf"\copy wc_t to '{file}' {options}")
    assert (out.stdout, out.stderr) == ("COPY 5\n", "")
    connection.execute("DELETE FROM wc_t")
    back = psql(server, rf"\copy wc_t (k, t, n, day, b) from '{file}' {options}")
    assert (back.stdout, back.stderr) == ("COPY 5\n", "")
    assert contents(connection) == ROWS


def test_psql_hears_which_line_is_bad(
    server: Serving, connection: psycopg.Connection, table: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{k},row {k}\n" for k in range(50_000)) + "x,y\n")
    done = psql(server, rf"\copy wc_t (k, t) from '{file}' csv")
    assert done.returncode == 1
    assert 'ERROR:  invalid input syntax for type integer: "x"' in done.stderr
    assert 'CONTEXT:  COPY wc_t, line 50001, column k: "x"' in done.stderr
    assert contents(connection) == []


# psycopg -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "(FORMAT binary)"])
def test_psycopg_copy(connection: psycopg.Connection, table: str, options: str) -> None:
    types = "int4 text numeric date bool".split()
    with connection.cursor() as cursor, cursor.copy(f"COPY wc_t FROM STDIN {options}") as copy:
        copy.set_types(types)
        for row in ROWS:
            copy.write_row(row)
    assert contents(connection) == ROWS
    query = f"COPY (SELECT * FROM wc_t ORDER BY k) TO STDOUT {options}"
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(types)
        assert list(copy.rows()) == ROWS


def test_a_large_copy_is_one_write(connection: psycopg.Connection, table: str) -> None:
    lines = "".join(f"{k}\trow {k}\n" for k in range(200_000)).encode()
    with connection.cursor() as cursor, cursor.copy("COPY wc_t (k, t) FROM STDIN") as copy:
        copy.write(lines)
        found = connection.info.transaction_status
        assert found == psycopg.pq.TransactionStatus.ACTIVE
    asked = "SELECT count(*), max(t) FROM wc_t"
    assert connection.execute(asked).fetchone() == (200_000, "row 99999")


def test_a_copy_given_up(connection: psycopg.Connection, table: str) -> None:
    def give_up() -> None:
        with connection.cursor() as cursor, cursor.copy("COPY wc_t (k) FROM STDIN") as copy:
            copy.write(b"1\n")
            raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        give_up()
    assert contents(connection) == []
    with (
        pytest.raises(errors.NotNullViolation),
        connection.cursor() as cursor,
        cursor.copy("COPY wc_t (t) FROM STDIN") as copy,
    ):
        copy.write(b"x\n")
    assert contents(connection) == []


def test_server_side_cursors(server: Serving, connection: psycopg.Connection, table: str) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY wc_t (k) FROM STDIN") as copy:
        copy.write(b"".join(b"%d\n" % k for k in range(1000)))
    with server.connect() as other:
        other.autocommit = False
        for binary in (False, True):
            with other.cursor("wc_cursor", binary=binary) as named:
                named.itersize = 300
                named.execute("SELECT k FROM wc_t WHERE k < %s ORDER BY k", [900])
                assert named.description is not None
                assert [column.name for column in named.description] == ["k"]
                assert named.fetchone() == (0,)
                assert named.fetchmany(2) == [(1,), (2,)]
                assert [k for (k,) in named] == list(range(3, 900))
        other.rollback()
        with other.cursor("wc_kept", withhold=True) as kept:
            kept.execute("SELECT k FROM wc_t ORDER BY k")
            other.commit()
            assert len(kept.fetchall()) == 1000


def test_a_subscription_by_cursor(
    server: Serving, connection: psycopg.Connection, table: str
) -> None:
    connection.execute("INSERT INTO wc_t (k) VALUES (1)")
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("DECLARE s CURSOR FOR SUBSCRIBE (SELECT k FROM wc_t)")
        assert [row[1:] for row in other.execute("FETCH ALL s")] == [(1, 1)]
        assert other.execute("FETCH ALL s WITH (timeout = '0s')").fetchall() == []
        connection.execute("INSERT INTO wc_t (k) VALUES (2), (3)")
        assert [row[1:] for row in other.execute("FETCH 2 s", binary=True)] == [(1, 2), (1, 3)]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: other.execute("FETCH 1 s").fetchall())
            connection.execute("DELETE FROM wc_t WHERE k = 1")
            assert [row[1:] for row in waiting.result(DEADLINE)] == [(-1, 1)]
            waiting = pool.submit(other.execute, "FETCH ALL s")

            def stopped() -> bool:
                # One that comes before the FETCH is ignored.
                other.cancel_safe()
                return waiting.done()

            eventually("an end of the FETCH that waits", stopped)
            with pytest.raises(errors.QueryCanceled):
                waiting.result()
        assert other.execute("COMMIT").statusmessage == "ROLLBACK"
        assert other.execute("SELECT 'alive'").fetchone() == ("alive",)


def test_errors_in_a_pipeline(connection: psycopg.Connection, table: str) -> None:
    def run() -> None:
        with connection.pipeline() as pipeline:
            connection.execute("INSERT INTO wc_t (k) VALUES (1)")
            pipeline.sync()
            connection.execute("SELECT nothing")
            connection.execute("INSERT INTO wc_t (k) VALUES (2)")  # is skipped

    with pytest.raises(errors.UndefinedColumn):
        run()
    with connection.pipeline():
        after = connection.execute("INSERT INTO wc_t (k) VALUES (%s)", [3])
    assert after.rowcount == 1
    assert [row[0] for row in contents(connection)] == [1, 3]


def test_psycopg_async(server: Serving, connection: psycopg.Connection, table: str) -> None:
    async def scenario() -> None:
        address = f"host=127.0.0.1 port={server.port} user=tidemark dbname=tidemark"
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as other:
            cursor = other.cursor()
            async with cursor.copy("COPY wc_t (k, t) FROM STDIN CSV") as copy:
                await copy.write("1,a\n2,b\n")
            async with other.transaction(), other.cursor("wc_async") as named:
                await named.execute("SELECT t FROM wc_t ORDER BY k")
                assert [row async for row in named] == [("a",), ("b",)]

    asyncio.run(scenario())


def test_an_idle_transaction_is_ended(server: Serving) -> None:
    with server.connect() as other:
        other.execute("SET idle_in_transaction_session_timeout = '1ms'")
        other.execute("BEGIN")
        select.select([other], [], [], DEADLINE)
        with pytest.raises(errors.IdleInTransactionSessionTimeout):
            other.execute("SELECT 1")


# asyncpg -----------------------------------------------------------------------------------------


def with_asyncpg(
    server: Serving, scenario: Callable[[asyncpg.Connection], Awaitable[None]]
) -> None:
    async def run() -> None:
        address = {"host": "127.0.0.1", "port": server.port, "user": "tidemark"}
        connection = await asyncpg.connect(**address, database="tidemark")
        try:
            await scenario(connection)
        finally:
            await connection.close()

    asyncio.run(run())


def test_asyncpg_queries(server: Serving, table: str) -> None:
    async def scenario(connection: asyncpg.Connection) -> None:
        sql = "SELECT $1::int + 1, $2::text, $3::numeric, $4::date, $5::timestamptz, $6::boolean"
        values = (1, "ü", Decimal("1.5"), date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), True)
        assert tuple(await connection.fetchrow(sql, *values)) == (2, *values[1:])
        await connection.executemany("INSERT INTO wc_t VALUES ($1, $2, $3, $4, $5)", ROWS)
        found = await connection.fetch("SELECT * FROM wc_t ORDER BY k")
        assert [tuple(row) for row in found] == ROWS
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await connection.fetch("SELEC 1")
        statement = await connection.prepare("SELECT $1::bigint * 2")
        assert [await statement.fetchval(n) for n in range(3)] == [0, 2, 4]

    with_asyncpg(server, scenario)


def test_asyncpg_copy(server: Serving, connection: psycopg.Connection, table: str) -> None:
    async def scenario(other: asyncpg.Connection) -> None:
        assert await other.fetchval("SHOW client_encoding") == "UTF8"
        copied = await other.copy_records_to_table("wc_t", records=ROWS)
        assert copied == "COPY 5"
        out = io.BytesIO()
        await other.copy_from_query(
            "SELECT k, t FROM wc_t WHERE k > 2 ORDER BY k", output=out, format="csv"
        )
        assert out.getvalue() == b'3,""\n4,\\N\n5,\\.\n'
        back = io.BytesIO(b"6|six\n7|\n")
        tag = await other.copy_to_table(
            "wc_t", source=back, columns=["k", "t"], format="csv", delimiter="|"
        )
        assert tag == "COPY 2"

    with_asyncpg(server, scenario)
    assert contents(connection)[:5] == ROWS
    assert [row[:2] for row in contents(connection)[5:]] == [(6, "six"), (7, None)]


def test_asyncpg_cursors_and_transactions(server: Serving, table: str) -> None:
    async def scenario(connection: asyncpg.Connection) -> None:
        async with connection.transaction():
            await connection.copy_records_to_table(
                "wc_t", records=[(k,) for k in range(100)], columns=["k"]
            )
        async with connection.transaction():
            found = [r["k"] async for r in connection.cursor("SELECT k FROM wc_t ORDER BY k")]
            assert found == list(range(100))
            cursor = await connection.cursor("SELECT k FROM wc_t ORDER BY k")
            assert [r["k"] for r in await cursor.fetch(3)] == [0, 1, 2]
        undone = connection.transaction()
        await undone.start()
        await connection.execute("DELETE FROM wc_t")
        await undone.rollback()
        assert await connection.fetchval("SELECT count(*) FROM wc_t") == 100

    with_asyncpg(server, scenario)
