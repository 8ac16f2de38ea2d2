"""A server's processes are killed while updates flow, and started again.

Writers note what was acknowledged; in the end every acknowledged change is there once, every other
one wholly or not at all, each view equals its query run as a batch at the same time, the source
equals its generator at the offset it is bound to, and no view was built a second time.

    CRASH_SEED=17 pytest tests/crash/test_server_crash.py        replays the choices of a run
    CRASH_SECONDS=3600 pytest -m soak tests/crash                goes on for an hour
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pyarrow as pa
import pytest
from serving import DEADLINE, Serving, eventually
from workload import TABLES, Writer, contents

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.catalog import STORAGE_SHARD, read_items
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, PersistClient
from tidemark.storage.definitions import read_definitions
from tidemark.storage.generators import generator
from tidemark.storage.remap import Remap
from tidemark.storage.spec import GeneratorSource

VIEWS = {
    "by_writer": "SELECT writer, count(*) AS rows, sum(n) AS total, max(n) AS newest "
    "FROM log GROUP BY writer",
    "by_region": "SELECT u.region, count(*) AS bids, sum(b.amount) AS total, max(b.amount) AS top "
    "FROM bids b JOIN users u ON b.buyer = u.id GROUP BY u.region",
    "log_by_region": "SELECT u.region, count(*) AS rows, sum(l.n) AS total, max(l.n) AS newest "
    "FROM log l JOIN users u ON l.n = u.id GROUP BY u.region",
}

KILLS = ("clusterd", "jvm", "control", "everything")

WRITERS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    running = Serving(tmp_path / "data")
    try:
        yield running.start()
    finally:
        running.destroy()


@pytest.mark.parametrize("soak", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_nothing_acknowledged_is_lost_and_nothing_starts_over(
    server: Serving, chance: random.Random, soak: bool
):
    chaos = Chaos(server, chance, thorough=soak)
    chaos.prepare()
    stop_at = SYSTEM_CLOCK.monotonic()
    if soak:
        stop_at += float(os.environ.get("CRASH_SECONDS") or 600)
    try:
        while True:
            for kill in chance.sample(KILLS, len(KILLS) if soak else 2):
                chaos.round(kill, patient=chance.random() < 0.75)
            if SYSTEM_CLOCK.monotonic() >= stop_at:
                break
        chaos.check_all()
    finally:
        for writer in chaos.writers:
            writer.stop()


class Chaos:
    """A server under load, its killing, and what must hold all the time."""

    def __init__(self, server: Serving, chance: random.Random, *, thorough: bool):
        self.server = server
        self.thorough = thorough
        self.chance = chance
        self.writers = [
            Writer(server, number, chance.randrange(10**9), rewrites=number == 0)
            for number in range(WRITERS)
        ]
        self.objects: list[tuple] = []
        self.offset = 0

    def prepare(self) -> None:
        with self.server.connect() as connection:
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} (writer int, n int, payload text)")
            connection.execute(
                "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '100ms') "
                "FOR ALL TABLES"
            )
            for name, query in VIEWS.items():
                connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        self.objects = self._objects()
        self._settle()
        for writer in self.writers:
            writer.start()

    def round(self, kill: str, *, patient: bool) -> None:
        """Kill in the middle of work; then, if patient, see that all is well before the next."""
        print(f"{SYSTEM_CLOCK.monotonic():.0f}: kill {kill}, {patient=}", flush=True)
        self._await_acknowledgements()
        # How much work is under way when it happens is left to chance.
        SYSTEM_CLOCK.sleep(self.chance.random() * 2)
        match kill:
            case "clusterd":
                self._kill("tidemark.compute.clusterd")
            case "jvm":
                self._kill("java")
            case "control":
                self._kill_control_again_and_again()
            case "everything":
                self.server.kill_all()
                self.server.start()
        if patient:
            self._settle()
            if kill != "control":
                self._check_resumed()
            self._check_source()
            if self.thorough:
                self._check_views()

    def check_all(self) -> None:
        for writer in self.writers:
            writer.stop()
        self._settle()
        with self.server.connect() as connection:
            rows = {t: connection.execute(f"SELECT * FROM {t}").fetchall() for t in TABLES}
        found = contents(rows)
        for writer in self.writers:
            writer.check(found.get(writer.number, Counter()))
        assert found.keys() <= {writer.number for writer in self.writers}
        self._check_views()
        self._check_source()
        self._check_resumed()
        assert self._objects() == self.objects
        acknowledged = sum(writer.acknowledged for writer in self.writers)
        unknown = sum(len(writer.unknown) for writer in self.writers)
        print(f"{acknowledged} changes acknowledged, {unknown} unknown, {self.offset} steps")
        assert all(writer.acknowledged for writer in self.writers)

    def _kill(self, command: str) -> None:
        for pid in self.server.pids(command):
            # One may have gone with another.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_control_again_and_again(self) -> None:
        """It comes back in a moment, so more moments can be tried; the cluster stays."""
        before = self.server.pids("tidemark.compute.clusterd")
        for _ in range(3):
            self.server.kill_control()
            self.server.start()
            self._await_acknowledgements()
            SYSTEM_CLOCK.sleep(self.chance.random())
        after = self.server.pids("tidemark.compute.clusterd")
        # One that was just starting may be waiting behind another that was, too.
        assert before[:1] == after[:1] or not before, (before, after)

    def _await_acknowledgements(self) -> None:
        """Until the next kill has something to interrupt."""
        insert_only = self.writers[1:]
        before = [writer.acknowledged for writer in insert_only]

        def flowing() -> bool:
            now = [writer.acknowledged for writer in insert_only]
            return all(b < n for b, n in zip(before, now, strict=True))

        eventually("acknowledged writes", flowing)

    def _settle(self) -> None:
        """Until everything is complete up to now, whenever the last kill was."""
        now = SYSTEM_CLOCK.now_ms()
        with self._client() as client:
            shards = [item.shard for item in read_items(client).values() if item.shard]
            for shard in shards:
                eventually(
                    f"{shard} complete up to {now}",
                    lambda shard=shard: client.state(shard).upper.covers(now),
                    every=0.5,
                )

    def _objects(self) -> list[tuple]:
        with self._client() as client:
            return [(i.id, i.name, i.kind, i.sql) for i in read_items(client).values()]

    def _check_views(self) -> None:
        """Each view equals its query, run as a batch at the same time."""

        def compared() -> bool:
            try:
                with self.server.connect() as connection:
                    compare_views(connection)
            except psycopg.errors.CannotConnectNow:
                return False  # The cluster has only just come back, and says so.
            return True

        eventually("views to compare", compared)

    def _check_resumed(self) -> None:
        """Each view was built once, and has gone on from its state ever since."""

        def resumed(id_: str) -> bool:
            lives = self.server.clusterd_log.split("event=ready")
            return f"event=resumed dataflow={id_} " in lives[-1] or len(lives) <= 2

        for id_, name, kind, _ in self.objects:
            if kind == "materialized-view":
                # The one before may have done the last thing that was waited for.
                eventually(f"{name} resumed", lambda id_=id_: resumed(id_))
                built = self.server.clusterd_log.count(f"event=hydrated dataflow={id_} ")
                assert built == 1, f"{name} was built {built} times"

    def _check_source(self) -> None:
        """The source's tables are what the generator makes up to the bound offset, and no more."""
        with self._client() as client:
            (text,) = read_definitions(client, STORAGE_SHARD).values()
            spec = msgspec.json.decode(text, type=GeneratorSource)
            remap = Remap(client, spec.remap)

            def read() -> tuple[int, dict[str, pa.Table]] | None:
                uppers = [client.state(shard).upper.time or 0 for shard in spec.shards.values()]
                as_of = min(uppers) - 1
                try:
                    return remap.offsets_at(as_of)[0], {
                        table: client.open_reader(shard).snapshot(as_of)
                        for table, shard in spec.shards.items()
                    }
                except AsOfBeforeSince:
                    return None

            offset, found = eventually("a readable time of the source", read)
            bound = [b.offsets[0] for b in remap.bindings(*_readable(client, spec.remap))]
        assert offset >= self.offset, "the source went back"
        assert bound == sorted(bound), "bindings contradict each other"
        self.offset = offset
        made = generator(spec.kind, dict(spec.options)).updates(0, offset)
        for table, rows in found.items():
            expected, there = _counted(made[table]), _counted(rows)
            assert there == expected, f"{table} at {offset}: {_differing(expected, there)}"

    @contextlib.contextmanager
    def _client(self) -> Iterator[PersistClient]:
        """The shards as they are, without asking the server."""
        client = open_client(self.server.data)
        try:
            yield client
        finally:
            client.close()


