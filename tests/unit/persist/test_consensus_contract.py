"""What every Consensus must do; the same test runs on each implementation."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.errors import Corruption, InvalidUsage
from tidemark.persist.consensus import Consensus, MemConsensus, SqliteConsensus, Versioned

Open = Callable[[], Consensus]


@pytest.fixture(params=["sqlite", "memory"])
def open_consensus(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens another handle on one and the same location."""
    if request.param == "sqlite":
        return lambda: SqliteConsensus(tmp_path / "deep" / "consensus")
    shared = MemConsensus()
    return lambda: shared


def test_contract(open_consensus: Open):
    one, two = open_consensus(), open_consensus()
    versions = [Versioned(n, f"v{n}".encode()) for n in range(5)]

    assert one.head("k") is None
    assert one.scan("k") == []
    assert one.keys() == []
    assert not one.compare_and_set("k", versions[1]), "an empty log begins at 0"
    assert one.head("k") is None

    assert one.compare_and_set("k", versions[0])
    assert two.head("k") == versions[0]
    assert not two.compare_and_set("k", Versioned(0, b"other")), "0 is taken"
    assert not two.compare_and_set("k", versions[2]), "no gaps"
    assert two.compare_and_set("k", versions[1])
    assert not one.compare_and_set("k", Versioned(1, b"late")), "lost to the other handle"
    assert one.compare_and_set("k", versions[2])
    assert two.compare_and_set("k", Versioned(3, b""))
    assert one.head("k") == Versioned(3, b""), "empty data is data"
    assert one.compare_and_set("k", versions[4])

    assert one.scan("k") == [*versions[:3], Versioned(3, b""), versions[4]]
    assert two.scan("k", 3) == [Versioned(3, b""), versions[4]]
    assert two.scan("k", 5) == []

    assert two.compare_and_set("another", Versioned(0, b"x"))
    assert one.keys() == ["another", "k"]
    assert one.head("k") == versions[4], "keys do not touch each other"


def test_truncation(open_consensus: Open):
    one, two = open_consensus(), open_consensus()
    with pytest.raises(InvalidUsage, match="head is at None"):
        one.truncate("k", 0)
    for n in range(4):
        assert one.compare_and_set("k", Versioned(n, b"%d" % n))
    with pytest.raises(InvalidUsage, match="head is at 3"):
        two.truncate("k", 4)
    assert two.truncate("k", 0) == 0
    assert two.truncate("k", 2) == 2
    assert one.truncate("k", 2) == 0, "again is harmless"
    assert one.truncate("k", 1) == 0
    assert [version.seqno for version in one.scan("k")] == [2, 3]
    assert one.truncate("k", 3) == 1
    assert two.head("k") == Versioned(3, b"3"), "the head always stays"
    assert not one.compare_and_set("k", Versioned(0, b"0")), "a truncated log is not an empty one"
    assert one.compare_and_set("k", Versioned(4, b"4"))


def test_change_token(open_consensus: Open):
    watcher, writer = open_consensus(), open_consensus()
    seen = watcher.change_token()
    assert watcher.change_token() == seen
    assert writer.compare_and_set("k", Versioned(0, b""))
    assert (after := watcher.change_token()) != seen
    assert not writer.compare_and_set("k", Versioned(0, b"")), "a lost race changes nothing"
    assert watcher.change_token() == after


def test_threads_that_race_win_each_version_once(open_consensus: Open):
    rounds, racers = 25, 4
    start = threading.Barrier(racers)
    won: list[list[int]] = [[] for _ in range(racers)]

    def race(me: int) -> None:
        consensus = open_consensus()
        for seqno in range(rounds):
            start.wait()
            if consensus.compare_and_set("k", Versioned(seqno, b"%d" % me)):
                won[me].append(seqno)

    threads = [threading.Thread(target=race, args=(me,)) for me in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seqno for mine in won for seqno in mine) == list(range(rounds))
    for seqno, data in open_consensus().scan("k"):
        assert seqno in won[int(data)]


RACER = """
import sys
from tidemark.persist.consensus import SqliteConsensus, Versioned
consensus = SqliteConsensus(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = 0
while (head := consensus.head("k")) is None or head.seqno < 199:
    seqno = 0 if head is None else head.seqno + 1
    won += consensus.compare_and_set("k", Versioned(seqno, sys.argv[2].encode()))
print(won)
"""

OPENER = """
import sys
from tidemark.persist.consensus import SqliteConsensus
print("ready", flush=True)
sys.stdin.readline()
for n in range(60):
    SqliteConsensus(f"{sys.argv[1]}/consensus{n}").keys()
print("done")
"""


class TestSqlite:
    def test_processes_that_race_win_each_version_once(self, tmp_path: Path):
        path = tmp_path / "consensus"
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, str(path), str(me)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for me in range(2)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        won = [int(racer.communicate("go\n")[0]) for racer in racers]
        log = SqliteConsensus(path).scan("k")
        assert [seqno for seqno, _ in log] == list(range(200))
        assert won == [sum(data == b"%d" % me for _, data in log) for me in range(2)]

    def test_processes_can_open_a_new_file_at_once(self, tmp_path: Path):
        openers = [
            subprocess.Popen(
                [sys.executable, "-c", OPENER, str(tmp_path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write("go\n")
            opener.stdin.flush()
        assert [opener.communicate()[0] for opener in openers] == ["done\n"] * 4

    def test_trouble_is_told_in_our_own_errors(self, tmp_path: Path):
        path = tmp_path / "consensus"
        path.write_bytes(b"not a database at all" * 100)
        with pytest.raises(Corruption, match="damaged"):
            SqliteConsensus(path).head("k")
