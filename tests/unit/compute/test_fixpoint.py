"""Recursions that are kept: what their rounds read stays readable."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from batches import check_view
from tidemark.compute import dataflow
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View, keeping
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.updates import updates_schema
from tidemark.types import INTEGER, Column, arrow_schema

COLUMNS = (Column("f", INTEGER), Column("t", INTEGER))

# Besides the paths themselves each round reads a fragment that is the same in all of them.
PATHS = """
    WITH MUTUALLY RECURSIVE path (f int, t int) AS (
        SELECT f, t FROM e
        UNION SELECT path.f, d.t FROM path JOIN (SELECT f, max(t) AS t FROM e GROUP BY f) d
              ON path.t = d.f)
    SELECT f, t FROM path"""


class Catalog:
    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        return Get("e", COLUMNS)


def test_rounds_made_in_a_tick_begin_before_it(
    client: PersistClient, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are at the end of the interval by then, and hold no more than that."""
    monkeypatch.setattr(dataflow, "HOLD_EVERY_MS", 0)
    for shard in ("e", "v"):
        client.open_critical_since(shard, "test").downgrade(Frontier.MIN)
    plan = plan_query(parse_query(PATHS), Catalog(), view=True)
    flows = Flows(client, spark, Arrangements(client, tmp_path / "cache"))
    append(client, 0, 1, [(1, 2, 0, 1)])
    view = View("v", plan, inputs={"e": "e"}, output="v", as_of=0, flows=flows)
    view.start()
    append(client, 1, 6, [(2, 3, 1, 1), (3, 4, 2, 1), (4, 5, 3, 1), (2, 3, 5, -1)])
    view.tick(view.input_upper())
    check_view(spark, client, plan, inputs={"e": "e"}, output="v", times=range(6))
    view.stop()


def test_limits_are_each_recursions_own(
    client: PersistClient, spark: SparkSession, tmp_path: Path
) -> None:
    """Two of the same rounds, but not of as many, in one view; also after a restart."""
    sql = " UNION ALL ".join(
        f"""
        SELECT f, t FROM (
            WITH MUTUALLY RECURSIVE (RETURN AT RECURSION LIMIT {limit}) path (f int, t int) AS (
                SELECT f, t FROM e UNION SELECT path.f, e.t FROM path JOIN e ON path.t = e.f)
            SELECT f, t FROM path) p{limit}"""
        for limit in (2, 4)
    )
    for shard in ("e", "v"):
        client.open_critical_since(shard, "test").downgrade(Frontier.MIN)
    plan = plan_query(parse_query(sql), Catalog(), view=True)
    append(client, 0, 1, [(n, n + 1, 0, 1) for n in range(6)])
    for upper in (2, 3):
        flows = Flows(client, spark, Arrangements(client, tmp_path / f"cache{upper}"))
        view = View("v", plan, inputs={"e": "e"}, output="v", as_of=0, flows=flows)
        view.start()
        append(client, upper - 1, upper, [(3, 4, upper - 1, -1 if upper == 2 else 1)])
        view.tick(view.input_upper())
        view.stop()
    check_view(spark, client, plan, inputs={"e": "e"}, output="v", times=range(3))


def test_all_that_keeps_a_recursion_is_known(
    client: PersistClient, spark: SparkSession, tmp_path: Path
) -> None:
    plan = plan_query(parse_query(PATHS), Catalog(), view=True)
    append(client, 0, 1, [(1, 2, 0, 1), (2, 3, 0, 1)])
    flows = Flows(client, spark, Arrangements(client, tmp_path / "cache"))
    view = View("u7", plan, inputs={"e": "e"}, output="v", as_of=0, flows=flows)
    view.start()
    kept = keeping("u7", plan, {}, client)
    known = list(client.consensus.keys())
    stored = {shard for shard in known if client.state(shard).upper.time}
    assert kept.shards >= stored - {"e", "v"}
    holders = {holder for shard in stored for holder in client.state(shard).holds}
    assert holders == {holder_of(each) for each in kept.dataflows}
    view.stop()


def append(
    client: PersistClient, lower: int, upper: int, updates: list[tuple[int, int, int, int]]
) -> None:
    rows = [dict(zip(("f", "t", TIME, DIFF), each, strict=True)) | {ERR: None} for each in updates]
    schema = arrow_schema(COLUMNS)
    client.open_writer("e", schema=schema).compare_and_append(
        pa.Table.from_pylist(rows, schema=updates_schema(schema)),
        lower=Frontier(lower),
        upper=Frontier(upper),
    )
