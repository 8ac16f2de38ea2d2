"""A cluster of two replicas under fire: drivers, JVMs, Python workers and control are killed while
rows come and go, and a stranger writes into the views' shards.

All the time, no frontier that was seen is ever taken back. In the end everything acknowledged is
there once, every view was right at every time that can still be read (but for a stranger's damage,
until it was put right), VERIFY says the same, and no process is left.

    CRASH_SEED=17 pytest tests/crash/test_cluster_crash.py       replays the choices of a run
    CRASH_SECONDS=3600 pytest -m soak tests/crash                goes on for an hour
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from replay import Query, Span, check_every_time
from serving import Serving, eventually
from workload import TABLES, Change, Key, Rows, Writer, contents

from cluster import SUBMIT, SparkCluster
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.protocol import Address, Statuses
from tidemark.control.catalog import Item, read_items
from tidemark.frontier import Frontier
from tidemark.persist import TIME, PersistClient, UpperMismatch, as_updates
from tidemark.persist.fsck import fsck
from tidemark.types import arrow_schema

REPLICAS = ("quickstart-r1", "quickstart-r2")
PROGRAMS = {"driver": "tidemark.compute.clusterd", "jvm": "/java ", "python": "-m pyspark."}
KILLS = ("driver", "driver", "jvm", "jvm", "python", "control")
CI_SECONDS = 40.0
KEPT_MS = 120_000
"""How much history a long run keeps readable, to look at in the end."""

PATHS = (
    "WITH {} path (f int, t int) AS (SELECT n % 7, (n / 3) % 7 FROM calls UNION "
    "SELECT path.f, (c.n / 3) % 7 FROM path JOIN calls c ON path.t = c.n % 7) SELECT f, t FROM path"
)

SQL = {
    "kinds": "SELECT l.payload, count(*) AS members, sum(l.n) AS total, min(l.n) AS oldest, "
    "max(l.n) AS newest FROM log l JOIN pair p ON l.n = p.n GROUP BY l.payload",
    "digits": "SELECT DISTINCT payload, n % 10 AS digit FROM log",
    "top": "SELECT writer, n, payload FROM log ORDER BY n DESC, writer LIMIT 5",
    "above": "SELECT oldest % 3 AS k, count(*) AS kinds, CAST(sum(members) AS bigint) AS members, "
    "max(newest) AS newest FROM kinds GROUP BY oldest % 3",
    "lately": "SELECT writer, n, ends FROM calls WHERE mz_now() >= begins AND mz_now() < ends",
    "paths": PATHS.format("MUTUALLY RECURSIVE"),
}

READS = {
    "kinds": ("log", "pair"),
    "digits": ("log",),
    "top": ("log",),
    "above": ("kinds",),
    "lately": ("calls",),
    "paths": ("calls",),
}

# SQLite has other words for time and recursion, and a column list without types.
QUERIES = {name: Query(sql, READS[name]) for name, sql in SQL.items()} | {
    "lately": Query(
        SQL["lately"].replace("mz_now()", ":now"),
        READS["lately"],
        ticking=(("calls", "begins"), ("calls", "ends")),
    ),
    "paths": Query(PATHS.format("RECURSIVE").replace("(f int, t int)", "(f, t)"), READS["paths"]),
}

COLUMNS = {
    "log": "writer int, n int, payload text",
    "pair": "writer int, n int, payload text",
    "calls": "writer int, n int, payload text, begins bigint, ends bigint",
}

FACTS = 60_000
"""More than what is read without tasks (frames.SMALL_ROWS)."""

MATCHES = (
    "SELECT l.payload, count(*) AS matches, sum(f.amount) AS total, max(f.id) AS newest "
    "FROM log l JOIN facts f ON l.n = f.k GROUP BY l.payload"
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    # JVMs that live for seconds do not pay back what their compiler invests.
    submit = " ".join(f"--conf {name}={value}" for name, value in SUBMIT.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{submit} pyspark-shell")
    running = Serving(tmp_path / "data")
    try:
        yield running.start()
    finally:
        running.destroy()


@pytest.mark.parametrize("soak", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_two_replicas_under_fire(server: Serving, chance: random.Random, soak: bool):
    with open_client(server) as client:
        chaos = Chaos(server, client, chance)
        chaos.prepare()
        seconds = float(os.environ.get("CRASH_SECONDS") or 600) if soak else CI_SECONDS
        stop_at = SYSTEM_CLOCK.monotonic() + seconds
        try:
            while SYSTEM_CLOCK.monotonic() < stop_at:
                chaos.round()
            chaos.finish()
        finally:
            chaos.stop()
        chaos.check(verified=40 if soak else 6)
        chaos.check_corrections()
    assert server.stop() == 0
    eventually("an end of all processes", lambda: not server.running)


def test_executors_of_a_spark_cluster_die_and_then_the_driver(
    server: Serving, spark_cluster: SparkCluster, chance: random.Random
):
    """A replica whose executors are on two workers takes over from a local one, and goes on."""
    with open_client(server) as client, server.connect() as connection:
        for table in TABLES:
            connection.execute(f"CREATE TABLE {table} ({COLUMNS[table]})")
        connection.execute("CREATE TABLE facts (id int, k int, amount bigint)")
        connection.execute(
            f"INSERT INTO facts SELECT g, g % 10000, g * 3 FROM generate_series(1, {FACTS}) AS g"
        )
        connection.execute(
            f"CREATE CLUSTER REPLICA quickstart.far (SPARK MASTER = '{spark_cluster.master}')"
        )
        connection.execute("DROP CLUSTER REPLICA quickstart.r1")
        connection.execute(f"CREATE MATERIALIZED VIEW matches AS {MATCHES}")
        shard = next(i.shard for i in read_items(client).values() if i.name == "matches")

        verify = "VERIFY MATERIALIZED VIEW matches"

        def goes_on() -> None:
            now = SYSTEM_CLOCK.now_ms()
            eventually(
                f"the view complete up to {now}", lambda: client.state(shard).upper.covers(now)
            )

        def both_executors() -> bool:
            return len(spark_cluster.executors()) == 2

        writers = [Writer(server, n, chance.randrange(10**9), rewrites=n == 0) for n in range(2)]
        for writer in writers:
            writer.start()
        try:
            goes_on()
            eventually("both executors", both_executors)
            await_writes(writers)
            os.kill(chance.choice(spark_cluster.executors()), signal.SIGKILL)
            goes_on()
            assert connection.execute(verify).fetchall() == []
            await_writes(writers)
            os.killpg(server.replica_pid("quickstart-far"), signal.SIGKILL)
            goes_on()
            eventually("both executors", both_executors)
        finally:
            for writer in writers:
                writer.stop()
        goes_on()
        assert connection.execute(verify).fetchall() == []
        rows = {t: connection.execute(f"SELECT * FROM {t}").fetchall() for t in TABLES}
        found = contents(rows)
        for writer in writers:
            writer.check(found.get(writer.number, Counter()))
        assert connection.execute("SELECT count(*) FROM matches").fetchone() != (0,)
    assert server.stop() == 0
    eventually("an end of all processes", lambda: not server.running)
    eventually("an end of the executors", lambda: not spark_cluster.executors())


def await_writes(writers: list[Writer]) -> None:
    """Until there is something to interrupt."""
    before = [writer.acknowledged for writer in writers]
    eventually(
        "acknowledged writes",
        lambda: all(w.acknowledged > b for w, b in zip(writers, before, strict=True)),
    )


class Caller(Writer):
    """Inserts calls that begin and end around now, and takes back half of them."""

    def _change(self) -> Change:
        mine = [key for key, payload in self.known.items() if payload]
        if len(mine) > 8:
            key = self._chance.choice(mine)
            sql = "DELETE FROM calls WHERE writer = %s AND n = %s"
            return Change(((sql, (self.number, key.n)),), {key: self.known[key]}, {key: None})
        n, self._next = self._next, self._next + 1
        begins = SYSTEM_CLOCK.now_ms() + self._chance.randrange(-500, 3000)
        ends = begins + self._chance.randrange(1, 4000)
        after: Rows = {Key("calls", n): "call"}
        sql = "INSERT INTO calls VALUES (%s, %s, %s, %s, %s)"
        return Change(((sql, (self.number, n, "call", begins, ends)),), dict.fromkeys(after), after)


class Watch(threading.Thread):
    """Looks at frontiers all the time: those of the shards, and those that SQL reports."""

    def __init__(self, server: Serving, items: dict[str, Item]):
        super().__init__(name="watch", daemon=True)
        self.looks: Counter[str] = Counter()
        self.taken_back: list[str] = []
        self._server = server
        self._shards = {item.id: item.shard for item in items.values() if item.shard}
        self._seen: dict[tuple[str, str], int] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        connection: psycopg.Connection | None = None
        with open_client(self._server) as client:
            while not self._stopping.wait(0.05):
                shards = {i: client.state(s).upper.time or 0 for i, s in self._shards.items()}
                self._look("shards", shards)
                try:
                    connection = connection or self._server.connect(connect_timeout=5)
                    connection.execute("SET statement_timeout = '2s'")
                    found = connection.execute(
                        "SELECT object_id, write_frontier FROM mz_internal.mz_frontiers"
                    )
                    self._look("reported", dict(found.fetchall()))
                except psycopg.Error:
                    if connection is not None:
                        connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def stop(self) -> None:
        assert self.is_alive() or self._stopping.is_set(), "the watch has ended by itself"
        self._stopping.set()
        self.join()

    def _look(self, where: str, frontiers: dict[str, int]) -> None:
        self.looks[where] += 1
        for id_, now in frontiers.items():
            before = self._seen.get((where, id_), 0)
            if now < before:
                self.taken_back.append(f"{where}: {id_} was at {before} and is at {now}")
            self._seen[where, id_] = now


class Chaos:
    def __init__(self, server: Serving, client: PersistClient, chance: random.Random):
        self.server = server
        self.client = client
        self.chance = chance
        self.items: dict[str, Item] = {}
        self.kills: Counter[str] = Counter()
        self.damaged: dict[str, list[int]] = {}
        self.writers: list[Writer] = [
            *(Writer(server, n, chance.randrange(10**9), rewrites=n == 0) for n in range(2)),
            Caller(server, 2, chance.randrange(10**9), rewrites=False),
        ]

    def prepare(self) -> None:
        with self.server.connect() as connection:
            connection.execute("ALTER CLUSTER quickstart SET (REPLICATION FACTOR = 2)")
            for table, columns in COLUMNS.items():
                connection.execute(f"CREATE TABLE {table} ({columns})")
            for name, sql in SQL.items():
                connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
            connection.execute("CREATE INDEX kinds_index ON kinds (payload)")
        items = read_items(self.client).values()
        self.items = {item.name: item for item in items if item.shard}
        self._settle()
        self._keep_history()
        for writer in self.writers:
            writer.start()
        self.watch = Watch(self.server, self.items)
        self.watch.start()

    def round(self) -> None:
        """Kill something in the middle of work, or damage a view; now and then wait for all."""
        SYSTEM_CLOCK.sleep(1 + 4 * self.chance.random())
        if self.chance.random() < 0.25:
            self._damage(self.chance.choice(sorted(SQL)))
        self._kill(self.chance.choice(KILLS))
        if self.chance.random() < 0.3:
            self._settle()
            self._keep_history()

    def finish(self) -> None:
        """The writers are done, and everything has caught up."""
        for writer in self.writers:
            writer.stop()
        self._settle()
        for kind in ("driver", "jvm"):
            eventually(
                f"two of {kind}",
                lambda kind=kind: len(self.server.pids(PROGRAMS[kind])) == len(REPLICAS),
            )

    def stop(self) -> None:
        for writer in self.writers:
            writer.stop()
        self.watch.stop()

    def check(self, *, verified: int) -> None:
        print(f"kills: {dict(self.kills)}; damage: {self.damaged}; looks: {dict(self.watch.looks)}")
        assert not self.watch.taken_back
        assert all(self.watch.looks[where] for where in ("shards", "reported"))
        with self.server.connect() as connection:
            rows = {
                table: connection.execute(f"SELECT writer, n, payload FROM {table}").fetchall()
                for table in COLUMNS
            }
            found = contents(rows)
            for writer in self.writers:
                writer.check(found.get(writer.number, Counter()))
            assert all(writer.acknowledged for writer in self.writers)
            span = self._span()
            compared = check_every_time(self.client, self.items, QUERIES, span, self.damaged)
            print(f"right at all times of {span.last - span.first} ms: {compared}")
            asked = self._verify(connection, span, verified)
            print(f"VERIFY at {asked} times")
            self._check_index(connection)
        for item in self.items.values():
            assert not fsck(self.client, item.shard or "").errors
        acknowledged = sum(writer.acknowledged for writer in self.writers)
        unknown = sum(len(writer.unknown) for writer in self.writers)
        print(f"{acknowledged} changes acknowledged, {unknown} unknown")

    def check_corrections(self) -> None:
        """With nobody killed, the count of corrections is that of what was put right."""
        for view in sorted(SQL):
            before = self._corrections(view)
            self._damage(view)
            self._settle()
            eventually(
                f"corrections of {view}",
                lambda view=view, before=before: self._corrections(view) > before,
            )
        with self.server.connect() as connection:
            for view in SQL:
                assert connection.execute(f"VERIFY MATERIALIZED VIEW {view}").fetchall() == []

    def _kill(self, what: str) -> None:
        if what == "control":
            print(f"{SYSTEM_CLOCK.monotonic():.0f}: kill control", flush=True)
            self.kills[what] += 1
            self.server.kill_control()
            self.server.start()
            return
        # Python workers are there only now and then: small ticks need none.
        if what == "python" and not self.server.pids(PROGRAMS[what]):
            what = "driver"
        found = self.server.pids(PROGRAMS[what])
        print(f"{SYSTEM_CLOCK.monotonic():.0f}: kill a {what} of {len(found)}", flush=True)
        if found:
            self.kills[what] += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)

    def _damage(self, view: str) -> None:
        """Two rows that do not belong there, and one less of those that do, if there are any."""
        item = self.items[view]
        assert item.shard is not None
        schema = arrow_schema(item.columns)
        writer = self.client.open_writer(item.shard, schema=schema)
        while True:
            lower = writer.fetch_upper()
            assert lower.time
            there = self.client.open_reader(item.shard).snapshot(lower.time - 1)
            rows = pa.table([[_foreign(field.type)] for field in schema], schema=schema)
            updates = [as_updates(rows, time=lower.time, diff=2, schema=writer.schema)]
            if there.num_rows:
                lost = there.slice(self.chance.randrange(there.num_rows), 1)
                lost = lost.select(schema.names)
                updates.append(as_updates(lost, time=lower.time, diff=-1, schema=writer.schema))
            outcome = writer.compare_and_append(
                pa.concat_tables(updates), lower=lower, upper=Frontier(lower.time + 1)
            )
            if not isinstance(outcome, UpperMismatch):
                print(f"{SYSTEM_CLOCK.monotonic():.0f}: damaged {view} at {lower.time}", flush=True)
                self.damaged.setdefault(view, []).append(lower.time)
                return

    def _settle(self) -> None:
        """Until everything is complete up to now, whenever the last kill was."""
        now = SYSTEM_CLOCK.now_ms()
        for name, item in self.items.items():
            eventually(
                f"{name} complete up to {now}",
                lambda item=item: self.client.state(item.shard).upper.covers(now),
            )

    def _keep_history(self) -> None:
        begin = SYSTEM_CLOCK.now_ms() - KEPT_MS
        begin = max([begin, *(self._state(name).since.time or 0 for name in self.items)])
        for item in self.items.values():
            held = self.client.open_critical_since(item.shard or "", "test")
            held.downgrade(Frontier(begin))

    def _state(self, name: str):
        return self.client.state(self.items[name].shard or "")

    def _span(self) -> Span:
        """All times at which everything can be read."""
        states = [self._state(name) for name in self.items]
        return Span(
            max(state.since.time or 0 for state in states),
            min(state.upper.time or 0 for state in states) - 1,
        )

    def _verify(self, connection: psycopg.Connection, span: Span, count: int) -> int:
        """VERIFY each view at times at which something happened, but for those of damage."""
        asked = 0
        for view in SQL:
            item = self.items[view]
            reader = self.client.open_reader(item.shard or "")
            times = reader.updates(Frontier(span.first + 1), Frontier(span.last + 1))[TIME]
            good = sorted(set(times.to_pylist())) if view not in self.damaged else []
            some = self.chance.sample(good, min(count, len(good)))
            for time in (*sorted(some), span.last):
                wrong = connection.execute(f"VERIFY MATERIALIZED VIEW {view} AS OF {time}")
                assert wrong.fetchall() == [], f"{view} at {time}"
                asked += 1
        return asked

    def _check_index(self, connection: psycopg.Connection) -> None:
        """Look-ups are what the view is."""
        view = connection.execute("SELECT * FROM kinds").fetchall()
        for row in view[:20]:
            found = connection.execute("SELECT * FROM kinds WHERE payload = %s", (row[0],))
            assert found.fetchall() == [row]

    def _corrections(self, view: str) -> int:
        """All that both replicas have put right."""
        return sum(
            status.corrections
            for replica in REPLICAS
            for status in statuses(self.server, replica).items
            if status.id == self.items[view].id
        )


def statuses(server: Serving, replica: str) -> Statuses:
    """What a replica says of itself."""
    path = server.data / "clusters" / f"{replica}.json"
    address = msgspec.json.decode(path.read_bytes(), type=Address)
    options = flight.FlightCallOptions(headers=[(b"x-tidemark-token", address.token.encode())])
    with flight.connect(f"grpc://127.0.0.1:{address.port}") as connection:
        (reply,) = connection.do_action(flight.Action("status", b"null"), options)
        return msgspec.json.decode(reply.body.to_pybytes(), type=Statuses)


def _foreign(type_: pa.DataType) -> object:
    return "foreign" if pa.types.is_string(type_) else 999_983


@contextlib.contextmanager
def open_client(server: Serving) -> Iterator[PersistClient]:
    """The shards as they are, without asking the server."""
    client = PersistClient.open(
        blob=f"file://{server.data / 'blob'}", consensus=f"sqlite://{server.data / 'consensus.db'}"
    )
    try:
        yield client
    finally:
        client.close()
