"""Group commit: many writes at one time, and one bad write does not take the others with it."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.control.timeline import ReadHolds, Timeline
from tidemark.errors import Fenced, SqlError
from tidemark.persist import DIFF, MemBlob, MemConsensus, PersistClient
from tidemark.storage.tables import Tables, Write

SCHEMA = pa.schema([("a", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64()), DIFF: [1] * len(values)})


def opened(client: PersistClient, *shards: str) -> Timeline:
    tables = Tables(client, "txns", epoch=1)
    tables.open({}, not_before=client.clock.now_ms())
    for shard in shards:
        tables.create(shard, SCHEMA)
    return Timeline(tables, client.clock)


def contents(client: PersistClient, shard: str, as_of: int) -> list[int]:
    return sorted(client.open_reader(shard).snapshot(as_of)["a"].to_pylist())


@pytest.fixture
def shared() -> PersistClient:
    return PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(10_000))


def test_writes_that_wait_together_commit_together(shared: PersistClient) -> None:
    async def run() -> list[int]:
        timeline = opened(shared, "a", "b")
        waiting = [asyncio.create_task(timeline.write([Write("a", rows(i))])) for i in range(5)]
        waiting.append(asyncio.create_task(timeline.write([Write("b", rows(7))])))
        await asyncio.sleep(0)
        timeline.start()
        times = await asyncio.gather(*waiting)
        await timeline.stop()
        return times

    times = asyncio.run(run())
    assert len(set(times)) == 1
    assert contents(shared, "a", times[0]) == [0, 1, 2, 3, 4]
    assert contents(shared, "b", times[0]) == [7]
    assert contents(shared, "a", times[0] - 1) == []


def test_a_write_to_a_dropped_table_fails_alone(shared: PersistClient) -> None:
    async def run() -> tuple[int | BaseException, int | BaseException]:
        timeline = opened(shared, "a", "b")
        timeline.tables.drop("b")
        good = asyncio.create_task(timeline.write([Write("a", rows(1))]))
        bad = asyncio.create_task(timeline.write([Write("a", rows(2)), Write("b", rows(2))]))
        await asyncio.sleep(0)
        timeline.start()
        results = await asyncio.gather(good, bad, return_exceptions=True)
        await timeline.stop()
        return results[0], results[1]

    good, bad = asyncio.run(run())
    assert isinstance(good, int)
    assert isinstance(bad, SqlError)
    assert contents(shared, "a", good) == [1]


def test_a_second_leader_fences_the_first(shared: PersistClient) -> None:
    async def run() -> None:
        first = opened(shared, "a")
        Tables(shared, "txns", epoch=2).open({"a": SCHEMA}, not_before=shared.clock.now_ms())
        first.start()
        with pytest.raises(Fenced):
            await first.write([Write("a", rows(1))])
        assert first.lost.is_set()
        with pytest.raises(Fenced):
            await first.write([Write("a", rows(2))])
        await first.stop()

    asyncio.run(run())


def test_no_write_comes_between_a_read_and_its_write(shared: PersistClient) -> None:
    async def run() -> list[str]:
        timeline = opened(shared, "a")
        timeline.start()
        order: list[str] = []

        async def blind() -> None:
            await timeline.write([Write("a", rows(1))])
            order.append("blind")

        async with timeline.exclusively():
            other = asyncio.create_task(blind())
            for _ in range(10):
                await asyncio.sleep(0)
            await timeline.write_exclusively([Write("a", rows(2))])
            order.append("exclusive")
        await other
        await timeline.stop()
        return order

    assert asyncio.run(run()) == ["exclusive", "blind"]


def test_read_holds_give_the_least() -> None:
    holds = ReadHolds()
    assert holds.least() is None
    first, second = holds.acquire(7), holds.acquire(3)
    assert holds.least() == 3
    holds.release(second)
    assert holds.least() == 7
    holds.release(first)
    holds.release(first)
    assert holds.least() is None
