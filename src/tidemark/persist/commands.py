"""The commands that lead from one state of a shard to the next.

Every command is a pure function of the state: it returns the new state and an outcome. Returning
the same state object means that there is nothing to commit. `machine` commits new states by
compare-and-set, so of two processes that race, the loser runs its command again on what the
winner left. A command therefore recognises its own effect when it meets it: an append by its
token, a merge by its parts, the others because doing them twice changes nothing.

    writing     compare_and_append, expire_writer, register_schema, evolve_schema, follow
    reading     set_hold, release_hold
    upkeep      replace_batches, raise_floor, forget_retired, expire, finalize
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from tidemark.errors import Corruption, Fenced, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.ipc import decode_schema
from tidemark.persist.names import is_staged_before
from tidemark.persist.state import Batch, Hold, Lead, Part, Retired, State, WriterState
from tidemark.persist.updates import META_FIELDS


class UpperMismatch(NamedTuple):
    """The append lost: the shard's upper was `current`, not the expected lower."""

    current: Frontier


class Appended(NamedTuple):
    upper: Frontier


class EpochMismatch(NamedTuple):
    """Someone with another epoch holds this since handle now."""

    current: int


class SchemaMismatch(NamedTuple):
    """The shard's newest schema was `current`, not the expected one."""

    current: int


def compare_and_append(
    state: State,
    batch: Batch,
    *,
    writer: str,
    token: str,
    expires_ms: int,
    rendition: int = 0,
    leading: tuple[str, ...] | None = None,
    log: str = "",
) -> tuple[State, Appended | UpperMismatch]:
    """Append `batch` if and only if the shard's upper is its lower.

    The first append of a newer rendition shuts out the writers of older ones for good.

    With `leading`, those who follow this shard are complete to its upper, too, but for these ones.
    A shard that follows is appended to only by who knows its `log`.
    """
    lower, upper = batch.lower, batch.upper
    if state.is_tombstone:
        return state, UpperMismatch(Frontier.EMPTY)
    times = [t for part in batch.parts for t in (part.min_time, part.max_time)]
    check_bounds(state.shard_id, lower, upper, times)
    mine = state.writers.get(writer)
    if mine is not None and mine.token == token:
        if mine.upper != upper:
            raise InvalidUsage(
                f"shard {state.shard_id}: the token was used for the append up to {mine.upper}, "
                f"not {upper}"
            )
        return state, Appended(mine.upper)
    if state.follows not in ("", log):
        raise InvalidUsage(
            f"shard {state.shard_id} follows {state.follows}, and is written only with it: what is"
            " before the upper of that may have been read already",
            hint="write to what it is made from instead; nothing was appended",
        )
    if rendition < state.rendition:
        raise Fenced(
            f"shard {state.shard_id} is written by rendition {state.rendition}, not {rendition} any "
            "more; nothing was appended",
            hint="stop this writer: a newer one has taken over",
        )
    if state.upper != lower:
        return state, UpperMismatch(state.upper)
    given_up = _given_up(state, batch.parts)
    if given_up is not None:
        raise InvalidUsage(
            f"shard {state.shard_id}: part {given_up} was staged too long ago and is given up",
            hint="stage the updates again; nothing was appended",
        )
    last = state.batches[-1] if state.batches else None
    if not batch.parts and last is not None:
        # Progress alone stretches the last batch, so an idle shard's state does not grow.
        batches = (*state.batches[:-1], replace(last, upper=upper))
    else:
        batches = (*state.batches, replace(batch, since=state.since))
    writers = {**state.writers, writer: WriterState(token, upper, expires_ms)}
    lead = state.lead if leading is None else Lead(lower, upper, leading)
    new = _next(
        state, batches=batches, upper=upper, writers=writers, rendition=rendition, lead=lead
    )
    return new, Appended(upper)


def check_frontiers(shard_id: str, *frontiers: Frontier) -> None:
    for frontier in frontiers:
        if not isinstance(frontier, Frontier):
            raise InvalidUsage(f"shard {shard_id}: {frontier!r} is not a Frontier")


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


def expire_writer(state: State, writer: str) -> tuple[State, None]:
    """Forget a writer that will not ask about its last append again."""
    if writer not in state.writers:
        return state, None
    return _next(state, writers={w: s for w, s in state.writers.items() if w != writer}), None


def register_schema(state: State, schema: bytes, key: tuple[str, ...]) -> tuple[State, int]:
    """The number of `schema`, which must be the shard's first or one that it already has."""
    if state.is_tombstone:
        return state, 0
    if not state.schemas:
        return _next(state, schemas=(schema,), key=key), 0
    if key != state.key:
        raise InvalidUsage(
            f"shard {state.shard_id} is arranged by ({', '.join(state.key)}), "
            f"not by ({', '.join(key)}); a shard keeps the key it began with"
        )
    if schema in state.schemas:
        return state, state.schemas.index(schema)
    raise InvalidUsage(
        f"shard {state.shard_id} takes updates of ({spelled(state.schemas[-1])}), "
        f"not of ({spelled(schema)})",
        hint="a shard keeps the columns it began with; nullable ones can be added at the end "
        "with evolve_schema",
    )


def evolve_schema(state: State, expected: int, schema: bytes) -> tuple[State, int | SchemaMismatch]:
    """Add nullable columns at the end, if the newest schema is still number `expected`."""
    newest = len(state.schemas) - 1
    if state.is_tombstone:
        return state, expected
    if schema in state.schemas[expected:]:
        return state, state.schemas.index(schema)
    if newest != expected:
        return state, SchemaMismatch(newest)
    old, new = _rows(state.schemas[newest]), _rows(schema)
    added = new[len(old) :]
    if new[: len(old)] != old or not all(field.nullable for field in added):
        raise InvalidUsage(
            f"shard {state.shard_id} has ({spelled(state.schemas[newest])}), which cannot become "
            f"({spelled(schema)})",
            hint="only nullable columns can be added, and only at the end",
        )
    return _next(state, schemas=(*state.schemas, schema)), newest + 1


