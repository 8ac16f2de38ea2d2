"""The tables' commit log, interrupted at each of its steps: a commit happens wholly or not at all."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pytest

from tidemark.errors import Fenced, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, Config, MemBlob, MemConsensus, PersistClient, WriteHandle
from tidemark.persist.consensus import Versioned
from tidemark.persist.fsck import fsck
from tidemark.storage.tables import Tables, Write

SCHEMA = pa.schema([pa.field("n", pa.int64())])
SHARDS = {"a": SCHEMA, "b": SCHEMA}


def opened(client: PersistClient, *, epoch: int = 1) -> Tables:
    tables = Tables(client, "txns", epoch=epoch)
    tables.open(SHARDS)
    return tables


def write(shard: str, n: int) -> Write:
    return Write(shard, pa.table({"n": [n], DIFF: pa.array([1], pa.int64())}))


def contents(client: PersistClient, shard: str) -> list[int]:
    upper = client.state(shard).upper.time
    assert upper
    rows = client.open_reader(shard).snapshot(upper - 1)
    assert set(rows[DIFF].to_pylist()) <= {1}
    return sorted(rows["n"].to_pylist())


def failing(*_: object, **__: object) -> None:
    raise Unavailable("no space left on device")


def test_a_commit_that_was_applied_is_not_applied_again(client: PersistClient):
    opened(client).commit([write("a", 1)])
    opened(client, epoch=2).commit([write("b", 2)])
    assert (contents(client, "a"), contents(client, "b")) == ([1], [2])


def test_a_commit_that_was_only_logged_is_applied_at_the_next_start(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    tables = opened(client)
    monkeypatch.setattr(tables, "_apply", lambda: None)
    tables.commit([write("a", 1), write("b", 1)])
    assert contents(client, "a") == []
    opened(client, epoch=2)
    assert (contents(client, "a"), contents(client, "b")) == ([1], [1])


def test_a_commit_that_could_not_be_applied_is_applied_before_the_next(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    tables = opened(client)
    with monkeypatch.context() as patch:
        patch.setattr(tables._tables["b"], "append", failing)
        tables.commit([write("a", 1), write("b", 1)])
        with pytest.raises(Unavailable):
            tables.commit([])
    tables.commit([write("a", 2)])
    assert (contents(client, "a"), contents(client, "b")) == ([1, 2], [1])


def test_taking_over_from_one_that_still_writes(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    old = opened(client)
    new = Tables(client, "txns", epoch=2)
    recover, late = new._recover, [write("a", 1), write("b", 1)]

    def overtaken() -> None:
        recover()
        if late:
            old.commit([late.pop()])

    monkeypatch.setattr(new, "_recover", overtaken)
    new.open(SHARDS)
    with pytest.raises(Fenced):
        old.commit([write("a", 9)])
    assert (contents(client, "a"), contents(client, "b")) == ([1], [1])


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class Mortal(MemConsensus):
    """Counts what is committed to each shard; after `left` commits the process is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: Counter[str] = Counter()
        self.left: int | None = None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1
        self.commits[key] += 1
        return super().compare_and_set(key, new)


class World(NamedTuple):
    """Stores that outlive the processes that use them."""

    blob: MemBlob
    consensus: Mortal

    def process(self) -> PersistClient:
        return PersistClient(self.blob, self.consensus, config=Config(heartbeat=False))


@pytest.fixture
def world() -> World:
    return World(MemBlob(), Mortal())


HISTORY = (("a",), (), ("a", "b"), ("c",), (), ("b", "c"), ("a", "b", "c"))
"""The tables that each commit touches; the one at time 10 * i writes i to them."""


def lived(client: PersistClient) -> None:
    tables = Tables(client, "txns", epoch=1)
    tables.open({})
    for shard in "abc":
        tables.create(shard, SCHEMA)
    for i, touched in enumerate(HISTORY, start=1):
        tables.commit([write(shard, i) for shard in touched], not_before=10 * i)
        tables.forget_history()


def expected(shard: str, upper: Frontier) -> list[int]:
    return [i for i, touched in enumerate(HISTORY, 1) if shard in touched and upper.covers(10 * i)]


