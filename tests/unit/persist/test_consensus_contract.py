"""What every Consensus must do: the same tests run on each implementation.

PostgreSQL is a real server, in a schema of its own for each test.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from heard import Heard

from tidemark.errors import (
    Determinate,
    Indeterminate,
    InvalidUsage,
    TidemarkError,
    Unavailable,
)
from tidemark.persist.consensus import Consensus, MemConsensus, Versioned
from tidemark.persist.location import open_consensus as open_at
from tidemark.persist.postgres import PostgresConsensus
from tidemark.persist.sqlite import SqliteConsensus
from unreliable import FLAKY, UnreliableConsensus

Open = Callable[[], Consensus]


@pytest.fixture(params=["sqlite", "postgres"])
def durable_uri(request: pytest.FixtureRequest) -> str:
    name = "sqlite_uri" if request.param == "sqlite" else "schema_uri"
    return request.getfixturevalue(name)


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def open_consensus(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens another handle on one and the same location."""
    name = {"sqlite": "sqlite_uri", "postgres": "schema_uri"}.get(request.param)
    uri = request.getfixturevalue(name) if name else f"mem://{uuid4().hex}"
    opened: list[Consensus] = []

    def open_one() -> Consensus:
        opened.append(open_at(uri))
        return opened[-1]

    yield open_one
    for consensus in opened:
        consensus.close()


def test_a_capture_has_every_log(open_consensus: Open):
    consensus = open_consensus()
    assert consensus.capture() == {}
    for key, seqno in (("b", 0), ("a", 0), ("b", 1), ("B", 0), ("b", 2)):
        assert consensus.compare_and_set(key, Versioned(seqno, f"{key}{seqno}".encode()))
    consensus.truncate("b", 1)
    found = open_consensus().capture()
    assert list(found) == ["B", "a", "b"]
    assert found["b"] == [Versioned(1, b"b1"), Versioned(2, b"b2")]


def test_a_capture_is_of_one_moment(open_consensus: Open):
    """A commit is in it only with all that were acknowledged before it began."""
    consensus, other, stop = open_consensus(), open_consensus(), threading.Event()

    def write() -> None:
        seqno = 0
        while not stop.is_set():
            for key in ("z", "a", "m"):
                assert other.compare_and_set(key, Versioned(seqno, b""))
            seqno += 1

    with ThreadPoolExecutor(1) as pool:
        writing, seen = pool.submit(write), set[int]()
        try:
            while len(seen) < 10 and not writing.done():
                found = consensus.capture()
                z, a, m = (len(found.get(key, ())) for key in ("z", "a", "m"))
                assert z >= a >= m >= z - 1
                seen.add(z)
        finally:
            stop.set()
        writing.result()


def test_of_many_at_once_each_wins_or_loses_by_itself(open_consensus: Open):
    one, two = open_consensus(), open_consensus()
    assert two.compare_and_set("taken", Versioned(0, b"first"))
    many = [(f"k{n}", Versioned(0, b"%d" % n)) for n in range(600)]  # More than one round.
    done = one.compare_and_set_all(
        [
            *many,
            ("taken", Versioned(0, b"late")),
            ("gap", Versioned(1, b"")),
            ("taken", Versioned(1, b"next")),
        ]
    )
    assert done == [True] * 600 + [False, False, True]
    assert [two.head(key) for key, _ in many] == [version for _, version in many]
    assert two.scan("taken") == [Versioned(0, b"first"), Versioned(1, b"next")]
    assert two.head("gap") is None
    assert one.compare_and_set_all([]) == []
    with pytest.raises(InvalidUsage):
        one.compare_and_set_all([("z", Versioned(0, b"")), ("k", Versioned(-1, b""))])
    assert two.head("z") is None, "one that cannot be stops all before anything is done"


