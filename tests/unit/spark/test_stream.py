"""Streams: each change once, over restarts; and streams that pass through a shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from worlds import SMALL

from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, as_updates
from tidemark.region import pass_through

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])
DEADLINE = 240


class Place:
    """A region's stores, a shard `s` in them, and a folder for checkpoints."""

    def __init__(self, folder: Path):
        (folder / "blob").mkdir()
        self.folder = folder
        self.where = {"blob": f"file://{folder}/blob", "consensus": f"sqlite://{folder}/c.db"}
        self.client = PersistClient.open(**self.where, config=SMALL)
        self.time = 0

    def append(self, ids: list[int], diff: int = 1) -> None:
        writer = self.client.open_writer("s", schema=ROWS, key=("id",))
        rows = pa.table({"id": ids, "name": [f"n{i}" for i in ids]}, schema=ROWS)
        updates = as_updates(rows, time=self.time, diff=diff, schema=writer.schema)
        lower = writer.fetch_upper()
        writer.compare_and_append(updates, lower=lower, upper=Frontier(self.time + 1))
        self.time += 1

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        given = {**self.where, "shard": "s", "updates": "true", **options}
        return spark.readStream.format("tidemark").options(**given).load()

    def copy(self, frame: DataFrame, *, to: str = "copy", checkpoint: str = "checkpoint") -> None:
        """All there is of `frame` into another shard."""
        writing = frame.writeStream.format("tidemark").options(**self.where, shard=to, name="copy")
        writing = writing.option("checkpointLocation", str(self.folder / checkpoint))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)

    def ids(self, shard: str = "copy") -> list[int]:
        upper = self.client.state(shard).upper.time
        assert upper
        found = self.client.open_reader(shard).snapshot(upper - 1)
        assert set(found["_diff"].to_pylist()) <= {1}
        return sorted(found["id"].to_pylist())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.client.close()


