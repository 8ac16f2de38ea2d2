"""A sink at rest: progress of many shards in one commit, and whatever can come in between."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemark.compute.sink import Sink
from tidemark.frontier import Frontier
from tidemark.persist import Appended, MemBlob, MemConsensus, PersistClient
from tidemark.persist.machine import apply_together
from tidemark.persist.updates import updates_schema
from unreliable import UnreliableConsensus

ROWS = pa.schema([("a", pa.int64())])


def updates(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Of numbers, times and diffs."""
    found = [(a, time, diff, None) for a, time, diff in rows]
    schema = updates_schema(ROWS)
    columns = zip(*found, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


class Sinks:
    def __init__(self) -> None:
        self.consensus = UnreliableConsensus(MemConsensus())
        self.client = PersistClient(MemBlob(), self.consensus)
        self.all = [self.sink(f"s{i}") for i in range(3)]
        for at, sink in enumerate(self.all):
            sink.start(Frontier.MIN)
            sink.desire(updates([(at, 4, 1)]), Frontier(5))
            assert sink.flush()

    def sink(self, shard: str) -> Sink:
        return Sink(self.client, shard, schema=ROWS)

    def rest(self, upper: int) -> list[bool]:
        """Who came to `upper` with the others; the rest follow in the usual way."""
        steps = [sink.rest(Frontier(upper)) for sink in self.all]
        asked = [(s, step) for s, step in zip(self.all, steps, strict=True) if step is not None]
        outcomes = apply_together([step for _, step in asked])
        rested = {id(s) for (s, _), o in zip(asked, outcomes, strict=True) if o is not None}
        for sink in self.all:
            if id(sink) in rested:
                sink.rested(Frontier(upper))
            else:
                sink.desire(None, Frontier(upper))
                assert sink.flush()
        return [id(sink) in rested for sink in self.all]

    def check(self, upper: int, *more: tuple[int, int]) -> None:
        """Each holds its number, and `more` (shard, number), and nothing twice."""
        for at, sink in enumerate(self.all):
            wanted = sorted([at, *(number for shard, number in more if shard == at)])
            found = self.client.open_reader(sink.shard_id).snapshot(upper - 1)
            assert sorted(found["a"].to_pylist()) == wanted
            assert self.client.state(sink.shard_id).upper == Frontier(upper)
            assert sink.desired == Frontier(upper)
            assert sink.held == 0


@pytest.fixture
def sinks() -> Sinks:
    return Sinks()


def test_all_at_once_and_then_a_change(sinks: Sinks):
    assert sinks.rest(7) == [True, True, True]
    assert sinks.rest(9) == [True, True, True]
    sinks.check(9)
    for sink in sinks.all:
        sink.desire(updates([(9, 10, 1)]), Frontier(11))
        assert sink.flush()
    sinks.check(11, (0, 9), (1, 9), (2, 9))
    assert sinks.rest(12) == [True, True, True]
    assert [sink.corrected for sink in sinks.all] == [0, 0, 0]


@pytest.mark.parametrize("how", ["before", "after", "refuse"])
def test_a_commit_that_fails_is_looked_at_again(sinks: Sinks, how: str):
    sinks.consensus.fail(how, call="compare_and_set_all")
    assert sinks.rest(7) == [False, False, False]
    sinks.check(7)
    assert sinks.rest(8) == [True, True, True]
    sinks.check(8)


def test_a_twin_was_faster(sinks: Sinks):
    twin = PersistClient(MemBlob(), sinks.consensus)
    writer = twin.open_writer("s1", schema=ROWS)
    writer.advance_upper(Frontier(6))
    assert sinks.rest(7) == [True, False, True]
    sinks.check(7)
    assert sinks.rest(8) == [True, True, True]


def test_a_stranger_is_corrected(sinks: Sinks):
    other = PersistClient(sinks.client.blob, sinks.consensus)
    writer = other.open_writer("s2", schema=ROWS)
    written = writer.compare_and_append(updates([(77, 5, 1)]), lower=Frontier(5), upper=Frontier(6))
    assert isinstance(written, Appended)
    assert sinks.rest(7) == [True, True, False]
    sinks.check(7)
    assert sinks.all[2].corrected == 1


def test_what_is_not_at_rest_does_not_rest(sinks: Sinks):
    sinks.all[0].desire(updates([(5, 6, 1)]), Frontier(7))
    assert sinks.all[0].rest(Frontier(8)) is None
    sinks.all[0].flush()
    reading = Sink(sinks.client, "s1", schema=ROWS, read_only=lambda: True)
    reading.start(Frontier(5))
    assert reading.rest(Frontier(8)) is None
    assert sinks.all[2].rest(Frontier(5)) is None, "it is there"