def test_contract(open_consensus: Open):
    one, two = open_consensus(), open_consensus()
    versions = [Versioned(n, f"v{n}".encode()) for n in range(5)]

    assert one.head("k") is None
    assert one.scan("k") == []
    assert one.scan("k", 7, 3) == []
    assert one.keys() == []
    assert not one.compare_and_set("k", versions[1]), "an empty log begins at 0"
    assert one.head("k") is None
    assert one.keys() == [], "a lost race leaves no key behind"

    assert one.compare_and_set("k", versions[0])
    assert two.head("k") == versions[0]
    assert not two.compare_and_set("k", Versioned(0, b"other")), "0 is taken"
    assert not two.compare_and_set("k", versions[2]), "no gaps"
    assert two.compare_and_set("k", versions[1])
    assert not one.compare_and_set("k", Versioned(1, b"late")), "lost to the other handle"
    assert not one.compare_and_set("k", versions[0])
    assert one.compare_and_set("k", versions[2])
    assert two.compare_and_set("k", Versioned(3, b""))
    assert one.head("k") == Versioned(3, b""), "empty data is data"
    assert one.compare_and_set("k", versions[4])

    log = [*versions[:3], Versioned(3, b""), versions[4]]
    assert one.scan("k") == log
    assert two.scan("k", 3) == log[3:]
    assert two.scan("k", 4) == log[4:]
    assert two.scan("k", 5) == []
    assert two.scan("k", 0, 2) == log[:2]
    assert two.scan("k", 2, 2) == log[2:4]
    assert two.scan("k", 4, 100) == log[4:]
    assert two.scan("k", 0, 0) == []

    assert two.compare_and_set("another", Versioned(0, b"x"))
    assert one.keys() == ["another", "k"]
    assert one.head("k") == versions[4], "keys do not touch each other"
    assert two.scan("another") == [Versioned(0, b"x")]
    assert open_consensus().scan("k") == log, "a handle opened later sees it all"


def test_truncation(open_consensus: Open):
    one, two = open_consensus(), open_consensus()
    with pytest.raises(InvalidUsage, match="head is at None"):
        one.truncate("k", 0)
    for n in range(4):
        assert one.compare_and_set("k", Versioned(n, b"%d" % n))
    assert one.compare_and_set("other", Versioned(0, b"stays"))
    with pytest.raises(InvalidUsage, match="head is at 3"):
        two.truncate("k", 4)
    assert two.truncate("k", 0) == 0
    assert two.truncate("k", 2) == 2
    assert one.truncate("k", 2) == 0, "again is harmless"
    assert one.truncate("k", 1) == 0
    assert [version.seqno for version in one.scan("k")] == [2, 3]
    assert [version.seqno for version in one.scan("k", 0, 1)] == [2], "a limit counts what is left"
    assert one.truncate("k", 3) == 1
    assert two.head("k") == Versioned(3, b"3"), "the head always stays"
    assert not one.compare_and_set("k", Versioned(0, b"0")), "a truncated log is not an empty one"
    assert not one.compare_and_set("k", Versioned(3, b"3"))
    assert one.compare_and_set("k", Versioned(4, b"4"))
    assert one.keys() == ["k", "other"]
    assert two.scan("other") == [Versioned(0, b"stays")]


def test_sequence_numbers_out_of_range(open_consensus: Open):
    consensus = open_consensus()
    for seqno in (-1, 2**63):
        with pytest.raises(InvalidUsage, match="2\\^63"):
            consensus.compare_and_set("k", Versioned(seqno, b""))
    assert not consensus.compare_and_set("k", Versioned(2**63 - 1, b""))


def test_any_bytes_and_any_name(open_consensus: Open):
    consensus = open_consensus()
    every = bytes(range(256)) * 400
    for key in ("plain", "with 'quotes' and %s", "ü", "k" * 9_000):
        assert consensus.compare_and_set(key, Versioned(0, every))
        assert consensus.head(key) == Versioned(0, every)
        assert isinstance(consensus.scan(key)[0].data, bytes)
    assert consensus.keys() == sorted(["plain", "with 'quotes' and %s", "ü", "k" * 9_000])


