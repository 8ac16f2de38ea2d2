"""What a server costs that has little to do: many sessions, many views, and its start."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
from psycopg.pq import ExecStatus
from rich.console import Console

from tidemark.bench.serve_process import ServerProcess, cpu_seconds, resident_mib
from tidemark.clock import SYSTEM_CLOCK

CALM = 10.0
"""Seconds after the last statement until what it has set in motion has come to rest."""


def sessions(
    console: Console, server: ServerProcess, *, idle: int, subscriptions: int
) -> dict[str, float]:
    """Memory with so many sessions that do nothing, and as many that follow a view."""
    console.print(f"{idle} sessions and {subscriptions} subscriptions ...")
    before = resident_mib(server.control), resident_mib(server.cluster)
    with ExitStack() as stack:
        for _ in range(idle):
            _opened(server, stack).execute("SELECT 1")
        for _ in range(subscriptions):
            connection = _opened(server, stack)
            connection.pgconn.send_query(b"COPY (SUBSCRIBE counted) TO STDOUT")
            begun = connection.pgconn.get_result()
            assert begun is not None
            assert begun.status == ExecStatus.COPY_OUT, begun.error_message
        with server.connect() as other:
            other.execute("INSERT INTO happened VALUES ('c', 1)")
        SYSTEM_CLOCK.sleep(CALM)
        begun, cpu = SYSTEM_CLOCK.monotonic(), cpu_seconds(server.control)
        SYSTEM_CLOCK.sleep(CALM)
        share = (cpu_seconds(server.control) - cpu) / (SYSTEM_CLOCK.monotonic() - begun)
        after = resident_mib(server.control), resident_mib(server.cluster)
    return {
        "sessions_mib": after[0],
        "sessions_control_growth_mib": after[0] - before[0],
        "sessions_cluster_growth_mib": after[1] - before[1],
        "sessions_core_share": share,
    }


def _opened(server: ServerProcess, stack: ExitStack) -> psycopg.Connection:
    """One that is just closed at the end, in the middle of whatever it does."""
    connection = server.connect()
    stack.callback(connection.close)
    return connection


def idle_views(
    console: Console, server: ServerProcess, *, views: int, seconds: float
) -> dict[str, float]:
    """The share of a core that all processes of a server take with so many views at rest."""
    console.print(f"{views} views at rest ...")
    with server.connect() as connection:
        connection.execute("CREATE TABLE still (k text, v bigint)")
        connection.execute("INSERT INTO still SELECT 'k', n FROM generate_series(1, 1000) AS n")
        begun = SYSTEM_CLOCK.monotonic()
        for i in range(views):
            query = f"SELECT k, count(*) AS n, sum(v) AS total FROM still WHERE v <> {i} GROUP BY k"
            connection.execute(f"CREATE MATERIALIZED VIEW still_{i} AS {query}".encode())
        for i in range(views):
            assert connection.execute(f"SELECT n FROM still_{i}".encode()).fetchone() is not None
        took = SYSTEM_CLOCK.monotonic() - begun
    SYSTEM_CLOCK.sleep(CALM)
    sides = {"control": server.control, "cluster": server.cluster}
    begun = SYSTEM_CLOCK.monotonic()
    before = {name: cpu_seconds(pids) for name, pids in sides.items()}
    SYSTEM_CLOCK.sleep(seconds)
    passed = SYSTEM_CLOCK.monotonic() - begun
    shares = {name: (cpu_seconds(pids) - before[name]) / passed for name, pids in sides.items()}
    return {
        "create_views_s": took,
        "idle_control_share": shares["control"],
        "idle_cluster_share": shares["cluster"],
        "idle_core_share": sum(shares.values()),
    }
