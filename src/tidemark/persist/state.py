"""A shard's state: a small immutable value. `commands` lead from one to the next.

    since ----- reads are exact from here on; held back by `holds`
    upper ----- everything before it is final; only compare_and_append moves it
    batches --- contiguous descriptions [lower, upper) from the minimum time to upper
    retired --- parts that compaction replaced, waiting until no lease can still read them
    rendition - writers of an older one are shut out (`compare_and_append`)
    floor ----- parts staged before it and appended by nobody are given up, and deleted

One shard may be the *log* of others, which follow it. An append to the log says in the same commit
how far they are all complete with that (`lead`), but for the few that it names: those get updates
by appends of their own. So one write moves the progress of any number of shards. A follower's own
upper is where its last append ended; `upper_by` tells how far it can be read.

Invariants, relied upon everywhere. `check` finds a state that breaks one, `check_step` a commit
that would.
    S1  batches are contiguous, begin at the minimum time and end at upper
    S2  since, upper, rendition, floor and the time of commits never go back
    S3  every update in a batch has lower <= time < upper (compaction moves times up to since,
        but never out of the batch)
    S4  a part is referenced once: by `batches` or by `retired`
    S5  since is not beyond any hold, nor a batch's since beyond the shard's
    S6  schemas only grow, each by nullable columns at the end; every part names one of them
    S7  a log says nothing of times that it has not reached, and what it said it does not take back
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import msgspec

from tidemark.errors import Corruption
from tidemark.frontier import Frontier

Bound = bool | int | float | str | None


class ColumnStats(msgspec.Struct, frozen=True, array_like=True):
    """What a part's good rows have in one column; a bound of None says nothing."""

    nulls: int
    least: Bound = None
    most: Bound = None


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """Updates in one blob (`key`), or right here (`inline`, an Arrow IPC stream)."""

    rows: int
    size: int
    diffs: int
    min_time: int
    max_time: int
    key: str | None = None
    inline: bytes | None = None
    memory: int = 0
    """Bytes as an Arrow table, by which merges are planned."""
    errors: int = 0
    """How many of the rows are error rows."""
    schema: int = 0
    ordered: bool = False
    """The updates are in run order (`order`)."""
    first: tuple[int, int] | None = None
    """Of an ordered part in Blob: the position of its first update."""
    at: int | None = None
    """The time of all its updates, whatever their column says: a batch that was staged before it
    was known when it would be appended."""
    stats: dict[str, ColumnStats] = {}


Run = tuple[Part, ...]
"""Parts in run order, one after the other, that hold every update once; or a single part that is
not ordered."""


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    lower: Frontier
    upper: Frontier
    since: Frontier
    parts: tuple[Part, ...] = ()
    splits: tuple[int, ...] = ()
    """Where, among `parts`, a new run begins (the first begins at 0)."""

    @staticmethod
    def of(lower: Frontier, upper: Frontier, since: Frontier, runs: Iterable[Run]) -> Batch:
        """A batch of these runs; empty ones count for nothing."""
        runs = [run for run in runs if run]
        ends = tuple(accumulate(len(run) for run in runs))
        return Batch(lower, upper, since, tuple(p for run in runs for p in run), ends[:-1])

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def diffs(self) -> int:
        return sum(part.diffs for part in self.parts)

    @property
    def runs(self) -> list[Run]:
        """Sequences of parts in run order; a part that is not ordered is one of its own."""
        edges = [0, *self.splits, len(self.parts)] if self.parts else []
        return [self.parts[a:b] for a, b in pairwise(edges)]


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reader's claim: since may not pass it. A lease (`expires_ms`) also keeps the parts of
    state `seqno` from being deleted; a critical hold has no expiry and is fenced by `epoch`."""

    since: Frontier
    epoch: int = 0
    seqno: int | None = None
    expires_ms: int | None = None
    purpose: str = ""


class WriterState(msgspec.Struct, frozen=True):
    """A writer's last success: its token tells an unsure writer that it did succeed."""

    token: str
    upper: Frontier
    expires_ms: int


class Retired(msgspec.Struct, frozen=True, array_like=True):
    key: str
    seqno: int


