"""Versions in the log: a diff says all that changed and no more, and any prefix replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemark.errors import Corruption, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import commands
from tidemark.persist.codec import FORMAT, Diff, decode, diff, encode, patch, replay
from tidemark.persist.consensus import Versioned
from tidemark.persist.state import (
    Batch,
    ColumnStats,
    Hold,
    Part,
    Retired,
    State,
    WriterState,
    check,
    check_step,
)
from tidemark.persist.updates import updates_schema

PROPERTY = settings(deadline=None, print_blob=True, max_examples=100)

SCHEMAS = [
    updates_schema(pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.string())][:n]))
    .serialize()
    .to_pybytes()
    for n in (1, 2, 3)
]


def part(key: str | None, time: int, *, inline: bytes | None = None, diffs: int = 1) -> Part:
    stats = {"k": ColumnStats(0, 1, 9), "v": ColumnStats(2, "a", None)} if key else {}
    return Part(
        rows=1,
        size=len(inline or b"") or 100,
        diffs=diffs,
        min_time=time,
        max_time=time,
        key=key,
        inline=inline,
        ordered=True,
        stats=stats,
    )


names = st.sampled_from(["a", "b", "c"])
small = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            names,
            st.integers(1, 3),
            st.integers(0, 2),
            st.booleans(),
            st.sampled_from([None, (), ("x",), ("x", "y")]),
        ),
        st.tuples(st.just("follow"), st.sampled_from(["log", "s"])),
        st.tuples(st.just("merge"), small, st.integers(1, 4), st.booleans()),
        st.tuples(st.just("hold"), names, small, st.sampled_from([None, 0, 1]), small),
        st.tuples(st.just("release"), names),
        st.tuples(st.just("evolve"), st.integers(0, 2)),
        st.tuples(st.just("floor"), small),
        st.tuples(st.just("forget"), small),
        st.tuples(st.just("expire_writer"), names),
        st.tuples(st.just("finalize"), st.sampled_from([False] * 9 + [True])),
    ),
    max_size=25,
)


def commanded(state: State, step: tuple, number: int) -> State:
    """What a real command makes of the state; `number` makes up new names."""
    kind, *given = step
    stem = f"s/{number:013d}-"
    match kind:
        case "append":
            writer, more, parts, inline, leading = given
            lower = state.upper.time
            if lower is None:
                return state
            new = tuple(
                part(None, lower, inline=b"inline%d" % (number * 10 + n))
                if inline
                else part(f"{stem}{n}.parquet", lower)
                for n in range(parts)
            )
            batch = Batch(state.upper, Frontier(lower + more), Frontier.MIN, new, (1,)[: parts - 1])
            return commands.compare_and_append(
                state,
                batch,
                writer=writer,
                token=f"t{number}",
                expires_ms=number + 20,
                rendition=state.rendition + number % 2,
                leading=leading,
            )[0]
        case "follow":
            return commands.follow(state, *given)[0]
        case "merge":
            first, width, keep = given
            merged = state.batches[first : first + width]
            if not merged:
                return state
            lower, diffs = merged[0].lower, sum(batch.diffs for batch in merged)
            old = [p for batch in merged for p in batch.parts if p.key]
            kept = tuple(old[:1]) if keep else ()
            assert lower.time is not None
            new = part(f"{stem}m.parquet", lower.time, diffs=diffs - sum(one.diffs for one in kept))
            result = Batch(lower, merged[-1].upper, state.since, (new, *kept), (1,)[: len(kept)])
            return commands.replace_batches(state, merged, result)[0]
        case "hold":
            name, since, lease, epoch = given
            pins, expires = (lease or None, number + 10) if lease is not None else (None, None)
            hold = Hold(Frontier(since), epoch, pins, expires, "test")
            return commands.set_hold(state, name, hold, now_ms=0)[0]
        case "release":
            return commands.release_hold(state, *given)[0]
        case "evolve":
            newest = len(state.schemas) - 1
            with_more = SCHEMAS[max(given[0], newest)]
            return commands.evolve_schema(state, newest, with_more)[0]
        case "floor":
            return commands.raise_floor(state, state.floor + given[0])[0]
        case "forget":
            keys = frozenset(retired.key for retired in state.retired[: given[0]])
            return commands.forget_retired(state, keys)[0]
        case "expire_writer":
            return commands.expire_writer(state, *given)[0]
        case _:
            return commands.finalize(state)[0] if given[0] else state


def lived(steps: list[tuple]) -> Iterator[tuple[State, State]]:
    """A shard's life, commit by commit, as `machine` makes it: each state and the next."""
    state = State("s", born=7)
    first = commands.register_schema(state, SCHEMAS[0], ("k",))[0]
    new = replace(first, at_ms=1)
    yield state, new
    state = new
    for number, step in enumerate(steps, start=1):
        try:
            new = commanded(state, step, number)
        except InvalidUsage:  # Given up, say.
            continue
        if new is not state:
            new = commands.expire(replace(new, at_ms=state.at_ms + 1 + number % 3), number)
            yield state, check_step(state, check(new))
            state = new


