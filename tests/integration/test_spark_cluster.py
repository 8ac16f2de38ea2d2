"""The same code on a cluster: parts that persist wrote, read by executors in other processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from cluster import SparkCluster, driver, run_driver, spark_cluster
from services import missing
from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient, as_updates
from tidemark.spark.session import s3a_jars

__all__ = ["spark_cluster"]

ROWS = 40_000
EXPECTED = {"rows": ROWS, "sum": sum(range(ROWS)), "executors": 2}
CONFIG = Config(inline_bytes=0, part_bytes=64 * 1024, row_group_bytes=16 * 1024)

OPEN = """
import json, os, sys, time
from pathlib import Path
from pyspark.sql import functions as F
from tidemark.persist import PersistClient
from tidemark.spark.session import LARGE, session_for, start_spark

master, blob, consensus, *rest = sys.argv[1:]
client = PersistClient.open(blob=blob, consensus=consensus)
spark = session_for(start_spark(master=master, blob=blob), LARGE)


def answer(frame):
    found = frame.agg(F.sum("_diff").alias("rows"), F.sum(F.col("v") * F.col("_diff"))).first()
    executors = len(spark.sparkContext.statusTracker().getExecutorInfos()) - 1
    print(json.dumps({"rows": found[0], "sum": found[1], "executors": executors}))
"""

READ = """
with client.open_reader("s").lease(0) as lease:
    parts = [part for batch in lease.batches() for part in batch.parts]
    answer(spark.read.parquet(*(client.blob.uri(part.key) for part in parts)))
"""

READ_WHEN_TOLD = """
folder = Path(rest[0])


def wait(batches):
    # The test waits for the marks, and these tasks for the test.
    folder.joinpath(f"task-{os.getpid()}").touch()
    while not folder.joinpath("go").exists():
        time.sleep(0.05)
    yield from batches


with client.open_reader("s").lease(0) as lease:
    parts = [part for batch in lease.batches() for part in batch.parts]
    frame = spark.read.parquet(*(client.blob.uri(part.key) for part in parts)).coalesce(2)
    answer(frame.mapInArrow(wait, frame.schema))
"""


@pytest.fixture(params=["file", "s3"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    where = {"blob": f"file://{tmp_path}/blob", "consensus": f"sqlite://{tmp_path}/consensus.db"}
    if request.param == "s3":
        if not s3a_jars():
            missing("Spark on S3 (run make s3a)")
        where["blob"] = request.getfixturevalue("s3_server").uri(f"t{uuid4().hex[:12]}")
    return where


@pytest.fixture
def shard(stores: dict[str, str]) -> dict[str, str]:
    """A shard of several parts, in the stores."""
    client = PersistClient.open(**stores, config=CONFIG)
    writer = client.open_writer("s", schema=pa.schema([("k", pa.string()), ("v", pa.int64())]))
    rows = pa.table({"k": [uuid4().hex for _ in range(ROWS)], "v": pa.array(range(ROWS))})
    updates = as_updates(rows, time=0, schema=writer.schema)
    writer.compare_and_append(updates, lower=Frontier(0), upper=Frontier(1))
    with client.open_reader("s").lease(0) as lease:
        assert sum(len(batch.parts) for batch in lease.batches()) > 4
    client.close()
    return stores


def test_parts_are_read_by_two_workers(spark_cluster: SparkCluster, shard: dict[str, str]):
    said = run_driver(OPEN + READ, *shard.values(), master=spark_cluster.master)
    assert json.loads(said) == EXPECTED


@pytest.mark.parametrize("stores", ["file"], indirect=True)
def test_an_executor_dies_in_the_middle(
    spark_cluster: SparkCluster,
    shard: dict[str, str],
    tmp_path: Path,
):
    marks = tmp_path / "marks"
    marks.mkdir()
    master = spark_cluster.master
    with driver(OPEN + READ_WHEN_TOLD, *shard.values(), marks, master=master) as running:
        running.wait_until("both tasks run", lambda: len(list(marks.iterdir())) == 2)
        victim, survivor = spark_cluster.executors()
        os.kill(victim, signal.SIGKILL)
        # The other executor is busy until told to go on: the third one is its replacement.
        running.wait_until("the lost task runs again", lambda: len(list(marks.iterdir())) == 3)
        assert victim not in spark_cluster.executors()
        assert survivor in spark_cluster.executors()
        (marks / "go").touch()
        found = json.loads(running.finish())
    assert found["rows"] == EXPECTED["rows"]
    assert found["sum"] == EXPECTED["sum"]
