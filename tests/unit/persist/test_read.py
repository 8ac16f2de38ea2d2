"""Following a shard: listen and subscribe, their async twins, their leases, and who wakes them."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from contextlib import aclosing, closing
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import AsOfBeforeSince, Cancelled, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    Config,
    FileBlob,
    MemBlob,
    MemConsensus,
    PersistClient,
    Updates,
    as_updates,
)
from tidemark.persist import SqliteConsensus as Sqlite
from tidemark.persist.throttle import Throttled

SCHEMA = pa.schema([("k", pa.int64())])


@pytest.fixture
def client():
    client = PersistClient(MemBlob(), MemConsensus())
    yield client
    client.close()


def put(client: PersistClient, time: int, *keys: int, upper: int | None = None) -> None:
    writer = client.open_writer("s", schema=SCHEMA)
    rows = as_updates(pa.table({"k": keys}, schema=SCHEMA), time=time, schema=writer.schema)
    lower = writer.fetch_upper()
    outcome = writer.compare_and_append(rows, lower=lower, upper=Frontier(upper or time + 1))
    assert isinstance(outcome, Appended)


def told(step: Updates) -> tuple:
    rows = zip(*(step.table[c].to_pylist() for c in ("k", "_time", "_diff")), strict=True)
    return step.lower.time, step.upper.time, sorted(rows)


class TestSubscribe:
    def test_gives_the_snapshot_and_then_what_comes(self, client):
        put(client, 0, 1, 2)
        put(client, 1, 3)
        with closing(client.open_reader("s").subscribe(1)) as steps:
            assert told(next(steps)) == (0, 2, [(1, 1, 1), (2, 1, 1), (3, 1, 1)])
            put(client, 2, 4, upper=5)
            assert told(next(steps)) == (2, 5, [(4, 2, 1)])
            put(client, 7, 5)
            assert told(next(steps)) == (5, 8, [(5, 7, 1)])

    def test_the_async_twin_gives_the_same(self, client):
        put(client, 0, 1, 2)

        async def follow() -> list[tuple]:
            found = []
            async with aclosing(client.open_reader("s").subscribe_async(0)) as steps:
                async for step in steps:
                    found.append(told(step))
                    if len(found) == 3:
                        return found
                    # Written while the loop is the one that waits.
                    asyncio.get_running_loop().run_in_executor(None, put, client, len(found), 9)
            return found

        assert asyncio.run(follow()) == [
            (0, 1, [(1, 0, 1), (2, 0, 1)]),
            (1, 2, [(9, 1, 1)]),
            (2, 3, [(9, 2, 1)]),
        ]
        assert not client.state("s").holds

    def test_ends_with_the_shard(self, client):
        put(client, 0, 1)
        steps = client.open_reader("s").listen(0)
        client.open_writer("s", schema=SCHEMA).advance_upper(Frontier.EMPTY)
        assert [told(step) for step in steps] == [(1, None, [])]

    def test_ends_with_the_client(self, client):
        put(client, 0, 1)
        steps = client.open_reader("s").listen(0)
        threading.Timer(0.05, client.close).start()
        assert list(steps) == []

    def test_a_snapshot_that_does_not_come_in_time_says_how_far_it_is(self, client):
        put(client, 0, 1)
        with pytest.raises(Cancelled, match=r"did not reach time 7.*complete to \[1\]"):
            client.open_reader("s").snapshot(7, timeout=0)
        with pytest.raises(Cancelled):
            asyncio.run(client.open_reader("s").snapshot_async(7, timeout=0))

    def test_an_unknown_shard_is_an_error_not_a_long_wait(self, client):
        for read in (client.open_reader("s").snapshot, client.open_reader("s").listen):
            with pytest.raises(InvalidUsage, match="there is no shard s"):
                read(0)

    def test_columns_and_filter_apply_to_every_step(self, client):
        put(client, 0, 1, 5)
        steps = client.open_reader("s", filter=[("k", ">", 3)]).subscribe(0)
        assert told(next(steps))[2] == [(5, 0, 1)]
        put(client, 1, 2, 6)
        assert told(next(steps))[2] == [(6, 1, 1)]


class TestLeases:
    def test_a_listener_keeps_what_it_has_still_to_read(self, client):
        for time in range(3):
            put(client, time, time)
        steps = client.open_reader("s").listen(0)
        client.open_critical_since("s").downgrade(Frontier(2))
        assert client.state("s").since == Frontier(0)
        assert told(next(steps)) == (1, 3, [(1, 1, 1), (2, 2, 1)])
        steps.close()
        client.open_critical_since("s").downgrade(Frontier(2))
        assert client.state("s").since == Frontier(2)
        with pytest.raises(AsOfBeforeSince):
            client.open_reader("s").listen(0)

    def test_a_listener_that_was_never_started_holds_nothing_for_long(self, client):
        put(client, 0, 1)
        steps = client.open_reader("s").listen(0)
        del steps
        assert not list(client._leases._live), "nobody renews it, so it expires"

    def test_the_heart_keeps_leases_alive_and_nothing_else_does(self):
        stores = MemBlob(), MemConsensus()
        beating = PersistClient(*stores, config=Config(lease_ms=4_000))
        dead = PersistClient(*stores, config=Config(lease_ms=4_000, heartbeat=False))
        put(beating, 0, 1)
        kept, lost = beating.open_reader("s").lease(0), dead.open_reader("s").lease(0)
        deadline = SYSTEM_CLOCK.monotonic() + 120
        while len(beating.state("s").holds) > 1:
            assert SYSTEM_CLOCK.monotonic() < deadline, "the dead lease never expired"
            SYSTEM_CLOCK.sleep(0.05)
        kept.renew()
        with pytest.raises(Unavailable, match="expired"):
            lost.renew()
        with pytest.raises(Unavailable, match="expired"):
            lost.batches()
        beating.close()


def append_from_elsewhere(folder: str, go) -> None:
    other = PersistClient(FileBlob(f"{folder}/blob"), Sqlite(f"{folder}/c.db"))
    for time in range(1, 6):
        go.wait()
        go.clear()
        put(other, time, time)


def test_another_process_wakes_the_listener(tmp_path: Path):
    client = PersistClient(FileBlob(tmp_path / "blob"), Sqlite(tmp_path / "c.db"))
    put(client, 0, 0)
    context = multiprocessing.get_context("spawn")
    go = context.Event()
    other = context.Process(target=append_from_elsewhere, args=(str(tmp_path), go), daemon=True)
    other.start()
    steps = client.open_reader("s").listen(0)
    for time in range(1, 6):
        go.set()
        assert told(next(steps)) == (time, time + 1, [(time, time, 1)])
    other.join()
    client.close()


class Slow(MemBlob):
    def __init__(self):
        super().__init__()
        self.now = self.most = 0

    def set(self, key, value):
        self.now += 1
        self.most = max(self.most, self.now)
        SYSTEM_CLOCK.sleep(0.01)
        super().set(key, value)
        self.now -= 1


class TestThrottle:
    def test_so_many_writes_at_a_time(self):
        slow = Slow()
        blob = Throttled(slow, Config(blob_writes=2), SYSTEM_CLOCK)
        threads = [threading.Thread(target=blob.set, args=(f"b{n}", b"x")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert slow.most == 2
        assert len(list(blob.list())) == 8

    def test_so_many_bytes_a_second(self):
        class Asleep:
            def __init__(self):
                self.now = 0.0

            def monotonic(self):
                return self.now

            def sleep(self, seconds):
                self.now += seconds

        clock = Asleep()
        blob = Throttled(MemBlob(), Config(blob_bytes_per_second=1000), clock)  # pyright: ignore
        for n in range(11):
            blob.set(f"b{n}", b"x" * 500)
        assert clock.now == pytest.approx(5.0)
