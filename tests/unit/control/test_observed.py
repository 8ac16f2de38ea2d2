"""What control remembers of what it saw, and who is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.activity import Activity
from tidemark.control.observed import (
    MINUTE_MS,
    Broken,
    Changes,
    LagHistory,
    Usages,
    costs_of,
    lag_of,
)
from tidemark.control.subscriptions import Subscriptions
from tidemark.control.variables import Variables
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, MemBlob, MemConsensus, PersistClient
from tidemark.persist.config import Config


def test_a_lag_is_how_far_the_last_complete_time_is_behind():
    assert lag_of(Frontier(1_001), 1_500) == 500
    assert lag_of(Frontier(9_000), 1_500) == 0  # It is refreshed at 9,000.
    assert lag_of(Frontier.EMPTY, 1_500) == 0
    assert lag_of(Frontier(0), 1_500) is None
    assert lag_of(Frontier(1), 1_500) is None


def test_of_each_minute_the_least_lag_is_kept():
    history = LagHistory()
    history.add(5, {"u1": 30, "u2": None})
    history.add(10, {"u1": 20, "u2": 7})
    history.add(15, {"u1": 25})
    history.add(MINUTE_MS + 1, {"u1": 90})
    assert [tuple(each) for each in history] == [
        ("u1", 20, 0),
        ("u2", 7, 0),
        ("u1", 90, MINUTE_MS),
    ]


def test_the_history_is_bounded_by_minutes_and_by_collections():
    history = LagHistory(minutes=3)
    for minute in range(5):
        history.add(minute * MINUTE_MS, {"u1": minute})
    assert [each.lag for each in history] == [2, 3, 4]
    history = LagHistory(most=10)
    for minute in range(5):
        history.add(minute * MINUTE_MS, {f"u{at}": minute for at in range(4)})
    assert sorted({each.lag for each in history}) == [3, 4]


def test_a_word_is_since_it_was_another():
    class Stepped:
        now = 0

        def now_ms(self) -> int:
            self.now += 1
            return self.now

        def monotonic(self) -> float:
            return float(self.now)

        def sleep(self, seconds: float) -> None:
            raise NotImplementedError

    changes = Changes(Stepped())
    assert changes.since("u1", "starting") == 1
    assert changes.since("u1", "starting") == 1
    assert changes.since("u1", "running") == 2
    changes.forget_all_but({"u2"})
    assert changes.since("u1", "running") == 3


def test_a_process_costs_what_its_children_cost_too():
    script = "import sys; print(flush=True); sys.stdin.read()"
    parent = [
        sys.executable,
        "-c",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])",
        script,
    ]
    with subprocess.Popen(parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # The child is there.
        with_child = costs_of({process.pid})[process.pid].memory
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        assert with_child > pages * os.sysconf("SC_PAGE_SIZE") > 0
        process.communicate()
    assert costs_of({process.pid}) == {}


def test_how_busy_a_process_is_takes_two_looks():
    usages = Usages(SYSTEM_CLOCK)
    me = os.getpid()
    usages.look({me})
    assert usages.now[me].cores is None
    assert usages.now[me].memory > 1_000_000
    sum(at * at for at in range(2_000_000))
    usages.look({me})
    cores = usages.now[me].cores
    assert cores is not None
    assert cores > 0
    usages.look(set())
    assert usages.now == {}


def test_a_subscription_is_listed_as_long_as_it_is_open():
    subscriptions = Subscriptions(SYSTEM_CLOCK)
    who = Activity(SYSTEM_CLOCK).connected("alice", Variables({}))
    with subscriptions.opened(who, "quickstart", ("u1", "u2")):
        (found,) = subscriptions
        assert (found.who.user, found.cluster, found.reads) == ("alice", "quickstart", ("u1", "u2"))
    assert list(subscriptions) == []


class Reads(MemBlob):
    """Counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def get(self, key: str, *args: object, **options: object) -> bytes | None:
        self.count += 1
        return super().get(key, *args, **options)  # type: ignore[arg-type]


def test_error_rows_are_found_without_reading_what_has_none():
    blob = Reads()
    client = PersistClient(blob, MemConsensus(), config=Config(inline_bytes=0))
    writer = client.open_writer("u1", schema=pa.schema([("k", pa.int64())]))
    broken = Broken(client)

    def write(at: int, k: int | None, diff: int, err: str | None = None) -> None:
        row = {
            "k": pa.array([k], pa.int64()),
            TIME: [at],
            DIFF: [diff],
            ERR: pa.array([err], pa.string()),
        }
        writer.append(pa.table(row), lower=Frontier(at), upper=Frontier(at + 1))

    write(0, 1, 1)
    before = blob.count
    assert broken.found("u1") == (None, 0)
    assert blob.count == before
    write(1, None, 1, "division by zero")
    assert broken.found("u1") == ("division by zero", 1)
    read = blob.count
    assert read > before
    write(2, 2, 1)
    assert broken.message("u1") == "division by zero"
    assert blob.count == read
    write(3, None, -1, "division by zero")
    assert broken.message("u1") is None
