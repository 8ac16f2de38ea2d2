"""Probes: the rows of many keys, whichever way they are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from worlds import NAN, SCHEMA, SMALL, World, plain

from tidemark.errors import DataError, InvalidUsage
from tidemark.persist import DIFF, PersistClient
from tidemark.spark import probe as module
from tidemark.spark.frames import local_frame
from tidemark.spark.probe import choose, probe


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    opened = PersistClient.open(
        blob=f"file://{tmp_path}/blob", consensus=f"sqlite://{tmp_path}/c.db", config=SMALL
    )
    yield opened
    opened.close()


@pytest.mark.parametrize("way", ["here", "tasks", "scan"])
def test_every_way_finds_the_rows_of_the_keys(
    spark: SparkSession, client: PersistClient, tmp_path: Path, way
):
    world = World(client, 5, key=("k",))
    world.step(300, keys=60)
    world.step(40, keys=60)
    world.compact(1, wholly=True)
    for key in (("k",), ("name", "x")):
        world.step(20, keys=60)
        as_of = world.time - 2
        at = [SCHEMA.names.index(name) for name in key]
        known = sorted({tuple(row[i] for i in at) for row in world.at(as_of)}, key=repr)
        asked = [tuple(None if v is NAN else v for v in k) for k in known[::3]]
        asked = list(dict.fromkeys([*asked, *asked[:3], (None,) * len(at)]))
        expected = {
            row: n for row, n in world.at(as_of).items() if tuple(row[i] for i in at) in asked
        }
        fields = pa.schema([SCHEMA.field(i).with_name(f"q{n}") for n, i in enumerate(at)])
        table = pa.Table.from_pylist(
            [dict(zip(fields.names, values, strict=True)) for values in asked], schema=fields
        )
        keys = local_frame(spark, table).repartition(2)
        with probe(
            spark,
            client,
            "s",
            keys,
            fields.names,
            key=key,
            as_of=as_of,
            folder=tmp_path / "cache",
            way=way,
        ) as found:
            rows = [(plain(tuple(row)[:-1]), row[DIFF]) for row in found.collect()]
        assert Counter(dict(rows)) == Counter(expected), (key, as_of)
        assert len(rows) == len(expected)


@pytest.mark.parametrize("way", ["here", "tasks", "scan"])
def test_a_collection_in_error_fails_with_its_error(
    spark: SparkSession, client: PersistClient, tmp_path: Path, way
):
    world = World(client, 1)
    world.step(5)
    world.append([], [("boom", 1, 1)])
    keys = spark.range(3)
    given = {"key": ["k"], "folder": tmp_path / "cache", "way": way}
    with (
        pytest.raises(DataError, match="boom"),
        probe(spark, client, "s", keys, ["id"], as_of=1, **given),
    ):
        pass
    with probe(spark, client, "s", keys, ["id"], as_of=0, **given) as found:
        found.collect()


def test_the_rule(spark: SparkSession, client: PersistClient, tmp_path: Path, monkeypatch):
    assert choose(100_000, 10) == "here"
    assert choose(100_001, 10_000_000) == "tasks"
    assert choose(6_000_000, 10_000_000) == "scan"
    world = World(client, 6, key=("k",), copies=(1,))
    world.step(200)
    keys = spark.range(0, 400)
    expected = sum(1 for row in world.at(0) if row[0] is not None)
    for most, share in ((10**6, 0.1), (10, 10.0), (10, 0.1)):
        monkeypatch.setattr(module, "HERE_KEYS", most)
        monkeypatch.setattr(module, "SCAN_SHARE", share)
        folder = tmp_path / "cache"
        with probe(spark, client, "s", keys, ["id"], key=["k"], as_of=0, folder=folder) as found:
            assert found.count() == expected
    with (
        pytest.raises(InvalidUsage, match="2 columns"),
        probe(spark, client, "s", keys, ["id", "id"], key=["k"], as_of=0, folder=tmp_path),
    ):
        pass
    with (
        pytest.raises(InvalidUsage, match="no columns z"),
        probe(spark, client, "s", keys, ["id"], key=["z"], as_of=0, folder=tmp_path),
    ):
        pass