class Lead(msgspec.Struct, frozen=True, array_like=True):
    """What the last append to a log, [lower, upper), means for the shards that follow it: they are
    complete to `upper`, those in `but` to `lower` and from there on as their own appends say."""

    lower: Frontier
    upper: Frontier
    but: tuple[str, ...] = ()


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    shard_id: str
    seqno: int = -1
    at_ms: int = 0
    since: Frontier = Frontier.MIN
    upper: Frontier = Frontier.MIN
    schemas: tuple[bytes, ...] = ()
    """Serialised Arrow schemas of the updates; a part's `schema` is a position here."""
    key: tuple[str, ...] = ()
    batches: tuple[Batch, ...] = ()
    holds: dict[str, Hold] = {}
    writers: dict[str, WriterState] = {}
    retired: tuple[Retired, ...] = ()
    floor: int = 0
    rendition: int = 0
    """The incarnation of the writer that appended last."""
    born: int = 0
    """A random number by which it is told from others that had or will have its name."""
    follows: str = ""
    """The log whose progress is this shard's; set once."""
    lead: Lead | None = None
    """Of a log."""

    @property
    def exists(self) -> bool:
        """False if nothing was ever committed under this name."""
        return self.seqno >= 0

    @property
    def is_tombstone(self) -> bool:
        return self.since.is_empty and self.upper.is_empty and not self.batches

    @property
    def appended(self) -> Frontier:
        """Where its own batches end, however far a log says that it is complete."""
        return self.batches[-1].upper if self.batches else Frontier.MIN

    @property
    def parts(self) -> Iterator[Part]:
        return (part for batch in self.batches for part in batch.parts)

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def inline_bytes(self) -> int:
        return sum(part.size for part in self.parts if part.inline is not None)

    @property
    def keys(self) -> set[str]:
        """Every blob that the state refers to."""
        live = {part.key for part in self.parts if part.key is not None}
        return live | {retired.key for retired in self.retired}


def upper_by(log: State, state: State) -> Frontier:
    """How far `state`, which follows `log`, is complete.

    The log must have been looked at first: what it calls complete is then in the state, whatever
    came in between. The other way round, an append in between would be missed.
    """
    if log.lead is None:
        return state.upper
    led = log.lead.lower if state.shard_id in log.lead.but else log.lead.upper
    return max(state.upper, led)


def check(state: State) -> State:
    """The state itself, if S1 and S3 to S7 hold."""
    _check_batches(state, state.batches, Frontier.MIN)
    live = [part.key for part in state.parts if part.key is not None]
    if len(state.keys) < len(live) + len(state.retired):
        raise _broken(state, "a part is referenced twice", "S4")
    _check_holds(state)
    _check_lead(state)
    return state


def check_step(old: State, new: State) -> State:
    """`new`, if it may follow `old`. Looks only at what changed, as a commit must stay cheap."""
    if not (old.since <= new.since and old.upper <= new.upper and old.floor <= new.floor):
        raise _broken(new, "since, upper or floor would go back", "S2")
    if new.rendition < old.rendition:
        raise _broken(new, "its rendition would go back", "S2")
    if new.seqno != old.seqno + 1 or new.at_ms <= old.at_ms:
        raise _broken(new, "versions must follow each other", "S2")
    if new.schemas[: len(old.schemas)] != old.schemas:
        raise _broken(new, "a schema was changed", "S6")
    same = 0
    for before, after in zip(old.batches, new.batches, strict=False):
        if before is not after:
            break
        same += 1
    start = new.batches[same - 1].upper if same else Frontier.MIN
    _check_batches(new, new.batches[same:], start)
    _check_holds(new)
    _check_lead(new)
    if old.lead is not None and (new.lead is None or not old.lead.upper <= new.lead.upper):
        raise _broken(new, "what it said to its followers would go back", "S7")
    return new


def _check_batches(state: State, batches: tuple[Batch, ...], expected: Frontier) -> None:
    for batch in batches:
        if batch.lower != expected or not batch.lower < batch.upper:
            raise _broken(state, f"a gap in its batches at {expected}", "S1")
        expected = batch.upper
        if state.since < batch.since:
            raise _broken(state, f"a batch's since {batch.since} is beyond {state.since}", "S5")
        for part in batch.parts:
            if not (batch.lower <= Frontier(part.min_time) and batch.upper.covers(part.max_time)):
                raise _broken(
                    state,
                    f"updates at times {part.min_time} to {part.max_time} "
                    f"in the batch {batch.lower} to {batch.upper}",
                    "S3",
                )
            if part.schema >= len(state.schemas):
                raise _broken(state, f"a part has the unknown schema {part.schema}", "S6")
    if expected != state.upper and not state.is_tombstone:
        raise _broken(state, f"batches end at {expected}, upper {state.upper}", "S1")


def _check_holds(state: State) -> None:
    for name, hold in state.holds.items():
        if hold.since < state.since and not state.is_tombstone:
            raise _broken(state, f"since {state.since} passed the hold {name} {hold.since}", "S5")


def _check_lead(state: State) -> None:
    if state.lead is not None and not state.lead.lower <= state.lead.upper <= state.upper:
        raise _broken(state, f"leads its followers beyond its own upper {state.upper}", "S7")


def _broken(state: State, what: str, invariant: str) -> Corruption:
    return Corruption(
        f"shard {state.shard_id}: {what} ({invariant})",
        hint="run `tidemark shard fsck` on it; nothing was committed",
    )
