"""Group commit: many writes at one time, and one bad write does not take the others with it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from tidemark.clock import ManualClock
from tidemark.control.timeline import HEARTBEAT_MS, ReadHolds, Reads, Timeline, in_doubt
from tidemark.control.turns import leave
from tidemark.errors import Fenced, Indeterminate, SqlError, Unavailable
from tidemark.persist import DIFF, MemBlob, MemConsensus, PersistClient
from tidemark.storage import definitions
from tidemark.storage.definitions import Definitions
from tidemark.storage.tables import Tables, Write
from unreliable import FLAKY, RELIABLE, UnreliableConsensus

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


def test_who_has_read_what_was_written_since_is_refused(shared: PersistClient) -> None:
    async def run() -> None:
        timeline = opened(shared, "a", "b")
        timeline.start()
        first = await timeline.write([Write("a", rows(1))])
        read = Reads(first, {"a": "apples"})
        await timeline.write([Write("b", rows(1))])
        await timeline.write([Write("b", rows(2))], reads=read)
        await timeline.write([Write("a", rows(2))], reads=read)
        with pytest.raises(SqlError, match='could not serialize access: table "apples"') as error:
            await timeline.write([Write("b", rows(3))], reads=read)
        assert error.value.sqlstate == "40001"
        dropped = Reads(timeline.read_ts, {"gone": "gone"})
        with pytest.raises(SqlError, match="could not serialize"):
            await timeline.write([Write("b", rows(4))], reads=dropped)
        await timeline.stop()
        assert contents(shared, "b", timeline.read_ts) == [1, 2]

    asyncio.run(run())


def test_of_two_that_wait_together_and_read_what_the_other_writes_one_is_refused(
    shared: PersistClient,
) -> None:
    """Write skew: neither has been written to when the batch begins."""

    async def run() -> list[int | BaseException]:
        timeline = opened(shared, "a", "b")
        now = timeline.read_ts
        groups = [
            timeline.write([Write("b", rows(1))], reads=Reads(now, {"a": "a"})),
            timeline.write([Write("a", rows(1))], reads=Reads(now, {"b": "b"})),
        ]
        waiting = [asyncio.create_task(group) for group in groups]
        await asyncio.sleep(0)
        timeline.start()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await timeline.stop()
        return results

    one, two = asyncio.run(run())
    assert isinstance(one, int)
    assert isinstance(two, SqlError)
    assert two.sqlstate == "40001"


def test_what_was_written_before_a_restart_is_known(shared: PersistClient) -> None:
    before = opened(shared, "a")
    written = before.tables.commit([Write("a", rows(1))])
    after = Tables(shared, "txns", epoch=2)
    after.open({"a": SCHEMA}, not_before=shared.clock.now_ms())
    assert after.written_after("a", written - 1)
    assert not after.written_after("a", written)


HOUR_MS = 3_600_000


def test_a_clock_that_is_set_forward_and_back(shared: PersistClient) -> None:
    """No time is given out twice, nobody waits until the clock has caught up, and it does."""
    clock = shared.clock
    assert isinstance(clock, ManualClock)

    async def write(timeline: Timeline, value: int) -> int:
        return await timeline.write([Write("a", rows(value))])

    async def run() -> None:
        timeline = opened(shared, "a")
        timeline.start()
        before = await write(timeline, 1)
        clock.step(2 * HOUR_MS)
        ahead = await write(timeline, 2)
        assert ahead == clock.now_ms() > before, "a clock that is set forward is followed"
        with capture_logs() as logs:  # A heartbeat may see it before a write does.
            clock.step(-2 * HOUR_MS)
            back = await write(timeline, 3)
        assert back == ahead + 1, "the next time there is"
        (said,) = logs
        assert said["behind_seconds"] == 7200
        assert "set back" in said["event"]

        # Without any writes, time goes on: at half speed, as long as the clock is behind.
        for seconds in (4, 1_000, 2_000):
            reached = timeline.read_ts
            clock.advance(seconds * 1_000)
            await passes(timeline, reached + seconds * 500 - HEARTBEAT_MS)
            assert timeline.read_ts <= reached + seconds * 500 + HEARTBEAT_MS
        await timeline.stop()

        # Nor is anything taken back by a restart.
        reached = timeline.read_ts
        tables = Tables(shared, "txns", epoch=2)
        tables.open({"a": SCHEMA}, not_before=clock.now_ms())
        again = Timeline(tables, clock)
        again.start()
        assert await write(again, 4) > reached
        with capture_logs() as logs:
            clock.advance(3 * HOUR_MS)
            caught_up = await write(again, 5)
        assert caught_up == clock.now_ms()
        assert [each["event"] for each in logs] == ["the clock has caught up with the timeline"]
        await again.stop()
        assert contents(shared, "a", caught_up) == [1, 2, 3, 4, 5]

    asyncio.run(run())


async def passes(timeline: Timeline, time: int) -> None:
    async with asyncio.timeout(60):
        while timeline.read_ts < time:
            await asyncio.sleep(0.01)


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


def test_a_stop_amid_writes_is_not_lost() -> None:
    """It was, when it came together with a write."""

    async def write_on(timeline: Timeline) -> None:
        while True:
            await timeline.write([Write("a", rows(1))])

    async def run() -> None:
        for moment in range(40):
            client = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(10_000))
            timeline = opened(client, "a")
            timeline.start()
            writers = [asyncio.create_task(write_on(timeline)) for _ in range(3)]
            for _ in range(moment):
                await asyncio.sleep(0.0005)
            async with asyncio.timeout(60):
                await timeline.stop()
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    asyncio.run(run())


@pytest.fixture
def slow_commits(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Set by the first commit of writes when it begins; what each of them waits for."""
    begun, go_on = threading.Event(), threading.Event()
    commit = Tables.commit

    def slow_commit(tables: Tables, writes: list[Write], *, not_before: int = 0) -> int:
        if writes:
            begun.set()
            assert go_on.wait(60)
        return commit(tables, writes, not_before=not_before)

    monkeypatch.setattr(Tables, "commit", slow_commit)
    return begun, go_on


