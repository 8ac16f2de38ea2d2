"""A shard's state: a small immutable value, and the commands that lead from one to the next.

Every command is a pure function of the state. It returns the new state and an outcome; returning
the same state object means that there is nothing to commit. `machine.py` commits new states by
compare-and-set, so of two processes that race, the loser looks again at what the winner left.

    since ----- reads are exact from here on; held back by `holds`
    upper ----- everything before it is final; only compare_and_append moves it
    batches --- contiguous descriptions [lower, upper) from the minimum time to upper
    retired --- parts that compaction replaced, waiting until no lease can still read them

Invariants, checked by `check` and relied upon everywhere:
    S1  batches are contiguous, begin at the minimum time and end at upper
    S2  since and upper never go back
    S3  every update in a batch has lower <= time < upper (compaction moves times up to since,
        but never out of the batch)
    S4  a part is referenced once: by `batches` or by `retired`
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tidemark.errors import Corruption, InvalidUsage
from tidemark.frontier import Frontier

FORMAT_VERSION = 1
WRITER_LEASE_MS = 60 * 60 * 1000


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Updates in one blob (`key`), or right here (`inline`, an Arrow IPC stream)."""

    rows: int
    size: int
    diffs: int
    min_time: int
    max_time: int
    key: str | None = None
    inline: bytes | None = None


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    lower: Frontier
    upper: Frontier
    since: Frontier
    parts: tuple[Part, ...] = ()

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def diffs(self) -> int:
        return sum(part.diffs for part in self.parts)


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reader's claim: since may not pass it. A lease (`expires_ms`) also keeps the parts of
    state `seqno` from being deleted; a critical hold has no expiry and is fenced by `epoch`."""

    since: Frontier
    epoch: int = 0
    seqno: int | None = None
    expires_ms: int | None = None


class WriterState(msgspec.Struct, frozen=True):
    """A writer's last success: its token tells an unsure writer that it did succeed."""

    token: str
    upper: Frontier
    expires_ms: int


class Retired(msgspec.Struct, frozen=True, array_like=True):
    key: str
    seqno: int


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    shard_id: str
    seqno: int = 0
    since: Frontier = Frontier.MIN
    upper: Frontier = Frontier.MIN
    schema: bytes | None = None
    key: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()
    holds: dict[str, Hold] = {}
    writers: dict[str, WriterState] = {}
    retired: tuple[Retired, ...] = ()

    @property
    def inline_bytes(self) -> int:
        return sum(p.size for batch in self.batches for p in batch.parts if p.inline is not None)

    @property
    def is_tombstone(self) -> bool:
        return self.since.is_empty and self.upper.is_empty


class UpperMismatch(NamedTuple):
    """The append lost: the shard's upper was `current`, not the expected lower."""

    current: Frontier


class Appended(NamedTuple):
    upper: Frontier


class EpochMismatch(NamedTuple):
    """Someone with another epoch holds this since handle now."""

    current: int


def compare_and_append(
    state: State,
    parts: tuple[Part, ...],
    *,
    lower: Frontier,
    upper: Frontier,
    writer: str,
    token: str,
    now_ms: int,
) -> tuple[State, Appended | UpperMismatch]:
    """Append `parts` as the batch [lower, upper) if and only if the shard's upper is `lower`."""
    times = [t for part in parts for t in (part.min_time, part.max_time)]
    check_bounds(state.shard_id, lower, upper, times)
    mine = state.writers.get(writer)
    if mine is not None and mine.token == token:
        return state, Appended(mine.upper)
    if state.upper != lower:
        return state, UpperMismatch(state.upper)
    last = state.batches[-1] if state.batches else None
    if not parts and last is not None:
        # Progress alone stretches the last batch, so an idle shard's state does not grow.
        batches = (*state.batches[:-1], msgspec.structs.replace(last, upper=upper))
    else:
        batches = (*state.batches, Batch(lower, upper, state.since, parts))
    writers = {w: s for w, s in state.writers.items() if s.expires_ms >= now_ms}
    writers[writer] = WriterState(token, upper, now_ms + WRITER_LEASE_MS)
    return _next(state, batches=batches, upper=upper, writers=writers), Appended(upper)