@PROPERTY
@given(steps)
def test_a_diff_says_all_that_changed(steps):
    for old, new in lived(steps):
        changed = diff(old, new)
        assert patch(old, changed) == new
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(changed), type=Diff)
        assert again == changed


@PROPERTY
@given(steps, st.integers(1, 6), st.data())
def test_any_prefix_replays(steps, rollup_every, data):
    """From the start, from any state that a process had, and from a rollup that it had missed."""
    states, log = [State("s")], []
    for old, new in lived(steps):
        rollup = new.seqno % rollup_every == 0
        log.append(Versioned(new.seqno, encode(old, new, "x", rollup=rollup)))
        states.append(new)
    versions = [decode("s", version) for version in log]
    assert [version.seqno for version in versions] == list(range(len(log)))
    end = data.draw(st.integers(0, len(log)), "end")
    start = data.draw(st.integers(0, end), "start")
    assert replay(states[start], versions[start:end]) == states[end]
    rollups = [n for n, version in enumerate(versions) if isinstance(version.body, State)]
    for rollup in rollups:
        if rollup < end:
            assert replay(states[min(start, rollup)], versions[rollup:end]) == states[end]


@PROPERTY
@given(steps)
def test_a_rollup_is_the_state(steps):
    for old, new in lived(steps):
        data = encode(old, new, "append", rollup=True)
        version = decode("s", Versioned(new.seqno, data))
        assert version == (new.seqno, "append", new)
        assert check(version.body) == new


def test_a_diff_that_does_not_follow_is_refused():
    states = [new for _, new in lived([("append", "a", 1, 1, False, None)] * 3)]
    diffs = [
        decode("s", Versioned(n.seqno, encode(o, n, "x", rollup=False))) for o, n in pairs(states)
    ]
    with pytest.raises(Corruption, match="version 2 follows 0; the ones in between are missing"):
        replay(states[0], diffs[1:])
    with pytest.raises(Corruption, match="version 1 follows 1"):
        replay(states[1], diffs)


def pairs(states: list[State]) -> list[tuple[State, State]]:
    return list(pairwise(states))


