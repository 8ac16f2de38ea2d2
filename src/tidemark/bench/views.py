"""`tidemark bench views`: what a tick of a maintained view costs, and what it does not depend on.

    SELECT region, count(*), sum(amount), max(amount)
    FROM orders JOIN customers ON customer = customers.id GROUP BY region

Upserts of 1,000 orders a tick (80% updates, 10% inserts, 10% deletes) at five distinct times. A
tick includes its durable appends. Everything is measured beside what it is compared with, in one
run, and every view is verified at the end:

    tick_vs_job_floor    a tick over Spark's own floor for any job, `range(1).toArrow()`
    tick_growth          a tick at 10M orders over one at 1M
    max_delete_ratio     a tick that also deletes the largest order of every region, over one at 1M
    vs_foreachbatch      the same view by hand, recomputed in foreachBatch, over a tick
    vs_sdp               a refresh by Spark Declarative Pipelines, `spark-pipelines run` against a
                         server that stays, over a tick at 1M
    vs_sdp_function      the same without starting the command
    overlap_ratio        two independent views ticking together, over one
    creep                the last 100 of 1,000 ticks over the first 100
    hydrate_vs_batch     hydration over the plain query and the arrangements of its inputs, at 10M
    bulk_updates_s       updates per second of one change of a million rows, at 10M
    tpch_speedup         recomputing TPC-H's 22 queries over keeping them through a refresh
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tidemark.bench.baselines import ForeachBatch, Pipelines, pipelines_missing
from tidemark.bench.memory import family
from tidemark.bench.orders import SEED, SHARDS, TIMES_PER_TICK, Workload, plan
from tidemark.bench.tpch import run_tpch
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.peek import run_peek
from tidemark.compute.protocol import Peek
from tidemark.compute.view import Flows, View
from tidemark.persist import PersistClient
from tidemark.spark.session import jobs_run, start_spark

NAMES = {100_000: "100k", 1_000_000: "1m", 10_000_000: "10m"}
BULK = 1_000_000
BLOCK = 10


class Scene:
    """A workload, and a view that follows it."""

    def __init__(self, spark: SparkSession, folder: Path, orders: int, note: Callable[[str], None]):
        self.spark = spark
        self.folder = folder
        self.client = PersistClient.open(
            blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db"
        )
        note("loading")
        self.workload = Workload(self.client, orders)
        note("hydrating")
        self.flows = Flows(self.client, spark, Arrangements(self.client, folder / "cache"))
        self.view = self.make("v")
        self.hydrate_s = seconds(self.view.start)
        self.client.start_maintenance()

    def make(self, id_: str) -> View:
        as_of = self.workload.now - 1
        return View(id_, plan(), inputs=SHARDS, output=id_, as_of=as_of, flows=self.flows)

    def tick(self, **what) -> float:
        """Milliseconds of a tick after the workload's."""
        self.workload.tick(**what)
        return self.follow()

    def follow(self) -> float:
        return 1000 * seconds(lambda: self.view.tick(self.view.input_upper()))

    def recompute(self) -> float:
        """Milliseconds of the plain query, warm."""
        self._peek()
        return 1000 * statistics.median(seconds(self._peek) for _ in range(3))

    def verify(self) -> None:
        as_of = self.workload.now - 1
        shard = self.client.open_reader("v").snapshot(as_of)
        columns = ["region", "orders", "total", "largest"]
        found = sorted(zip(*(shard[name].to_pylist() for name in columns), strict=True))
        wanted = sorted(zip(*(c.to_pylist() for c in self._peek().columns), strict=True))
        if found != wanted:
            raise SystemExit(f"the maintained view is wrong at {as_of} (seed {SEED})")

    def jobs(self) -> int:
        return jobs_run(self.spark)

    def close(self) -> None:
        self.view.stop()
        self.client.close()

    def _peek(self) -> pa.Table:
        peek = Peek("recompute", plan(), self.workload.now - 1, SHARDS, {})
        return run_peek(self.spark, self.client, peek)


