"""Indexes through a real server: right while rows change, and back after the replica was killed."""

from __future__ import annotations

import os
import random
import signal
import threading

import psycopg
import pytest
from serving import Serving, eventually

from tidemark.clock import SYSTEM_CLOCK

STATISTICS = "SELECT hydrated, rows FROM mz_internal.mz_index_statistics WHERE name = %s"


def hydrated(connection: psycopg.Connection, name: str) -> bool:
    found = connection.execute(STATISTICS, (name,)).fetchone()
    return found is not None and found[0]


def answers(connection: psycopg.Connection) -> bool:
    """Whether the cluster has come back: until it is known to be away, queries fail."""
    try:
        return bool(connection.execute("SELECT k FROM li_t WHERE k < 300").fetchall())
    except psycopg.OperationalError:
        return False


def test_look_ups_while_rows_change_and_the_replica_dies(server: Serving):
    with server.connect() as connection, server.connect() as other:
        connection.execute("CREATE TABLE li_t (k int, v int)")
        rows = ", ".join(f"({k}, 0)" for k in range(200))
        connection.execute(f"INSERT INTO li_t VALUES {rows}")
        connection.execute("CREATE INDEX li_k ON li_t (k)")
        connection.execute(
            "CREATE MATERIALIZED VIEW li_m AS SELECT v, count(*) AS n FROM li_t GROUP BY v"
        )
        connection.execute("CREATE INDEX li_v ON li_m (v)")
        eventually("it is hydrated", lambda: hydrated(connection, "li_k"))
        explained = connection.execute("EXPLAIN SELECT v FROM li_t WHERE k = 3").fetchall()
        assert "looked up in index li_k" in explained[-1][0]

        rng = random.Random(3)
        truth = dict.fromkeys(range(200), 0)
        for step in range(1, 25):
            k = rng.randrange(200)
            if rng.random() < 0.3:
                connection.execute(f"DELETE FROM li_t WHERE k = {k}")
                truth.pop(k, None)
            elif k in truth:
                connection.execute(f"UPDATE li_t SET v = {step} WHERE k = {k}")
                truth[k] = step
            else:
                connection.execute("INSERT INTO li_t VALUES (%s, %s)", (k, step))
                truth[k] = step
            # Another session sees it at once: strict serializable, index or not.
            for asked in (k, rng.randrange(250)):
                found = other.execute(
                    "SELECT v FROM li_t WHERE k = %s", (asked,), prepare=True
                ).fetchall()
                assert found == ([(truth[asked],)] if asked in truth else []), (step, asked)
            zeros = sum(value == 0 for value in truth.values())
            assert other.execute("SELECT n FROM li_m WHERE v = 0").fetchall() == [(zeros,)]
            if step == 12:
                os.kill(server.clusterd_pid, signal.SIGKILL)
                eventually("an answer", lambda: answers(other))
        eventually("it is back", lambda: hydrated(connection, "li_k"))
        (found,) = connection.execute(STATISTICS, ("li_k",)).fetchall()
        assert found[1] >= len(truth)
        connection.execute("DROP TABLE li_t CASCADE")
        assert connection.execute("SHOW INDEXES").fetchall() == []


def test_a_large_answer_is_refused_and_can_be_cancelled(server: Serving):
    with server.connect() as connection:
        connection.execute("CREATE TABLE la_t (k int)")
        connection.execute("INSERT INTO la_t VALUES " + ", ".join(f"({k})" for k in range(500)))
        product = "SELECT a.k, b.k, c.k FROM la_t a, la_t b, la_t c"
        connection.execute("SET max_result_size = '1MB'")
        with pytest.raises(psycopg.Error, match="max_result_size") as raised:
            connection.execute(product)
        assert raised.value.diag.sqlstate == "54000"
        assert "LIMIT" in (raised.value.diag.message_hint or "")
        assert connection.execute("SELECT count(*) FROM la_t").fetchone() == (500,)
        # At a time to come: it waits until it is cancelled.
        later = SYSTEM_CLOCK.now_ms() + 1_000_000
        timer = threading.Timer(0.5, connection.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"SELECT k FROM la_t WHERE k = 1 AS OF {later}")
        assert connection.execute("SELECT k FROM la_t WHERE k = 1").fetchall() == [(1,)]
        connection.execute("DROP TABLE la_t")