class TestSize:
    """A commit costs what it changes, whatever the state carries."""

    def large(self, parts: int, *, holds: int = 0, retired: int = 0) -> State:
        per_batch = 100
        batches = tuple(
            Batch(
                Frontier(at),
                Frontier(at + 1),
                Frontier.MIN,
                tuple(part(f"s/{at:013d}-{n}.parquet", at) for n in range(min(per_batch, parts))),
            )
            for at in range(max(1, parts // per_batch))
        )
        return check(
            State(
                "s",
                seqno=1000,
                at_ms=1_700_000_000_000,
                upper=batches[-1].upper,
                schemas=(SCHEMAS[2],),
                batches=batches,
                holds={f"hold-{n}": Hold(Frontier(0)) for n in range(holds)},
                writers={
                    f"{n:032x}": WriterState(f"{n:032x}", Frontier(0), 0) for n in range(holds)
                },
                retired=tuple(Retired(f"s/r{n}", n) for n in range(retired)),
            )
        )

    def committed(self, state: State, command: Callable[[State], tuple[State, object]]) -> bytes:
        new = replace(command(state)[0], at_ms=state.at_ms + 1)
        assert new.seqno == state.seqno + 1
        return encode(state, check_step(state, new), "append", rollup=False)

    def append(self, state: State, *parts: Part) -> tuple[State, object]:
        lower = state.upper
        assert lower.time is not None
        batch = Batch(lower, Frontier(lower.time + 1), Frontier.MIN, parts)
        return commands.compare_and_append(
            state, batch, writer="w" * 32, token=f"{state.seqno:032x}", expires_ms=state.at_ms
        )

    @pytest.mark.parametrize(
        "command",
        [
            lambda self, state: self.append(
                state, part("s/1700000000000-x.parquet", state.upper.time)
            ),
            lambda self, state: self.append(state),
            lambda self, state: commands.set_hold(state, "mine", Hold(Frontier(0)), now_ms=0),
            lambda self, state: commands.raise_floor(state, 5),
        ],
        ids=["append", "progress", "hold", "floor"],
    )
    def test_it_does_not_depend_on_the_state(self, command):
        few = self.committed(self.large(1), lambda state: command(self, state))
        many = self.committed(
            self.large(10_000, holds=1000, retired=1000), lambda state: command(self, state)
        )
        # The numbers have more digits, that is all.
        assert len(few) <= len(many) <= len(few) + 16
        assert len(many) < 700

    def test_of_a_merge_it_is_what_was_merged(self):
        state = self.large(10_000)
        merged = state.batches[40:42]
        new = part("s/1700000000000-x.parquet", 40, diffs=200)
        result = Batch(merged[0].lower, merged[1].upper, Frontier.MIN, (new,))
        data = self.committed(state, lambda s: commands.replace_batches(s, merged, result))
        # Two hundred parts are now retired; the others are not mentioned.
        assert data.count(b"s/") == 201

    def test_progress_alone_is_small_whatever_the_last_batch_carries(self):
        inline = self.append(self.large(1), part(None, 1, inline=b"x" * 8000))[0]
        data = self.committed(replace(inline, at_ms=inline.at_ms + 1), self.append)
        assert len(data) < 200


class TestTrouble:
    def version(self, data: bytes) -> Versioned:
        return Versioned(0, data)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\xc1",
            b"not msgpack",
            msgspec.msgpack.encode([FORMAT]),
            msgspec.msgpack.encode([FORMAT, "x", "diff", []]),
            msgspec.msgpack.encode([FORMAT, "x", "rollup", {"seqno": "zero"}]),
            msgspec.msgpack.encode([str(FORMAT), "x", "diff", {}]),
        ],
    )
    def test_garbage_names_the_version_and_the_shard(self, data):
        with pytest.raises(Corruption, match="version 0 of shard s cannot be read"):
            decode("s", self.version(data))

    @given(st.data())
    @settings(PROPERTY, max_examples=50)
    def test_every_cut_is_found(self, data):
        """A version that lost its end is never taken for another one."""
        old, new = list(lived([("append", "a", 1, 2, False, ("x",))]))[-1]
        whole = encode(old, new, "append", rollup=data.draw(st.booleans()))
        cut = data.draw(st.integers(0, len(whole) - 1))
        with pytest.raises(Corruption):
            decode("s", Versioned(new.seqno, whole[:cut]))

    def test_of_other_formats_the_message_says_what_to_do(self):
        newer = msgspec.msgpack.encode((FORMAT + 1, "x", "diff", {}))
        older = msgspec.msgpack.encode((FORMAT - 1, "x", "diff", {}))
        with pytest.raises(Corruption, match=r"format 4, .* up to 3 \(upgrade Tidemark"):
            decode("s", self.version(newer))
        with pytest.raises(Corruption, match="format 2 of a pre-release"):
            decode("s", self.version(older))

    def test_a_newer_format_may_be_laid_out_differently(self):
        newer = msgspec.msgpack.encode((FORMAT + 1, "x", "diff", {}, "more"))
        with pytest.raises(Corruption, match="upgrade Tidemark"):
            decode("s", self.version(newer))


def test_a_diff_keeps_what_it_does_not_name():
    """`born` is given once, in a version that is a whole state: later ones do not repeat it."""
    first = State("s", seqno=0, born=7)
    second = replace(first, seqno=1, upper=Frontier(5))
    assert patch(first, diff(first, second)) == second
