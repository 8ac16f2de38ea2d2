"""What `tidemark bench views` is compared with: the same view, kept current without Tidemark.

    ForeachBatch   what a good Spark engineer writes by hand today: a stream of files with upserts,
                   `foreachBatch` applies them to the orders and recomputes the view in SQL
    Pipelines      Spark Declarative Pipelines: a materialized view over a table that changes

                   not counted                      counted by tick()
    ForeachBatch   the upserts written to a file    the file in its folder -> the result collected
    Pipelines      the upserts applied to orders    `spark-pipelines run` -> the view written

Both take the upserts of a tick as a table of (id, customer, amount, deleted) that has each id once,
which spares them the ordering of several changes of one row. Neither pays for durability as our
ticks do: ForeachBatch keeps the changes since its last fold in memory, and Pipelines are handed an
`orders` that somebody else has brought up to date. JVM starts are never counted.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import Unavailable
from tidemark.spark.session import LARGE, find_java, session_for

VIEW = """
SELECT region, count(*) AS orders, sum(amount) AS total, max(amount) AS largest
FROM {orders} AS orders JOIN {customers} AS customers ON customer = customers.id GROUP BY region
"""
UPSERTS = "id BIGINT, customer BIGINT, amount DECIMAL(12, 2), deleted BOOLEAN"
FOLD = 25
"""Ticks after which ForeachBatch writes all orders anew."""

ROW_GROUP = 128 * 1024
"""Rows of a row group, few enough for every core to have some of a small table."""

CLIENT_SECONDS = 30.0
"""How long the process of the pipelines has to end."""


class Baseline(Protocol):
    """The view (region, orders, total, largest) after each tick."""

    def tick(self, upserts: pa.Table) -> float:
        """Seconds, of what the table above says is counted."""
        ...

    def result(self) -> pa.Table:
        """The view as of the last tick."""
        ...

    def close(self) -> None: ...


class ForeachBatch:
    """Orders are a cached Parquet table and the rows that changed since it was written.

        orders now = (base − ids in the changes) ∪ (changes that are not deletes)

    The changes are few and local, so the anti-join is a small broadcast; every FOLD ticks all is
    written as the next base and the last one unpersisted, within a tick that counts. Lineage is a
    file scan, always. AQE made no difference that could be told from noise, so it is off.
    """

    def __init__(self, spark: SparkSession, folder: Path, orders: pa.Table, customers: pa.Table):
        start = SYSTEM_CLOCK.monotonic()
        self._folder = folder
        self._input = folder / "upserts"
        self._input.mkdir(parents=True)
        cores = str(spark.sparkContext.defaultParallelism)
        self._spark = session_for(
            spark,
            {
                **LARGE,
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.shuffle.partitions": cores,
                "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
            },
        )
        self._changes: pa.Table | None = None
        self._ticks = 0
        self._batches = 0
        self._query: StreamingQuery | None = None
        self._result: pa.Table | None = None
        _write(orders, folder / "orders-0")
        _write(customers, folder / "customers")
        self._base = self._cached(folder / "orders-0")
        self._customers = self._cached(folder / "customers")
        self._customers.createOrReplaceTempView("customers")
        self.hydrate_s = SYSTEM_CLOCK.monotonic() - start

    def tick(self, upserts: pa.Table) -> float:
        query = self._query or self._start()
        self._ticks += 1
        # Spark does not see what begins with a dot.
        written = self._input / f".{self._ticks:06}.parquet"
        pq.write_table(upserts, written)
        start = SYSTEM_CLOCK.monotonic()
        written.rename(self._input / written.name[1:])
        query.processAllAvailable()
        took = SYSTEM_CLOCK.monotonic() - start
        assert self._batches == self._ticks, "one batch a tick, each once"
        return took

    def result(self) -> pa.Table:
        assert self._result is not None, "nothing before the first tick"
        return self._result

    def rest(self) -> None:
        """Stop the query, which looks for files all the time, until the next tick."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def close(self) -> None:
        self.rest()
        self._base.unpersist()
        self._customers.unpersist()
        # What Python still has of its batches keeps their broadcasts in the JVM, for whoever is next.
        gc.collect()
        jvm: Any = self._spark._jvm
        jvm.System.gc()

    def _start(self) -> StreamingQuery:
        stream = (
            self._spark.readStream.schema(UPSERTS)
            .option("maxFilesPerTrigger", 1)
            # So that there is one file to list at each tick.
            .option("cleanSource", "delete")
            .parquet(str(self._input))
        )
        self._query = (
            stream.writeStream.foreachBatch(self._apply)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        self._query.processAllAvailable()
        return self._query

    def _apply(self, batch: DataFrame, number: int) -> None:
        changes = batch.toArrow()
        if self._changes is not None:
            known = self._changes
            stale = pc.is_in(known["id"], value_set=changes["id"].combine_chunks())
            changes = pa.concat_tables([known.filter(pc.invert(stale)), changes])
        self._changes = changes
        changed = self._spark.createDataFrame(changes)
        kept = self._base.join(changed.select("id").hint("broadcast"), "id", "left_anti")
        orders = kept.unionByName(changed.where("NOT deleted").drop("deleted"))
        if (number + 1) % FOLD == 0:
            orders = self._fold(orders, self._folder / f"orders-{number + 1}")
        orders.createOrReplaceTempView("orders")
        query = VIEW.format(orders="orders", customers="customers")
        self._result = self._spark.sql(query).toArrow()
        self._batches += 1

    def _fold(self, orders: DataFrame, path: Path) -> DataFrame:
        orders.write.parquet(str(path))
        self._base.unpersist()
        self._base, self._changes = self._cached(path), None
        return self._base

    def _cached(self, path: Path) -> DataFrame:
        table = self._spark.read.parquet(str(path)).cache()
        table.count()
        return table


class Pipelines:
    """A materialized view in a pipeline that is run again after every change of `orders`.

    Two things are measured, both against a Spark Connect server that stays, so without starting
    Spark (`startup_s`), and without reading the view (bench/pipelines_process.py):

        run       the command `spark-pipelines run`, as a scheduler runs it
        refresh   the function behind it alone, in a Python process that stays: the session,
                  loading the definition, the graph, the run (the table is truncated and
                  recomputed), and its waiting for the flow to end, with an interval of a second
    """

    def __init__(self, folder: Path, orders: pa.Table, customers: pa.Table, *, master: str):
        start = SYSTEM_CLOCK.monotonic()
        self._folder = folder
        self._orders = orders
        folder.mkdir(parents=True)
        self._replaced = _write(orders, folder / "orders")
        _write(customers, folder / "customers")
        names = {name: f"parquet.`{folder / name}`" for name in ("orders", "customers")}
        statement = "CREATE MATERIALIZED VIEW by_region AS" + VIEW.format(**names)
        (folder / "view.sql").write_text(statement)
        self._process = _client(folder, master)
        try:
            self._answer()
            self.startup_s = SYSTEM_CLOCK.monotonic() - start
            self.first_s = self.refresh()
        except BaseException:
            self.close()
            raise

    def refresh(self) -> float:
        """The pipeline once, within the process; seconds."""
        return self._ask("refresh")["seconds"]

    def run(self) -> float:
        """The pipeline once, by its command; seconds."""
        return self._ask("run")["seconds"]

    def change(self, *changes: pa.Table) -> None:
        """What has happened since; how much it is does not matter to a refresh."""
        for upserts in changes:
            changed = pc.is_in(self._orders["id"], value_set=upserts["id"].combine_chunks())
            kept = self._orders.filter(pc.invert(changed))
            fresh = upserts.filter(pc.invert(upserts["deleted"])).select(kept.column_names)
            self._orders = pa.concat_tables([kept, fresh])
        replaced, self._replaced = self._replaced, _write(self._orders, self._folder / "orders")
        replaced.unlink()

    def result(self) -> pa.Table:
        path = self._ask("result")["path"]
        with pa.memory_map(path) as file:
            return pa.ipc.open_file(file).read_all()

    def close(self) -> None:
        """The process ends when its standard input does, and takes its server along."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLIENT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, what: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the process of the pipelines ended early; its error is above")
        return json.loads(line)


def pipelines_folder() -> Path:
    """Where `make pipelines` has put the packages."""
    return Path(os.environ.get("TIDEMARK_PIPELINES") or Path(sys.prefix, "pipelines"))


def pipelines_missing() -> str | None:
    """What to do for Pipelines to run; nothing where they can."""
    if (pipelines_folder() / ".installed").is_file() or _importable("grpc_status", "yaml"):
        return None
    return "Spark Declarative Pipelines are NOT MEASURED: their packages are missing; run `make pipelines`"


def _importable(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def _client(folder: Path, master: str) -> subprocess.Popen[str]:
    if problem := pipelines_missing():
        raise Unavailable(problem, hint="run `make pipelines`")
    find_java()
    path = [str(pipelines_folder()), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    environment |= {"PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tidemark.bench.pipelines_process", str(folder), master]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def _write(table: pa.Table, folder: Path) -> Path:
    """A new file with all of a table in it, beside any that are there."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{SYSTEM_CLOCK.monotonic():.6f}.parquet"
    pq.write_table(table, path, row_group_size=ROW_GROUP)
    return path