def test_watch(open_consensus: Open):
    watcher, writer = open_consensus(), open_consensus()
    heard, also = Heard(), Heard()
    stop, stop_also = watcher.watch(heard), watcher.watch(also)
    if isinstance(watcher, PostgresConsensus):
        assert heard.wait(None), "once it listens, it says so"
    assert writer.compare_and_set("k", Versioned(0, b""))
    assert heard.wait("k")
    assert also.wait("k")
    assert not writer.compare_and_set("k", Versioned(0, b""))
    stop()
    stop()
    assert writer.compare_and_set("k2", Versioned(0, b""))
    assert also.wait("k2")
    assert "k2" not in heard.keys
    stop_also()
    assert watcher.compare_and_set("k3", Versioned(0, b""))
    again = Heard()
    stop = watcher.watch(again)
    if isinstance(watcher, PostgresConsensus):
        assert again.wait(None)
    assert writer.compare_and_set("k4", Versioned(0, b""))
    assert again.wait("k4")
    stop()


def test_a_watcher_that_fails_harms_nobody(open_consensus: Open):
    consensus = open_consensus()
    heard = Heard()

    def fail(key: str | None) -> None:
        raise RuntimeError("a bug in a watcher")

    stops = [consensus.watch(fail), consensus.watch(heard)]
    if isinstance(consensus, PostgresConsensus):
        assert heard.wait(None)
    assert consensus.compare_and_set("k", Versioned(0, b""))
    assert heard.wait("k")
    for stop in stops:
        stop()


def test_closed(open_consensus: Open):
    consensus = open_consensus()
    assert consensus.compare_and_set("k", Versioned(0, b"stays"))
    heard = Heard()
    consensus.watch(heard)
    consensus.close()
    consensus.close()
    heard.keys.clear()
    assert open_consensus().compare_and_set("j", Versioned(0, b""))
    if not isinstance(consensus, MemConsensus):
        assert heard.keys == [], "a closed one watches no more"
    assert open_consensus().head("k") == Versioned(0, b"stays")
    if not isinstance(consensus, MemConsensus):
        with pytest.raises(InvalidUsage):
            consensus.head("k")
        with pytest.raises(InvalidUsage):
            consensus.compare_and_set("k", Versioned(1, b""))


@pytest.mark.parametrize("shared", [False, True], ids=["own handles", "one handle"])
def test_threads_that_race_win_each_version_once(open_consensus: Open, shared: bool):
    rounds, racers = 25, 4
    start = threading.Barrier(racers)
    common = open_consensus()

    def race(me: int) -> list[int]:
        consensus = common if shared else open_consensus()
        won = []
        for seqno in range(rounds):
            start.wait()
            if consensus.compare_and_set("k", Versioned(seqno, b"%d" % me)):
                won.append(seqno)
        return won

    with ThreadPoolExecutor(racers) as pool:
        won = [*pool.map(race, range(racers))]
    assert sorted(seqno for mine in won for seqno in mine) == list(range(rounds))
    for seqno, data in open_consensus().scan("k"):
        assert seqno in won[int(data)]


def test_threads_that_truncate_and_commit(open_consensus: Open):
    """A head never goes away, whoever truncates meanwhile."""
    consensus, other = open_consensus(), open_consensus()
    assert consensus.compare_and_set("k", Versioned(0, b""))
    done = threading.Event()

    def truncate() -> int:
        dropped = 0
        while not done.is_set():
            head = other.head("k")
            assert head is not None
            dropped += other.truncate("k", head.seqno)
        return dropped

    with ThreadPoolExecutor(2) as pool:
        truncaters = [pool.submit(truncate) for _ in range(2)]
        try:
            for seqno in range(1, 80):
                assert consensus.compare_and_set("k", Versioned(seqno, b""))
        finally:
            done.set()
        dropped = sum(truncater.result() for truncater in truncaters)
    left = consensus.scan("k")
    assert left[-1].seqno == 79
    assert len(left) + dropped == 80


