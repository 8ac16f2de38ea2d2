"""The commands as functions of a state: in which order they refuse, and what twice does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tidemark.clock import ManualClock
from tidemark.errors import Corruption, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    Config,
    MemBlob,
    MemConsensus,
    PersistClient,
    SchemaMismatch,
    UpperMismatch,
    WriteHandle,
    as_updates,
    commands,
)
from tidemark.persist.state import Batch, Hold, Part, Retired, State, check, check_step
from tidemark.persist.updates import updates_schema
from unreliable import UnreliableBlob

K, V, W = ("k", pa.string()), ("v", pa.int64()), ("w", pa.string())


def encoded(*columns) -> bytes:
    return updates_schema(pa.schema(columns)).serialize().to_pybytes()


def part(name: str, time: int, *, staged: int = 1000, diffs: int = 1) -> Part:
    key = f"s/{staged:013d}-{name}.parquet"
    return Part(rows=1, size=1, diffs=diffs, min_time=time, max_time=time, key=key)


def batch(lower: int | None, upper: int | None, *parts: Part) -> Batch:
    return Batch(Frontier(lower), Frontier(upper), Frontier.MIN, parts)


def append(state: State, new: Batch, *, writer: str = "w", token: str = "t", expires: int = 10):
    return commands.compare_and_append(state, new, writer=writer, token=token, expires_ms=expires)


EMPTY = commands.register_schema(State("s"), encoded(K), ())[0]
ONE = append(EMPTY, batch(0, 1, part("a", 0)), token="first")[0]
TWO = append(ONE, batch(1, 2, part("b", 1)), token="second")[0]
DROPPED = commands.finalize(ONE)[0]


class TestAppend:
    def test_the_order_in_which_it_refuses(self):
        """Dropped, then misuse, then a success of before, then the race, then the floor."""
        floored = commands.raise_floor(ONE, 5000)[0]
        assert append(DROPPED, batch(9, 3))[1] == UpperMismatch(Frontier.EMPTY)
        with pytest.raises(InvalidUsage, match="must advance the upper"):
            append(floored, batch(3, 3), token="first")
        with pytest.raises(InvalidUsage, match="do not lie in the batch's bounds"):
            append(floored, batch(7, 8, part("x", 3)), token="first")
        assert append(floored, batch(0, 1, part("x", 0)), token="first")[1] == Appended(Frontier(1))
        assert append(floored, batch(0, 1, part("x", 0)))[1] == UpperMismatch(Frontier(1))
        with pytest.raises(InvalidUsage, match="staged too long ago"):
            append(floored, batch(1, 2, part("x", 1)))
        new, outcome = append(floored, batch(1, 2, part("x", 1, staged=5000)))
        assert outcome == Appended(Frontier(2))
        check(new)

    def test_what_changes_nothing_is_the_same_object(self):
        """That is how `machine` knows that there is nothing to commit."""
        assert append(ONE, batch(0, 1), token="first")[0] is ONE
        assert append(ONE, batch(0, 1))[0] is ONE
        assert append(DROPPED, batch(0, 1))[0] is DROPPED
        assert commands.raise_floor(ONE, 0)[0] is ONE
        assert commands.forget_retired(ONE, frozenset(["x"]))[0] is ONE
        assert commands.expire_writer(ONE, "nobody")[0] is ONE
        assert commands.release_hold(ONE, "nobody")[0] is ONE
        assert commands.finalize(DROPPED)[0] is DROPPED
        assert commands.register_schema(ONE, encoded(K), ())[0] is ONE
        assert commands.expire(ONE, 10) is ONE

    def test_progress_stretches_the_last_batch(self):
        new, _ = append(ONE, batch(1, 9))
        assert [(b.lower, b.upper) for b in new.batches] == [(Frontier(0), Frontier(9))]
        assert new.batches[0].parts == ONE.batches[0].parts
        check_step(replace(ONE, at_ms=1), replace(new, at_ms=2))

    def test_a_batch_takes_the_shard_s_since(self):
        held = commands.set_hold(ONE, "h", Hold(Frontier(7)), now_ms=0)[0]
        new = append(held, batch(1, 2, part("x", 1)))[0]
        assert new.batches[-1].since == Frontier(7)
        check(new)


class TestMerge:
    MERGED = batch(0, 2, part("m", 0, diffs=2))

    def test_it_takes_the_place_of_what_it_merged(self):
        new, done = commands.replace_batches(TWO, TWO.batches, self.MERGED)
        assert done
        assert new.batches == (self.MERGED,)
        assert {retired.key for retired in new.retired} == {p.key for p in TWO.parts}
        assert {retired.seqno for retired in new.retired} == {new.seqno}
        check(new)

    def test_it_knows_its_own_effect_even_when_that_is_merged_again(self):
        new, _ = commands.replace_batches(TWO, TWO.batches, self.MERGED)
        assert commands.replace_batches(new, TWO.batches, self.MERGED) == (new, True)
        again, _ = commands.replace_batches(new, new.batches, batch(0, 2, part("n", 0, diffs=2)))
        assert commands.replace_batches(again, TWO.batches, self.MERGED) == (again, True)

    def test_of_two_the_first_wins(self):
        new, _ = commands.replace_batches(TWO, TWO.batches, self.MERGED)
        late = batch(0, 2, part("late", 0, diffs=2))
        assert commands.replace_batches(new, TWO.batches, late) == (new, False)
        assert commands.replace_batches(DROPPED, TWO.batches, late) == (DROPPED, False)

    def test_progress_meanwhile_is_kept(self):
        stretched = append(TWO, batch(2, 50), token="more")[0]
        new, done = commands.replace_batches(stretched, TWO.batches, self.MERGED)
        assert done
        assert new.batches[0].upper == new.upper == Frontier(50)

    def test_sums_that_do_not_agree_are_refused(self):
        with pytest.raises(Corruption, match="changed the sum of diffs from 2 to 3"):
            commands.replace_batches(TWO, TWO.batches, batch(0, 2, part("m", 0, diffs=3)))

    def test_below_the_floor_it_is_not_adopted(self):
        floored = commands.raise_floor(TWO, 1001)[0]
        assert commands.replace_batches(floored, TWO.batches, self.MERGED) == (floored, False)

    def test_parts_that_it_keeps_are_neither_new_nor_retired(self):
        """A merge of some of the runs: the floor is not for what the shard has already."""
        floored = commands.raise_floor(TWO, 2000)[0]
        kept = TWO.batches[1].parts[0]
        merged = batch(0, 2, part("m", 0, staged=2000), kept)
        new, done = commands.replace_batches(floored, TWO.batches, merged)
        assert done
        assert [retired.key for retired in new.retired] == [TWO.batches[0].parts[0].key]
        check(new)
        assert commands.replace_batches(new, TWO.batches, merged) == (new, True)


class TestCollectable:
    RETIRED = replace(ONE, seqno=20, retired=tuple(Retired(f"r{n}", n) for n in (5, 10, 15)))

    def with_leases(self, *seqnos: int | None, expires: int = 100) -> State:
        holds = {str(s): Hold(Frontier(0), seqno=s, expires_ms=expires) for s in seqnos}
        return replace(self.RETIRED, holds=holds)

    @pytest.mark.parametrize(
        ("seqnos", "now", "expected"),
        [
            ((), 0, ["r5", "r10", "r15"]),
            ((10,), 0, ["r5", "r10"]),
            ((15, 4), 0, []),
            ((None,), 0, ["r5", "r10", "r15"]),
            ((4,), 100, []),
            ((4,), 101, ["r5", "r10", "r15"]),
        ],
    )
    def test_only_what_no_live_lease_can_read(self, seqnos, now, expected):
        assert list(commands.collectable(self.with_leases(*seqnos), now)) == expected


class TestSchemas:
    def test_a_lost_evolution_is_a_value(self):
        evolved = commands.evolve_schema(ONE, 0, encoded(K, V))[0]
        assert commands.evolve_schema(evolved, 0, encoded(K, W)) == (evolved, SchemaMismatch(1))

    def test_an_evolution_knows_its_own_effect_behind_another(self):
        """Unsure, it looks again, and someone has gone on from there: it had happened."""
        one = commands.evolve_schema(ONE, 0, encoded(K, V))[0]
        two = commands.evolve_schema(one, 1, encoded(K, V, W))[0]
        assert commands.evolve_schema(two, 0, encoded(K, V)) == (two, 1)

    def test_there_is_no_way_back(self):
        one = commands.evolve_schema(ONE, 0, encoded(K, V))[0]
        with pytest.raises(InvalidUsage, match="cannot become"):
            commands.evolve_schema(one, 1, encoded(K))

    def test_of_a_dropped_shard_nothing_changes(self):
        assert commands.evolve_schema(DROPPED, 0, encoded(K, V))[0] is DROPPED
        assert commands.register_schema(DROPPED, encoded(V), ())[0] is DROPPED


class TestInvariants:
    """`check` and `check_step` find what no command does."""

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"batches": (batch(1, 2),)}, "S1"),
            ({"batches": (batch(0, 1), batch(1, 1))}, "S1"),
            ({"upper": Frontier(7)}, "S1"),
            ({"batches": (batch(0, 1, part("a", 5)),)}, "S3"),
            ({"retired": (Retired("s/0000000001000-a.parquet", 1),)}, "S4"),
            ({"batches": (batch(0, 1, part("a", 0), part("a", 0)),)}, "S4"),
            ({"since": Frontier(3), "holds": {"h": Hold(Frontier(2))}}, "S5"),
            ({"batches": (replace(batch(0, 1), since=Frontier(1)),)}, "S5"),
            ({"schemas": ()}, "S6"),
        ],
    )
    def test_a_broken_state_is_found(self, changes, said):
        with pytest.raises(Corruption, match=said):
            check(replace(ONE, **changes))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"since": Frontier(0)}, "S2"),
            ({"upper": Frontier(0)}, "S2"),
            ({"floor": 0}, "S2"),
            ({"seqno": 9}, "S2"),
            ({"at_ms": 5}, "S2"),
            ({"schemas": (encoded(V),)}, "S6"),
        ],
    )
    def test_a_step_that_may_not_follow_is_found(self, changes, said):
        old = replace(ONE, since=Frontier(1), floor=3, at_ms=5)
        new = replace(old, **{"seqno": old.seqno + 1, "at_ms": 6} | changes)
        with pytest.raises(Corruption, match=said):
            check_step(old, new)


# Bugs that were found on the way and are not fixed yet; each test says what should be.


def opened(**config) -> tuple[PersistClient, UnreliableBlob, WriteHandle]:
    blob = UnreliableBlob(MemBlob())
    config = Config(heartbeat=False, **config)
    client = PersistClient(blob, MemConsensus(), clock=ManualClock(), config=config)
    return client, blob, client.open_writer("s", schema=pa.schema([K]))


def rows(writer: WriteHandle, time: int) -> pa.Table:
    return as_updates(pa.table({"k": ["a"]}), time=time, schema=writer.schema)


def test_trouble_while_tidying_up_is_no_trouble_of_the_append():
    """It did happen; an error that says "surely not done" would be a lie."""
    _, blob, writer = opened(inline_total=0)
    staged = writer.stage(rows(writer, 1))
    writer.advance_upper(Frontier(1))
    blob.fail("refuse", call="delete")
    assert writer.append(staged, lower=Frontier(0), upper=Frontier(2)) == Appended(Frontier(2))


def test_a_read_of_no_columns_leaves_the_next_one_its_own():
    client, _, writer = opened()
    writer.compare_and_append(rows(writer, 0), lower=Frontier(0), upper=Frontier(1))
    assert client.open_reader("s", columns=[]).snapshot(0).column_names[0] == "_time"
    assert client.open_reader("s").snapshot(0).column_names[0] == "k"


def test_equal_inline_parts_of_two_shards_are_two_parts():
    client, _, _ = opened()
    for shard, column in (("x", V), ("y", W)):
        writer = client.open_writer(shard, schema=pa.schema([K]))
        writer.compare_and_append(rows(writer, 0), lower=Frontier(0), upper=Frontier(1))
        assert writer.evolve_schema(pa.schema([K, column])) is None
        assert client.open_reader(shard).snapshot(0).column_names[1] == column[0]
