"""SUBSCRIBE to tables, without Spark."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from session_harness import Client, serving
from tidemark.control import subscribe
from tidemark.control.envelope import Envelope
from tidemark.control.pgwire import Rows
from tidemark.persist import ReadHandle


async def subscribed(client: Client, sql: str) -> Rows:
    result = await client.session.execute(await client.session.prepare(sql, ()), ())
    assert isinstance(result, Rows)
    return result


def test_who_waits_to_read_does_not_wait_for_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go_on = threading.Event()
    snapshot = subscribe._snapshot

    def slowly(reader: ReadHandle, as_of: int, shown: Envelope) -> list[pa.RecordBatch]:
        assert go_on.wait(60)
        return snapshot(reader, as_of, shown)

    monkeypatch.setattr(subscribe, "_snapshot", slowly)

    async def first(client: Client) -> pa.RecordBatch:
        return await anext(aiter((await subscribed(client, "SUBSCRIBE t")).batches))

    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            one = Client(coordinator)
            await one("CREATE TABLE t (k int)")
            await one("INSERT INTO t VALUES (1)")
            many = (os.cpu_count() or 1) + 4
            waiting = [asyncio.create_task(first(Client(coordinator))) for _ in range(many)]
            await asyncio.sleep(0.05)
            try:
                async with asyncio.timeout(10):
                    table = coordinator.item(("tidemark", "public", "t"))
                    assert table.shard is not None
                    reader = coordinator.client.open_reader(table.shard)
                    await reader.wait_for_upper_past_async(coordinator.timeline.read_ts)
            finally:
                go_on.set()
            assert [len(batch) for batch in await asyncio.gather(*waiting)] == [1] * many

    asyncio.run(scenario())
