"""Clusters of several replicas, in real processes that are killed, added and dropped."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from serving import Serving, eventually

from tidemark.clock import SYSTEM_CLOCK

VIEW = "SELECT count(*) AS rows, sum(n) AS total FROM log"
GROUPS = "SELECT n % 7 AS k, count(*) AS rows, max(n) AS newest FROM log GROUP BY n % 7"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path / "data")
    try:
        yield running.start()
    finally:
        running.destroy()


def test_replicas_come_die_and_go_while_a_view_is_written_and_read(server: Serving):
    with server.connect() as connection:
        connection.execute("CREATE TABLE log (n bigint)")
        connection.execute("INSERT INTO log VALUES (0)")
        connection.execute("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
        connection.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        connection.execute(f"CREATE MATERIALIZED VIEW g AS {GROUPS}")
        with traffic(server) as load:
            load.flows()
            connection.execute("CREATE CLUSTER REPLICA quickstart.r2")
            await_online(connection, "r1", "r2")
            load.flows()
            before = pids(connection)
            kill(server, "quickstart-r1")
            # What the other one keeps goes on, and it takes over the source.
            await_frontiers(connection, "v", "g", "c")
            load.flows()
            await_online(connection, "r1", "r2")
            after = pids(connection)
            assert after["r1"] != before["r1"]
            assert after["r2"] == before["r2"]
            await_frontiers(connection, "v", "g", "c")
            connection.execute("DROP CLUSTER REPLICA quickstart.r1")
            load.flows()
            assert list(pids(connection)) == ["r2"]
            eventually("its end", lambda: after["r1"] not in server.running)
            await_frontiers(connection, "v", "g", "c")
        compare(connection)


def test_clusters_are_processes_of_their_own_that_outlive_control(server: Serving):
    with server.connect() as connection:
        connection.execute("CREATE TABLE log (n bigint)")
        connection.execute("INSERT INTO log VALUES (0)")
        connection.execute("CREATE CLUSTER other (MEMORY = '900m')")
        connection.execute("CREATE CLUSTER REPLICA quickstart.r2 WITH (READ ONLY)")
        connection.execute(f"CREATE MATERIALIZED VIEW g AS {GROUPS}")
        connection.execute("SET cluster = other")
        connection.execute("SET statement_timeout = 50")
        with pytest.raises(psycopg.errors.QueryCanceled) as raised:
            connection.execute("SELECT n + 1 FROM log")
        hint = raised.value.diag.message_hint
        assert hint is not None
        assert hint.startswith('it waited for a replica of cluster "other" to be ready; ')
        connection.execute("RESET statement_timeout")
        connection.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        assert connection.execute("SELECT * FROM v").fetchall() == [(1, 0)]
        await_online(connection, "r1", "r2")
        assert "-Xmx900m" in jvm_command(server, "other-r1")
        assert "-Xmx900m" not in jvm_command(server, "quickstart-r1")
        assert connection.execute("SHOW CLUSTER REPLICAS").fetchall() == [
            ("quickstart", "r1", "online", "f"),
            ("quickstart", "r2", "online", "t"),
            ("other", "r1", "online", "f"),
        ]
        # A replica that only follows writes nothing until it is told to, in the same process.
        connection.execute("DROP CLUSTER REPLICA quickstart.r1")
        before = pids(connection), pids(connection, "other")
        connection.execute("INSERT INTO log VALUES (1)")
        stands_at = frontiers(connection)["g"]
        await_frontiers(connection, "log", "v")
        assert frontiers(connection)["g"] == stands_at
        connection.execute("ALTER CLUSTER REPLICA quickstart.r2 SET (READ ONLY = false)")
        await_frontiers(connection, "g")
        compare(connection)
        connection.execute("COMMENT ON TABLE log IS 'what happened'")
        connection.execute("ALTER SYSTEM SET max_result_size = '7MB'")
        eventually("the statement on disk", lambda: "7MB" in server.statement_log)

    server.kill_control()
    server.start()
    with server.connect() as connection:
        await_online(connection, "r2")
        assert (pids(connection), pids(connection, "other")) == before
        assert connection.execute("SHOW CLUSTER REPLICAS").fetchall() == [
            ("quickstart", "r2", "online", "f"),
            ("other", "r1", "online", "f"),
        ]
        connection.execute("INSERT INTO log VALUES (7)")
        compare(connection)
        # What was said is kept, and what was asked.
        assert connection.execute("SHOW max_result_size").fetchone() == ("7MB",)
        said = "SELECT comment FROM mz_internal.mz_comments"
        assert connection.execute(said).fetchall() == [("what happened",)]
        asked = "SELECT finished_status FROM mz_internal.mz_recent_activity_log WHERE sql LIKE %s"
        assert connection.execute(asked, ("CREATE CLUSTER other%",)).fetchall() == [("success",)]
        # A view goes on elsewhere, from where it is.
        connection.execute("ALTER MATERIALIZED VIEW v SET CLUSTER quickstart")
        connection.execute("INSERT INTO log VALUES (8)")
        compare(connection)
        connection.execute("DROP CLUSTER other")
        eventually("its end", lambda: before[1]["r1"] not in server.running)
        connection.execute("INSERT INTO log VALUES (9)")
        compare(connection)
        shown = connection.execute("SHOW MATERIALIZED VIEWS").fetchall()
        assert shown == [("g", "quickstart", "running", None), ("v", "quickstart", "running", None)]
    assert server.stop() == 0
    eventually("an end of all processes", lambda: not server.running)


def test_replicas_that_nobody_knows_any_more_are_stopped(server: Serving):
    with server.connect() as connection:
        connection.execute("SELECT count(*) FROM generate_series(1, 1)")
        orphan = server.clusterd_pid
    server.kill_control()
    # As an earlier version called it.
    folder = server.data / "clusters"
    for kind in ("lock", "json"):
        (folder / f"quickstart-r1.{kind}").rename(folder / f"quickstart.{kind}")
    server.start()
    with server.connect() as connection:
        connection.execute("SELECT count(*) FROM generate_series(1, 1)")
        assert server.clusterd_pid != orphan
        eventually("its end", lambda: orphan not in server.running)


class Traffic:
    """One writes 1, 2, 3, ...; one reads the views, which must never fail, lie or go back."""

    def __init__(self, server: Serving):
        self.written = self.reads = 0
        self.problem: BaseException | None = None
        self._server = server
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,))
            for each in (self._write, self._read)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def flows(self) -> None:
        """Until some more was read and written."""
        reads, written = self.reads + 3, self.written + 3

        def more() -> bool:
            assert self.problem is None, self.problem
            return self.reads >= reads and self.written >= written

        eventually("reads and writes", more)

    def _guarded(self, work) -> None:
        try:
            with self._server.connect() as connection:
                while not self._stop.is_set():
                    work(connection)
        except BaseException as error:
            self.problem = error

    def _write(self, connection: psycopg.Connection) -> None:
        connection.execute(f"INSERT INTO log VALUES ({self.written + 1})")
        self.written += 1
        self._stop.wait(0.05)

    def _read(self, connection: psycopg.Connection) -> None:
        written = self.written
        ((rows, total),) = connection.execute("SELECT rows, total FROM v").fetchall()
        assert rows > written, "what was acknowledged is there"
        assert total == rows * (rows - 1) // 2
        self.reads += 1


@contextlib.contextmanager
def traffic(server: Serving) -> Iterator[Traffic]:
    load = Traffic(server)
    load.start()
    try:
        yield load
    finally:
        load.stop()
    assert load.problem is None, load.problem


def jvm_command(server: Serving, replica: str) -> str:
    return Path(f"/proc/{server.replica_jvm_pid(replica)}/cmdline").read_text()


def kill(server: Serving, replica: str) -> None:
    """The driver and its JVM at once."""
    os.killpg(server.replica_pid(replica), signal.SIGKILL)


def pids(connection: psycopg.Connection, cluster: str = "quickstart") -> dict[str, int]:
    return dict(
        connection.execute(
            "SELECT r.name, s.pid FROM mz_internal.mz_cluster_replica_statuses s "
            "JOIN mz_cluster_replicas r ON s.replica_id = r.id "
            "JOIN mz_clusters c ON r.cluster_id = c.id "
            f"WHERE c.name = '{cluster}' ORDER BY r.name"
        ).fetchall()
    )


def await_online(connection: psycopg.Connection, *names: str) -> None:
    """Until these are the replicas of the default cluster, and all of them keep all views."""

    def online() -> bool:
        found = pids(connection)
        hydrated = connection.execute(
            "SELECT hydrated, h.error FROM mz_internal.mz_hydration_statuses h "
            "JOIN mz_cluster_replicas r ON h.replica_id = r.id "
            "JOIN mz_clusters c ON r.cluster_id = c.id WHERE c.name = 'quickstart'"
        ).fetchall()
        return list(found) == list(names) and all(found.values()) and all(h for h, _ in hydrated)

    eventually(f"replicas {names}", online)


def await_frontiers(connection: psycopg.Connection, *names: str) -> None:
    """Until all of these are complete up to now."""
    now = SYSTEM_CLOCK.now_ms()

    def reached() -> bool:
        found = frontiers(connection)
        return all(found[name] > now for name in names)

    eventually(f"{names} complete up to {now}", reached)


def frontiers(connection: psycopg.Connection) -> dict[str, int]:
    return dict(
        connection.execute(
            "SELECT o.name, f.write_frontier FROM mz_internal.mz_frontiers f "
            "JOIN mz_objects o ON f.object_id = o.id"
        ).fetchall()
    )


def compare(connection: psycopg.Connection) -> None:
    """Each view equals its query, run as a batch at the same time."""
    connection.execute("BEGIN")
    for view, query in {"v": VIEW, "g": GROUPS}.items():
        found = connection.execute(f"SELECT * FROM {view}").fetchall()
        assert sorted(found) == sorted(connection.execute(query).fetchall())
    connection.execute("COMMIT")