def check_bounds(shard_id: str, lower: Frontier, upper: Frontier, times: list[int]) -> None:
    """Refuse a batch [lower, upper) that is empty or does not hold all of `times`."""
    if not lower < upper:
        raise InvalidUsage(
            f"shard {shard_id}: an append must advance the upper, got {lower} to {upper}"
        )
    if times and not (lower <= Frontier(min(times)) and upper.covers(max(times))):
        raise InvalidUsage(
            f"shard {shard_id}: updates at times {min(times)} to {max(times)} "
            f"do not lie in the batch's bounds {lower} to {upper}"
        )


def register_schema(state: State, schema: bytes, key: tuple[str, ...]) -> tuple[State, None]:
    if state.schema is None:
        return _next(state, schema=schema, key=key), None
    if (state.schema, state.key) != (schema, key):
        raise InvalidUsage(
            f"shard {state.shard_id} has another schema or key; a shard keeps the one it began with"
        )
    return state, None


def set_hold(
    state: State, hold_id: str, hold: Hold, *, now_ms: int
) -> tuple[State, Frontier | EpochMismatch]:
    """Register or move a hold; since follows the least of all holds and never goes back.

    Only durable holds let since advance: a lease pins a time for its reader, and must not take
    the history before it away from everyone else.

    Returns the hold's since as it now is: at least the shard's since, and for a known hold never
    less than before. A critical hold that carries a newer epoch cannot be moved by an older one.
    """
    known = state.holds.get(hold_id)
    if known is not None and known.epoch > hold.epoch:
        return state, EpochMismatch(known.epoch)
    since = max(hold.since, state.since, known.since if known is not None else state.since)
    seqno = None
    if hold.expires_ms is not None:
        # A renewed lease still protects what it protected when it was taken.
        seqno = known.seqno if known is not None else state.seqno
    hold = msgspec.structs.replace(hold, since=since, seqno=seqno)
    holds = {
        **{h: v for h, v in state.holds.items() if v.expires_ms is None or v.expires_ms >= now_ms},
        hold_id: hold,
    }
    least = state.since
    if any(h.expires_ms is None for h in holds.values()):
        least = max(least, min(h.since for h in holds.values()))
    if hold == known and least == state.since:
        return state, since
    return _next(state, holds=holds, since=least), since


def release_hold(state: State, hold_id: str, *, epoch: int | None = None) -> tuple[State, None]:
    """Give up a hold, unless one with a newer epoch than `epoch` has taken it over."""
    known = state.holds.get(hold_id)
    if known is None or (epoch is not None and known.epoch > epoch):
        return state, None
    return _next(state, holds={h: v for h, v in state.holds.items() if h != hold_id}), None


def replace_batches(state: State, replaced: tuple[Batch, ...], merged: Batch) -> tuple[State, bool]:
    """Put `merged` in place of the adjacent batches `replaced`; False if they changed meanwhile.

    The last of them may have been stretched by progress since the merge began. True also if
    `merged` is found to have taken their place already: its parts must then not be deleted.
    """
    check_diffs(state.shard_id, replaced, merged.diffs)
    ours = {part.key for part in merged.parts if part.key}
    if ours & _keys(state):
        return state, True
    width = len(replaced)
    for at in range(len(state.batches) - width + 1):
        found = state.batches[at : at + width]
        if [batch.parts for batch in found] == [batch.parts for batch in replaced]:
            break
    else:
        return state, False
    merged = msgspec.structs.replace(merged, lower=found[0].lower, upper=found[-1].upper)
    gone = tuple(Retired(p.key, state.seqno + 1) for b in found for p in b.parts if p.key)
    batches = (*state.batches[:at], merged, *state.batches[at + width :])
    return _next(state, batches=batches, retired=state.retired + gone), True


