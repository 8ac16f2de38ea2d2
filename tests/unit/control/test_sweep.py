"""What a server that starts sweeps: what it left itself, and nothing of views without a server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tidemark.control.catalog import Item
from tidemark.control.coordinator import Coordinator
from tidemark.frontier import Frontier
from tidemark.persist import MemBlob, MemConsensus, PersistClient


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
