"""DataFrames staged by Spark's tasks: what arrives, and what is left of tasks that fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, MemBlob, MemConsensus, PersistClient, UpperMismatch
from tidemark.persist.fsck import fsck
from tidemark.spark.frames import rows
from tidemark.spark.session import LARGE, session_for
from tidemark.spark.stage import is_small, stage

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SMALL = Config(inline_bytes=2_000, part_bytes=20_000, row_group_bytes=4_000)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    opened = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    yield opened
    opened.close()


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return session_for(spark, LARGE)


def numbers(session: SparkSession, start: int, stop: int, tasks: int = 4) -> DataFrame:
    frame = session.range(start, stop, 1, tasks)
    return frame.withColumn("name", F.concat(F.lit("n"), F.col("id")))


def stored(client: PersistClient) -> set[str]:
    return {key for key, _ in client.blob.list()}


def live(client: PersistClient) -> set[str]:
    return {part.key for part in client.state("s").parts if part.key is not None}


def ids(client: PersistClient, as_of: int) -> list[int]:
    return sorted(client.open_reader("s").snapshot(as_of)["id"].to_pylist())


@pytest.mark.parametrize("small", [True, False, None])
def test_what_is_staged_arrives(session: SparkSession, client: PersistClient, small: bool | None):
    writer = client.open_writer("s", schema=SCHEMA, key=("id",))
    staged = stage(numbers(session, 0, 5_000), client, writer, small=small)
    assert staged.rows == 5_000
    outcome = writer.compare_and_append(staged.at(7), lower=Frontier(0), upper=Frontier(8))
    assert isinstance(outcome, Appended)
    assert ids(client, 7) == list(range(5_000))
    assert all(part.ordered and part.stats for part in client.state("s").parts)
    assert not fsck(client, "s").errors
    client.open_critical_since("s").downgrade(Frontier(7))
    client.maintain("s")
    assert ids(client, 7) == list(range(5_000))
    assert not fsck(client, "s").errors


def test_few_rows_of_many_tasks_become_one_part(session: SparkSession, client: PersistClient):
    writer = client.open_writer("s", schema=SCHEMA)
    staged = stage(numbers(session, 0, 40, tasks=8), client, writer, small=False)
    assert {part.key for part in staged.parts} == {None}, "tasks send few rows back"
    writer.compare_and_append(staged.at(1), lower=Frontier(0), upper=Frontier(2))
    assert len(list(client.state("s").parts)) == 1
    assert ids(client, 1) == list(range(40))


def test_updates_come_when_they_say(session: SparkSession, client: PersistClient):
    writer = client.open_writer("s", schema=SCHEMA)
    frame = numbers(session, 0, 100).select("*", (F.col("id") % 3).alias("_time"))
    gone = frame.where("id < 10").withColumn("_diff", F.lit(-1)).withColumn("_time", F.lit(5))
    whole = frame.withColumn("_diff", F.lit(1)).unionByName(gone)
    for small in (True, False):
        staged = stage(whole, client, writer, small=small)
        assert {part.min_time for part in staged.parts} <= {0, 5}
        writer.discard(staged)
    writer.compare_and_append(stage(whole, client, writer), lower=Frontier(0), upper=Frontier(6))
    assert ids(client, 0) == list(range(0, 100, 3))
    assert ids(client, 5) == list(range(10, 100))


def test_a_task_that_fails_is_repeated_and_leaves_nothing_that_stays(
    spark: SparkSession, client: PersistClient, tmp_path: Path
):
    """The session of the tests gives a task one attempt only, so the stage fails as a whole."""
    writer = client.open_writer("s", schema=SCHEMA, key=("id",))

    def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if context.partitionId() == 3 and number == 1:
                raise ValueError("no more")
            yield batch

    session = session_for(spark, {**LARGE, "spark.sql.execution.arrow.maxRecordsPerBatch": "500"})
    frame = numbers(session, 0, 20_000).mapInArrow(broken, "id bigint, name string")
    with pytest.raises(PySparkException, match="no more"):
        stage(frame, client, writer, small=False)
    assert client.state("s").rows == 0
    assert client.state("s").upper == Frontier(0)
    client.sweep(older_than_ms=0)
    assert stored(client) == set()


def test_two_drivers_append_to_one_shard(session: SparkSession, client: PersistClient):
    """Each stages and appends until it has won; nothing is lost, nothing comes twice."""
    lost = threading.Event()

    def append(number: int) -> None:
        writer = client.open_writer("s", schema=SCHEMA, key=("id",))
        start = 1_000 * number
        staged = stage(numbers(session, start, start + 1_000), client, writer, small=False)
        while True:
            lower = writer.fetch_upper()
            assert lower.time is not None
            upper = Frontier(lower.time + 1)
            outcome = writer.compare_and_append(staged.at(lower.time), lower=lower, upper=upper)
            if not isinstance(outcome, UpperMismatch):
                return
            lost.set()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(append, number) for number in range(4)]:
            done.result()
    assert client.state("s").upper == Frontier(4)
    assert ids(client, 3) == list(range(4_000))
    assert stored(client) == live(client)


def test_what_loses_stays_its_owners(session: SparkSession, client: PersistClient):
    writer = client.open_writer("s", schema=SCHEMA)
    staged = stage(numbers(session, 0, 3_000), client, writer, small=False)
    writer.advance_upper(Frontier(10))
    outcome = writer.compare_and_append(staged.at(0), lower=Frontier(0), upper=Frontier(1))
    assert outcome == UpperMismatch(Frontier(10))
    assert stored(client)
    writer.discard(staged)
    assert stored(client) == set()


def test_columns_and_types_are_the_shards(session: SparkSession, client: PersistClient):
    writer = client.open_writer("s", schema=SCHEMA)
    swapped = numbers(session, 0, 10).select("name", F.col("id").cast("int").alias("id"))
    writer.compare_and_append(
        stage(swapped, client, writer).at(0), lower=Frontier(0), upper=Frontier(1)
    )
    assert ids(client, 0) == list(range(10))
    with pytest.raises(InvalidUsage, match="lacks name"):
        stage(session.range(3), client, writer)
    with pytest.raises(InvalidUsage, match="has more as well"):
        stage(numbers(session, 0, 1).withColumn("more", F.lit(1)), client, writer)


def test_what_grows_is_not_taken_for_small(session: SparkSession):
    assert is_small(session.range(1_000).select("id", F.lit("x").alias("name")))
    assert not is_small(session.range(10_000_000))
    assert not is_small(session.range(1).select(F.explode(F.sequence(F.lit(1), F.lit(10**7)))))
    assert not is_small(session.range(1).select(F.repeat(F.col("id").cast("string"), 10**8)))
    # Of what is cached the size is known, but only once it is.
    kept = session.range(1).select(F.explode(F.sequence(F.lit(1), F.lit(10)))).persist()
    assert not is_small(kept)
    kept.count()
    assert is_small(kept)
    kept.unpersist()


def test_memory_is_not_shared_with_other_processes(session: SparkSession):
    client = PersistClient(MemBlob(), MemConsensus())
    writer = client.open_writer("s", schema=SCHEMA)
    with pytest.raises(InvalidUsage, match="memory"):
        stage(numbers(session, 0, 10), client, writer, small=False)


def test_the_shard_grew_a_column_meanwhile(session: SparkSession, client: PersistClient):
    writer = client.open_writer("s", schema=SCHEMA, key=("id",))
    staged = stage(numbers(session, 0, 2_000), client, writer, small=False)
    client.open_writer("s", schema=SCHEMA, key=("id",)).evolve_schema(
        SCHEMA.append(pa.field("more", pa.string()))
    )
    writer.compare_and_append(staged.at(0), lower=Frontier(0), upper=Frontier(1))
    with rows(session, client, "s", 0) as found:
        assert found.ok.where("more is null and name is not null").count() == 2_000
