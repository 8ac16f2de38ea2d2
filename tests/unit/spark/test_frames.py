"""Frames against a model: random histories, random times, whatever shape the shard is in."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from worlds import SMALL, World, plain

from tidemark.errors import AsOfBeforeSince, DataError, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient, as_updates
from tidemark.persist.compact import compact
from tidemark.spark import frames
from tidemark.spark.frames import counted, delta, rows, snapshot
from tidemark.spark.session import LARGE, session_for


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch):
    """Spark's ways for few rows, too."""
    monkeypatch.setattr(frames, "SMALL_ROWS", 0)


@pytest.mark.parametrize("overlay_here", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_frames_are_the_model(
    spark: SparkSession, tmp_path: Path, eager, monkeypatch, seed: int, overlay_here: bool
):
    monkeypatch.setattr(frames, "LOCAL_OVERLAY_ROWS", 10**6 if overlay_here else 0)
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    key = [("k",), (), ("name", "k"), ("x",)][seed]
    world = World(client, seed, key, copies=(1,) if seed % 2 else (1, 1, 1, 3))
    world.step(300)
    for step in range(4):
        since = world.rng.randrange(max(world.time - 3, 0), world.time)
        world.compact(world.time - 1 if step % 2 else since, wholly=step % 2 == 1)
        for _ in range(world.rng.randrange(1, 4)):
            world.step(world.rng.choice([1, 5, 20]))
        check(spark, world)
    client.close()


def test_a_shard_that_follows_a_log(spark: SparkSession, client: PersistClient, eager):
    """Nothing was appended to it for long, and it is readable at the log's last time."""
    log = client.open_writer("log", schema=pa.schema([("s", pa.string())]))
    writer = client.open_writer("idle", schema=pa.schema([("n", pa.int64())]))
    writer.follow("log")
    log.compare_and_append(None, lower=Frontier(0), upper=Frontier(4), leading=("idle",))
    table = as_updates(pa.table({"n": [1, 2]}), time=3)
    writer.compare_and_append(table, lower=Frontier(0), upper=Frontier(4))
    log.compare_and_append(None, lower=Frontier(4), upper=Frontier(900), leading=())
    with snapshot(spark, client, "idle", 899) as found:
        assert sorted(row["n"] for row in found.ok.collect()) == [1, 2]
    with rows(spark, client, "idle", 899) as found:
        assert sorted(row["n"] for row in found.ok.collect()) == [1, 2]
    with delta(spark, client, "idle", Frontier(4), Frontier(900)) as found:
        assert found.ok.collect() == []
    with (
        pytest.raises(InvalidUsage, match=r"complete to \[900\], not \[901\]"),
        delta(spark, client, "idle", Frontier(4), Frontier(901)),
    ):
        pass


def summed(frame: DataFrame) -> dict[tuple, int]:
    counts: Counter[tuple] = Counter()
    for row in frame.collect():
        counts[plain(tuple(row)[:-1])] += row[DIFF]
    return {row: n for row, n in counts.items() if n}


def check(spark: SparkSession, world: World) -> None:
    since = world.client.state("s").since.time or 0
    as_of = world.time - 1 if world.rng.random() < 0.6 else world.rng.randrange(since, world.time)
    expected = world.at(as_of)
    where = f"as_of {as_of}, since {since}, upper {world.time}"
    with snapshot(spark, world.client, "s", as_of) as found:
        exact = [(plain(tuple(r)[:-1]), r[DIFF]) for r in found.ok.collect()]
        assert Counter(dict(exact)) == expected, where
        assert len(exact) == len(expected), f"not consolidated: {where}"
        assert not found.may_err
    with snapshot(spark, world.client, "s", as_of, consolidated=False) as found:
        assert summed(found.ok) == expected, where
    if all(count > 0 for count in expected.values()):
        with counted(spark, world.client, "s", as_of) as found:
            assert summed(found.ok) == expected, where
            assert not found.ok.where(f"{DIFF} < 1").count(), where
        with rows(spark, world.client, "s", as_of) as found:
            assert Counter(plain(tuple(r)) for r in found.ok.collect()) == expected, where
        with rows(spark, world.client, "s", as_of, columns=["k"], filter=[("k", ">", 200)]) as few:
            ks = Counter(r["k"] for r in few.ok.collect())
        chosen = {row: n for row, n in expected.items() if row[0] is not None and row[0] > 200}
        assert ks == Counter(k for row, n in chosen.items() for k in [row[0]] * n), where
    lower = world.rng.randrange(since + 1, world.time + 1)
    with delta(spark, world.client, "s", Frontier(lower), Frontier(world.time)) as found:
        changes: Counter[tuple] = Counter()
        for row in found.ok.collect():
            changes[plain(tuple(row)[:-2]), row[TIME]] += row[DIFF]
    model: Counter[tuple] = Counter()
    for row, time, diff in world.history:
        if time >= lower:
            model[row, time] += diff
    nonzero = {change: n for change, n in model.items() if n}
    assert {change: n for change, n in changes.items() if n} == nonzero, f"{where}, from {lower}"


@pytest.mark.parametrize("here", [True, False])
def test_errors_are_kept_apart(spark: SparkSession, tmp_path: Path, monkeypatch, here: bool):
    monkeypatch.setattr(frames, "SMALL_ROWS", 10**6 if here else 0)
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    world = World(client, 1, copies=(1,))
    world.step(200)
    world.append([], [("boom", 1, 2), ("bang", 1, 1)])
    world.append([], [("bang", 2, -1)])
    for as_of, errors in ((0, {}), (1, {"boom": 2, "bang": 1}), (2, {"boom": 2})):
        with snapshot(spark, client, "s", as_of) as found:
            assert {row[ERR]: row[DIFF] for row in found.err.collect()} == errors
            assert found.ok.count() == len(world.at(as_of))
            assert found.may_err or not errors
        with rows(spark, client, "s", as_of) as found:
            if errors:
                with pytest.raises(DataError, match=r"boom|bang"):
                    found.sound()
            else:
                assert found.sound().count() == len(world.at(as_of))
    with delta(spark, client, "s", Frontier(2), Frontier(3)) as found:
        assert [(r[ERR], r[TIME], r[DIFF]) for r in found.err.collect()] == [("bang", 2, -1)]
        assert found.ok.count() == 0
    client.close()


def test_what_cannot_be_read_says_why(spark: SparkSession, tmp_path: Path):
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    with (
        pytest.raises(InvalidUsage, match="no shard"),
        delta(spark, client, "s", Frontier(0), Frontier(1)),
    ):
        pass
    world = World(client, 1)
    for _ in range(4):
        world.step(10)
    world.compact(2)
    with pytest.raises(AsOfBeforeSince, match="from time"), snapshot(spark, client, "s", 1):
        pass
    with (
        pytest.raises(InvalidUsage, match="complete to"),
        delta(spark, client, "s", Frontier(3), Frontier(9)),
    ):
        pass
    with (
        pytest.raises(InvalidUsage, match="cannot filter"),
        rows(spark, client, "s", 3, filter=[("nothing", "=", 1)]),
    ):
        pass
    client.close()


@pytest.mark.parametrize("here", [True, False])
def test_a_plain_timestamp_has_no_zone(
    spark: SparkSession, tmp_path: Path, monkeypatch, here: bool
):
    monkeypatch.setattr(frames, "SMALL_ROWS", 10**6 if here else 0)
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    schema = pa.schema([("at", pa.timestamp("us")), ("a `b`", pa.int64())])
    writer = client.open_writer("s", schema=schema)
    times = [datetime(2026, 1, 1, hour) for hour in (9, 12, 15)]
    table = pa.table([times, [1, 2, 3]], schema=schema)
    updates = as_updates(table, time=0, schema=writer.schema)
    writer.compare_and_append(updates, lower=Frontier(0), upper=Frontier(1))
    session = session_for(spark, {**LARGE, "spark.sql.session.timeZone": "America/New_York"})
    with rows(session, client, "s", 0, filter=[("at", ">", times[0])]) as found:
        assert sorted(row["a `b`"] for row in found.ok.collect()) == [2, 3]
    with rows(session, client, "s", 0, columns=["a `b`"]) as found:
        assert found.ok.columns == ["a `b`"]
    with (
        pytest.raises(InvalidUsage, match="no such columns: z"),
        rows(session, client, "s", 0, columns=["z"]),
    ):
        pass
    client.close()


def test_parts_stay_while_they_are_read(spark: SparkSession, tmp_path: Path, eager):
    """A merge and a sweep in the middle of a read."""
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    world = World(client, 3, copies=(1,))
    for _ in range(4):
        world.step(200)
    with rows(spark, client, "s", 3) as found:
        world.step(20)
        world.compact(4, wholly=True)
        client.sweep(older_than_ms=0)
        assert Counter(plain(tuple(row)) for row in found.ok.collect()) == world.at(3)
    client.sweep(older_than_ms=0)
    live = {part.key for part in client.state("s").parts if part.key is not None}
    assert {key for key, _ in client.blob.list()} == live
    client.close()


def test_a_column_that_came_later(spark: SparkSession, tmp_path: Path, eager):
    """The base lacks it, the overlay has it; rows of before can go and come back with it."""
    client = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    narrow = pa.schema([("k", pa.int64())])
    writer = client.open_writer("s", schema=narrow, key=("k",))
    wide = narrow.append(pa.field("more", pa.string()))

    def append(time: int, values: list[tuple], diffs: list[int]) -> None:
        names = writer.schema.names[:-3]
        rows = [dict(zip(names, value, strict=True)) for value in values]
        table = pa.Table.from_pylist(rows, schema=pa.schema(list(writer.schema)[:-3]))
        table = table.append_column("_diff", pa.array(diffs, pa.int64()))
        updates = as_updates(table, time=time, schema=writer.schema)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))

    append(0, [(k,) for k in range(1_000)], [1] * 1_000)
    client.open_critical_since("s").downgrade(Frontier(0))
    machine = client.machine("s")
    compact(machine, client.blob, machine.refresh().batches)
    writer.evolve_schema(wide)
    append(1, [(1, None), (2, None), (1, "one"), (5_000, "new")], [-1, -1, 1, 1])
    expected = Counter({(k, None): 1 for k in range(1_000) if k not in (1, 2)})
    expected |= Counter({(1, "one"): 1, (5_000, "new"): 1})
    with rows(spark, client, "s", 1) as found:
        assert Counter(map(tuple, found.ok.collect())) == expected
    with snapshot(spark, client, "s", 1) as found:
        assert {tuple(row)[:-1]: row[DIFF] for row in found.ok.collect()} == expected
    with rows(spark, client, "s", 1, filter=[("more", "=", "one")]) as found:
        assert [tuple(row) for row in found.ok.collect()] == [(1, "one")]
    client.close()
