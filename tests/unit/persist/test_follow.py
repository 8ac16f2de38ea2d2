"""Shards that follow a log: how far they are complete, who is woken, and what they may look like."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.errors import Corruption, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import (
    DIFF,
    TIME,
    Config,
    MemBlob,
    MemConsensus,
    PersistClient,
    as_updates,
    commands,
    open_arrangement,
    watch,
)
from tidemark.persist.compact import compact
from tidemark.persist.consensus import Versioned
from tidemark.persist.fsck import fsck
from tidemark.persist.state import Batch, Lead, State, check_step, upper_by

N = pa.schema([("n", pa.int64())])
S = pa.schema([("s", pa.string())])


class Log:
    """A log and the shards that follow it, written as `Tables` does."""

    def __init__(self, client: PersistClient, *shards: str):
        self.log = client.open_writer("log", schema=S)
        self.writers = {shard: client.open_writer(shard, schema=N) for shard in shards}
        self.upper = Frontier.MIN
        for writer in self.writers.values():
            writer.follow("log")

    def announce(self, time: int, *shards: str) -> None:
        """The append to the log alone."""
        lower, self.upper = self.upper, Frontier(time + 1)
        self.log.compare_and_append(None, lower=lower, upper=self.upper, leading=shards)

    def apply(self, time: int, shard: str) -> None:
        updates = as_updates(pa.table({"n": [time]}), time=time)
        self.writers[shard].append(updates, lower=Frontier.MIN, upper=Frontier(time + 1))

    def commit(self, time: int, *shards: str) -> None:
        self.announce(time, *shards)
        for shard in shards:
            self.apply(time, shard)


@pytest.fixture
def client() -> Iterator[PersistClient]:
    opened = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(1_000))
    yield opened
    opened.close()


def contents(client: PersistClient, shard: str, as_of: int) -> list[int]:
    return sorted(client.open_reader(shard).snapshot(as_of, timeout=0)["n"].to_pylist())


def test_only_the_writer_of_the_log_appends_to_who_follows(client: PersistClient):
    log = Log(client, "a")
    log.commit(5, "a")
    log.commit(9)
    before = client.state("a")
    stranger = client.open_writer("a", schema=N)
    row = as_updates(pa.table({"n": [7]}), time=6)
    with pytest.raises(InvalidUsage, match=r"shard a follows log, .* nothing was appended"):
        stranger.compare_and_append(row, lower=Frontier(6), upper=Frontier(7))
    with pytest.raises(InvalidUsage, match="follows log"):
        stranger.advance_upper(Frontier(8))
    with pytest.raises(InvalidUsage, match="follows log"):
        client.open_writer("a", schema=N, log="other").advance_upper(Frontier(8))
    assert client.state("a") == before
    assert client.open_writer("a", schema=N, log="log").advance_upper(Frontier(8)) == Frontier(8)


class TestCommands:
    FOLLOWER = commands.follow(State("a", seqno=3), "log")[0]

    def test_following_twice_changes_nothing(self):
        assert (self.FOLLOWER.follows, self.FOLLOWER.seqno) == ("log", 4)
        assert commands.follow(self.FOLLOWER, "log")[0] is self.FOLLOWER

    @pytest.mark.parametrize(("state", "log"), [(FOLLOWER, "other"), (State("log"), "log")])
    def test_it_follows_one_log_that_is_another_shard(self, state: State, log: str):
        with pytest.raises(InvalidUsage, match="cannot follow"):
            commands.follow(state, log)

    def test_a_dropped_shard_follows_nothing(self):
        dropped = commands.finalize(State("a"))[0]
        assert commands.follow(dropped, "log")[0] is dropped

    def test_only_an_append_that_leads_says_something_to_the_followers(self):
        def appended(state: State, lower: int, upper: int, leading: tuple[str, ...] | None):
            batch = Batch(Frontier(lower), Frontier(upper), Frontier.MIN)
            given = {"writer": "w", "token": f"t{upper}", "expires_ms": 9, "leading": leading}
            return commands.compare_and_append(state, batch, **given)[0]

        first = appended(State("log"), 0, 4, ("a",))
        assert first.lead == Lead(Frontier(0), Frontier(4), ("a",))
        assert appended(first, 4, 6, None).lead == first.lead
        assert appended(first, 4, 6, ()).lead == Lead(Frontier(4), Frontier(6))

    def test_what_a_log_said_is_not_taken_back(self):
        old = State("log", seqno=0, at_ms=1, lead=Lead(Frontier(0), Frontier(0)))
        for lead in (None, Lead(Frontier(0), Frontier(1))):
            with pytest.raises(Corruption, match="S7"):
                check_step(old, State("log", seqno=1, at_ms=2, lead=lead))

    @pytest.mark.parametrize(
        ("own", "lead", "complete"),
        [
            (3, None, 3),
            (3, Lead(Frontier(5), Frontier(9)), 9),
            (3, Lead(Frontier(5), Frontier(9), ("b",)), 9),
            (3, Lead(Frontier(5), Frontier(9), ("a", "b")), 5),
            (9, Lead(Frontier(5), Frontier(9), ("a",)), 9),
            (12, Lead(Frontier(5), Frontier(9)), 12),
            (None, Lead(Frontier(5), Frontier(9)), None),
        ],
    )
    def test_how_far_a_follower_is_complete(
        self, own: int | None, lead: Lead | None, complete: int | None
    ):
        state = State("a", upper=Frontier(own), follows="log")
        assert upper_by(State("log", lead=lead), state) == Frontier(complete)


class TestReading:
    def test_one_append_to_the_log_moves_all_but_the_ones_it_names(self, client: PersistClient):
        log = Log(client, "a", "b", "c")
        log.announce(5, "a")
        uppers = [client.open_reader(shard).upper.time for shard in "abc"]
        assert uppers == [client.state(shard).upper.time for shard in "abc"] == [0, 6, 6]
        log.apply(5, "a")
        assert client.state("a").upper == Frontier(6)
        assert client.state("b").appended == log.writers["b"].fetch_upper() == Frontier.MIN
        assert (contents(client, "a", 5), contents(client, "b", 5)) == ([5], [])

    def test_a_listener_of_an_idle_shard_makes_progress(self, client: PersistClient):
        log = Log(client, "a", "b")
        log.commit(0, "b")
        steps = client.open_reader("b").subscribe(0)
        assert next(steps).table["n"].to_pylist() == [0]
        log.commit(3, "a")
        assert (next(steps)[:2], log.commit(7, "b")) == ((Frontier(1), Frontier(4)), None)
        step = next(steps)
        assert (step.upper, step.table[TIME].to_pylist()) == (Frontier(8), [7])
        steps.close()

    def test_changes_up_to_where_it_is_complete_and_no_further(self, client: PersistClient):
        log = Log(client, "a", "b")
        log.commit(4, "a")
        log.commit(9, "b")
        reader = client.open_reader("a")
        assert reader.updates(Frontier(1), Frontier(10))["n"].to_pylist() == [4]
        assert [t.num_rows for t in reader.stream_updates(Frontier(1), Frontier(10))] == [1]
        for read in (reader.updates, lambda *a: list(reader.stream_updates(*a))):
            with pytest.raises(InvalidUsage, match=r"complete to \[10\], not \[11\]"):
                read(Frontier(1), Frontier(11))

    def test_a_dropped_follower_is_dropped(self, client: PersistClient):
        log = Log(client, "a")
        log.commit(4, "a")
        client.finalize("a")
        log.commit(5)
        assert client.state("a").is_tombstone

    @pytest.mark.parametrize("before", range(12))
    def test_commits_between_two_looks_are_not_missed(self, before: int):
        """Whatever is committed while a reader looks at the log and at the shard, in whichever
        order, at the time to which it finds the shard complete it finds all there is."""
        consensus, blob, config = Meanwhile(), MemBlob(), Config(heartbeat=False)
        log = Log(PersistClient(blob, consensus, config=config), "a", "b")
        log.commit(1, "a")
        client = PersistClient(blob, consensus, config=config)
        reader = client.open_reader("a")
        steps = reader.listen(1)
        assert reader.upper == Frontier(2)

        def more() -> None:
            for time in (3, 5, 7):
                log.commit(time, "a")
                log.commit(time + 1, "b")

        consensus.plan(before, more)
        state = client.state("a")
        assert state.rows == sum(state.upper.covers(n) for n in (1, 3, 5, 7))
        upper = reader.upper
        assert upper.time
        found = reader.snapshot(upper.time - 1, timeout=0)["n"].to_pylist()
        assert sorted(found) == [n for n in (1, 3, 5, 7) if upper.covers(n)]
        found = reader.updates(Frontier(2), upper)["n"].to_pylist()
        assert sorted(found) == [n for n in (3, 5, 7) if upper.covers(n)]
        heard, upper = [], Frontier(2)
        while upper < Frontier(9):
            step = next(steps)
            heard, upper = heard + step.table["n"].to_pylist(), step.upper
        assert heard == [3, 5, 7]
        steps.close()


class Meanwhile(MemConsensus):
    """Does something right after one of the next scans has found what it found."""

    def __init__(self) -> None:
        super().__init__()
        self._left, self._do = 0, lambda: None

    def plan(self, scans: int, do) -> None:
        self._left, self._do = scans, do

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        found = super().scan(key, start, limit)
        do, self._left = self._do, self._left - 1
        if self._left < 0:
            self._do = lambda: None
            do()
        return found


class TestWaiting:
    @pytest.fixture(autouse=True)
    def only_when_rung(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(watch, "RECHECK_EVERY", 3_600.0)

    def test_a_waiter_is_woken_by_the_log(self, client: PersistClient):
        log, found = Log(client, "a"), []
        waiting, ready = threading.Event(), client.state

        def look() -> bool | None:
            complete = ready("a").upper.covers(5)
            waiting.set()
            return complete or None

        waiter = threading.Thread(target=lambda: found.append(client.watch.wait_for("a", look)))
        waiter.start()
        assert waiting.wait(60)
        log.announce(5)
        waiter.join(60)
        assert found == [True]

    def test_an_async_reader_is_woken_by_the_log(self, client: PersistClient):
        log = Log(client, "a")

        async def run() -> Frontier | None:
            reader = client.open_reader("a")
            waiting = asyncio.create_task(reader.wait_for_upper_past_async(5))
            await asyncio.sleep(0)
            await asyncio.to_thread(log.announce, 5)
            async with asyncio.timeout(60):
                return await waiting

        assert asyncio.run(run()) == Frontier(6)

    def test_a_reader_is_woken_by_the_log_of_another_process(self, tmp_path: Path):
        client = opened(tmp_path)
        Log(client, "a").announce(3)
        context = multiprocessing.get_context("spawn")
        go = context.Event()
        other = context.Process(target=announce_from_elsewhere, args=(tmp_path, go))
        other.start()
        steps = client.open_reader("a").listen(3)
        go.set()
        assert next(steps).upper == Frontier(8)
        steps.close()
        other.join(60)
        client.close()


def opened(folder: Path) -> PersistClient:
    return PersistClient.open(blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/c.db")


def announce_from_elsewhere(folder: Path, go) -> None:
    client = opened(folder)
    log = Log(client)
    log.upper = Frontier(4)
    go.wait(60)
    log.announce(7)
    client.close()


class TestSinceBeyondItsOwnUpper:
    """Whoever holds an idle shard may let go of all that the log has passed."""

    @pytest.fixture
    def log(self, client: PersistClient) -> Log:
        log = Log(client, "a")
        for time in range(5):
            log.commit(time, "a")
        log.commit(50)
        client.open_critical_since("a").downgrade(Frontier(40))
        assert (client.state("a").since, client.state("a").appended) == (Frontier(40), Frontier(5))
        return log

    def test_it_is_read_compacted_and_written_as_ever(self, client: PersistClient, log: Log):
        assert contents(client, "a", 45) == [0, 1, 2, 3, 4]
        machine = client.machine("a")
        assert compact(machine, client.blob, machine.refresh().batches)
        assert contents(client, "a", 45) == [0, 1, 2, 3, 4]
        steps = client.open_reader("a").listen(45)
        log.commit(60, "a")
        step = next(steps)
        while step.upper < Frontier(61):
            step = next(steps)
        assert step.table[TIME].to_pylist() == [60]
        steps.close()
        client.open_critical_since("a").downgrade(Frontier(60))
        assert compact(machine, client.blob, machine.refresh().batches)
        assert contents(client, "a", 60) == [0, 1, 2, 3, 4, 60]
        assert fsck(client, "a", clock=client.clock).is_clean

    def test_its_arrangement(self, client: PersistClient, log: Log, tmp_path: Path):
        with open_arrangement(client, "a", ("n",), folder=tmp_path, as_of=45) as arrangement:

            def found(n: int, as_of: int) -> list[int]:
                return arrangement.lookup(pa.table({"n": [n]}), as_of)[DIFF].to_pylist()

            assert (found(3, 45), found(60, 45)) == ([1], [])
            log.commit(60, "a")
            log.commit(70)
            assert (found(60, 59), found(60, 69), found(3, 69)) == ([], [1], [1])


def test_fsck_of_a_log_and_its_followers(client: PersistClient):
    log = Log(client, "a", "b")
    log.commit(3, "a")
    log.commit(4)
    for shard in ("log", "a", "b"):
        assert fsck(client, shard, clock=client.clock).findings == ()


def test_fsck_misses_a_log_that_is_followed(client: PersistClient):
    client.open_writer("a", schema=N).follow("gone")
    (finding,) = fsck(client, "a", clock=client.clock).errors
    assert (finding.rule, "follows gone, which is not there" in finding.message) == ("S7", True)
