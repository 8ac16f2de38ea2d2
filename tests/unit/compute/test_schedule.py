"""Who runs when: with views that only pretend to work, on shards that are real."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tidemark.compute import schedule as schedules
from tidemark.compute.schedule import Schedule
from tidemark.errors import Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import Appended, MemBlob, MemConsensus, PersistClient, UpperMismatch
from tidemark.persist.consensus import Versioned
from tidemark.persist.machine import Step

ROWS = pa.schema([("a", pa.int64())])
SOON = 120.0


class NoSpark:
    """Of which only the tags of its jobs are known, and that they were cancelled."""

    def __init__(self):
        self.sparkContext = self
        self.cancelled: list[str] = []
        self.tags: list[str] = []

    def setLocalProperty(self, name: str, value: str) -> None:
        pass

    def setInterruptOnCancel(self, whether: bool) -> None:
        pass

    def addJobTag(self, tag: str) -> None:
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)


class FakeView:
    """Copies the progress of its input; what it does besides that, the test says."""

    def __init__(self, world: World, id_: str, source: str):
        self.id = id_
        self.input_shards = (source,)
        self.output_shards = ()
        self.is_plain = self.is_resumable = True
        self.ticks = self.corrected = self.written = 0
        self.lower = Frontier.MIN
        self._world = world
        self._writer = world.client.open_writer(id_, schema=ROWS)

    def startable(self) -> bool:
        return self.input_upper() > Frontier.MIN

    def awaits_refresh(self) -> bool:
        return False

    def start(self) -> bool:
        self._world.began.append((self.id, threading.current_thread().name))
        self.lower = self._writer.fetch_upper()
        return True

    def input_upper(self) -> Frontier:
        return self._world.client.state(self.input_shards[0]).upper

    def wants(self, upper: Frontier) -> bool:
        return self.lower < upper

    def changed(self, upper: Frontier) -> bool:
        return self.id not in self._world.unchanged

    def tick(self, upper: Frontier) -> Frontier:
        self._world.ran(self.id)
        self._writer.advance_upper(upper)
        self.lower = upper
        self.ticks += 1
        return upper

    def rest(self, upper: Frontier) -> Step[Appended | UpperMismatch] | None:
        rests = self.id in self._world.resting
        return self._writer.progress(self.lower, upper) if rests else None

    def rested(self, upper: Frontier) -> None:
        if self.id in self._world.restless:
            self._world.restless.remove(self.id)
            raise RuntimeError(f"{self.id} cannot rest")
        self.lower = upper

    def stop(self) -> None:
        self._world.stopped.append(self.id)


class Counted(MemConsensus):
    """Says of how many shards each commit was that several had in common."""

    def __init__(self):
        super().__init__()
        self.together: list[int] = []

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        done = super().compare_and_set_all(news)
        self.together.append(sum(done))
        return done


class World:
    def __init__(self):
        self.consensus = Counted()
        self.client = PersistClient(MemBlob(), self.consensus)
        self.spark = NoSpark()
        self.schedule = Schedule(self.client, self.spark)  # pyright: ignore[reportArgumentType]
        self.table = self.client.open_writer("t", schema=ROWS)
        self.unchanged: set[str] = set()
        self.resting: set[str] = set()
        self.restless: set[str] = set()
        self.gates: dict[str, threading.Event] = {}
        self.failing: dict[str, int] = {}
        self.order: list[tuple[str, str]] = []
        self.began: list[tuple[str, str]] = []
        self.stopped: list[str] = []
        self._lock = threading.Lock()

    def add(self, id_: str, source: str = "t") -> None:
        self.schedule.add(id_, lambda: FakeView(self, id_, source))  # pyright: ignore[reportArgumentType]

    def ran(self, id_: str) -> None:
        with self._lock:
            self.order.append((id_, threading.current_thread().name))
            left = self.failing.get(id_, 0)
            self.failing[id_] = max(0, left - 1)
        if left:
            raise Unavailable(f"{id_} is not well")
        if id_ in self.gates:
            assert self.gates[id_].wait(SOON)

    def advance(self, upper: int) -> None:
        self.table.advance_upper(Frontier(upper))

    def reached(self, id_: str, upper: int) -> bool:
        found = self.client.open_reader(id_).wait_for_upper_past(upper - 1, timeout=SOON)
        return found is not None

    def status(self, id_: str) -> Any:
        return next(status for status in self.schedule.statuses() if status.id == id_)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        for gate in made.gates.values():
            gate.set()
        made.schedule.stop()
        made.client.close()


def test_views_follow_each_other(world: World):
    world.add("b", "a")
    world.add("a")
    world.advance(5)
    assert world.reached("b", 5)
    world.advance(6)
    assert world.reached("b", 6)
    names = [id_ for id_, _ in world.order]
    assert names.index("a") < names.index("b")


def test_progress_alone_needs_no_maintainer(world: World):
    world.unchanged = {"a"}
    world.add("a")
    world.add("b")
    for upper in (5, 6, 7):
        world.advance(upper)
        assert world.reached("a", upper)
        assert world.reached("b", upper)
    threads = dict(world.order)
    assert threads["a"] == "schedule"
    assert threads["b"].startswith("maintenance")


def test_slow_views_leave_room_for_others(world: World, monkeypatch: pytest.MonkeyPatch):
    """More of them than there are maintainers, and still the quick one keeps up."""
    monkeypatch.setattr(schedules, "SLOW", 0.0)  # All that have ticked once count as slow ...
    slow = [f"slow{i}" for i in range(schedules.MAINTAINERS + 2)]
    for id_ in slow:
        world.add(id_)
    world.advance(5)
    assert all(world.reached(id_, 5) for id_ in slow)
    world.gates = {id_: threading.Event() for id_ in slow}
    world.advance(6)
    world.add("quick")  # ... but this one has not.
    assert world.reached("quick", 6)
    assert sum(world.client.state(id_).upper >= Frontier(6) for id_ in slow) == 0
    for gate in world.gates.values():
        gate.set()
    assert all(world.reached(id_, 6) for id_ in slow)


def test_one_that_fails_resumes(world: World):
    world.failing = {"a": 2}
    world.add("a")
    world.add("b")
    world.advance(5)
    assert world.reached("b", 5)
    assert world.reached("a", 5)
    assert world.stopped == ["a", "a"]
    assert world.status("a").ticks == 1


def test_failure_is_reported_until_it_is_over(world: World):
    world.failing = {"a": 1_000}
    world.add("a")
    world.advance(5)
    _until(lambda: world.status("a").failures >= 2)
    assert world.status("a").error == "Unavailable: a is not well"
    world.failing = {}
    _until(lambda: world.status("a").error is None)
    assert world.reached("a", 5)


def test_removed_while_it_runs(world: World):
    world.gates = {"a": threading.Event()}
    world.add("a")
    world.advance(5)
    _until(lambda: world.order)
    remover = threading.Thread(target=world.schedule.remove, args=(["a"],))
    remover.start()
    _until(lambda: world.spark.cancelled)
    assert set(world.spark.cancelled) == set(world.spark.tags)
    world.gates["a"].set()
    remover.join(SOON)
    assert not remover.is_alive()
    assert world.stopped == ["a"]
    assert world.schedule.statuses() == []
    world.advance(6)
    world.add("b")
    assert world.reached("b", 6)
    assert world.client.state("a").upper == Frontier(5)


def _until(ready) -> None:
    """Looks again and again; a test that waits in vain fails by its own assertion."""
    event = threading.Event()
    for _ in range(int(SOON / 0.01)):
        if ready():
            return
        event.wait(0.01)
    raise AssertionError("waited in vain")


def test_views_at_rest_go_on_with_one_commit(world: World):
    """All but one that has more to do, and one that somebody else has taken further."""
    world.advance(1)
    names = [f"v{i}" for i in range(12)]
    for name in names:
        world.add(name)
    assert all(world.reached(name, 1) for name in names)
    world.client.open_writer("v5", schema=ROWS).advance_upper(Frontier(2))
    world.unchanged.update(names)
    world.resting.update(set(names) - {"v3"})
    world.order.clear()
    world.failing["v3"] = 1
    world.advance(3)
    assert all(world.reached(name, 3) for name in names)
    _until(lambda: world.status("v3").error is None)
    assert world.consensus.together[0] == len(names) - 2
    assert {id_ for id_, _ in world.order} == {"v3", "v5"}
    assert world.stopped == ["v3"], "a failure is one's own"
    world.schedule.remove(names)
    assert set(world.stopped) == set(names)


def test_one_that_fails_at_rest_fails_alone(world: World):
    world.advance(1)
    names = ["a", "b", "c", "busy"]
    for name in names:
        world.add(name)
    assert all(world.reached(name, 1) for name in names)
    world.unchanged.update(names[:3])
    world.resting.update(names[:3])
    world.restless.add("a")
    world.order.clear()
    world.advance(2)
    assert all(world.reached(name, 2) for name in names)
    _until(lambda: "a" in world.stopped)
    world.advance(3)
    assert all(world.reached(name, 3) for name in names)
    _until(lambda: world.status("a").error is None)
    assert world.stopped == ["a"]
    assert {id_ for id_, _ in world.order} == {"busy"}
    assert all(thread != "schedule" for _, thread in world.began), "others would stand still"