def commits_of_a_life() -> int:
    world = World(MemBlob(), Mortal())
    lived(world.process())
    return world.consensus.commits.total()


@pytest.mark.parametrize("died_after", range(commits_of_a_life()))
def test_killed_at_any_commit(world: World, died_after: int):
    world.consensus.left = died_after
    with pytest.raises(Killed):
        lived(world.process())
    world.consensus.left = None
    client = world.process()
    there = [shard for shard in "abc" if client.state(shard).follows]
    before = {shard: client.state(shard).upper for shard in there}
    logged = client.state("txns").upper
    for shard, upper in before.items():
        # Readable up to the last commit, or up to one that touches it and did not get there.
        assert upper.time
        assert contents(client, shard) == expected(shard, upper)
        assert upper == logged or expected(shard, logged) != expected(shard, upper)
    tables = Tables(world.process(), "txns", epoch=2)
    tables.open(dict.fromkeys(there, SCHEMA), not_before=500)
    for shard in there:
        assert before[shard] < client.state(shard).upper == tables.upper
        assert contents(client, shard) == expected(shard, logged)
        assert fsck(client, shard).is_clean
    assert fsck(client, "txns").is_clean


@pytest.mark.parametrize("count", [2, 40])
def test_a_commit_costs_what_it_touches(world: World, count: int):
    tables = Tables(world.process(), "txns", epoch=1)
    tables.open({})
    for n in range(count):
        tables.create(f"t{n}", SCHEMA)
    tables.commit([write("t0", 0), write("t1", 0)])

    def cost(*touched: str) -> dict[str, int]:
        world.consensus.commits.clear()
        time = tables.commit([write(shard, 1) for shard in touched])
        reader = world.process()
        assert {reader.state(f"t{n}").upper.time for n in range(count)} == {time + 1}
        return dict(world.consensus.commits)

    assert cost() == {"txns": 1}
    assert cost("t0") == {"txns": 1, "t0": 1}
    assert cost("t0", "t1") == {"txns": 1, "t0": 1, "t1": 1}


def test_tables_from_before_they_followed_the_log(world: World, monkeypatch: pytest.MonkeyPatch):
    """Their last process died between the log and the tables, and the log led nobody."""
    append = WriteHandle.compare_and_append

    def as_it_was(self, updates, *, leading=None, **given):
        return append(self, updates, **given)

    with monkeypatch.context() as patch:
        patch.setattr(WriteHandle, "follow", lambda *_: None)
        patch.setattr(WriteHandle, "compare_and_append", as_it_was)
        old = opened(world.process())
        old.commit([write("a", 1)])
        patch.setattr(old, "_apply", lambda: None)
        old.commit([write("b", 2)])
    client, seen = world.process(), []
    assert client.state("txns").lead is None
    assert client.state("b").upper == Frontier.MIN
    new = Tables(world.process(), "txns", epoch=2)
    follow = WriteHandle.follow

    def looked_at(self: WriteHandle, log_id: str) -> None:
        seen.append(contents(client, "b"))
        follow(self, log_id)

    monkeypatch.setattr(WriteHandle, "follow", looked_at)
    new.open(SHARDS)
    assert seen == [[2], [2]]
    assert (contents(client, "a"), contents(client, "b")) == ([1], [2])
    assert client.state("a").upper == client.state("b").upper == new.upper


def half_applied(client: PersistClient, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """A commit to two tables, one of which did not get its updates."""
    tables = opened(client)
    with monkeypatch.context() as patch:
        patch.setattr(tables._tables["b"], "append", failing)
        tables.commit([write("a", 1), write("b", 1)])
    return tables


def test_a_table_that_is_dropped_before_it_got_its_updates(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    tables = half_applied(client, monkeypatch)
    tables.drop("b")
    tables.commit([write("a", 2)])
    assert contents(client, "a") == [1, 2]


def test_a_table_that_was_being_dropped_is_not_taken_for_complete(
    client: PersistClient, monkeypatch: pytest.MonkeyPatch
):
    """The catalog has dropped it, and the process died before the table had its updates."""
    half_applied(client, monkeypatch)
    Tables(client, "txns", epoch=2).open({"a": SCHEMA})
    assert contents(client, "a") == [1]
    assert client.state("b").is_tombstone
