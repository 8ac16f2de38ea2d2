"""Clients that ask for much and read nothing: the server's memory stays flat, others go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import ExecStatus
from serving import Serving, eventually

ROWS = 20_000
TEXT = "x" * 1_000
STUCK = 5
MOST_GROWTH = 400 << 20
"""Each could have its 20 MB several times over: as rows, as texts, as bytes to be sent."""


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE TABLE sc_t (k int, v text)")
    with connection.cursor().copy("COPY sc_t FROM STDIN") as copy:
        for k in range(ROWS):
            copy.write(f"{k}\t{TEXT}\n")
    yield "sc_t"
    connection.execute("DROP TABLE sc_t CASCADE")


def memory(server: Serving) -> int:
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def sessions(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT count(*) FROM mz_internal.mz_sessions").fetchone()
    assert found is not None
    return found[0]


@pytest.mark.parametrize("sql", [b"COPY (SUBSCRIBE sc_t) TO STDOUT", b"COPY sc_t TO STDOUT"])
def test_who_stops_reading_holds_up_nobody(
    server: Serving, connection: psycopg.Connection, table: str, sql: bytes
):
    others, before = sessions(connection), memory(server)
    with ExitStack() as stack:
        for _ in range(STUCK):
            stuck = server.connect()
            stack.callback(stuck.close)
            stuck.pgconn.send_query(sql)
            begun = stuck.pgconn.get_result()
            assert begun is not None
            assert begun.status == ExecStatus.COPY_OUT
        for k in range(5):
            connection.execute("INSERT INTO sc_t VALUES (%s, 'new')", [ROWS + k])
            found = connection.execute("SELECT v FROM sc_t WHERE k = %s", [ROWS + k]).fetchall()
            assert found == [("new",)]
        assert sessions(connection) == others + STUCK
        assert memory(server) - before < MOST_GROWTH
    eventually("an end of their sessions", lambda: sessions(connection) == others)
