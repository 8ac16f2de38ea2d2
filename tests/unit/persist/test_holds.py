"""Holds: since follows the least of them, leases end, and nobody goes back."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.clock import ManualClock
from tidemark.errors import AsOfBeforeSince, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import (
    Config,
    EpochMismatch,
    MemBlob,
    MemConsensus,
    PersistClient,
    as_updates,
    commands,
)
from tidemark.persist.state import Hold, State, check

PROPERTY = settings(deadline=None, print_blob=True, max_examples=200)
MINUTE = 60_000

moves = st.lists(
    st.tuples(
        st.sampled_from(["control", "view", "lease-1", "lease-2"]),
        st.one_of(st.none(), st.integers(0, 9)),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=20,
)


@PROPERTY
@given(moves)
def test_since_is_the_least_of_the_holds_and_never_goes_back(moves):
    state = State("s", seqno=0, upper=Frontier(0))
    for name, since, epoch, release in moves:
        known, before = state.holds.get(name), state.since
        if release:
            state, _ = commands.release_hold(state, name, epoch=epoch)
            fenced = known is not None and known.epoch > epoch
            assert (name in state.holds) == fenced
            assert state.since == before, "since moves when a holder moves, not when one goes"
            continue
        lease = name.startswith("lease")
        wanted = Hold(Frontier(since), 0 if lease else epoch, expires_ms=5 if lease else None)
        new, outcome = commands.set_hold(state, name, wanted, now_ms=0)
        if isinstance(outcome, EpochMismatch):
            assert known is not None
            assert known.epoch == outcome.current > epoch
            assert new is state
            continue
        hold = new.holds[name]
        assert (
            outcome == hold.since == max([wanted.since, before, *([known.since] if known else [])])
        )
        assert before <= new.since <= min(h.since for h in new.holds.values())
        if any(h.expires_ms is None for h in new.holds.values()):
            assert new.since == min(h.since for h in new.holds.values())
        else:
            assert new.since == before, "a lease pins, it never pushes"
        # The same again changes nothing.
        assert commands.set_hold(new, name, wanted, now_ms=0) == (new, outcome)
        state = check(new) if new.upper == Frontier.MIN else new


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def client(clock: ManualClock) -> PersistClient:
    """A shard with a row at each of the times 0 to 9."""
    client = PersistClient(
        MemBlob(),
        MemConsensus(),
        clock=clock,
        config=Config(heartbeat=False, inline_total=0, small_batches=8),
    )
    writer = client.open_writer("s", schema=pa.schema([("k", pa.int64())]))
    for time in range(10):
        rows = as_updates(pa.table({"k": [time]}), time=time, schema=writer.schema)
        writer.compare_and_append(rows, lower=Frontier(time), upper=Frontier(time + 1))
    return client


class TestLease:
    def test_it_ends_with_its_block(self, client):
        with client.open_reader("s").lease(3) as lease:
            assert len(client.state("s").holds) == 1
            assert len(lease.batches()) == 10
        assert not client.state("s").holds
        assert lease.ended

    def test_a_released_one_cannot_be_used(self, client):
        lease = client.open_reader("s").lease(3)
        lease.release()
        for use in (lease.batches, lease.check, lambda: lease.downgrade(Frontier(5))):
            with pytest.raises(Unavailable, match="was released"):
                use()
        lease.release()

    def test_an_expired_one_cannot_be_used(self, client, clock):
        lease = client.open_reader("s").lease(3)
        clock.advance(15 * MINUTE)
        lease.renew()
        clock.advance(15 * MINUTE + 1)
        with pytest.raises(Unavailable, match="has expired"):
            lease.renew()
        with pytest.raises(Unavailable, match="has expired"):
            lease.batches()

    def test_downgrading_says_so_with_the_next_renewal_and_never_goes_back(self, client):
        lease = client.open_reader("s").lease(3)

        def held() -> Frontier:
            (hold,) = client.state("s").holds.values()
            return hold.since

        lease.downgrade(Frontier(6))
        assert held() == Frontier(3)
        lease.renew()
        assert held() == Frontier(6)
        lease.downgrade(Frontier(2))
        lease.renew()
        assert held() == Frontier(6)

    def test_the_parts_are_those_of_when_it_was_taken(self, client, clock):
        lease = client.open_reader("s").lease(9)
        listed = [part.key for batch in lease.batches() for part in batch.parts]
        client.maintain("s")
        clock.advance(10 * MINUTE)
        lease.renew()
        client.sweep("s")
        assert [part.key for batch in lease.batches() for part in batch.parts] == listed
        assert all(client.blob.get(key) is not None for key in listed)
        lease.release()
        client.sweep("s")
        assert not any(client.blob.get(key) is not None for key in listed)

    def test_one_that_its_owner_forgot_is_not_renewed(self, client):
        """A listener that nobody iterates any more: its lease ends by itself."""
        client.open_reader("s").listen(3)
        gc.collect()
        assert not list(client._leases._live)

    def test_one_without_a_time_is_at_since(self, client):
        client.open_critical_since("s").downgrade(Frontier(4))
        client.open_reader("s").lease()
        assert {hold.since for hold in client.state("s").holds.values()} == {Frontier(4)}

    def test_below_since_there_is_none(self, client):
        client.open_critical_since("s").downgrade(Frontier(4))
        with pytest.raises(AsOfBeforeSince, match=r"from time \[4\] on, not at 3"):
            client.open_reader("s").lease(3)
        with pytest.raises(InvalidUsage, match="there is no shard nowhere"):
            client.open_reader("nowhere").lease(3)


class TestCritical:
    def test_it_outlives_its_process(self, client, clock):
        client.open_critical_since("s", "mine", epoch=3).downgrade(Frontier(4))
        clock.advance(10_000 * MINUTE)
        again = PersistClient(client.blob, client.consensus, clock=clock)
        again.open_writer("s", schema=pa.schema([("k", pa.int64())])).advance_upper(Frontier(20))
        handle = again.open_critical_since("s", "mine", epoch=3)
        assert handle.since == Frontier(4)
        assert again.state("s").since == Frontier(4)
        handle.release()
        assert handle.since is None

    def test_opening_one_holds_nothing(self, client):
        assert client.open_critical_since("s").since is None
        assert not client.state("s").holds


def test_an_expired_lease_does_not_hold_an_idle_shard_back(client, clock):
    client.open_reader("s").lease(3)
    handle = client.open_critical_since("s")
    handle.downgrade(Frontier(8))
    clock.advance(16 * MINUTE)
    for _ in range(3):
        handle.downgrade(Frontier(8))
    assert client.state("s").since == Frontier(8)
