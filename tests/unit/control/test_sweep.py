"""What a server that starts sweeps: what it left itself, and nothing of views without a server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.compute.expr import Lit
from tidemark.compute.plan import Filter, Get
from tidemark.control.catalog import Item
from tidemark.control.coordinator import Coordinator
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from tidemark.persist.consensus import Versioned
from tidemark.types import BIGINT, BOOLEAN, Column


def test_what_a_subscription_maintains_is_kept_while_it_lasts_and_swept_after_a_crash(
    tmp_path: Path,
):
    client = PersistClient(MemBlob(), MemConsensus())
    columns = (Column("n", BIGINT),)
    plan = Filter(Get("u1", columns), Lit("true", BOOLEAN))

    def server() -> Coordinator:
        return Coordinator(
            client, data=tmp_path, blob="mem://", consensus="mem://", spark_master=""
        )

    coordinator = server()
    coordinator.catalog.add(Item("u1", "orders", "table", "", columns, shard="u1"))
    for shard in ("u1", "u2"):
        client.open_writer(shard, schema=pa.schema([("n", pa.int64())])).advance_upper(Frontier(5))
    item = Item("u2", "", "materialized-view", "", shard="u2", plan=plan, depends=("u1",))
    coordinator.transient.items["u2"] = item
    coordinator.hold_at("dataflow-u2", ["u1"], 3)
    coordinator._sweep()
    assert "dataflow-u2" in client.state("u1").holds
    assert not client.state("u2").is_tombstone
    (spec,) = coordinator._configurations()["quickstart"].dataflows
    assert (spec.id, spec.inputs, spec.output) == ("u2", {"u1": "u1"}, "u2")
    with pytest.raises(AsOfBeforeSince):
        coordinator.hold_at("dataflow-u3", ["u1"], 2)
    server()._sweep()
    assert "dataflow-u2" not in client.state("u1").holds
    assert client.state("u2").is_tombstone
    client.close()


class Counting(MemConsensus):
    def __init__(self) -> None:
        super().__init__()
        self.scans: list[str] = []

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        self.scans.append(key)
        return super().scan(key, start, limit)


def test_what_is_dropped_is_looked_at_once(tmp_path: Path):
    blob, consensus = MemBlob(), Counting()
    before, client = PersistClient(blob, consensus), PersistClient(blob, consensus)
    coordinator = Coordinator(
        client, data=tmp_path, blob="mem://", consensus="mem://", spark_master=""
    )
    dropped = [f"u{number}" for number in range(1000, 1010)]
    for shard in dropped:
        by = client if shard == dropped[0] else before
        by.open_writer(shard, schema=pa.schema([("n", pa.int64())])).advance_upper(Frontier(5))
        by.finalize(shard)
    coordinator._sweep()
    consensus.scans.clear()
    coordinator._sweep()
    assert not set(dropped) & set(consensus.scans)
    assert not set(dropped) & client._machines.keys()
    assert client.state(dropped[0]).is_tombstone
    assert {state.shard_id for state in client.shards()} >= set(dropped)
    assert not set(dropped) & client._machines.keys()
    client.close()
    before.close()


def test_views_without_a_server_are_left_alone(tmp_path: Path):
    client = PersistClient(MemBlob(), MemConsensus())
    coordinator = Coordinator(
        client, data=tmp_path, blob="mem://", consensus="mem://", spark_master=""
    )
    coordinator.catalog.add(Item("u1", "orders", "table", "", shard="u1"))
    left = f"u9-f-{'0' * 16}"
    for shard in ("u1", left, f"view-v-1-{left}"):
        client.open_writer(shard, schema=pa.schema([("n", pa.int64())])).advance_upper(Frontier(5))
    theirs = {"dataflow-view-v-1", f"dataflow-view-v-1-{left}", "stream-scorer", "owner"}
    for holder in (*theirs, "dataflow-u9", f"dataflow-{left}", "sink-u9-abc"):
        client.open_critical_since("u1", holder).downgrade(Frontier(3))
    coordinator._sweep()
    assert theirs <= set(client.state("u1").holds)
    assert not {"dataflow-u9", f"dataflow-{left}"} & set(client.state("u1").holds)
    assert client.state(left).is_tombstone
    assert not client.state(f"view-v-1-{left}").is_tombstone
    client.close()
