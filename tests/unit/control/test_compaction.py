"""How far control lets history go: not held back by tables that nobody writes to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.control.catalog import RETAIN_MS, Item
from tidemark.control.coordinator import Coordinator
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, MemBlob, MemConsensus, PersistClient
from tidemark.storage.tables import Write
from tidemark.types import BIGINT, Column, arrow_schema

START = 1_000_000
DAY = 86_400_000


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    client = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(START))
    yield Coordinator(client, data=tmp_path, blob="mem://", consensus="mem://", spark_master="")
    client.close()


def create(coordinator: Coordinator, name: str, retain_ms: int = RETAIN_MS) -> str:
    columns = (Column("n", BIGINT),)
    (id_,) = coordinator.catalog.next_ids()
    readable = coordinator.timeline.tables.create(id_, arrow_schema(columns))
    coordinator.storage.allow_compaction(id_, Frontier(readable))
    item = Item(id_, name, "table", "", columns=columns, shard=id_, retain_ms=retain_ms)
    coordinator.catalog.add(item)
    return id_


def compact(coordinator: Coordinator, *, before: int = 0) -> None:
    """As if what is kept for all had passed since the last write."""
    coordinator._allow_compaction(coordinator.timeline.read_ts - before + RETAIN_MS)


def test_an_idle_table_keeps_nobodys_history_and_costs_nothing(coordinator: Coordinator):
    idle, busy = create(coordinator, "idle"), create(coordinator, "busy")
    client, tables = coordinator.client, coordinator.timeline.tables
    row = pa.table({"n": [1], DIFF: pa.array([1], pa.int64())})
    tables.commit([Write(idle, row)], not_before=START + 1)
    compact(coordinator, before=1)
    for day in range(2, 5):
        tables.commit([Write(busy, row)], not_before=START + day * DAY)
        compact(coordinator)
    now, before = coordinator.timeline.read_ts, client.state(idle)
    assert client.state(busy).since == Frontier(now)
    assert before.upper == Frontier(now + 1)
    # All there is of it lies at one time already.
    assert before.since == Frontier(START + 1)
    tables.commit([], not_before=now + DAY)
    compact(coordinator)
    assert client.state(idle).seqno == before.seqno
    assert client.open_reader(idle).snapshot(now + DAY)["n"].to_pylist() == [1]
    # It may be claimed by a new view at the present, and goes on when it is written to.
    assert coordinator._claim("dataflow-x", [idle, busy]) == coordinator.timeline.read_ts
    tables.commit([Write(idle, row)])
    compact(coordinator)
    assert client.state(idle).since == Frontier(now + DAY)


def test_history_is_kept_as_long_as_was_asked_for(coordinator: Coordinator):
    long, short = create(coordinator, "long", DAY), create(coordinator, "short")
    client, tables = coordinator.client, coordinator.timeline.tables
    row = pa.table({"n": [1], DIFF: pa.array([1], pa.int64())})
    for hours in range(1, 49):
        tables.commit([Write(long, row), Write(short, row)], not_before=START + hours * DAY // 24)
        coordinator._allow_compaction(coordinator.timeline.read_ts)
    now = coordinator.timeline.read_ts
    assert client.state(short).since == Frontier(now - RETAIN_MS)
    assert client.state(long).since == Frontier(now - DAY)
    # What somebody reads is kept, whatever was asked for.
    tables.commit([Write(long, row), Write(short, row)], not_before=now + 2 * DAY)
    coordinator._allow_compaction(coordinator.timeline.read_ts, now - DAY // 2)
    assert client.state(short).since == Frontier(now - RETAIN_MS)
    assert client.state(long).since == Frontier(now - DAY // 2)


def test_how_stale_a_read_may_be(coordinator: Coordinator):
    now = coordinator.timeline.tables.commit([], not_before=START + DAY)
    late = now - 60_000
    writer = coordinator.client.open_writer("late", schema=arrow_schema((Column("n", BIGINT),)))
    writer.advance_upper(Frontier(late + 1))
    assert coordinator.timestamp_of(["late"], behind_ms=None) == late
    assert coordinator.timestamp_of(["late"], behind_ms=90_000) == late
    assert coordinator.timestamp_of(["late"], behind_ms=1_000) == now - 1_000
    assert coordinator.timestamp_of(["late"], behind_ms=0) == now
