"""A server that stands by hydrates beside the one that leads, and takes over while clients work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from serving import DEFAULT_REPLICA, Serving, eventually

from docs_blocks import commands, tried_by, unlike

TABLE = "CREATE TABLE log (n bigint)"
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS rows, sum(n) AS total FROM log"
SECOND = f"{DEFAULT_REPLICA}.g1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path / "data")
    try:
        yield running.start()
    finally:
        running.destroy()


@pytest.fixture
def standby(server: Serving) -> Iterator[Serving]:
    """Not started: on the same data and the same ports, as the docs' upgrades are."""
    waiting = Serving(server.data, *_shown_options())
    waiting.port, waiting.http_port = server.port, server.http_port
    try:
        yield waiting
    finally:
        waiting.destroy()


class Writer:
    """Writes 1, 2, 3, ... to whoever leads; what was acknowledged and what may have been."""

    def __init__(self, server: Serving):
        self.acknowledged: list[int] = []
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def flows(self) -> None:
        more = len(self.acknowledged) + 3
        eventually("writes", lambda: len(self.acknowledged) >= more)

    def _run(self) -> None:
        n = 0
        while not self._stop.is_set():
            with contextlib.suppress(psycopg.Error), self._server.connect() as connection:
                while not self._stop.wait(0.05):
                    n += 1  # Never tried twice: a write that failed may have happened.
                    connection.execute("INSERT INTO log VALUES (%s)", (n,))
                    self.acknowledged.append(n)


def test_it_takes_over_hydrated_and_nothing_is_lost(server: Serving, standby: Serving):
    with server.connect() as connection:
        connection.execute(TABLE)
        connection.execute(VIEW)
        connection.execute("CREATE INDEX by_rows ON v (rows)")
        # Nothing can be hydrated of these yet, so nobody waits for them.
        connection.execute(
            "CREATE MATERIALIZED VIEW later WITH (REFRESH AT '2099-01-01') AS SELECT n FROM log"
        )
        connection.execute("CREATE MATERIALIZED VIEW after AS SELECT count(*) AS n FROM later")
        connection.execute("CREATE INDEX by_n ON later (n)")
        connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
        connection.execute("SELECT * FROM v")
    old = server.clusterd_pid
    with Writer(server) as writer:
        writer.flows()
        standby.start()
        assert server.process is not None
        assert server.process.wait() == 1
        assert "another control process has taken over" in server.log
        for block in tried_by("tests/integration/test_upgrade.py"):
            for _, shown in commands(block):
                log = [line for line in shown if not line.startswith("ready: ")]
                assert unlike(standby.log, log) is None
        writer.flows()
    eventually("an end of the replicas before", lambda: old not in server.running)
    new = standby.replica_pid(SECOND)
    with standby.connect() as connection:
        rows = connection.execute("SELECT n FROM log").fetchall()
        assert len(rows) == len(set(rows))
        assert set(writer.acknowledged) <= {n for (n,) in rows}
        assert connection.execute("SELECT * FROM v").fetchall() == [
            (len(rows), sum(n for (n,) in rows))
        ]
        assert connection.execute("SELECT total FROM v WHERE rows = -1").fetchall() == []
        before = connection.execute("SELECT max(counter) FROM c").fetchone()
        eventually(
            "the source's going on",
            lambda: connection.execute("SELECT max(counter) FROM c").fetchone() > before,  # type: ignore[operator]
        )
        assert connection.execute("VERIFY MATERIALIZED VIEW v").fetchall() == []

    # From now on it is a server like any other, and its replicas outlive it.
    standby.kill_control()
    plain = Serving(server.data)
    plain.port, plain.http_port = server.port, server.http_port
    try:
        plain.start()
        with plain.connect() as connection:
            connection.execute("INSERT INTO log VALUES (-1)")
            assert connection.execute("SELECT rows FROM v").fetchall() == [(len(rows) + 1,)]
        assert plain.replica_pid(SECOND) == new
        assert plain.stop() == 0
    finally:
        plain.destroy()


def test_one_that_dies_or_is_stopped_while_it_waits_changes_nothing(
    server: Serving, standby: Serving
):
    with server.connect() as connection:
        connection.execute(TABLE)
        connection.execute("INSERT INTO log VALUES (1)")
        connection.execute(VIEW)
        for signum in (signal.SIGKILL, signal.SIGTERM):
            left = set(standby.pids(SECOND))  # By the one that was killed.
            waiting = standby.launch()
            replica = eventually(
                "its replica", lambda left=left: sorted(set(standby.pids(SECOND)) - left)
            )[0]
            os.kill(replica, signal.SIGSTOP)  # It would take over while we look.
            second = standby.launch()
            assert second.wait() == 1, "only one may wait"
            os.kill(replica, signal.SIGCONT)
            os.kill(waiting.pid, signum)
            assert waiting.wait() == (0 if signum == signal.SIGTERM else -signum)
            _drained(waiting, second)
        eventually("an end of what it started", lambda: not standby.running)
        connection.execute("INSERT INTO log VALUES (2)")
        assert connection.execute("SELECT * FROM v").fetchall() == [(2, 3)]


def _shown_options() -> list[str]:
    """What the docs give to a server for an upgrade, beside its data."""
    shown = {
        command.partition("#")[0].partition(" serve ")[2].replace("--data shop ", "").strip()
        for block in tried_by("tests/integration/test_upgrade.py")
        for command, _ in commands(block)
    }
    assert len(shown) == 1, "one way to upgrade"
    return shown.pop().split()


def _drained(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.read() == "", "it was never ready"
        process.stdout.close()