def follow(state: State, log_id: str) -> tuple[State, None]:
    """From now on the shard is as complete as the log says (`Lead`)."""
    if state.is_tombstone or state.follows == log_id:
        return state, None
    if state.follows or log_id == state.shard_id:
        raise InvalidUsage(
            f"shard {state.shard_id} cannot follow {log_id}: it "
            + (f"follows {state.follows}" if state.follows else "is the same shard")
        )
    return _next(state, follows=log_id), None


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
    seqno = hold.seqno
    if seqno is not None:
        # A renewed lease still protects what it protected when it was taken.
        seqno = known.seqno if known is not None else state.seqno
    hold = replace(hold, since=since, seqno=seqno)
    # A lease that has ended holds nothing back, whether or not a commit has removed it yet.
    live = {h: v for h, v in state.holds.items() if not _expired(v.expires_ms, now_ms)}
    holds = {**live, hold_id: hold}
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
    A merge of some of the runs keeps the parts of the others.
    """
    check_diffs(state.shard_id, replaced, merged.diffs)
    old = {part.key for batch in replaced for part in batch.parts}
    new = tuple(part for part in merged.parts if part.key not in old)
    if {part.key for part in new} & state.keys:
        return state, True
    if _given_up(state, new) is not None:
        return state, False
    width = len(replaced)
    for at in range(len(state.batches) - width + 1):
        found = state.batches[at : at + width]
        if [batch.parts for batch in found] == [batch.parts for batch in replaced]:
            break
    else:
        return state, False
    merged = replace(merged, lower=found[0].lower, upper=found[-1].upper)
    batches = (*state.batches[:at], merged, *state.batches[at + width :])
    kept = {part.key for part in merged.parts}
    gone = tuple(r for r in _retired(state, found) if r.key not in kept)
    return _next(state, batches=batches, retired=state.retired + gone), True


def check_diffs(shard_id: str, replaced: tuple[Batch, ...], diffs: int) -> None:
    expected = sum(batch.diffs for batch in replaced)
    if diffs != expected:
        raise Corruption(
            f"shard {shard_id}: compaction of {replaced[0].lower} to {replaced[-1].upper} changed "
            f"the sum of diffs from {expected} to {diffs}; the merge was thrown away"
        )


def raise_floor(state: State, floor: int) -> tuple[State, None]:
    """Give up all parts staged before `floor` that nobody has appended.

    From this commit on no append or merge can adopt one of them, so whoever deletes them after
    it deletes nothing that the shard will ever need, whatever the clocks say.
    """
    return (_next(state, floor=floor) if state.floor < floor else state), None


def collectable(state: State, now_ms: int) -> tuple[str, ...]:
    """Keys of retired parts that no live lease can still be reading."""
    leases = [
        hold.seqno
        for hold in state.holds.values()
        if hold.seqno is not None and not _expired(hold.expires_ms, now_ms)
    ]
    horizon = min(leases, default=state.seqno)
    return tuple(retired.key for retired in state.retired if retired.seqno <= horizon)


def forget_retired(state: State, keys: frozenset[str]) -> tuple[State, None]:
    kept = tuple(retired for retired in state.retired if retired.key not in keys)
    return (state if len(kept) == len(state.retired) else _next(state, retired=kept)), None


def finalize(state: State) -> tuple[State, None]:
    """End the shard for good: nothing can be read from or written to it again."""
    if state.is_tombstone:
        return state, None
    leases = {h: v for h, v in state.holds.items() if v.expires_ms is not None}
    return _next(
        state,
        since=Frontier.EMPTY,
        upper=Frontier.EMPTY,
        batches=(),
        holds=leases,
        writers={},
        retired=state.retired + _retired(state, state.batches),
    ), None


def expire(state: State, now_ms: int) -> State:
    """The same version without leases and writers that have not been heard of for too long.

    Joins every commit. Since stays where it is until a holder next moves.
    """
    holds = {h: v for h, v in state.holds.items() if not _expired(v.expires_ms, now_ms)}
    writers = {w: s for w, s in state.writers.items() if not _expired(s.expires_ms, now_ms)}
    if len(holds) == len(state.holds) and len(writers) == len(state.writers):
        return state
    return replace(state, holds=holds, writers=writers)


def spelled(schema: bytes | pa.Schema) -> str:
    fields = _rows(schema) if isinstance(schema, bytes) else list(schema)
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in fields)


def _rows(schema: bytes) -> list[pa.Field]:
    return list(decode_schema(schema))[: -len(META_FIELDS)]


def _given_up(state: State, parts: tuple[Part, ...]) -> str | None:
    """The first of `parts` that lies below the floor."""
    keys = (part.key for part in parts if part.key is not None)
    return next((key for key in keys if is_staged_before(key, state.floor)), None)


def _retired(state: State, batches: tuple[Batch, ...]) -> tuple[Retired, ...]:
    return tuple(Retired(p.key, state.seqno + 1) for b in batches for p in b.parts if p.key)


def _expired(expires_ms: int | None, now_ms: int) -> bool:
    return expires_ms is not None and expires_ms < now_ms


def _next(state: State, **changes: object) -> State:
    return replace(state, seqno=state.seqno + 1, **changes)
