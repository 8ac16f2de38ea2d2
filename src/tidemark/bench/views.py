"""`tidemark bench views`: what a tick of a maintained view costs, and what it does not depend on.

    SELECT region, count(*), sum(amount), max(amount)
    FROM orders JOIN customers ON customer = customers.id GROUP BY region

Upserts of 1,000 orders a tick (80% updates, 10% inserts, 10% deletes) at five distinct times, at
several sizes of state. A tick includes its durable appends. The floor is Spark's own for any job,
`range(1).toArrow()`; the baseline is the same query recomputed by plain Spark over the same shards.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.dataflow import holder_of
from tidemark.compute.peek import run_peek
from tidemark.compute.plan import Get, Plan
from tidemark.compute.protocol import Peek
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.spark.session import start_spark
from tidemark.types import BIGINT, TEXT, Column, arrow_schema, numeric

QUERY = """
SELECT region, count(*) AS orders, sum(amount) AS total, max(amount) AS largest
FROM orders JOIN customers ON customer = customers.id GROUP BY region
"""
ORDERS = (Column("id", BIGINT), Column("customer", BIGINT), Column("amount", numeric(12, 2)))
CUSTOMERS = (Column("id", BIGINT), Column("region", TEXT))
REGIONS = 20
TIMES_PER_TICK = 5
UPSERTS = 1_000
SEED = 42


class _Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        return Get(parts[-1], {"orders": ORDERS, "customers": CUSTOMERS}[parts[-1]])


class Workload:
    """Orders in numpy arrays, so that every retraction repeats what was inserted."""

    def __init__(self, client: PersistClient, orders: int):
        self._rng = np.random.default_rng(SEED)
        self._orders = client.open_writer("orders", schema=arrow_schema(ORDERS), key=("id",))
        self._customers = client.open_writer("customers", schema=arrow_schema(CUSTOMERS))
        self._count = max(orders // 10, 1)
        self._customer = self._rng.integers(0, self._count, orders)
        self._amount = self._rng.integers(100, 10_000_000, orders)
        self._live = np.ones(orders, dtype=bool)
        self.now = 10
        ids = np.arange(orders)
        self._append(self._orders, self._rows(ids), np.ones(orders), np.full(orders, 1), 0)
        regions = pa.array([f"region {i}" for i in range(REGIONS)]).take(
            pa.array(self._rng.integers(0, REGIONS, self._count))
        )
        self.customers = pa.table(
            [pa.array(np.arange(self._count)), regions], names=["id", "region"]
        )
        everyone = np.ones(self._count)
        self._append(self._customers, self.customers, everyone, everyone, 0)

    def orders(self) -> pa.Table:
        """All orders as they are now."""
        return self._rows(np.flatnonzero(self._live))

    def tick(self) -> pa.Table:
        """One interval of upserts at several times, appended to the shards.

        Returns what became of each order that changed: (id, customer, amount, deleted).
        """
        tables, diffs, times = [], [], []
        for step in range(TIMES_PER_TICK):
            for rows, diff in self._upserts(UPSERTS // TIMES_PER_TICK):
                tables.append(rows)
                diffs.append(np.full(rows.num_rows, diff))
                times.append(np.full(rows.num_rows, self.now + step))
        lower, self.now = self.now, self.now + TIMES_PER_TICK
        rows = pa.concat_tables(tables)
        self._append(self._orders, rows, np.concatenate(diffs), np.concatenate(times), lower)
        self._customers.advance_upper(Frontier(self.now))
        changed = np.unique(rows["id"].to_numpy())
        return self._rows(changed).append_column("deleted", pa.array(~self._live[changed]))

    def _upserts(self, count: int) -> list[tuple[pa.Table, int]]:
        kind = self._rng.random(count)
        hit = np.unique(self._rng.integers(0, len(self._live), int((kind >= 0.1).sum())))
        hit = hit[self._live[hit]]
        old = self._rows(hit)
        gone, kept = hit[: len(hit) // 9], hit[len(hit) // 9 :]
        self._live[gone] = False
        self._amount[kept] = self._rng.integers(100, 10_000_000, len(kept))
        fresh = int((kind < 0.1).sum())
        ids = np.arange(len(self._live), len(self._live) + fresh)
        self._customer = np.append(self._customer, self._rng.integers(0, self._count, fresh))
        self._amount = np.append(self._amount, self._rng.integers(100, 10_000_000, fresh))
        self._live = np.append(self._live, np.ones(fresh, dtype=bool))
        return [(old, -1), (self._rows(np.append(kept, ids)), 1)]

    def _rows(self, ids: np.ndarray) -> pa.Table:
        cents = pa.array(self._amount[ids]).cast(pa.decimal128(19, 0))
        # An integer number of cents is the decimal with two digits, bit for bit.
        amount = pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), cents.buffers())
        return pa.table(
            [pa.array(ids), pa.array(self._customer[ids]), amount],
            names=["id", "customer", "amount"],
        )

    def _append(self, writer, rows: pa.Table, diffs, times, lower: int) -> None:
        updates = rows.append_column(TIME, pa.array(times.astype(np.int64)))
        updates = updates.append_column(DIFF, pa.array(diffs.astype(np.int64)))
        outcome = writer.compare_and_append(
            as_updates(updates, schema=writer.schema),
            lower=Frontier(lower),
            upper=Frontier(self.now),
        )
        assert outcome.__class__.__name__ == "Appended", outcome


def run(*, quick: bool, spark_master: str) -> None:
    console = Console()
    spark = start_spark(master=spark_master, app="tidemark-bench")
    sizes = [100_000, 1_000_000] if quick else [100_000, 1_000_000, 10_000_000]
    warm, ticks = (30, 30) if quick else (100, 200)
    results = {}
    for size in sizes:
        console.print(f"{size:,} orders: {warm} ticks to warm up, then {ticks} measured ...")
        results[size] = found = _measure(spark, console, size, warm, ticks)
        console.print(
            f"{size:,} orders: {found['tick_ms']:.0f} ms a tick, {found['jobs_per_tick']:.0f} jobs,"
            f" {found['tick_vs_job_floor']:.1f} times the job floor"
        )
    table = Table(title="orders ⋈ customers by region, 1,000 upserts a tick at 5 times")
    for name in ("", *(f"{size:,} orders" for size in sizes)):
        table.add_column(name, justify="right")
    for metric, label in (
        ("hydrate_s", "hydration, s"),
        ("tick_ms", "tick, median ms"),
        ("tick_p95_ms", "tick, p95 ms"),
        ("jobs_per_tick", "Spark jobs per tick"),
        ("jobs_per_idle_tick", "Spark jobs when nothing changed"),
        ("floor_ms", "Spark's job floor, ms"),
        ("tick_vs_job_floor", "tick / job floor"),
        ("recompute_ms", "plain Spark recompute, ms"),
        ("recompute_vs_tick", "recompute / tick"),
    ):
        table.add_row(label, *(f"{results[size][metric]:,.2f}" for size in sizes))
    console.print(table)
    console.print(f"`tidemark bench views{' --quick' if quick else ''}`, every view verified")
    names = {100_000: "100k", 1_000_000: "1m", 10_000_000: "10m"}
    flat = {
        f"{metric}_{names[size]}": round(value, 3)
        for size, found in results.items()
        for metric, value in found.items()
    }
    flat["tick_growth"] = round(results[sizes[-1]]["tick_ms"] / results[sizes[0]]["tick_ms"], 3)
    spark.stop()
    print(json.dumps(flat))


def _measure(
    spark: SparkSession, console: Console, orders: int, warm: int, ticks: int
) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        console.status(f"{orders:,} orders: loading") as status,
    ):
        client = PersistClient.open(
            blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db"
        )
        workload = Workload(client, orders)
        plan = plan_query(parse_query(QUERY), _Tables(), view=True)
        shards = {"orders": "orders", "customers": "customers"}
        status.update(f"{orders:,} orders: hydrating")
        dataflow = View(
            "v",
            plan,
            inputs=shards,
            output="v",
            as_of=workload.now - 1,
            flows=Flows(client, spark, Arrangements(client, Path(folder) / "cache")),
        )
        hydrate = _seconds(dataflow.start)
        client.start_maintenance()

        def tick() -> float:
            workload.tick()
            return 1000 * _seconds(lambda: dataflow.tick(dataflow.input_upper()))

        for done in range(warm):
            status.update(f"{orders:,} orders: warming up, tick {done + 1} of {warm}")
            tick()
        before = _jobs(spark)
        measured, floors = [], []
        for done in range(ticks):
            status.update(f"{orders:,} orders: tick {done + 1} of {ticks}")
            measured.append(tick())
            spark.sparkContext.setJobGroup("floor", "floor")
            floors.append(1000 * _seconds(lambda: spark.range(1).toArrow()))
        jobs = (_jobs(spark) - before) / ticks
        before = _jobs(spark)
        for writer in ("orders", "customers"):
            schema = arrow_schema({"orders": ORDERS, "customers": CUSTOMERS}[writer])
            key = ("id",) if writer == "orders" else ()
            client.open_writer(writer, schema=schema, key=key).advance_upper(
                Frontier(workload.now + 5)
            )
        dataflow.tick(dataflow.input_upper())
        idle = _jobs(spark) - before
        workload.now += 5
        status.update(f"{orders:,} orders: recomputing with plain Spark")
        peek = Peek("recompute", plan, workload.now - 1, shards, {})
        recompute = statistics.median(
            1000 * _seconds(lambda: run_peek(spark, client, peek)) for _ in range(3)
        )
        _verify(run_peek(spark, client, peek), client, workload.now - 1)
        client.close()
        median, floor = statistics.median(measured), statistics.median(floors)
        return {
            "hydrate_s": hydrate,
            "tick_ms": median,
            "tick_p95_ms": sorted(measured)[int(0.95 * (len(measured) - 1))],
            "jobs_per_tick": jobs,
            "jobs_per_idle_tick": idle,
            "floor_ms": floor,
            "tick_vs_job_floor": median / floor,
            "recompute_ms": recompute,
            "recompute_vs_tick": recompute / median,
        }


def _verify(expected: pa.Table, client: PersistClient, as_of: int) -> None:
    view = client.open_reader("v").snapshot(as_of)
    columns = ["region", "orders", "total", "largest"]
    found = sorted(zip(*(view[name].to_pylist() for name in columns), strict=True))
    wanted = sorted(zip(*(c.to_pylist() for c in expected.columns), strict=True))
    if found != wanted:
        raise SystemExit(f"the maintained view is wrong at {as_of} (seed {SEED})")


def _jobs(spark: SparkSession) -> int:
    """Jobs that the dataflow has run so far."""
    tracker = spark.sparkContext.statusTracker()
    return len(tracker.getJobIdsForGroup(holder_of("v")))


def _seconds(body) -> float:
    start = SYSTEM_CLOCK.monotonic()
    body()
    return SYSTEM_CLOCK.monotonic() - start
