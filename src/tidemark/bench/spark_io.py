"""`tidemark bench spark-io`: shards on Spark, beside plain Spark on the same rows.

    write      a DataFrame into a shard, against `df.write.parquet` sorted the same way
    read       a compacted snapshot, against Spark over the same Parquet files
    overlay    the same with 1% of the rows changed and not compacted yet
    lookup     random keys in an arrangement, of a large shard and of a small one
    probe      the rows of many keys: by the driver, by tasks, by a scan
    small      1,000 rows of a Spark result appended, against `toArrow()` and an append
    merge      a large merge on Spark, against the same in process

On local files and SQLite with full durability. Ratios are of medians of runs taken in turn.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from tidemark.bench import spark_compact, spark_lookup
from tidemark.bench.memory import Sampled
from tidemark.bench.persist import Bar, bar_table
from tidemark.bench.spark_lookup import SCHEMA
from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient, WriteHandle, as_updates
from tidemark.persist.config import MIB
from tidemark.spark.compact import merge
from tidemark.spark.frames import rows, spark_schema
from tidemark.spark.probe import Way, probe
from tidemark.spark.session import LARGE, SMALL, session_for, start_spark
from tidemark.spark.stage import stage

Metrics = dict[str, float]
Say = Callable[[str], None]

BATCH_MIB = Config().hot_batch_bytes // MIB
"""What an arrangement is built in pieces of: the bound on memory is a few of them."""


class Size(NamedTuple):
    rows: int
    rounds: int
    lookup_rows: int
    lookup_small: int
    small_writes: int
    merge_rows: int


QUICK = Size(1_000_000, 3, 2_000_000, 200_000, 20, 1_000_000)
FULL = Size(10_000_000, 3, 20_000_000, 1_000_000, 40, 4_000_000)

BARS = [
    Bar("write_vs_parquet", "write / plain sorted Parquet", most=1.5),
    Bar("read_vs_parquet", "read, compacted / plain Parquet", most=1.3),
    Bar("read_overlay_vs_parquet", "read, 1% overlay / plain Parquet", most=1.8),
    Bar("lookup_1k_ms", "look-up of 1,000 keys, ms", most=5),
    Bar("lookup_growth", "the same / of the small shard", most=2),
    Bar("lookup_100k_ms", "look-up of 100,000 keys, ms", most=150),
    Bar("small_write_ratio", "1,000 rows staged / toArrow + append", most=1.5),
    Bar("lookup_private_mib", "private memory of look-ups, MiB", most=64),
    Bar("build_peak_private_mib", "of building the arrangement, MiB", most=4 * BATCH_MIB),
    Bar("driver_private_mib", "of the driver of all reads and writes, MiB", most=128),
]


def run(*, quick: bool) -> None:
    size = QUICK if quick else FULL
    console = Console()
    say = console.log
    metrics: Metrics = {}
    spark = start_spark(app="tidemark-bench")
    with tempfile.TemporaryDirectory() as folder:
        volume = Volume(spark, Path(folder), size, say)
        peak = Sampled("RssAnon")
        metrics |= volume.write()
        volume.compact()  # On Spark: in process it has a memory of its own.
        metrics |= volume.read()
        metrics |= volume.small_writes()
        metrics["driver_private_mib"] = peak.stop() / MIB
        metrics |= volume.probes()
        volume.client.close()
    spark.stop()
    metrics |= spark_lookup.measure(size.lookup_rows, size.lookup_small, say=say)
    with tempfile.TemporaryDirectory() as folder:
        metrics |= spark_compact.measure(Path(folder), rows=size.merge_rows, say=say)
    console.print(bar_table(metrics, BARS))
    console.print(f"`tidemark bench spark-io{' --quick' if quick else ''}`")
    print(json.dumps({name: round(float(value), 3) for name, value in metrics.items()}))


class Volume:
    """One shard of many rows, and the same rows as plain Parquet."""

    def __init__(self, spark: SparkSession, folder: Path, size: Size, say: Say):
        self._size, self._folder, self._say = size, folder, say
        self._large, self._small = session_for(spark, LARGE), session_for(spark, SMALL)
        self.client = PersistClient.open(
            blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db"
        )
        self._source = f"file://{folder}/source"
        say(f"making {size.rows:,} rows")
        made(self._large, size.rows).write.parquet(self._source)

    def write(self) -> Metrics:
        """The shard's parts are sorted by the key's hash, so the plain files are by another."""
        frame = self._large.read.parquet(self._source)
        plain, staged = [], []
        for turn in range(self._size.rounds + 1):
            self._say(f"write, round {turn}")
            target = f"{self._folder}/plain"
            sorted_ = frame.sortWithinPartitions(F.xxhash64("id"))
            writing = sorted_.write.option("compression", "zstd").mode("overwrite")
            plain.append(timed(lambda w=writing, t=target: w.parquet(f"file://{t}")))
            writer = self._writer(f"w{turn}")
            staged.append(timed(lambda w=writer: self._append(w, frame)))
            if turn < self._size.rounds:
                self.client.finalize(writer.shard_id)
        return {
            "write_s": median(staged[1:]),
            "write_vs_parquet": median(staged[1:]) / median(plain[1:]),
        }

    def read(self) -> Metrics:
        """Every column of every row, thrown away."""
        shard = f"w{self._size.rounds}"
        state = self.client.state(shard)
        files = [self.client.blob.uri(part.key) for part in state.parts if part.key is not None]
        plain = self._large.read.schema(spark_schema(SCHEMA)).parquet(*files)
        compacted = self._compare("read", shard, plain)
        self._overlay(shard)
        overlaid = self._compare("read with an overlay", shard, plain)
        return {"read_vs_parquet": compacted, "read_overlay_vs_parquet": overlaid}

    def small_writes(self) -> Metrics:
        """A result of 1,000 rows, durable in a shard."""
        apart, staged = [], []
        frame = made(self._small, 1_000)
        one, other = self._writer("apart"), self._writer("staged")
        for turn in range(self._size.small_writes + 5):
            apart.append(timed(lambda t=turn: self._append_arrow(one, frame, t)))
            staged.append(timed(lambda t=turn: self._append(other, frame, t)))
        return {
            "small_write_ms": 1_000 * median(staged[5:]),
            "small_write_ratio": median(staged[5:]) / median(apart[5:]),
        }

    def probes(self) -> Metrics:
        """Each way of looking many keys up, in seconds: what the rule in spark/probe.py is from."""
        shard, count = f"w{self._size.rounds}", self._size.rows
        as_of = (self.client.state(shard).upper.time or 1) - 1
        found: Metrics = {}
        for share in (100, 10, 4):
            for way in ("here", "tasks", "scan"):
                if way == "here" and share != 100:
                    continue
                keys = self._large.range(0, count, share)
                seconds = []
                for _ in range(3):
                    self._say(f"probe of 1/{share} of the keys: {way}")
                    seconds.append(timed(lambda k=keys, w=way: self._probe(shard, k, as_of, w)))
                found[f"probe_1_in_{share}_{way}_s"] = min(seconds[1:])
        return found

    def _probe(self, shard: str, keys: DataFrame, as_of: int, way: Way) -> None:
        folder = self._folder / "cache"
        given = {"as_of": as_of, "folder": folder, "way": way}
        with probe(self._large, self.client, shard, keys, ["id"], **given) as found:
            thrown_away(found)

    def _writer(self, shard: str) -> WriteHandle:
        return self.client.open_writer(shard, schema=SCHEMA, key=("id",))

    def _append(self, writer: WriteHandle, frame: DataFrame, time: int = 0) -> None:
        batch = stage(frame, self.client, writer).at(time)
        writer.compare_and_append(batch, lower=Frontier(time), upper=Frontier(time + 1))

    def _append_arrow(self, writer: WriteHandle, frame: DataFrame, time: int) -> None:
        updates = as_updates(frame.toArrow(), time=time, schema=writer.schema)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))

    def compact(self) -> None:
        """The shard that was written last, into one run."""
        self._say("merging")
        shard = f"w{self._size.rounds}"
        merge(self._large, self.client, shard, self.client.state(shard).batches)

    def _overlay(self, shard: str) -> None:
        """A hundredth of the rows changed: each goes and comes with another amount."""
        writer = self._writer(shard)
        count = self._size.rows // 200
        old = made(self._large, self._size.rows).where("id % 200 = 7").limit(count)
        changed = old.withColumn("amount", F.col("amount") + 1)
        gone, came = old.withColumn("_diff", F.lit(-1)), changed.withColumn("_diff", F.lit(1))
        batch = stage(gone.unionAll(came), self.client, writer).at(1)
        writer.compare_and_append(batch, lower=Frontier(1), upper=Frontier(2))

    def _compare(self, what: str, shard: str, plain: DataFrame) -> float:
        as_of = (self.client.state(shard).upper.time or 1) - 1
        ours, theirs = [], []
        with rows(self._large, self.client, shard, as_of) as found:
            for turn in range(self._size.rounds + 1):
                self._say(f"{what}, round {turn}")
                theirs.append(timed(lambda: thrown_away(plain)))
                ours.append(timed(lambda f=found.ok: thrown_away(f)))
        return median(ours[1:]) / median(theirs[1:])


def made(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(
        F.col("id"),
        (F.xxhash64("id") % 100_000).alias("customer"),
        (F.col("id") % 10_000).alias("amount"),
        (F.col("id") / 7.0).alias("weight"),
        F.concat(F.lit("kind "), (F.col("id") % 8).cast("string")).alias("kind"),
    )


def thrown_away(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(work: Callable[[], object]) -> float:
    begun = SYSTEM_CLOCK.monotonic()
    work()
    return SYSTEM_CLOCK.monotonic() - begun
