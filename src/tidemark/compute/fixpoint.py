"""WITH MUTUALLY RECURSIVE, maintained: fragments for each round, and as many rounds as it takes.

    X0 = nothing    X1 = f(X0)    X2 = f(X1)    ...    Xk = f(Xk-1) = Xk-1: the fixpoint

A round is ordinary fragments over the round before, kept up to date like any others: a change costs
what it changes in each round, and nothing in rounds that it does not reach. The result is the last
round's, copied to shards of its own, so that readers need not know how many there are.

In a tick all rounds follow their inputs to `upper`. The last two were equal at every time before
`lower`; they still are if they changed alike since. If they did not, one more round is made, as of
before the interval, where it equals the last; and so on. Rounds are never taken away while it runs:
one more than needed changes nothing.

At the limit the result is what it is, or beside it an error, which goes away when a change brings
the fixpoint back within reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from tidemark.compute.dataflow import HOLD_EVERY_MS, holder_of, shards_kept
from tidemark.compute.failpoints import reached
from tidemark.compute.fragments import Fragment, Recursive, Round, round_of
from tidemark.compute.leaves import distinct_times
from tidemark.compute.plan import limit_reached
from tidemark.compute.sink import Sink
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.persist.updates import concat, consolidate, negate, row_names
from tidemark.types import arrow_schema

log = structlog.get_logger("dataflow")


class Stage(Protocol):
    """A fragment's dataflow that others may use, too."""

    def start(self, as_of: int) -> None: ...

    def advance(self, upper: Frontier) -> bool: ...