def compare_views(connection: psycopg.Connection) -> None:
    """In a transaction, whose first statement keeps readable all that comes after it."""
    connection.execute("BEGIN")
    frontiers = connection.execute("SELECT write_frontier FROM mz_internal.mz_frontiers")
    as_of = max(frontier for (frontier,) in frontiers) - 1
    for view, query in VIEWS.items():
        batch = Counter(connection.execute(f"{query} AS OF {as_of}").fetchall())
        found = Counter(connection.execute(f"SELECT * FROM {view} AS OF {as_of}").fetchall())
        assert found, f"{view} is empty at {as_of}"
        assert found == batch, f"{view} at {as_of}: {_differing(batch, found)}"
    connection.execute("COMMIT")


def test_control_restarts_without_the_cluster_and_stops_with_it(server: Serving):
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    before = server.clusterd_pid, server.jvm_pid

    server.kill_control()
    server.start()
    with server.connect() as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        assert sorted(connection.execute("SELECT a FROM t").fetchall()) == [(1,), (2,)]
    assert (server.clusterd_pid, server.jvm_pid) == before

    # An adopted cluster is stopped like one that this process has started.
    assert server.stop() == 0
    eventually("an end of all processes", lambda: not server.running)

    server.start()
    with server.connect() as connection:
        connection.execute("INSERT INTO t VALUES (3)")
    assert server.stop() == 0, "while the cluster was still starting"
    eventually("an end of all processes", lambda: not server.running)
    assert stored(server, "t") == [(1,), (2,), (3,)]


