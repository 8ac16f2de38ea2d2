"""The same code on a cluster: executors in other processes stage, read, merge and are killed.

A driver costs seconds to start, so there are few: each goes through everything and says what it
found, as JSON in its last line.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster import Driver, SparkCluster, driver, run_driver
from services import missing
from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient, as_updates
from tidemark.persist.fsck import fsck
from tidemark.spark.session import s3a_jars

ROWS = 60_000
"""More than what is read through Arrow (frames.SMALL_ROWS)."""

FEW = 1_000
CONFIG = Config(inline_bytes=0, part_bytes=64 * 1024, row_group_bytes=16 * 1024)

OPEN = f"""
import json, os, sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import functions as F
from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient
from tidemark.spark.frames import delta, rows, snapshot
from tidemark.spark.session import LARGE, session_for, start_spark
from tidemark.spark.stage import stage

ROWS, FEW = {ROWS}, {FEW}
master, blob, consensus, *rest = sys.argv[1:]
client = PersistClient.open(
    blob=blob,
    consensus=consensus,
    config=Config(inline_bytes=0, part_bytes=64 * 1024, row_group_bytes=16 * 1024),
)
spark = session_for(start_spark(master=master, blob=blob), LARGE)


def numbers(start, stop, tasks=4):
    name = F.concat(F.lit("name of "), F.col("id"))
    return spark.range(start, stop, 1, tasks).withColumn("name", name)


def summary(frame):
    "Rows, and sums that tell whether each is there once."
    return list(frame.agg(F.count("id"), F.sum("id"), F.sum(F.col("id") * F.col("id"))).first())


def open_shard(name):
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    return client.open_writer(name, schema=schema, key=("id",))
"""

EVERYTHING = """
from tidemark.region.attach import register
from tidemark.spark import compact

where = {"blob": blob, "consensus": consensus}
facts = {}
writer = open_shard("s")

# Staged by executors, appended by the driver, merged by executors.
staged = stage(numbers(0, ROWS), client, writer, small=False)
facts["staged"] = [staged.rows, len(staged.runs) > 1]
writer.compare_and_append(staged.at(10), lower=Frontier(0), upper=Frontier(11))
client.open_critical_since("s").downgrade(Frontier(10))
facts["merged"] = compact.merge(spark, client, "s", client.state("s").batches)
state = client.state("s")
facts["runs"] = [len(batch.runs) for batch in state.batches]
facts["parts"] = len(state.batches[0].parts) > 4

# An overlay on the merged base: some go, some come.
gone = numbers(0, FEW).withColumn("_diff", F.lit(-1))
come = numbers(ROWS, ROWS + FEW).withColumn("_diff", F.lit(1))
staged = stage(gone.unionAll(come), client, writer, small=False)
writer.compare_and_append(staged.at(20), lower=Frontier(11), upper=Frontier(21))

for as_of in (10, 20):
    with rows(spark, client, "s", as_of) as frames:
        facts[f"rows {as_of}"] = summary(frames.sound())
with snapshot(spark, client, "s", 20) as frames:
    facts["snapshot"] = summary(frames.ok)
    facts["diffs"] = [row[0] for row in frames.ok.select("_diff").distinct().collect()]
with delta(spark, client, "s", Frontier(11), Frontier(21)) as frames:
    grouped = frames.ok.groupBy("_time", "_diff").count().orderBy("_diff")
    facts["delta"] = [list(row) for row in grouped.collect()]

client.open_critical_since("s").downgrade(Frontier(20))
facts["merged again"] = compact.merge(spark, client, "s", client.state("s").batches)
with rows(spark, client, "s", 20) as frames:
    facts["rows after"] = summary(frames.sound())

# As users of Spark have it: batches and streams of the data source.
register(spark)


def read(shard, **options):
    return spark.read.format("tidemark").options(**where, shard=shard, **options).load()


def write(frame, shard):
    frame.write.format("tidemark").options(**where, shard=shard).mode("append").save()


facts["read"] = summary(read("s"))
facts["read a few"] = summary(read("s", columns="id").where(f"id < {2 * FEW}"))
write(read("s").where("id % 2 = 0"), "even")
write(numbers(ROWS, ROWS + FEW), "even")
facts["written"] = summary(read("even"))

stream = spark.readStream.format("tidemark").options(**where, shard="s", updates="true", name="r")
copy = stream.load().drop("_time").writeStream.format("tidemark")
copy = copy.options(**where, shard="copy", name="copy", checkpointLocation=rest[0])
copy.trigger(availableNow=True).start().awaitTermination(400)
facts["streamed"] = summary(read("copy"))

facts["executors"] = len(spark.sparkContext.statusTracker().getExecutorInfos()) - 1
print(json.dumps(facts))
"""

WHEN_TOLD = """
folder = Path(rest[0])


def patient(kind):
    "Tasks that leave a mark in the middle of their work and wait there to be told."

    def wait(batches):
        for number, batch in enumerate(batches):
            if number == 8:
                folder.joinpath(f"{kind}-{os.getpid()}").touch()
                while not folder.joinpath(f"go-{kind}").exists():
                    time.sleep(0.05)
            yield batch

    return wait


spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
found = {}
with client.open_reader("s").lease(0) as lease:
    paths = [client.blob.uri(part.key) for batch in lease.batches() for part in batch.parts]
    frame = spark.read.parquet(*paths).coalesce(2)
    found["read"] = summary(frame.mapInArrow(patient("read"), frame.schema))

writer = open_shard("w")
frame = numbers(0, ROWS, tasks=2)
staged = stage(frame.mapInArrow(patient("write"), frame.schema), client, writer, small=False)
writer.compare_and_append(staged.at(1), lower=Frontier(0), upper=Frontier(2))
found["written"] = staged.rows
print(json.dumps(found))
"""


@pytest.fixture(params=["s3", pytest.param("file", marks=pytest.mark.soak)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    where = {"blob": f"file://{tmp_path}/blob", "consensus": f"sqlite://{tmp_path}/consensus.db"}
    (tmp_path / "blob").mkdir()
    if request.param == "s3":
        if not s3a_jars():
            missing("Spark on S3 (run make s3a)")
        where["blob"] = request.getfixturevalue("s3_server").uri(f"t{uuid4().hex[:12]}")
    return where


@pytest.fixture
def client(stores: dict[str, str]) -> Iterator[PersistClient]:
    opened = PersistClient.open(**stores, config=CONFIG)
    yield opened
    opened.close()


def summary(*ids: range) -> list[int]:
    return [sum(map(len, ids)), sum(map(sum, ids)), sum(n * n for each in ids for n in each)]


def check_clean(client: PersistClient) -> int:
    """Every shard is sound, and a sweep leaves what they consist of; how much it took away."""
    shards = list(client.consensus.keys())
    swept = client.sweep(older_than_ms=0)
    for shard in shards:
        assert not fsck(client, shard).errors
    live = {key for shard in shards for key in client.state(shard).keys}
    assert {key for key, _ in client.blob.list()} == live
    return swept


def test_everything_on_two_workers(
    spark_cluster: SparkCluster, stores: dict[str, str], client: PersistClient, tmp_path: Path
):
    said = run_driver(
        OPEN + EVERYTHING, *stores.values(), tmp_path / "checkpoint", master=spark_cluster.master
    )
    now = range(FEW, ROWS + FEW)
    even = range(FEW, ROWS + FEW, 2)
    assert json.loads(said.splitlines()[-1]) == {
        "staged": [ROWS, True],
        "merged": True,
        "runs": [1],
        "parts": True,
        "rows 10": summary(range(ROWS)),
        "rows 20": summary(now),
        "snapshot": summary(now),
        "diffs": [1],
        "delta": [[20, -1, FEW], [20, 1, FEW]],
        "merged again": True,
        "rows after": summary(now),
        "read": summary(now),
        "read a few": summary(range(FEW, 2 * FEW)),
        "written": summary(even, range(ROWS, ROWS + FEW)),
        "streamed": summary(now),
        "executors": 2,
    }
    check_clean(client)


@pytest.mark.parametrize("stores", ["file"], indirect=True)
def test_executors_die_in_the_middle_of_a_read_and_of_a_write(
    spark_cluster: SparkCluster, stores: dict[str, str], client: PersistClient, tmp_path: Path
):
    marks = tmp_path / "marks"
    marks.mkdir()
    append_numbers(client, "s")

    def kill_one(running: Driver, kind: str) -> None:
        def tasks() -> int:
            return len(list(marks.glob(f"{kind}-*")))

        running.wait_until("both tasks run", lambda: tasks() == 2)
        if kind == "write":
            running.wait_until(
                "both have staged parts", lambda: len(staging_tasks(client, "w")) == 2
            )
        victim, survivor = spark_cluster.executors()
        os.kill(victim, signal.SIGKILL)
        # The other executor is busy until told to go on: the third task is its replacement.
        running.wait_until("the lost task runs again", lambda: tasks() == 3)
        assert victim not in spark_cluster.executors()
        assert survivor in spark_cluster.executors()
        (marks / f"go-{kind}").touch()

    with driver(OPEN + WHEN_TOLD, *stores.values(), marks, master=spark_cluster.master) as running:
        kill_one(running, "read")
        kill_one(running, "write")
        found = json.loads(running.finish().splitlines()[-1])
    assert found == {"read": summary(range(ROWS)), "written": ROWS}
    written = client.open_reader("w").snapshot(1)
    assert sorted(written["id"].to_pylist()) == list(range(ROWS))
    assert set(written["_diff"].to_pylist()) == {1}
    assert check_clean(client), "the lost task left nothing"


def staging_tasks(client: PersistClient, shard: str) -> set[bool]:
    """Which of the two tasks of a write have staged parts, each of its half of the numbers."""
    parts = [client.blob.get(key) or b"" for key, _ in client.blob.list(f"{shard}/")]
    firsts = [pq.read_table(pa.BufferReader(part), columns=["id"])["id"][0] for part in parts]
    return {first.as_py() >= ROWS // 2 for first in firsts}


def append_numbers(client: PersistClient, shard: str) -> None:
    """A shard of several parts."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    writer = client.open_writer(shard, schema=schema, key=("id",))
    rows = pa.table({"id": range(ROWS), "name": [uuid4().hex for _ in range(ROWS)]}, schema=schema)
    updates = as_updates(rows, time=0, schema=writer.schema)
    writer.compare_and_append(updates, lower=Frontier(0), upper=Frontier(1))
    assert len(client.state(shard).keys) > 4
