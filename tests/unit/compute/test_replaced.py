"""A view that comes in another's place goes on with the state that both have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import dataflow
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View, inherited, keeping, state_shards
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.types import INTEGER, TEXT, Column, arrow_schema

COLUMNS = (Column("k", TEXT), Column("v", INTEGER))
GROUPED = "SELECT k, count(*) AS n, max(v) AS most FROM t GROUP BY k"


class Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get(parts[-1], COLUMNS)


def plan(sql: str) -> Plan:
    return plan_query(parse_query(sql), Tables(), view=True)


def append(client: PersistClient, rows: list[tuple[str, int, int, int]], upper: int) -> None:
    writer = client.open_writer("t", schema=arrow_schema(COLUMNS))
    columns = zip(*rows, strict=True)
    updates = pa.table([*columns], names=["k", "v", TIME, DIFF])
    updates = as_updates(updates, schema=writer.schema)
    writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=Frontier(upper))


def contents(client: PersistClient, shard: str, as_of: int) -> list[tuple]:
    found = client.open_reader(shard).snapshot(as_of)
    assert set(found[DIFF].to_pylist()) <= {1}
    return sorted(zip(*(found[name].to_pylist() for name in ("k", "n", "most")), strict=True))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_state_is_kept(
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    large: bool,
    ahead: bool,
):
    if large:
        monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    flows = Flows(client, spark, Arrangements(client, tmp_path))

    def made(id_: str, sql: str, as_of: int, owners: dict[str, str] | None = None) -> View:
        made = View(
            id_, plan(sql), inputs={"t": "t"}, output=id_, as_of=as_of, flows=flows, owners=owners
        )
        made.start()
        return made

    append(client, [("a", 1, 1, 1), ("a", 2, 1, 1), ("b", 7, 1, 1)], upper=2)
    before = made("before", GROUPED, 1)
    append(client, [("a", 3, 2, 1), ("b", 7, 3, -1), ("b", 5, 3, 1)], upper=4)
    before.tick(Frontier(4))
    having = f"{GROUPED} HAVING count(*) > 1"
    owners = inherited(plan(having), "before", plan(GROUPED), {})
    kept = state_shards("after", plan(having), owners)
    assert kept == state_shards("before", plan(GROUPED), {})
    assert set(kept) <= keeping("after", plan(having), owners, client).shards
    held = [client.open_critical_since(shard, "dataflow-after") for shard in ("t", *kept)]
    assert all(hold.downgrade(Frontier(3)) == Frontier(3) for hold in held)
    if ahead:
        # The one before goes on for a while, say in another replica.
        append(client, [("a", 3, 4, -1)], upper=5)
        before.tick(Frontier(5))
    before.stop()
    parts = {shard: [*client.state(shard).parts] for shard in kept}
    after = made("after", having, 3, owners)
    assert {shard: [*client.state(shard).parts] for shard in kept} == parts
    assert contents(client, "after", 3) == [("a", 3, 3)]
    if not ahead:
        append(client, [("a", 3, 4, -1)], upper=5)
    append(client, [("b", 9, 5, 1), ("a", 2, 5, -1)], upper=6)
    after.tick(Frontier(6))
    assert contents(client, "after", 4) == [("a", 2, 2)]
    assert contents(client, "after", 5) == [("b", 2, 9)]
    after.stop()
    again = made("after", having, 3, owners)
    append(client, [("a", 8, 6, 1)], upper=7)
    again.tick(Frontier(7))
    assert contents(client, "after", 6) == [("a", 2, 8), ("b", 2, 9)]
    again.stop()


def test_another_state_is_another(client: PersistClient):
    other = plan("SELECT k, count(*) AS n, min(v) AS least FROM t GROUP BY k")
    assert inherited(other, "before", plan(GROUPED), {}) == {}
    assert inherited(plan(GROUPED), "b", plan(GROUPED), {}) != {}