def test_a_second_server_on_the_same_folder_is_refused(server: Serving):
    with server.connect() as connection:
        connection.execute("CREATE TABLE t (a int)")
        second = server.launch()
        assert second.wait(DEADLINE) != 0
        assert f"another tidemark server (pid {server.process.pid})" in server.log
        connection.execute("INSERT INTO t VALUES (1)")
    assert server.process.poll() is None
    assert stored(server, "t") == [(1,)]


def test_an_older_control_process_is_fenced(server: Serving, tmp_path: Path):
    blob = f"file://{server.data / 'blob'}"
    consensus = f"sqlite://{server.data / 'consensus.db'}"
    newer = Serving(tmp_path / "other", "--blob", blob, "--consensus", consensus)
    try:
        with server.connect() as connection:
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} (writer int, n int, payload text)")
        writers = [Writer(server, number, number, rewrites=False) for number in range(2)]
        for writer in writers:
            writer.start()
        eventually("writes", lambda: all(writer.acknowledged for writer in writers))
        newer.start()
        with newer.connect() as connection:
            connection.execute("INSERT INTO log VALUES (9, 9, 'newer')")

        # The older one finds out with its next commit, a second later at most, and stops.
        assert server.process.wait(DEADLINE) != 0
        for writer in writers:
            writer.stop()
        assert "another control process has taken over" in server.log
        said = [str(error) for writer in writers for error in writer.errors]
        assert any("another control process has taken over" in text for text in said), said
        eventually("an end of its processes", lambda: not server.running)

        found = contents({table: stored(server, table) for table in TABLES})
        assert found.pop(9)
        for writer in writers:
            writer.check(found.get(writer.number, Counter()))
    finally:
        newer.destroy()


def open_client(data: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{data / 'blob'}", consensus=f"sqlite://{data / 'consensus.db'}"
    )


def stored(server: Serving, table: str) -> list[tuple]:
    """A table's rows, read from its shard: no cluster is needed."""
    client = open_client(server.data)
    try:
        (item,) = [item for item in read_items(client).values() if item.name == table]
        assert item.shard is not None
        upper = client.state(item.shard).upper.time
        assert upper
        rows = client.open_reader(item.shard).snapshot(upper - 1)
        assert set(rows[DIFF].to_pylist()) <= {1}, "some row is there twice"
        names = [column.name for column in item.columns]
        return sorted(zip(*(rows[name].to_pylist() for name in names), strict=True))
    finally:
        client.close()


def _readable(client: PersistClient, shard: str) -> tuple[Frontier, Frontier]:
    state = client.state(shard)
    return Frontier((state.since.time or 0) + 1), state.upper


def _counted(updates: pa.Table) -> Counter[tuple]:
    """Rows with how often they are there."""
    names = [name for name in updates.column_names if not name.startswith("_")]
    found: Counter[tuple] = Counter()
    columns = [updates[name].to_pylist() for name in (*names, DIFF)]
    for *row, diff in zip(*columns, strict=True):
        found[tuple(row)] += diff
    return Counter({row: count for row, count in found.items() if count})


def _differing(expected: Counter, found: Counter) -> str:
    missing, extra = expected - found, found - expected
    return f"missing {list(missing.items())[:5]}, extra {list(extra.items())[:5]}"