def test_a_write_is_cancelled_or_happens_and_never_both(
    shared: PersistClient, slow_commits: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_commits

    async def run() -> None:
        timeline = opened(shared, "a")
        timeline.start()
        first = asyncio.create_task(timeline.write([Write("a", rows(1))]))
        assert await asyncio.to_thread(begun.wait, 60)
        second = asyncio.create_task(timeline.write([Write("a", rows(2))]))
        third = asyncio.create_task(timeline.write([Write("a", rows(3))]))
        refused = Reads(0, {"a": "a"})
        fourth = asyncio.create_task(timeline.write([Write("a", rows(4))], reads=refused))
        await asyncio.sleep(0.01)
        for task in (first, second, first):
            task.cancel()
            await asyncio.sleep(0.01)
        assert second.cancelled(), "it has only waited"
        assert not first.done(), "it is under way"
        begun.clear()
        go_on.set()
        time = await first
        assert time < await third
        assert contents(shared, "a", await third) == [1, 3]
        with pytest.raises(SqlError):
            await fourth

        # Whose session ends is let go.
        go_on.clear()
        fifth = asyncio.create_task(timeline.write([Write("a", rows(5))]))
        assert await asyncio.to_thread(begun.wait, 60)
        leave(fifth)
        await asyncio.wait([fifth], timeout=60)
        assert fifth.cancelled()
        go_on.set()
        await timeline.stop()

    asyncio.run(run())


def test_a_stop_leaves_nobody_waiting_for_a_write(
    shared: PersistClient, slow_commits: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_commits

    async def run() -> None:
        timeline = opened(shared, "a")
        timeline.start()
        write = asyncio.create_task(timeline.write([Write("a", rows(1))]))
        assert await asyncio.to_thread(begun.wait, 60)
        threading.Timer(0.05, go_on.set).start()
        await timeline.stop()
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await write

    asyncio.run(run())


def test_nor_for_one_that_has_only_waited(
    shared: PersistClient, slow_commits: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_commits

    async def run() -> None:
        timeline = opened(shared, "a")
        timeline.start()
        writes = [asyncio.create_task(timeline.write([Write("a", rows(1))]))]
        assert await asyncio.to_thread(begun.wait, 60)
        writes.append(asyncio.create_task(timeline.write([Write("a", rows(2))])))
        await asyncio.sleep(0.01)
        threading.Timer(0.05, go_on.set).start()
        await timeline.stop(SqlError("gone"))
        async with asyncio.timeout(10):
            told = await asyncio.gather(*writes, return_exceptions=True)
        assert [str(each) for each in told] == [str(in_doubt()), "gone"]
        with pytest.raises(SqlError, match="gone"):
            await timeline.write([Write("a", rows(3))])

    asyncio.run(run())


def test_a_leader_that_is_fenced_leaves_nobody_waiting(
    shared: PersistClient, slow_commits: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_commits

    async def run() -> None:
        first = opened(shared, "a")
        first.start()
        writes = [asyncio.create_task(first.write([Write("a", rows(1))]))]
        assert await asyncio.to_thread(begun.wait, 60)
        writes.append(asyncio.create_task(first.write([Write("a", rows(2))])))
        await asyncio.sleep(0.01)
        Tables(shared, "txns", epoch=2).open({"a": SCHEMA}, not_before=shared.clock.now_ms())
        go_on.set()
        async with asyncio.timeout(10):
            told = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(each) for each in told] == [Fenced] * 2
        await first.stop()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_commit_whose_reply_is_lost_is_waited_for_and_happens_once(how: str) -> None:
    consensus = UnreliableConsensus(MemConsensus())
    client = PersistClient(MemBlob(), consensus, clock=ManualClock(10_000))

    async def run() -> None:
        timeline = opened(client, "a", "b")
        now = timeline.read_ts
        # The reply is lost, and then nobody answers for a while.
        consensus.fail(how)
        consensus.fail("refuse", times=2, call="scan")
        writes = [Write("a", rows(1))], [Write("b", rows(2))]
        lost = asyncio.create_task(timeline.write(writes[0]))
        await asyncio.sleep(0)
        timeline.start()
        await asyncio.sleep(0.1)
        assert not lost.done()
        skewed = asyncio.create_task(timeline.write(writes[1], reads=Reads(now, {"a": "a"})))
        async with asyncio.timeout(30):
            written = await lost
            with pytest.raises(SqlError, match="could not serialize"):
                await skewed
        after = await timeline.write([Write("a", rows(3))])
        assert not timeline.lost.is_set()
        await timeline.stop()
        assert contents(client, "a", written) == [1]
        assert contents(client, "a", after) == [1, 3]

    asyncio.run(run())


@pytest.mark.parametrize("end", ["stop", "fenced"])
def test_what_is_never_known_is_said_to_be_unknown(end: str) -> None:
    inner = MemConsensus()
    consensus = UnreliableConsensus(inner)
    blob, clock = MemBlob(), ManualClock(10_000)
    client = PersistClient(blob, consensus, clock=clock)

    async def run() -> None:
        timeline = opened(client, "a")
        consensus.fail("before")
        consensus.fail("refuse", times=2, call="scan")
        lost = asyncio.create_task(timeline.write([Write("a", rows(1))]))
        await asyncio.sleep(0)
        timeline.start()
        await asyncio.sleep(0.1)
        if end == "fenced":
            Tables(PersistClient(blob, inner, clock=clock), "txns", epoch=2).open({})
            async with asyncio.timeout(30):
                await timeline.lost.wait()
        await timeline.stop()
        with pytest.raises(Indeterminate, match="not known whether this was written") as error:
            await lost
        assert error.value.sqlstate == "08007"

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(10))
def test_replies_that_are_lost_at_random(seed: int) -> None:
    consensus = UnreliableConsensus(MemConsensus(), seed=seed)
    client = PersistClient(MemBlob(), consensus, clock=ManualClock(10_000))
    timeline = opened(client, "a")
    written = []
    consensus._faults._chances = FLAKY
    for value in range(60):
        try:
            timeline.tables.commit([Write("a", rows(value))])
        except Unavailable:
            if not timeline.tables.in_doubt:
                continue
            while timeline.tables.in_doubt:
                with suppress(Unavailable):
                    timeline.tables.resolve()
        written.append(value)
    consensus._faults._chances = RELIABLE
    last = timeline.tables.commit([])
    assert contents(client, "a", last) == written


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_change_of_the_catalog_whose_reply_is_lost_happens_once(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(definitions, "REPEAT_AFTER", (0.0, 0.0))
    consensus = UnreliableConsensus(MemConsensus())
    client = PersistClient(MemBlob(), consensus, clock=ManualClock(10_000))
    catalog = Definitions(client, "catalog")
    consensus.fail(how)
    consensus.fail("refuse", call="scan")
    catalog.change({"u1": "x"})
    catalog.change({"u2": "y"})
    assert catalog.rows == {"u1": "x", "u2": "y"}
    assert definitions.read_definitions(client, "catalog") == catalog.rows

    # It stays unknown: whoever leads on must read what is so.
    async def run() -> None:
        timeline = opened(client)
        consensus.fail(how, times=3)
        consensus.fail("refuse", times=3, call="scan")
        with pytest.raises(Fenced, match="not known"):
            await timeline.run(catalog.change, {"u3": "z"})
        assert timeline.lost.is_set()
        await timeline.stop()

    asyncio.run(run())


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