@pytest.mark.parametrize("seed", range(3))
def test_laws_that_hold_under_faults(open_consensus: Open, seed: int):
    """After an error that may hide a success the head is old or new; a lost race never shows."""
    truth = open_consensus()
    flaky = UnreliableConsensus(open_consensus(), seed=seed, chances=FLAKY)
    chance = random.Random(seed)
    log: list[Versioned] = []
    for step in range(100):
        wrong = chance.random() < 0.2
        seqno = len(log) + (chance.choice([-1, 1, 2]) if wrong else 0)
        new = Versioned(max(seqno, 0), b"%d" % step)
        fits = new.seqno == len(log)
        try:
            won = flaky.compare_and_set("k", new)
            assert won == fits, f"seed {seed}, step {step}"
            happened = won
        except Determinate:
            happened = False
        except Indeterminate:
            head = truth.head("k")
            happened = head == new
            assert happened <= fits
        if happened:
            log.append(new)
        assert truth.scan("k") == log, f"seed {seed}, step {step}"
        with suppress(Determinate):
            assert flaky.scan("k", len(log) // 2) == log[len(log) // 2 :]
    head = truth.head("k")
    with suppress(Unavailable):
        flaky.truncate("k", len(log) - 1)
    assert truth.head("k") == head, "whatever happened to the rest"


@pytest.mark.parametrize("seed", range(2))
def test_writers_under_faults_lose_and_double_nothing(open_consensus: Open, seed: int):
    """Each writer adds its own entries, looking at the head after each doubtful error."""
    writers, entries = 3, 12

    def write(me: int) -> None:
        flaky = UnreliableConsensus(open_consensus(), seed=seed * 100 + me, chances=FLAKY)
        for n in range(entries):
            mine = b"%d-%d" % (me, n)
            attempted: int | None = None
            while True:
                try:
                    if attempted is not None and mine in {
                        v.data for v in flaky.scan("k", attempted)
                    }:
                        break
                    attempted = None
                    head = flaky.head("k")
                    seqno = 0 if head is None else head.seqno + 1
                    if flaky.compare_and_set("k", Versioned(seqno, mine)):
                        break
                except Determinate:
                    continue
                except Indeterminate:
                    attempted = seqno

    with ThreadPoolExecutor(writers) as pool:
        for _ in pool.map(write, range(writers)):
            pass
    log = open_consensus().scan("k")
    assert [version.seqno for version in log] == list(range(writers * entries))
    expected = sorted(b"%d-%d" % (me, n) for me in range(writers) for n in range(entries))
    assert sorted(version.data for version in log) == expected


def test_planned_faults(open_consensus: Open):
    consensus = UnreliableConsensus(open_consensus())
    consensus.fail("before")
    consensus.fail("after", meanwhile=lambda: consensus.truncate("k", 0))
    consensus.fail("refuse", times=2)
    consensus.fail("head")
    for error in (Indeterminate, Indeterminate, Determinate, Determinate):
        with pytest.raises(error):
            consensus.compare_and_set("k", Versioned(0, b"0"))
    with pytest.raises(Determinate):
        consensus.head("k")
    assert consensus.head("k") == Versioned(0, b"0")
    consensus.fail("truncate")
    with pytest.raises(Determinate):
        consensus.truncate("k", 0)
    assert consensus.truncate("k", 0) == 0


class TestGroupCommit:
    """Threads of one process share transactions; each still gets its own answer."""

    def test_many_threads_share_few_transactions(
        self, durable_uri: str, monkeypatch: pytest.MonkeyPatch
    ):
        consensus = open_at(durable_uri)
        rounds, threads, transactions = 10, 8, 0
        kind = type(consensus)
        commit = kind._commit  # type: ignore[attr-defined]

        def counted(self, items):
            nonlocal transactions
            transactions += 1
            return commit(self, items)

        consensus._group._work = counted.__get__(consensus)  # type: ignore[attr-defined]
        start = threading.Barrier(threads)

        def write(me: int) -> None:
            for seqno in range(rounds):
                start.wait()
                assert consensus.compare_and_set(f"k{me}", Versioned(seqno, b"%d" % me))

        with closing(consensus), ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(write, range(threads)):
                pass
            assert all(len(consensus.scan(f"k{me}")) == rounds for me in range(threads))
        assert transactions < rounds * threads / 2

    def test_one_winner_within_a_transaction(self, durable_uri: str):
        with closing(open_at(durable_uri)) as consensus:
            items = [
                ("k", 0, b"first"),
                ("k", 0, b"second"),
                ("j", 1, b"a gap"),
                ("j", 0, b"j"),
            ]
            assert consensus._commit(items) == [True, False, False, True]  # type: ignore[attr-defined]
            assert consensus.scan("k") == [Versioned(0, b"first")]
            assert consensus.scan("j") == [Versioned(0, b"j")]

    def test_an_error_is_everyones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("tidemark.persist.sqlite.BUSY_TIMEOUT", 0.05)
        consensus = SqliteConsensus(tmp_path / "consensus")
        blocker = sqlite3.connect(tmp_path / "consensus", isolation_level=None)
        with closing(consensus), closing(blocker):
            assert consensus.compare_and_set("k", Versioned(0, b""))
            blocker.execute("BEGIN IMMEDIATE")
            with ThreadPoolExecutor(4) as pool:
                calls = [
                    pool.submit(consensus.compare_and_set, f"k{n}", Versioned(0, b""))
                    for n in range(4)
                ]
                errors = [call.exception() for call in calls]
            assert [type(error) for error in errors] == [Determinate] * 4
            assert all("locked" in str(error) for error in errors)
            assert len({id(error) for error in errors}) == 4, "each has its own to raise"
            blocker.execute("ROLLBACK")
            assert consensus.keys() == ["k"]
            assert consensus.compare_and_set("k1", Versioned(0, b""))


RACER = """
import sys
from tidemark.persist.consensus import Versioned
from tidemark.persist.location import open_consensus
consensus = open_consensus(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = 0
while (head := consensus.head("k")) is None or head.seqno < 149:
    seqno = 0 if head is None else head.seqno + 1
    won += consensus.compare_and_set("k", Versioned(seqno, sys.argv[2].encode()))
print(won)
"""

OPENER = """
import sys
from tidemark.persist.location import open_consensus
print("ready", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[2])):
    open_consensus(f"{sys.argv[1]}{n}").keys()
print("done")
"""

RINGER = """
import sys
from tidemark.persist.consensus import Versioned
from tidemark.persist.location import open_consensus
consensus = open_consensus(sys.argv[1])
for line in sys.stdin:
    print(consensus.compare_and_set(line.strip(), Versioned(0, b"")), flush=True)
"""


def spawn(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def at_once(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Let them all go when all are ready; what each of them says in the end."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[0] for process in processes]


class TestProcesses:
    def test_processes_that_race_win_each_version_once(self, durable_uri: str):
        won = [int(said) for said in at_once([spawn(RACER, durable_uri, str(n)) for n in range(2)])]
        with closing(open_at(durable_uri)) as consensus:
            log = consensus.scan("k")
        assert [seqno for seqno, _ in log] == list(range(150))
        assert won == [sum(data == b"%d" % me for _, data in log) for me in range(2)]

    def test_processes_can_open_a_new_one_at_once(self, durable_uri: str):
        times = "40" if durable_uri.startswith("sqlite") else "10"
        openers = [spawn(OPENER, durable_uri, times) for _ in range(3)]
        assert at_once(openers) == ["done\n"] * 3

    def test_a_commit_of_one_process_wakes_another(self, durable_uri: str):
        with closing(open_at(durable_uri)) as watcher, spawn(RINGER, durable_uri) as ringer:
            assert ringer.stdin is not None
            assert ringer.stdout is not None
            heard = Heard()
            stop = watcher.watch(heard)
            if isinstance(watcher, PostgresConsensus):
                assert heard.wait(None)
            for key in ("k1", "k2"):
                print(key, file=ringer.stdin, flush=True)
                assert ringer.stdout.readline() == "True\n"
                assert heard.wait(key)
            stop()
            ringer.stdin.close()


def test_errors_are_ours(open_consensus: Open):
    with pytest.raises(TidemarkError):
        open_consensus().truncate("k", 1)
