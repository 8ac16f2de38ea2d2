"""Many sessions at once: nothing lost, nothing seen too late, views that agree with tables."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from serving import DEADLINE, Serving

SESSIONS = 12
INSERTS = 25
ROUNDS = 12


@pytest.fixture
def table(connection: psycopg.Connection) -> Iterator[str]:
    connection.execute("CREATE TABLE co_t (writer int NOT NULL, k int NOT NULL)")
    connection.execute(
        "CREATE MATERIALIZED VIEW co_m AS SELECT count(*) AS n, max(k) AS k FROM co_t"
    )
    yield "co_t"
    connection.execute("DROP TABLE co_t CASCADE")


def test_many_sessions_insert(server: Serving, connection: psycopg.Connection, table: str):
    """Group commit: what was acknowledged is there, once; what was rolled back is not."""

    def write(writer: int) -> None:
        with server.connect() as session:
            for k in range(INSERTS):
                session.execute("INSERT INTO co_t VALUES (%s, %s)", [writer, k])
                if k % 5 == 0:
                    with session.transaction(force_rollback=True):
                        session.execute("INSERT INTO co_t VALUES (%s, -1)", [writer])

    with ThreadPoolExecutor(SESSIONS) as pool:
        for written in [pool.submit(write, writer) for writer in range(SESSIONS)]:
            written.result(DEADLINE)
    total = SESSIONS * INSERTS
    found = connection.execute("SELECT writer, count(*), min(k) FROM co_t GROUP BY writer")
    assert sorted(found.fetchall()) == [(w, INSERTS, 0) for w in range(SESSIONS)]
    assert connection.execute("SELECT n FROM co_m").fetchone() == (total,)


def test_many_sessions_update_one_row(server: Serving, connection: psycopg.Connection, table: str):
    connection.execute("INSERT INTO co_t VALUES (0, 0)")

    def add(_: int) -> None:
        with server.connect() as session:
            for _ in range(3):
                assert session.execute("UPDATE co_t SET k = k + 1").rowcount == 1

    with ThreadPoolExecutor(4) as pool:
        for added in [pool.submit(add, i) for i in range(4)]:
            added.result(DEADLINE)
    assert connection.execute("SELECT k FROM co_t").fetchall() == [(12,)]


def test_strict_serializable(server: Serving, connection: psycopg.Connection, table: str):
    """After an acknowledged INSERT, every other session sees it: in the table and in the view."""
    with server.connect() as one, server.connect() as two:
        for k in range(ROUNDS):
            writer, reader = (one, two) if k % 2 else (two, one)
            writer.execute("INSERT INTO co_t VALUES (0, %s)", [k])
            if k % 4 == 0:
                assert reader.execute("SELECT max(k) FROM co_t").fetchone() == (k,)
            # The view first: it may lag, but whoever asks waits for it.
            assert reader.execute("SELECT n, k FROM co_m").fetchone() == (k + 1, k)


def test_serializable_sees_a_consistent_past(
    server: Serving, connection: psycopg.Connection, table: str
):
    """Without strictness a read may be old, but table and view are of one time."""
    with server.connect() as reader:
        reader.execute("SET transaction_isolation = 'serializable'")
        seen = 0
        for k in range(5):
            connection.execute("INSERT INTO co_t VALUES (0, %s)", [k])
            sql = "SELECT t.n, m.n FROM (SELECT count(*) AS n FROM co_t) t, co_m m"
            counted, maintained = reader.execute(sql).fetchone()  # type: ignore[misc]
            assert counted == maintained
            assert counted >= seen, "time went backwards"
            seen = counted
