"""Real psycopg 3 against the scripted session."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pytest
from pgwire_harness import PATIENCE, Running, running_server, table
from psycopg.pq import TransactionStatus

from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    numeric,
)


@pytest.fixture
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.fixture
def connection(server: Running) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection


def test_simple(connection: psycopg.Connection) -> None:
    assert connection.info.server_version == 160000
    assert connection.info.parameter_status("session_authorization") == "alice"
    cursor = connection.execute("range 3")
    assert cursor.fetchall() == [(0,), (1,), (2,)]
    assert cursor.statusmessage == "SELECT 3"
    assert connection.execute("insert").rowcount == 3


def test_several_statements(connection: psycopg.Connection) -> None:
    cursor = connection.execute("select 1; select 2")
    assert cursor.fetchall() == [(1,)]
    assert cursor.nextset()
    assert cursor.fetchall() == [(2,)]


@pytest.mark.parametrize("placeholder", ["%s", "%t", "%b"])
def test_parameters(connection: psycopg.Connection, placeholder: str) -> None:
    values = (
        7,
        2**40,
        "it's ä",
        Decimal("-12345.0670"),
        True,
        1.5,
        datetime.date(2024, 5, 1),
        datetime.datetime(2024, 5, 1, 10, 0, 0, 250_000),
        datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC),
        None,
    )
    cursor = connection.execute("echo " + " ".join([placeholder] * len(values)), values)
    row = cursor.fetchone()
    assert row is not None
    assert row[:4] == ("7", str(2**40), "it's ä", "-12345.0670")
    assert row[4:6] == ("t", "1.5")
    assert row[6] == "2024-05-01"
    # Text goes through as psycopg wrote it; binary comes out as PostgreSQL prints it.
    assert row[7] in ("2024-05-01 10:00:00.25", "2024-05-01 10:00:00.250000")
    assert row[8] in ("2024-05-01 10:00:00+00", "2024-05-01 10:00:00+00:00")
    assert row[9] is None


@pytest.mark.parametrize("binary", [False, True])
def test_results_of_every_type(server: Running, binary: bool) -> None:
    instant = datetime.datetime(2024, 5, 1, 10, 0, 0, 250_000)
    expected = {
        "a": (BOOLEAN, True),
        "b": (SMALLINT, -5),
        "c": (INTEGER, 5),
        "d": (BIGINT, 2**62),
        "e": (numeric(10, 2), Decimal("-0.50")),
        "f": (NUMERIC, Decimal("12345678.000125")),
        "g": (DOUBLE, 0.1),
        "h": (TEXT, "ä\0b".replace("\0", "")),
        "i": (DATE, datetime.date(1999, 12, 31)),
        "j": (TIMESTAMP, instant),
        "k": (TIMESTAMPTZ, instant.replace(tzinfo=datetime.UTC)),
    }
    server.script.tables["t"] = table(
        **{name: (kind, [value, None]) for name, (kind, value) in expected.items()}
    )
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.cursor(binary=binary)
        row, nulls = cursor.execute("table t").fetchall()
        assert row == tuple(value for _, value in expected.values())
        assert str(row[4]) == "-0.50"
        assert nulls == (None,) * len(expected)
        assert cursor.description is not None
        assert (cursor.description[4].precision, cursor.description[4].scale) == (10, 2)


def test_prepared_statements(connection: psycopg.Connection) -> None:
    for number in range(10):
        row = connection.execute("echo %s", (number,), prepare=True).fetchone()
        assert row == (str(number),)


def test_prepared_statements_beyond_the_client_cache(connection: psycopg.Connection) -> None:
    connection.prepared_max = 2
    for number in [1, 2, 3, 1, 2, 3]:
        assert connection.execute(f"select {number}", prepare=True).fetchone() == (number,)


def test_error_then_continued_use(connection: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        connection.execute("unknown")
    assert caught.value.diag.message_hint == "create it"
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("half")
    with pytest.raises(psycopg.errors.InternalError_, match="internal error: ValueError"):
        connection.execute("crash")
    assert connection.execute("select 1").fetchone() == (1,)


def test_transaction_status(server: Running) -> None:
    with psycopg.connect(server.dsn) as connection:
        assert connection.info.transaction_status is TransactionStatus.IDLE
        connection.execute("select 1")
        assert connection.info.transaction_status is TransactionStatus.INTRANS
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("unknown")
        assert connection.info.transaction_status is TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select 1")
        connection.rollback()
        assert connection.info.transaction_status is TransactionStatus.IDLE


CANCEL_WHEN_TOLD = """
import sys, threading, psycopg
connection = psycopg.connect(sys.argv[1], autocommit=True)
def wait():
    try:
        connection.execute("wait")
    except psycopg.errors.QueryCanceled as error:
        print(error)
waiting = threading.Thread(target=wait)
waiting.start()
sys.stdin.readline()
connection.cancel()
waiting.join()
print(connection.execute("select 1").fetchone())
"""


def test_cancel(server: Running) -> None:
    """In a process of its own: libpq's cancel holds the GIL, which the test server needs."""
    with subprocess.Popen(
        [sys.executable, "-c", CANCEL_WHEN_TOLD, server.dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert server.script.started.wait(PATIENCE)
        output, _ = child.communicate("now\n", timeout=PATIENCE)
    assert output == "canceling statement due to user request\n(1,)\n"


def test_copy_to(server: Running, connection: psycopg.Connection) -> None:
    server.script.tables["t"] = table(a=(TEXT, ["a\tb\n", None]), b=(INTEGER, [1, 2]))
    with connection.cursor().copy("copy table t") as copy:
        assert list(copy.rows()) == [("a\tb\n", "1"), (None, "2")]
    with connection.cursor().copy("copy 6000") as copy:
        assert sum(1 for _ in copy.rows()) == 6000
    with (
        pytest.raises(psycopg.errors.DivisionByZero),
        connection.cursor().copy("copy half") as copy,
    ):
        list(copy)
    assert connection.execute("select 1").fetchone() == (1,)


def test_leaving_an_endless_copy(server: Running, connection: psycopg.Connection) -> None:
    with connection.cursor().copy("copy wait") as copy:
        assert copy.read_row() == ("1",)
        assert server.script.started.wait(PATIENCE)
        connection.close()
    assert server.script.stopped.wait(PATIENCE)
    server.script.closed.get(timeout=PATIENCE)


def test_pipeline(connection: psycopg.Connection) -> None:
    with connection.pipeline():
        cursors = [connection.execute("echo %s", (number,)) for number in range(20)]
    assert [cursor.fetchone() for cursor in cursors] == [(str(n),) for n in range(20)]


def test_error_in_a_pipeline(connection: psycopg.Connection) -> None:
    def three_statements() -> None:
        with connection.pipeline():
            connection.execute("select 1")
            connection.execute("unknown")
            connection.execute("select 2")

    with pytest.raises(psycopg.errors.UndefinedTable):
        three_statements()
    assert connection.execute("select 3").fetchone() == (3,)


def test_notices(connection: psycopg.Connection) -> None:
    heard: list[str | None] = []
    connection.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
    connection.execute("notice hello")
    assert heard == ["hello"]
