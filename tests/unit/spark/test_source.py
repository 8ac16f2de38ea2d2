"""The data source `tidemark` as a Spark user has it: reads, writes, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from worlds import SMALL, World, plain

from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, as_updates
from tidemark.persist.compact import compact
from tidemark.persist.fsck import fsck
from tidemark.region.attach import register
from tidemark.spark import frames
from tidemark.spark.frames import rows

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "blob").mkdir()
    return {"blob": f"file://{tmp_path}/blob", "consensus": f"sqlite://{tmp_path}/c.db"}


@pytest.fixture
def client(where: dict[str, str]) -> Iterator[PersistClient]:
    opened = PersistClient.open(**where, config=SMALL)
    yield opened
    opened.close()


def read(session: SparkSession, where: dict[str, str], **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return session.read.format("tidemark").options(**where, **{"shard": "s", **given}).load()


def write(frame: DataFrame, where: dict[str, str], **options: object) -> None:
    given = {name: str(value) for name, value in options.items()}
    writing = frame.write.format("tidemark").options(**where, **{"shard": "s", **given})
    writing.mode("append").save()


def numbers(session: SparkSession, start: int, stop: int) -> DataFrame:
    frame = session.range(start, stop, 1, 2)
    return frame.withColumn("name", F.concat(F.lit("n"), F.col("id")))


def ids(client: PersistClient) -> list[int]:
    upper = client.state("s").upper.time
    assert upper
    found = client.open_reader("s").snapshot(upper - 1)
    return sorted(np.repeat(found["id"].to_numpy(), found["_diff"].to_numpy()).tolist())


@pytest.mark.parametrize("seed", range(2))
def test_a_read_is_the_model(
    sourced: SparkSession, where: dict[str, str], client: PersistClient, monkeypatch, seed: int
):
    world = World(client, seed, [("k",), ()][seed], copies=(1,))
    world.step(300)
    for step in range(3):
        world.step(20)
        since = world.rng.randrange(max(world.time - 3, 0), world.time)
        world.compact(since, wholly=step == 1)
    as_of = world.rng.randrange(client.state("s").since.time or 0, world.time)
    expected = world.at(as_of)
    found = read(sourced, where, as_of=as_of)
    assert Counter(plain(tuple(row)) for row in found.collect()) == expected
    few = read(sourced, where, as_of=as_of, columns="name, k").where("k > 200")
    chosen = [r for r in expected.elements() if r[0] is not None and r[0] > 200]
    assert Counter(map(tuple, few.collect())) == Counter((r[1], r[0]) for r in chosen)
    updates = read(sourced, where, as_of=as_of, updates="true").collect()
    assert {plain(tuple(r)[:-2]): r["_diff"] for r in updates} == expected
    assert {r["_time"] for r in updates} == {as_of}
    newest = read(sourced, where)
    assert Counter(plain(tuple(row)) for row in newest.collect()) == world.at(world.time - 1)


def test_filters_skip_parts(sourced: SparkSession, where: dict[str, str], client: PersistClient):
    """A part that is not wanted is not even opened: it may be missing."""
    writer = client.open_writer("s", schema=ROWS)
    for time, start in enumerate((0, 1_000)):
        table = pa.table({"id": range(start, start + 1_000), "name": ["x"] * 1_000}, schema=ROWS)
        updates = as_updates(table, time=time, schema=writer.schema)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
    for part in client.state("s").batches[1].parts:
        client.blob.delete(part.key or "")
    assert read(sourced, where).where("id < 1000").count() == 1_000
    assert read(sourced, where).where("id = 7").collect() == [(7, "x")]
    with pytest.raises(PySparkException, match="missing"):
        read(sourced, where).count()


def test_a_filter_may_skip_the_part_that_a_retraction_is_for(
    sourced: SparkSession, where: dict[str, str], client: PersistClient, monkeypatch
):
    """The row that went does not pass the filter, and neither does any of the part it was in."""
    writer = client.open_writer("s", schema=ROWS)
    before = pa.table({"id": range(1_000), "name": ["x"] * 1_000}, schema=ROWS)
    writer.compare_and_append(
        as_updates(before, time=0, schema=writer.schema), lower=Frontier(0), upper=Frontier(1)
    )
    changed = pa.table({"id": [7, 5_000], "name": ["x", "y"], "_diff": [-1, 1]})
    writer.compare_and_append(
        as_updates(changed, time=1, schema=writer.schema), lower=Frontier(1), upper=Frontier(2)
    )
    assert read(sourced, where).where("id > 2000").collect() == [(5_000, "y")]
    for most in (50_000, 0):
        monkeypatch.setattr(frames, "SMALL_ROWS", most)
        with rows(sourced, client, "s", 1, filter=[("id", ">", 2_000)]) as found:
            assert found.ok.collect() == [(5_000, "y")]


def test_a_frame_outlives_its_lease_while_its_parts_are_there(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    write(numbers(sourced, 0, 3_000), where)
    frame = read(sourced, where)
    assert frame.count() == 3_000

    def forget_leases() -> None:
        for name in client.state("s").holds:
            client.open_critical_since("s", name).release()

    forget_leases()
    assert frame.count() == 3_000
    forget_leases()
    upper = client.state("s").upper
    assert upper.time is not None
    write(numbers(sourced, 3_000, 6_000), where)
    client.open_critical_since("s").downgrade(upper)
    machine = client.machine("s")
    compact(machine, client.blob, machine.refresh().batches)
    client.sweep(older_than_ms=0)
    with pytest.raises(PySparkException, match=r"load the frame again|can be read from"):
        frame.count()
    assert read(sourced, where).count() == 6_000


def test_a_first_write_that_fails_leaves_no_shard(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    bad = sourced.range(10).withColumn("wrong", F.raise_error(F.lit("no more")).cast("string"))
    with pytest.raises(PySparkException, match="no more"):
        write(bad, where)
    assert not client.state("s").schemas
    write(numbers(sourced, 0, 10), where)
    assert ids(client) == list(range(10))


def test_writes_append(sourced: SparkSession, where: dict[str, str], client: PersistClient):
    write(numbers(sourced, 0, 3_000), where, key="id")
    assert client.state("s").key == ("id",)
    write(numbers(sourced, 3_000, 3_010).select("name", "id"), where)
    assert ids(client) == list(range(3_010))
    assert not fsck(client, "s").errors
    timed = numbers(sourced, 5_000, 5_010).withColumn("_time", F.lit(2**62) + F.col("id") % 2)
    write(timed, where)
    assert client.state("s").upper == Frontier(2**62 + 2)
    gone = numbers(sourced, 0, 3_000).withColumn("_diff", F.lit(-1))
    write(gone, where)
    assert ids(client) == [*range(3_000, 3_010), *range(5_000, 5_010)]


def test_writers_that_expect_a_frontier(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    write(numbers(sourced, 0, 10), where, lower=0, time=4)
    assert client.state("s").upper == Frontier(5)
    before = {key for key, _ in client.blob.list()}
    with pytest.raises(PySparkException, match=r"complete to \[5\], not to \[0\]"):
        write(numbers(sourced, 0, 5_000), where, lower=0, time=9)
    with pytest.raises(PySparkException, match="option time is 4"):
        write(numbers(sourced, 0, 10), where, time=4)
    with pytest.raises(PySparkException, match="an update at 1"):
        write(numbers(sourced, 0, 10).withColumn("_time", F.lit(1)), where)
    assert ids(client) == list(range(10))
    assert {key for key, _ in client.blob.list()} == before, "what lost is deleted"
    write(numbers(sourced, 10, 20), where, lower=5, time=9)
    assert ids(client) == list(range(20))


def test_a_token_makes_it_happen_once(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    for token in ("batch 1", "batch 1", "batch 0"):
        write(numbers(sourced, 0, 10), where, name="loader", token=token)
    assert ids(client) == sorted([*range(10)] * 2)
    with pytest.raises(PySparkException, match="without a name"):
        write(numbers(sourced, 0, 10), where, token="wednesday")


def test_a_job_of_an_older_rendition_writes_nothing(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    write(numbers(sourced, 0, 10), where, rendition=1)
    write(numbers(sourced, 10, 20), where, rendition=2)
    before = {key for key, _ in client.blob.list()}
    for late in ({"rendition": 1}, {}):
        with pytest.raises(PySparkException, match=r"rendition 2, not [01] any more"):
            write(numbers(sourced, 20, 5_000), where, **late)
    assert ids(client) == list(range(20))
    assert {key for key, _ in client.blob.list()} == before, "what was shut out is deleted"
    with pytest.raises(PySparkException, match="'new' is not a number from 0 on"):
        write(numbers(sourced, 0, 10), where, rendition="new")


def test_two_jobs_write_at_once(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    def job(number: int) -> None:
        register(sourced)  # In a thread of its own, Spark does not find it otherwise.
        write(numbers(sourced, number * 100, number * 100 + 100), where)

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(job, number) for number in range(6)]
    for job in jobs:
        job.result()
    assert ids(client) == list(range(600))


def test_a_failing_job_leaves_the_shard_as_it_was(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    write(numbers(sourced, 0, 10), where)
    state = client.state("s")
    bad = numbers(sourced, 0, 50_000).withColumn(
        "name", F.when(F.col("id") == 49_999, F.raise_error(F.lit("no more"))).otherwise("x")
    )
    with pytest.raises(PySparkException, match="no more"):
        write(bad, where)
    after = client.state("s")
    assert (after.upper, after.batches) == (state.upper, state.batches)
    client.sweep(older_than_ms=0)
    assert {key for key, _ in client.blob.list()} == after.keys


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shard": "nothing"}, "no shard 'nothing'"),
        ({"colour": "red"}, "no option 'colour'"),
        ({"as_of": "yesterday"}, "not a timestamp"),
        ({"columns": "id, size"}, "no such columns: size"),
        ({"as_of": "0"}, "can be read from"),
        ({"collection": "x"}, "either a collection or a shard"),
        ({"updates": "maybe"}, "neither true nor false"),
    ],
)
def test_reads_that_are_refused(
    sourced: SparkSession, where: dict[str, str], client: PersistClient, options, message: str
):
    writer = client.open_writer("s", schema=ROWS)
    table = pa.table({"id": [1], "name": ["x"]}, schema=ROWS)
    writer.compare_and_append(
        as_updates(table, time=0, schema=writer.schema), lower=Frontier(0), upper=Frontier(5)
    )
    client.open_critical_since("s").downgrade(Frontier(3))
    with pytest.raises(PySparkException, match=message):
        read(sourced, where, **options).collect()


def test_writes_that_are_refused(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    write(numbers(sourced, 0, 10), where)
    with pytest.raises(PySparkException, match="has the columns id, name"):
        write(sourced.range(3), where)
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        numbers(sourced, 0, 1).write.format("tidemark").options(**where, shard="s").mode(
            "overwrite"
        ).save()
    with pytest.raises(PySparkException, match="written by the server"):
        numbers(sourced, 0, 1).write.format("tidemark").options(**where, collection="s").mode(
            "append"
        ).save()
    assert ids(client) == list(range(10))


def test_an_error_in_the_collection_fails_the_read(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    world = World(client, 1)
    world.step(5)
    world.append([], [("division by zero", 1, 1)])
    assert read(sourced, where, as_of=0).count() >= 1
    with pytest.raises(PySparkException, match="division by zero"):
        read(sourced, where, as_of=1).count()


def test_a_shard_that_follows_a_log_is_read_at_the_logs_last_time(
    sourced: SparkSession, where: dict[str, str], client: PersistClient
):
    log = client.open_writer("log", schema=pa.schema([("s", pa.string())]))
    writer = client.open_writer("s", schema=ROWS)
    writer.follow("log")
    table = as_updates(pa.table({"id": [1], "name": ["n1"]}), time=3)
    writer.compare_and_append(table, lower=Frontier(0), upper=Frontier(4))
    log.compare_and_append(None, lower=Frontier(0), upper=Frontier(900), leading=())
    assert [row["id"] for row in read(sourced, where).collect()] == [1]
    assert [row["id"] for row in read(sourced, where, as_of=899).collect()] == [1]
