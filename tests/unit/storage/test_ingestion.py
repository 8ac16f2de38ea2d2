"""An ingestion is definite: however often it stops, restarts or races, offsets keep their times."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.clock import Clock, ManualClock, Onward
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, MemBlob, MemConsensus, PersistClient, UpperMismatch
from tidemark.persist.write import WriteHandle
from tidemark.storage.generated import Generated
from tidemark.storage.generators import generator
from tidemark.storage.remap import Binding, Remap
from tidemark.storage.source import Ingestion

SHARDS = {"users": "u", "auctions": "a", "bids": "b"}
OPTIONS = {"seed": 3, "users": 20, "history": 25}


def ingestion(client: PersistClient, tick_ms: int = 100, clock: Clock | None = None) -> Ingestion:
    return Ingestion(
        "s",
        Generated(generator("auction", dict(OPTIONS)), tick_ms=tick_ms),
        client=client,
        remap="remap",
        shards=SHARDS,
        interval_ms=1_000,
        clock=clock,
    )


def fresh() -> tuple[PersistClient, ManualClock]:
    clock = ManualClock(50_300)
    return PersistClient(MemBlob(), MemConsensus(), clock=clock), clock


def accumulated(steps: int, table: str) -> list[tuple]:
    """What the generator itself says after `steps` steps."""
    updates = generator("auction", dict(OPTIONS)).updates(0, steps)[table].drop_columns(["_offset"])
    names = [name for name in updates.column_names if name != DIFF]
    summed = updates.group_by(names).aggregate([(DIFF, "sum")])
    rows = zip(*(summed[name].to_pylist() for name in [*names, f"{DIFF}_sum"]), strict=True)
    return sorted(row[:-1] for row in rows if row[-1])


def stored(client: PersistClient, shard: str, as_of: int) -> list[tuple]:
    rows = client.open_reader(shard).snapshot(as_of)
    assert set(rows[DIFF].to_pylist()) <= {1}
    return sorted(zip(*(rows[name].to_pylist() for name in rows.column_names[:-3]), strict=True))


def test_first_binding_is_at_the_minimum_time() -> None:
    client, _ = fresh()
    ingestion(client).step()
    assert stored(client, "u", 0) == accumulated(1, "users")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000),
            st.sampled_from(["step", "restart", "crash", "race"]),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_binding_holds_exactly_its_offsets(script: list[tuple[int, str, int]]) -> None:
    client, clock = fresh()
    running = ingestion(client)
    running.step()
    for pause, event, survive in script:
        clock.advance(pause)
        if event == "race":
            ingestion(client).step()
        elif event == "crash":
            _crash_after(running, survive)
            running = ingestion(client)
        elif event == "restart":
            running = ingestion(client)
        running.step()
    remap = Remap(client, "remap")
    upper = remap.upper
    assert {client.state(shard).upper for shard in SHARDS.values()} == {upper}
    for binding in remap.bindings(Frontier.MIN, upper):
        for table, shard in SHARDS.items():
            assert stored(client, shard, binding.time) == accumulated(binding.offsets[0], table)


def _crash_after(running: Ingestion, appends: int) -> None:
    """Die between two appends: the remap shard and some tables are ahead of the others."""
    left = appends
    real = WriteHandle.append

    def append(self, updates: pa.Table, *, lower: Frontier, upper: Frontier):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        return real(self, updates, lower=lower, upper=upper)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteHandle, "append", append)
        with contextlib.suppress(KeyboardInterrupt):
            running.step()


@pytest.mark.parametrize(("tick_ms", "steps"), [(100, 600), (300, 200), (5_000, 12), (60_000, 1)])
def test_no_tick_is_lost_between_bindings(tick_ms: int, steps: int) -> None:
    client, clock = fresh()
    running = ingestion(client, tick_ms)
    running.step()
    clock.advance(1_000)
    running.step()
    remap = Remap(client, "remap")
    assert remap.upper.time is not None
    before = remap.offsets_at(remap.upper.time - 1)[0]
    for _ in range(60):
        clock.advance(1_000)
        running.step()
    assert remap.offsets_at(remap.upper.time - 1)[0] - before == steps


def test_a_binding_is_never_contradicted() -> None:
    client, _ = fresh()
    remap = Remap(client, "remap")
    remap.mint(7, {0: 3, 1: 0})
    remap.mint(1_000, {0: 10})
    assert remap.mint(500, {0: 99}) == Frontier(1_001)
    assert remap.mint(2_000, {0: 5}) == Frontier(2_001), "a source that went back binds nothing new"
    assert remap.offsets_at(2_000) == {0: 10, 1: 0}
    assert remap.mint(3_000, {0: 10, 1: 0, 2: 4}) == Frontier(3_001)
    assert remap.bindings(Frontier(1_001), remap.upper) == [Binding(3_000, {0: 10, 1: 0, 2: 4})]
    made = client.open_reader("remap").updates(Frontier(1), remap.upper)
    assert sorted(made[TIME].to_pylist()) == [1_000, 1_000, 3_000]


def test_a_gap_in_the_data_is_refused() -> None:
    client, _ = fresh()
    writer = client.open_writer("x", schema=pa.schema([("k", pa.int64())]))
    empty = writer.schema.empty_table()
    outcome = writer.append(empty, lower=Frontier(5), upper=Frontier(6))
    assert outcome == UpperMismatch(Frontier.MIN)


def test_a_source_goes_on_when_the_clock_was_set_back() -> None:
    """Its bindings follow the tables' log, whose time never goes back."""
    client, clock = fresh()
    reached = 0
    running = ingestion(client, clock=Onward(clock, lambda: reached))
    running.step()
    clock.step(7_200_000)
    ahead = running.step().time
    clock.step(-7_200_000)
    reached = ahead + 400  # The log was a little further.
    assert running.step().time == ahead, "the same second"
    bound = running.committed()[0]
    for _ in range(3):
        clock.advance(2_000)
        upper = running.step().time
        assert upper > ahead
        assert running.committed()[0] > bound
        ahead, bound = upper, running.committed()[0]
