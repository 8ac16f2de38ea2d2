"""`tidemark bench cluster`: what a cluster costs at rest, beside others, and when it is killed.

Replicas are real processes, told what to run as a server would tell them. Tables advance every
second, as a server's do.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tidemark.bench.cluster_process import ReplicaProcess, Store
from tidemark.bench.cluster_reads import index_lookup
from tidemark.bench.orders import SHARDS, Workload, plan
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.plan import Get, Plan
from tidemark.compute.protocol import Configure, DataflowSpec
from tidemark.compute.sql import parse_query, plan_query
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.spark.session import start_spark, stop_spark
from tidemark.types import BIGINT, TEXT, Column, arrow_schema

BARS = {
    "idle_core_share": "< 0.1",
    "idle_jobs": "0",
    "bystander_ratio": "≤ 1.5",
    "restart_s": "≤ 5",
    "failover_ticks": "≤ 1",
    "index_lookup_ms": "≤ 2",
}
COLUMNS = (Column("k", TEXT), Column("v", BIGINT))
SECOND = 1_000


def run(*, quick: bool, spark_master: str) -> None:
    console = Console()
    found: dict[str, float] = {}
    found |= _idle(console, spark_master, views=30 if quick else 100, wait=10 if quick else 30)
    found |= _bystanders(
        console, spark_master, views=20 if quick else 50, ticks=20 if quick else 60
    )
    found |= _restart(console, spark_master, orders=1_000_000 if quick else 10_000_000)
    found |= _failover(console, spark_master, kills=1 if quick else 3)
    found |= _look_ups(console, spark_master, quick)
    _show(console, found, quick)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


class Rows:
    """A table: rows at the time it is, which only goes on."""

    def __init__(self, client: PersistClient, name: str):
        self.name = name
        self._writer = client.open_writer(name, schema=arrow_schema(COLUMNS))

    def append(self, count: int, lower: int, upper: int) -> None:
        keys = pa.array([f"k{i % 10}" for i in range(count)], pa.string())
        columns = [keys, pa.array(range(count), pa.int64()), pa.array([lower] * count, pa.int64())]
        table = pa.table([*columns, pa.array([1] * count, pa.int64())], ["k", "v", TIME, DIFF])
        updates = as_updates(table, schema=self._writer.schema)
        self._writer.compare_and_append(updates, lower=Frontier(lower), upper=Frontier(upper))

    def advance(self, upper: int) -> None:
        self._writer.advance_upper(Frontier(upper))


def _view(name: str, table: str, number: int) -> DataflowSpec:
    sql = f"SELECT k, count(*) AS n, sum(v) AS total FROM t WHERE v <> {number} GROUP BY k"
    return DataflowSpec(name, _planned(sql, table), {table: table}, name, SECOND)


def _planned(sql: str, table: str) -> Plan:
    class Tables:
        def resolve(self, parts: tuple[str, ...]) -> Get:
            return Get(table, COLUMNS)

    return plan_query(parse_query(sql), Tables(), view=True)


def _idle(console: Console, master: str, *, views: int, wait: int) -> dict[str, float]:
    """Views of one table that nobody writes to, while time passes."""
    with _store() as (store, client), ReplicaProcess(store, "idle", spark_master=master) as replica:
        console.print(f"{views} views at rest ...")
        table = Rows(client, "t")
        table.append(1_000, 0, 2 * SECOND)
        replica.wait_up()
        specs = tuple(_view(f"v{i}", "t", i) for i in range(views))
        replica.configure(Configure(specs, ()))
        _until(lambda: all(client.state(s.output).upper.time for s in specs))
        with _passing(lambda now: table.advance(now), 2 * SECOND) as now:
            _until(lambda: now() > 6 * SECOND)
            jobs, cpu = replica.statuses().jobs, replica.cpu_seconds()
            begun, clock = now(), SYSTEM_CLOCK.monotonic()
            _until(lambda: now() >= begun + wait * SECOND)
            used = replica.cpu_seconds() - cpu
            took = SYSTEM_CLOCK.monotonic() - clock
            ran = replica.statuses().jobs - jobs
            reached = now()
            _until(lambda: all(client.state(s.output).upper >= Frontier(reached) for s in specs))
    return {"idle_core_share": used / took, "idle_jobs": ran}


def _bystanders(console: Console, master: str, *, views: int, ticks: int) -> dict[str, float]:
    """Five views that change, among others and alone; in turns."""
    alone = 5
    with (
        _store() as (store, client),
        ReplicaProcess(store, "many", spark_master=master) as many,
        ReplicaProcess(store, "few", spark_master=master) as few,
    ):
        console.print(f"{views} views of which {alone} change ...")
        sides = {"many": (many, views), "few": (few, alone)}
        tables: dict[str, list[Rows]] = {}
        specs: dict[str, list[DataflowSpec]] = {}
        for name, (replica, count) in sides.items():
            tables[name] = [Rows(client, f"{name}-t{i}") for i in range(count)]
            for table in tables[name]:
                table.append(1_000, 0, 2 * SECOND)
            specs[name] = [_view(f"{name}-v{i}", f"{name}-t{i}", i) for i in range(count)]
            replica.wait_up()
            replica.configure(Configure(tuple(specs[name]), ()))
        for name in sides:
            _until(lambda n=name: all(client.state(s.output).upper.time for s in specs[n]))
        took: dict[str, list[float]] = {name: [] for name in sides}
        for tick in range(2, 2 + ticks):
            lower, upper = tick * SECOND, (tick + 1) * SECOND
            for name in sides:
                begun = SYSTEM_CLOCK.monotonic()
                for at, table in enumerate(tables[name]):
                    if at < alone:
                        table.append(100, lower, upper)
                    else:
                        table.advance(upper)
                changed = [spec.output for spec in specs[name][:alone]]
                _until(lambda c=changed, u=upper: _reached(client, c, u))
                took[name].append(1000 * (SYSTEM_CLOCK.monotonic() - begun))
                _until(lambda n=name, u=upper: _reached(client, [s.output for s in specs[n]], u))
    half = ticks // 2
    among, by_themselves = (statistics.median(took[name][half:]) for name in sides)
    return {
        "tick_among_others_ms": among,
        "tick_alone_ms": by_themselves,
        "bystander_ratio": among / by_themselves,
    }


def _restart(console: Console, master: str, *, orders: int) -> dict[str, float]:
    """SIGKILL after a while of ticks; the next life is fresh again, with the base data gone."""
    with _store() as (store, client):
        console.print(f"a replica with {orders:,} orders is killed ...")
        workload = Workload(client, orders)
        spec = DataflowSpec("v", plan(), SHARDS, "v", workload.now - 1)
        with ReplicaProcess(store, "r", spark_master=master) as replica:
            replica.wait_up()
            replica.configure(Configure((spec,), ()))
            _until(lambda: client.state("v").upper.time)
            for _ in range(20):
                workload.tick()
                _until(lambda: _reached(client, ["v"], workload.now))
            replica.kill()
        workload.tick()
        with (
            _hidden(store, client, *SHARDS.values()),
            ReplicaProcess(store, "r", spark_master=master) as replica,
        ):
            replica.wait_up()
            begun = SYSTEM_CLOCK.monotonic()
            replica.configure(Configure((spec,), ()))
            _until(lambda: _reached(client, ["v"], workload.now))
            took = SYSTEM_CLOCK.monotonic() - begun
    return {"restart_s": took}


@contextmanager
def _hidden(store: Store, client: PersistClient, *shards: str) -> Iterator[None]:
    """The large parts of these shards, put aside: who needed them would fail."""
    parts = [part for shard in shards for part in client.state(shard).parts]
    keys = [part.key for part in parts if part.key is not None and part.rows > 100_000]
    assert keys
    paths = [store.folder / "blob" / key for key in keys]
    for path in paths:
        path.rename(f"{path}.aside")
    try:
        yield
    finally:
        for path in paths:
            Path(f"{path}.aside").rename(path)


def _failover(console: Console, master: str, *, kills: int) -> dict[str, float]:
    """Two replicas keep a view while a row comes every second; one of them is killed, in turn."""
    ticks = []
    with _store() as (store, client):
        console.print("one of two replicas is killed ...")
        table = Rows(client, "t")
        table.append(1_000, 0, 2 * SECOND)
        wanted = Configure((_view("v", "t", 0),), ())
        replicas = {}
        try:
            for name in ("a", "b"):
                replicas[name] = ReplicaProcess(store, name, spark_master=master)
            for replica in replicas.values():
                replica.wait_up()
                replica.configure(wanted)
            _until(lambda: client.state("v").upper.time)
            with _passing(lambda to: table.append(1, to - SECOND, to), 2 * SECOND) as now:
                for at in range(kills):
                    calm = now() + 8 * SECOND
                    _until(lambda c=calm: now() >= c and _reached(client, ["v"], c))
                    victim = list(replicas)[at % 2]
                    replicas[victim].kill()
                    ticks.append(_largest_gap(client, "v", seconds=8))
                    replicas[victim] = ReplicaProcess(store, victim, spark_master=master)
                    replicas[victim].wait_up()
                    replicas[victim].configure(wanted)
        finally:
            for replica in replicas.values():
                replica.kill()
    return {"failover_ticks": max(ticks)}


def _look_ups(console: Console, master: str, quick: bool) -> dict[str, float]:
    console.print("looking up in an index ...")
    spark = start_spark(master=master, app="tidemark-bench")
    try:
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
            return index_lookup(spark, Path(folder), quick)
    finally:
        stop_spark(spark)


def _largest_gap(client: PersistClient, shard: str, *, seconds: float) -> float:
    """How many ticks longer than usual the view stood still, at most."""
    last, longest = SYSTEM_CLOCK.monotonic(), 0.0
    upper, end = client.state(shard).upper, last + seconds
    while (now := SYSTEM_CLOCK.monotonic()) < end:
        newest = client.state(shard).upper
        if upper < newest:
            longest, last, upper = max(longest, now - last), now, newest
        SYSTEM_CLOCK.sleep(0.02)
    longest = max(longest, end - last)
    return max(0.0, longest - 1.0)


@contextmanager
def _store() -> Iterator[tuple[Store, PersistClient]]:
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        store = Store(Path(folder))
        client = store.open()
        try:
            yield store, client
        finally:
            client.close()


@contextmanager
def _passing(tick: Callable[[int], None], begin: int) -> Iterator[Callable[[], int]]:
    """`tick` every second, with the time that it then is."""
    now, stop = [begin], threading.Event()

    def go() -> None:
        while not stop.wait(1.0):
            tick(now[0] + SECOND)
            now[0] += SECOND

    thread = threading.Thread(target=go, name="time", daemon=True)
    thread.start()
    try:
        yield lambda: now[0]
    finally:
        stop.set()
        thread.join()


def _reached(client: PersistClient, shards: list[str], time: int) -> bool:
    return all(Frontier(time) <= client.state(shard).upper for shard in shards)


def _until(ready: Callable[[], object], seconds: float = 600.0) -> None:
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while not ready():
        if SYSTEM_CLOCK.monotonic() > deadline:
            raise SystemExit("the benchmark waited in vain")
        SYSTEM_CLOCK.sleep(0.002)


def _show(console: Console, found: dict[str, float], quick: bool) -> None:
    table = Table(title="a cluster at rest, beside others, and killed")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("bar", justify="right")
    for name, value in found.items():
        table.add_row(name, f"{value:,.3f}", BARS.get(name, ""))
    console.print(table)
    console.print(f"`tidemark bench cluster{' --quick' if quick else ''}`")