def test_the_snapshot_and_then_each_change_once(sourced: SparkSession, place: Place):
    place.append(list(range(1_000)))
    place.append([5, 6], diff=-1)
    seen: list[tuple[int, int, int]] = []

    def note(batch: DataFrame, _: int) -> None:
        seen.extend((row["_time"], row["_diff"], 1) for row in batch.collect())

    def follow() -> list[tuple[int, int]]:
        """What a stream that goes on from its checkpoint is given: sums by time."""
        seen.clear()
        writing = place.stream(sourced, name="follower").writeStream.foreachBatch(note)
        writing = writing.option("checkpointLocation", str(place.folder / "seen"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE)
        times = sorted({time for time, _, _ in seen})
        return [(time, sum(d for t, d, _ in seen if t == time)) for time in times]

    assert follow() == [(1, 998)], "one snapshot, at one time"
    assert follow() == []
    place.append([5])
    place.append([7, 8], diff=-1)
    place.client.open_writer("s", schema=ROWS, key=("id",)).advance_upper(Frontier(100))
    place.time = 100
    assert follow() == [(2, 1), (3, -2)]
    hold = place.client.state("s").holds["stream-follower"]
    place.client.open_critical_since("s").downgrade(Frontier(99))
    assert place.client.state("s").since <= hold.since, "what it has not seen stays apart"
    place.client.maintain("s")
    place.append([1, 2], diff=-1)
    assert follow() == [(100, -2)]


def test_a_copy_follows_over_restarts(sourced: SparkSession, place: Place):
    place.append(list(range(500)))
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    assert place.ids() == list(range(500))
    for number in range(2):
        place.append([number], diff=-1)
        place.append([1_000 + number])
        place.copy(place.stream(sourced, name="reader").drop("_time"))
        assert place.ids() == place.ids("s")
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    assert place.ids() == place.ids("s")


def test_a_batch_that_was_appended_is_not_appended_again(sourced: SparkSession, place: Place):
    """As after a crash between the append and Spark's note that the batch is done."""
    place.append(list(range(10)))
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    (place.folder / "checkpoint" / "commits" / "0").unlink()
    (place.folder / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    place.append([99])
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    assert place.ids() == [*range(10), 99], "and it goes on to what came since"


def test_a_stream_that_begins_anew_needs_a_new_name(sourced: SparkSession, place: Place):
    """Its first batch would be taken for the one that is there, and be lost."""
    place.append(list(range(10)))
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    place.append([77])
    with pytest.raises(StreamingQueryException, match="another stream"):
        place.copy(place.stream(sourced, name="other").drop("_time"), checkpoint="another")
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    assert place.ids() == [*range(10), 77]


def test_an_error_that_went_again_does_not_stop_a_stream(sourced: SparkSession, place: Place):
    place.append([1])
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    writer = place.client.open_writer("s", schema=ROWS, key=("id",))
    for diff in (1, -1):
        bad = {"id": None, "name": None, "_time": place.time, "_diff": diff, "_err": "boom"}
        table = pa.Table.from_pylist([bad], schema=writer.schema)
        lower = writer.fetch_upper()
        writer.compare_and_append(table, lower=lower, upper=Frontier(place.time + 1))
        place.time += 1
        if diff == 1:
            other = place.stream(sourced, name="other").drop("_time")
            with pytest.raises(StreamingQueryException, match="boom"):
                place.copy(other, to="b", checkpoint="b")
    place.append([2])
    place.copy(place.stream(sourced, name="reader").drop("_time"))
    assert place.ids() == [1, 2]


def test_rows_alone_cannot_say_that_some_have_gone(sourced: SparkSession, place: Place):
    place.append([1, 2, 3])
    place.copy(place.stream(sourced, updates="false"))
    place.append([4])
    place.copy(place.stream(sourced, updates="false"))
    assert place.ids() == [1, 2, 3, 4]
    place.append([1], diff=-1)
    with pytest.raises(StreamingQueryException, match="updates"):
        place.copy(place.stream(sourced, updates="false"))


def test_a_stream_without_a_name_is_not_waited_for(sourced: SparkSession, place: Place):
    place.append([1])
    place.copy(place.stream(sourced).drop("_time"))
    for lease in [h for h in place.client.state("s").holds if h.startswith("lease")]:
        place.client.open_critical_since("s", lease).release()
    for number in range(5):
        place.append([10 + number])
    place.client.open_critical_since("s").downgrade(Frontier(4))
    with pytest.raises(StreamingQueryException, match="has forgotten what came next"):
        place.copy(place.stream(sourced).drop("_time"))


def test_a_stream_that_is_written_needs_a_name(sourced: SparkSession, place: Place):
    place.append([1])
    writing = place.stream(sourced).writeStream.format("tidemark").options(**place.where, shard="x")
    writing = writing.option("checkpointLocation", str(place.folder / "c"))
    with pytest.raises(StreamingQueryException, match="needs a name"):
        writing.trigger(availableNow=True).start().awaitTermination(DEADLINE)


def test_passing_through_shows_what_is_durable(sourced: SparkSession, place: Place):
    """Others see it only from the shard; after a restart they begin with what is there."""
    place.append(list(range(100)))

    def passed() -> tuple[int, list[int]]:
        source = place.stream(sourced, name="source").drop("_time")
        through = pass_through(
            source,
            shard="through",
            name="passer",
            checkpoint=place.folder / "through",
            **place.where,
        )
        try:
            through.query.processAllAvailable()
            durable = place.ids("through")
            out = through.frame.writeStream.format("memory").queryName("passed")
            down = out.start()
            down.processAllAvailable()
            down.stop()
            rows = sourced.table("passed")
            assert sorted(r["id"] for r in rows.where("_diff = 1").collect()) == durable
            return rows.select("_time").distinct().count(), durable
        finally:
            through.query.stop()

    assert passed() == (1, list(range(100)))
    place.append([200])
    assert passed() == (1, [*range(100), 200]), "one snapshot of all that was persisted"