class Recursion:
    """Keeps the bindings of `recursive`, each in one of `shards`.

    `acquire` gives a fragment's dataflow and `release` takes it back; `name` is what a fragment's
    shard is called.
    """

    def __init__(
        self,
        id_: str,
        recursive: Recursive,
        *,
        inputs: Mapping[str, str],
        shards: tuple[str, ...],
        client: PersistClient,
        acquire: Callable[[Fragment], Stage],
        release: Callable[[Any], None],
        name: Callable[[str], str],
        read_only: Callable[[], bool] = lambda: False,
    ):
        self.id = id_
        self.shards = shards
        self.ticks = 0
        self._recursive = recursive
        self._client = client
        self._inputs = tuple(inputs[each] for each in recursive.inputs)
        self._acquire = acquire
        self._release = release
        self._name = name
        self._rounds: list[Round] = []
        self._stages: list[Stage] = []
        self._holder = holder_of(id_)
        self._read_only = read_only
        self._follows = False
        self._lower = Frontier.MIN
        self._held_at_ms = 0
        self._sinks = [
            Sink(client, shard, schema=arrow_schema(get.columns), read_only=read_only)
            for shard, get in zip(shards, recursive.results().values(), strict=True)
        ]

    @property
    def lower(self) -> Frontier:
        """Everything before this is computed and durable."""
        return self._lower

    @property
    def is_settled(self) -> bool:
        return self.settle()

    @property
    def corrected(self) -> int:
        return sum(sink.corrected for sink in self._sinks)

    @property
    def is_resumable(self) -> bool:
        return all(sink.upper.time != 0 for sink in self._sinks)

    def wants(self, upper: Frontier) -> bool:
        if self._lower.is_empty:
            return False
        ends = upper.is_empty and not self._read_only()
        return ends or self._lower < self._reachable(upper)

    def changed(self, upper: Frontier) -> bool:
        return not self._read_only()

    def settle(self) -> bool:
        return self._lower.time != 0

    def start(self, as_of: int) -> None:
        """Resume from the shards, or find the fixpoint as of `as_of`.

        One that is read-only only looks how far others are: its rounds are made of what is
        written.
        """
        self._follows = self._read_only()
        if self._follows:
            self._lower = min(sink.upper for sink in self._sinks)
            return
        lower = min(sink.upper for sink in self._sinks)
        if lower.is_empty:
            self._lower = lower
            return
        inputs = [self._client.open_reader(shard) for shard in self._inputs]
        if lower.time and all(r.since <= Frontier(lower.time - 1) for r in inputs):
            as_of = lower.time - 1
            for sink in self._sinks:
                sink.start(lower)
        else:
            as_of = max([as_of, *(reader.since.time or 0 for reader in inputs)])
            lower = Frontier.MIN
            for sink in self._sinks:
                sink.start(lower)
        self._lower = Frontier(as_of + 1)
        self.hold()
        self._one_more(as_of)
        # Those that are there already are needed, or were.
        while not self._at_limit and self._known(round_of(self._recursive, self._rounds[-1])):
            self._one_more(as_of)
        while not self._settled_at(as_of):
            self._one_more(as_of)
        if not lower.time:
            for at, sink in enumerate(self._sinks):
                found = self._reader(self._rounds[-1], at).snapshot(as_of)
                sink.desire(_shaped(found, sink.schema), self._lower)
            self._complain(np.array([as_of]), was=False)
            self._flush()
        log.info("recursion started", dataflow=self.id, as_of=as_of, rounds=len(self._rounds))

    def _reachable(self, upper: Frontier) -> Frontier:
        """How far one can come if the inputs are complete to `upper`; not beyond where they end."""
        if upper.is_empty:
            states = [self._client.state(shard) for shard in self._inputs]
            last = max((part.max_time for state in states for part in state.parts), default=0)
            upper = Frontier(last + 1)
        if self._read_only():
            upper = min([upper, *(sink.upper for sink in self._sinks)])
        return upper

    def _finish(self) -> Frontier:
        """There is nothing left to come: the shards end."""
        for sink in self._sinks:
            sink.desire(None, Frontier.EMPTY)
        self._flush()
        self._lower = Frontier.EMPTY
        for shard in (*self._inputs, *self.shards):
            self._client.open_critical_since(shard, self._holder).release()
        return self._lower

    def tick(self, upper: Frontier) -> Frontier:
        ends, upper = upper.is_empty, self._reachable(upper)
        if ends and not self._follows and not self._lower < upper:
            return self._finish()
        if self._read_only() or not self._lower < upper:
            self._lower = max(self._lower, upper)
            return self._lower
        if self._follows:
            assert self._lower.time is not None
            self.start(max(self._lower.time - 1, 0))
        lower = self._lower
        assert lower.time
        for stage in self._stages:
            stage.advance(upper)
            reached("fixpoint.round-done")
        while not self._settled(lower, upper):
            self._one_more(lower.time - 1)
            for stage in self._stages:
                stage.advance(upper)
        changes = self._changes(self._rounds[-1], lower, upper)
        for sink, found in zip(self._sinks, changes, strict=True):
            sink.desire(_shaped(found, sink.schema), upper)
        self.ticks += any(table.num_rows for table in changes)
        if self._may_complain:
            # The last may become the fixpoint, or stop being it, by what the one before does.
            for made in self._rounds[-2:-1]:
                changes += self._changes(made, lower, upper)
            times = distinct_times(changes)
            if len(times):
                self._complain(times, was=self._unsettled_before())
        self._flush()
        self._lower = upper
        if self._client.clock.now_ms() - self._held_at_ms >= HOLD_EVERY_MS:
            self.hold()
        return upper

    def hold(self) -> None:
        """Rounds that are still to come begin before the next interval."""
        assert self._lower.time
        rounds = [shard for made in self._rounds for shard in self._shards(made)]
        self._hold_at(self._lower.time - 1, (*self._inputs, *dict.fromkeys(rounds), *self.shards))
        self._held_at_ms = self._client.clock.now_ms()

    def stop(self) -> None:
        for stage in self._stages:
            self._release(stage)

    # Rounds.

    def _one_more(self, as_of: int) -> None:
        made = round_of(self._recursive, self._rounds[-1] if self._rounds else None)
        # Before it moves on: a further round of this interval will read it as of then.
        self._hold_at(as_of, self._shards(made))
        for fragment in made.fragments:
            stage = self._acquire(fragment)
            self._stages.append(stage)
            stage.start(as_of)
            stage.advance(Frontier(as_of + 1))
        self._rounds.append(made)
        reached("fixpoint.round-made")

    def _known(self, made: Round) -> bool:
        """Whether it is there already, and another than the last."""
        shards = [self._name(get.id) for get in made.made.values()]
        there = all(self._client.state(shard).upper.time for shard in shards)
        return there and made.made != self._rounds[-1].made

    def _settled_at(self, as_of: int) -> bool:
        """Whether the last two rounds are the same at `as_of`."""
        return self._at_limit or (
            len(self._rounds) > 1
            and not any(
                self._difference(at, lambda reader: reader.snapshot(as_of)).num_rows
                for at in range(len(self._sinks))
            )
        )

    def _settled(self, lower: Frontier, upper: Frontier) -> bool:
        """Whether the last two rounds changed alike."""
        return self._at_limit or not any(
            self._difference(at, lambda reader: reader.updates(lower, upper)).num_rows
            for at in range(len(self._sinks))
        )

    @property
    def _at_limit(self) -> bool:
        return len(self._rounds) >= self._recursive.limit

    @property
    def _may_complain(self) -> bool:
        return self._at_limit and not self._recursive.return_at_limit

    def _difference(self, at: int, read: Callable) -> pa.Table:
        """What binding `at` has in the last round more (or less) than in the one before."""
        schema = self._sinks[at].schema
        last = read(self._reader(self._rounds[-1], at))
        parts = [_shaped(last, schema)]
        if len(self._rounds) > 1:
            before = read(self._reader(self._rounds[-2], at))
            parts.append(_shaped(negate(before), schema))
        return consolidate(concat(parts, schema))

    def _changes(self, made: Round, lower: Frontier, upper: Frontier) -> list[pa.Table]:
        return [self._reader(made, at).updates(lower, upper) for at in range(len(self._sinks))]

    def _reader(self, made: Round, at: int):
        get = list(made.made.values())[at]
        return self._client.open_reader(self._name(get.id))

    def _complain(self, times: np.ndarray, *, was: bool) -> None:
        """An error wherever in the interval the last round is not the fixpoint."""
        if not self._may_complain:
            return
        changes = []
        for time in times.tolist():
            is_ = any(
                self._difference(at, lambda reader, t=time: reader.snapshot(t)).num_rows
                for at in range(len(self._sinks))
            )
            if is_ != was:
                changes.append((time, 1 if is_ else -1))
            was = is_
        if changes:
            sink = self._sinks[0]
            nulls = {
                name: pa.nulls(len(changes), sink.schema.field(name).type)
                for name in row_names(sink.schema)
            }
            errors = pa.table(
                {
                    **nulls,
                    TIME: [time for time, _ in changes],
                    DIFF: [diff for _, diff in changes],
                    ERR: [self._complaint] * len(changes),
                }
            )
            sink.desire(errors.select(sink.schema.names).cast(sink.schema), sink.desired)

    @property
    def _complaint(self) -> str:
        return limit_reached(self._recursive.limit)

    def _unsettled_before(self) -> bool:
        """Whether the last round was not the fixpoint at the end of the interval before."""
        assert self._lower.time
        found = self._client.open_reader(self.shards[0]).snapshot(self._lower.time - 1)
        return pc.index(found[ERR], self._complaint).as_py() >= 0

    def _flush(self) -> None:
        for sink in self._sinks:
            sink.flush()

    def _hold_at(self, as_of: int, shards: Iterable[str]) -> None:
        for shard in shards:
            self._client.open_critical_since(shard, self._holder).downgrade(Frontier(as_of))

    def _shards(self, made: Round) -> list[str]:
        """What a round's fragments put out; some are the same in every round."""
        return [self._name(fragment.id) for fragment in made.fragments]


def rounds_kept(
    recursive: Recursive, client: PersistClient, name: Callable[[str], str]
) -> dict[str, Fragment]:
    """The fragments of all rounds that there are, or that are in the making, by id."""
    found: dict[str, Fragment] = {}
    made: Round | None = None
    while True:
        made = round_of(recursive, made)
        # What does not depend on the recursion is the same in every round.
        fresh = {each.id: each for each in made.fragments if each.id not in found}
        shards = [shard for each in fresh.values() for shard in shards_kept(each, name(each.id))]
        states = [client.state(shard) for shard in shards]
        # One that is in the making is held before anything is written to it.
        if not any(state.upper.time or state.holds for state in states):
            return found
        found |= fresh


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Updates of one round as updates of the result: columns are the same by position."""
    return table.select(schema.names).cast(schema)