def check_diffs(shard_id: str, replaced: tuple[Batch, ...], diffs: int) -> None:
    expected = sum(batch.diffs for batch in replaced)
    if diffs != expected:
        raise Corruption(
            f"shard {shard_id}: compaction of {replaced[0].lower} to {replaced[-1].upper} changed "
            f"the sum of diffs from {expected} to {diffs}; the merge was thrown away"
        )


def collectable(state: State, now_ms: int) -> tuple[str, ...]:
    """Keys of retired parts that no live lease can still be reading."""
    leases = [
        hold.seqno
        for hold in state.holds.values()
        if hold.seqno is not None and (hold.expires_ms is None or hold.expires_ms >= now_ms)
    ]
    horizon = min(leases, default=state.seqno)
    return tuple(retired.key for retired in state.retired if retired.seqno <= horizon)


def forget_retired(state: State, keys: frozenset[str]) -> tuple[State, None]:
    kept = tuple(retired for retired in state.retired if retired.key not in keys)
    return (state if len(kept) == len(state.retired) else _next(state, retired=kept)), None


def finalize(state: State) -> tuple[State, None]:
    """End the shard for good: nothing can be read from or written to it again."""
    if state.is_tombstone and not state.batches:
        return state, None
    gone = tuple(Retired(p.key, state.seqno + 1) for b in state.batches for p in b.parts if p.key)
    leases = {h: v for h, v in state.holds.items() if v.expires_ms is not None}
    return _next(
        state,
        since=Frontier.EMPTY,
        upper=Frontier.EMPTY,
        batches=(),
        holds=leases,
        retired=state.retired + gone,
    ), None


def check(state: State) -> State:
    """The state itself, if S1 to S4 hold."""
    expected = Frontier.MIN
    for batch in state.batches:
        if batch.lower != expected or not batch.lower < batch.upper:
            raise Corruption(f"shard {state.shard_id}: a gap in its batches at {expected} (S1)")
        expected = batch.upper
        for part in batch.parts:
            if not (batch.lower <= Frontier(part.min_time) and batch.upper.covers(part.max_time)):
                raise Corruption(
                    f"shard {state.shard_id}: updates at times {part.min_time} to {part.max_time} "
                    f"in the batch {batch.lower} to {batch.upper} (S3)"
                )
    if expected != state.upper and not (state.is_tombstone and not state.batches):
        raise Corruption(
            f"shard {state.shard_id}: batches end at {expected}, upper {state.upper} (S1)"
        )
    live = [part.key for batch in state.batches for part in batch.parts if part.key]
    if len({*live, *(retired.key for retired in state.retired)}) < len(live) + len(state.retired):
        raise Corruption(f"shard {state.shard_id}: a part is referenced twice (S4)")
    return state


def _keys(state: State) -> set[str]:
    """Every blob that the state refers to."""
    live = {part.key for batch in state.batches for part in batch.parts if part.key}
    return live | {retired.key for retired in state.retired}


def encode(state: State) -> bytes:
    return msgspec.msgpack.encode(state)


class _Versioned(msgspec.Struct):
    version: int


def decode(data: bytes, *, shard_id: str = "?") -> State:
    try:
        version = msgspec.msgpack.decode(data, type=_Versioned).version
        if version > FORMAT_VERSION:
            raise Corruption(
                f"shard {shard_id} was written by format version {version}, this program knows "
                f"up to {FORMAT_VERSION}",
                hint="upgrade Tidemark; nothing was changed",
            )
        return msgspec.msgpack.decode(data, type=State)
    except msgspec.MsgspecError as error:
        raise Corruption(f"the state of shard {shard_id} cannot be read: {error}") from error


def _next(state: State, **changes: object) -> State:
    return msgspec.structs.replace(state, seqno=state.seqno + 1, **changes)
