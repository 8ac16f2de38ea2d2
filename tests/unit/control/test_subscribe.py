"""SUBSCRIBE to tables, without Spark."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from session_harness import Client, serving
from tidemark.control import statements as s
from tidemark.control import subscribe
from tidemark.control.catalog import Item
from tidemark.control.envelope import Envelope, envelope_of
from tidemark.control.pgwire import Rows
from tidemark.errors import DataError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, ReadHandle
from tidemark.types import BIGINT, Column, arrow_schema


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


def test_changes_after_a_time_of_errors_are_refused_and_after_their_repair_come(tmp_path: Path):
    columns = (Column("k", BIGINT),)
    item = Item("u900", "v", "materialized-view", "", columns=columns, shard="u900")
    schema = arrow_schema(columns)
    broken, mended = (0, None, 1, "division by zero"), (7, None, -1, "division by zero")
    rows = [broken, mended, (7, 1, 1, None), (9, 2, 1, None)]
    times, ks, diffs, errors = zip(*rows, strict=True)
    updates = pa.table(
        {"k": pa.array(ks, pa.int64()), TIME: times, DIFF: diffs, ERR: pa.array(errors)}
    )
    statement = s.Subscribe(("v",), None, False, False, None, None)

    async def scenario() -> None:
        async with serving(tmp_path / "data") as coordinator:
            writer = coordinator.client.open_writer("u900", schema=schema)
            writer.append(updates, lower=Frontier.MIN, upper=Frontier(10))

            async def shown(as_of: int, up_to: int) -> list[tuple]:
                changes = subscribe.subscribe(
                    coordinator,
                    item,
                    as_of=as_of,
                    up_to=up_to,
                    snapshot=False,
                    shown=envelope_of(statement, columns),
                )
                return [tuple(row.values()) async for b in changes for row in b.to_pylist()]

            with pytest.raises(DataError, match="division by zero"):
                await shown(6, 7)  # At once, not when it is mended.
            assert await shown(7, 10) == [(9, 1, 2)]

    asyncio.run(scenario())
