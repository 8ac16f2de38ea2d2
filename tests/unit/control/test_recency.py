"""When a source has all that its topic had."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.control.recency import Recency, _Topic, bound_time
from tidemark.errors import SqlError
from tidemark.frontier import Frontier
from tidemark.persist import MemBlob, MemConsensus, PersistClient
from tidemark.storage.kafka.broker import Marks
from tidemark.storage.remap import Remap


@pytest.fixture
def client() -> PersistClient:
    return PersistClient(MemBlob(), MemConsensus(), clock=ManualClock())


def test_what_is_bound_already_needs_no_waiting(client: PersistClient) -> None:
    remap = Remap(client, "remap")
    remap.mint(0, {0: 5, 1: 0})
    remap.mint(2_000, {0: 9, 1: 0})
    remap.mint(3_000, {0: 9, 1: 0})
    found = asyncio.run(bound_time(client, "remap", {0: Marks(0, 9), 1: Marks(0, 0)}))
    assert found == 3_000


def test_it_waits_until_every_partition_is_bound(client: PersistClient) -> None:
    remap = Remap(client, "remap")

    async def run() -> int:
        wanted = {0: Marks(0, 9), 1: Marks(2, 3)}
        waiting = asyncio.create_task(bound_time(client, "remap", wanted))
        for time, offsets in ((0, {0: 9}), (2_000, {0: 9, 1: 2}), (3_000, {0: 10, 1: 2})):
            remap.mint(time, offsets)
            await asyncio.to_thread(client.watch.ring, "remap")
            await asyncio.sleep(0)
            assert not waiting.done()
        remap.mint(4_000, {0: 10, 1: 3})
        return await waiting

    assert asyncio.run(run()) == 4_000


def test_nobody_else_waits_for_a_broker_that_does_not_answer(client: PersistClient) -> None:
    answers = threading.Event()
    broker = SimpleNamespace(marks=answers.wait)
    source = SimpleNamespace(topic="events", remap="remap")
    item = SimpleNamespace(name="s")

    async def run() -> None:
        recency = Recency(cast(Any, SimpleNamespace(client=client)))
        topic = _Topic(cast(Any, source), cast(Any, broker))
        many = (os.cpu_count() or 1) + 4
        asked = [recency._of(cast(Any, item), topic, 0.05) for _ in range(many)]
        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(each, SqlError) for each in refused)
        client.open_writer("t", schema=pa.schema([])).advance_upper(Frontier(5))
        try:
            async with asyncio.timeout(10):
                await client.open_reader("t").wait_for_upper_past_async(4)
        finally:
            answers.set()
            recency.close()

    asyncio.run(run())