def run(*, quick: bool, spark_master: str) -> None:
    console = Console()
    spark = start_spark(master=spark_master, app="tidemark-bench")
    small, large = (100_000, 1_000_000) if quick else (1_000_000, 10_000_000)
    found: dict[str, float | None] = {}
    with _scene(spark, console, small) as (scene, note):
        found |= _ticks(scene, note, warm=60 if quick else 150, ticks=40 if quick else 200)
        found |= _maxima(scene, note, ticks=20 if quick else 60)
        found |= _overlap(scene, note, ticks=30 if quick else 80)
        found |= _by_hand(scene, note, NAMES[small], blocks=2 if quick else 6)
        found |= _pipelines(scene, note, console, spark_master, refreshes=3 if quick else 10)
        found |= _creep(scene, note, ticks=200 if quick else 1_000)
        scene.verify()
    with _scene(spark, console, large) as (scene, note):
        found["hydrate_s"] = scene.hydrate_s
        there = _ticks(scene, note, warm=40 if quick else 100, ticks=40 if quick else 150)
        found |= {f"{name}_{NAMES[large]}": value for name, value in there.items()}
        here, beyond = found["tick_ms"], there["tick_ms"]
        assert here
        found["tick_growth"] = beyond / here
        found |= _by_hand(scene, note, NAMES[large], blocks=2 if quick else 4)
        found |= _hydration(scene, note)
        found |= _bulk(scene, note, BULK // 10 if quick else BULK)
        scene.verify()
    found |= run_tpch(spark, console, quick)
    found = {f"{k}_{NAMES[small]}" if k == "tick_ms" else k: v for k, v in found.items()}
    _show(console, found, quick)
    spark.stop()
    print(json.dumps({k: None if v is None else round(v, 3) for k, v in found.items()}))


def _ticks(scene: Scene, note: Callable[[str], None], *, warm: int, ticks: int) -> dict[str, float]:
    for done in range(warm):
        note(f"warming up, tick {done + 1} of {warm}")
        scene.tick()
    measured, floors, jobs = [], [], []
    for done in range(ticks):
        note(f"tick {done + 1} of {ticks}")
        before = scene.jobs()
        measured.append(scene.tick())
        jobs.append(scene.jobs() - before)
        scene.spark.sparkContext.setJobGroup("floor", "floor")
        floors.append(1000 * seconds(lambda: scene.spark.range(1).toArrow()))
    before = scene.jobs()
    scene.workload.rest()
    scene.follow()
    idle = scene.jobs() - before
    median, floor = statistics.median(measured), statistics.median(floors)
    note("recomputing with plain Spark")
    recompute = scene.recompute()
    return {
        "tick_ms": median,
        "tick_p95_ms": sorted(measured)[int(0.95 * (len(measured) - 1))],
        "floor_ms": floor,
        "tick_vs_job_floor": median / floor,
        "jobs_per_tick": max(jobs),
        "jobs_per_idle_tick": idle,
        "recompute_ms": recompute,
        "vs_recompute": recompute / median,
    }


def _maxima(scene: Scene, note: Callable[[str], None], *, ticks: int) -> dict[str, float]:
    """In turns, so that whatever else the machine does happens to both."""
    plain, hard = [], []
    for done in range(ticks):
        note(f"deleting maxima, tick {done + 1} of {ticks}")
        plain.append(scene.tick())
        hard.append(scene.tick(maxima=True))
    return {"max_delete_ratio": statistics.median(hard) / statistics.median(plain)}


def _overlap(scene: Scene, note: Callable[[str], None], *, ticks: int) -> dict[str, float]:
    """The view alone, and beside a second one that shares nothing with it but the machine."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        other = Scene(scene.spark, Path(folder), 100_000, lambda _: None)
        alone, together = [], []
        with ThreadPoolExecutor(2) as pool:
            for done in range(2 * ticks):
                note(f"two views, tick {done + 1} of {2 * ticks}")
                scene.workload.tick()
                other.workload.tick()
                if done % 2 == 0:
                    one = scene.follow()
                    two = other.follow()
                    alone.append(max(one, two))
                else:
                    both = [scene.follow, other.follow]
                    together.append(
                        1000 * seconds(lambda both=both: list(pool.map(lambda f: f(), both)))
                    )
        other.verify()
        other.close()
    half = ticks // 2
    return {"overlap_ratio": statistics.median(together[half:]) / statistics.median(alone[half:])}


def _creep(scene: Scene, note: Callable[[str], None], *, ticks: int) -> dict[str, float]:
    measured, sizes = [], []
    for done in range(ticks):
        note(f"a long run, tick {done + 1} of {ticks}")
        measured.append(scene.tick())
        if done % 100 == 0:
            sizes.append(sum(family().values()))
    part = min(100, ticks // 2)
    first, last = statistics.median(measured[:part]), statistics.median(measured[-part:])
    return {"creep": last / first, "memory_creep": sum(family().values()) / sizes[0]}


def _by_hand(
    scene: Scene, note: Callable[[str], None], name: str, *, blocks: int
) -> dict[str, float]:
    """Blocks of ticks in turns, the first of each side to warm up; the same changes for both."""
    note("the same by hand, in foreachBatch")
    workload = scene.workload
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        closing(
            ForeachBatch(scene.spark, Path(folder), workload.orders(), workload.customers())
        ) as baseline,
    ):
        ours, theirs = [], []
        for _ in range(blocks + 1):
            changes = []
            baseline.rest()
            block = []
            for _ in range(BLOCK):
                changes.append(workload.tick())
                block.append(scene.follow())
            ours.append(block)
            theirs.append([1000 * baseline.tick(change) for change in changes])
        _same(scene, baseline.result())
    tick = statistics.median(ms for block in ours[1:] for ms in block)
    by_hand = statistics.median(ms for block in theirs[1:] for ms in block)
    return {f"foreachbatch_ms_{name}": by_hand, f"vs_foreachbatch_{name}": by_hand / tick}


def _pipelines(
    scene: Scene,
    note: Callable[[str], None],
    console: Console,
    master: str,
    *,
    refreshes: int,
) -> dict[str, float | None]:
    """A refresh of a pipeline after each block of ticks."""
    if problem := pipelines_missing():
        console.print(f"NOT MEASURED: vs_sdp. {problem}", style="bold red")
        return {"vs_sdp": None}
    note("the same by Spark Declarative Pipelines")
    workload = scene.workload
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        closing(
            Pipelines(Path(folder, "p"), workload.orders(), workload.customers(), master=master)
        ) as baseline,
    ):
        ours, refreshed, run = [], [], []
        for _ in range(refreshes):
            changes = []
            for _ in range(BLOCK):
                changes.append(workload.tick())
                ours.append(scene.follow())
            baseline.change(*changes)
            refreshed.append(1000 * baseline.refresh())
            run.append(1000 * baseline.run())
        _same(scene, baseline.result())
    # The first half warms up.
    command, function = (statistics.median(each[refreshes // 2 :]) for each in (run, refreshed))
    tick = statistics.median(ours[refreshes * BLOCK // 2 :])
    return {
        "sdp_ms": command,
        "vs_sdp": command / tick,
        "sdp_function_ms": function,
        "vs_sdp_function": function / tick,
    }


def _same(scene: Scene, result: pa.Table) -> None:
    shard = scene.client.open_reader("v").snapshot(scene.workload.now - 1)
    columns = ["region", "orders", "total", "largest"]
    ours, theirs = (
        sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))
        for table in (shard, result)
    )
    if ours != theirs:
        raise SystemExit(f"the baseline has another result than the view (seed {SEED})")


def _hydration(scene: Scene, note: Callable[[str], None]) -> dict[str, float]:
    """Once more, warm: a second view of the same query, with nothing to share."""
    note("hydrating again")
    plain = seconds(scene.recompute) / 4
    as_of = scene.workload.now - 1
    fresh = Flows(scene.client, scene.spark, Arrangements(scene.client, scene.folder / "again"))
    view = View("again", plan(), inputs=SHARDS, output="again", as_of=as_of, flows=fresh)
    hydrate = seconds(view.start)
    view.stop()
    note("arranging the inputs")
    arrangements = Arrangements(scene.client, scene.folder / "once")
    arrange = seconds(
        lambda: [
            arrangements.acquire("orders", ("customer",), holder="bench", as_of=as_of),
            arrangements.acquire("customers", ("id",), holder="bench", as_of=as_of),
        ]
    )
    return {
        "hydrate_again_s": hydrate,
        "batch_s": plain,
        "arrange_s": arrange,
        "hydrate_vs_batch": hydrate / (plain + arrange),
    }


def _bulk(scene: Scene, note: Callable[[str], None], rows: int) -> dict[str, float]:
    """The median of three, once the code for large changes has run."""
    found = []
    for done in range(4):
        note(f"a change of {rows:,} rows, {done + 1} of 4")
        before = scene.client.state("orders").rows
        scene.workload.tick(rows // 2)
        updates = scene.client.state("orders").rows - before
        found.append((updates / (scene.follow() / 1000), updates))
    rate, updates = sorted(found[1:])[1]
    return {"bulk_updates": updates, "bulk_updates_s": rate}


@contextmanager
def _scene(
    spark: SparkSession, console: Console, orders: int
) -> Iterator[tuple[Scene, Callable[[str], None]]]:
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder,
        console.status(f"{orders:,} orders") as status,
    ):
        stages: set[str] = set()

        def note(what: str) -> None:
            status.update(f"{orders:,} orders: {what}")
            stage = what.split(",")[0]
            if stage not in stages and not stage.startswith("tick"):
                stages.add(stage)
                console.print(f"{orders:,} orders: {stage} ...")

        scene = Scene(spark, Path(folder), orders, note)
        try:
            yield scene, note
        finally:
            scene.close()


def _show(console: Console, found: dict[str, float | None], quick: bool) -> None:
    table = Table(title=f"orders ⋈ customers by region, 1,000 upserts at {TIMES_PER_TICK} times")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("bar", justify="right")
    for name, value in found.items():
        table.add_row(name, "-" if value is None else f"{value:,.2f}", BARS.get(name, ""))
    console.print(table)
    console.print(f"`tidemark bench views{' --quick' if quick else ''}`, every view verified")


BARS = {
    "tick_vs_job_floor": "≤ 10",
    "tick_growth": "≤ 1.2",
    "max_delete_ratio": "≤ 1.3",
    "vs_foreachbatch_1m": "≥ 3",
    "vs_foreachbatch_10m": "≥ 10",
    "vs_sdp": "≥ 30",
    "jobs_per_tick": "≤ 2",
    "jobs_per_idle_tick": "0",
    "overlap_ratio": "≤ 1.6",
    "creep": "≤ 1.2",
    "hydrate_vs_batch": "≤ 2",
    "bulk_updates_s": "≥ 100,000",
    "tpch_speedup": "> 1",
}


def seconds(body: Callable[[], object]) -> float:
    start = SYSTEM_CLOCK.monotonic()
    body()
    return SYSTEM_CLOCK.monotonic() - start
