"""When a source has all that its topic had."""

from __future__ import annotations

import asyncio

import pytest

from tidemark.clock import ManualClock
from tidemark.control.recency import bound_time
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
