"""Commits commands to a shard: read the state, apply, compare-and-set, look again if it lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from tidemark.clock import Clock
from tidemark.errors import Fenced, Indeterminate, TidemarkError, Unavailable
from tidemark.persist.codec import decode, encode, replay
from tidemark.persist.commands import expire
from tidemark.persist.config import Config
from tidemark.persist.consensus import Consensus, Versioned
from tidemark.persist.state import State, check, check_step, upper_by

T = TypeVar("T")

MAX_UNSURE = 10
"""Indeterminate commits in a row after which a command gives up, still not knowing."""


class _Version(NamedTuple):
    """A state and how it is stored; `grown` if the shard then has other batches or garbage."""

    state: State
    stored: Versioned
    rollup: bool
    grown: bool


class Machine:
    """One shard's state as this process last saw it; shared by all its handles.

    `committed` is called after each commit of this process, with whether there is more in the shard
    than before, or less: others of it may be waiting. `log_of` finds the machine of a log, given
    this shard and the log that it follows.
    """

    def __init__(
        self,
        shard_id: str,
        consensus: Consensus,
        clock: Clock,
        config: Config,
        committed: Callable[[str, bool], None] = lambda *_: None,
        log_of: Callable[[str, str], Machine] | None = None,
    ):
        self.shard_id = shard_id
        self.clock = clock
        self.config = config
        self._consensus = consensus
        self._committed = committed
        self._log_of = log_of or (lambda _, log_id: Machine(log_id, consensus, clock, config))
        self._lock = threading.Lock()
        self._state = State(shard_id)

    @property
    def cached(self) -> State:
        """The last state seen; its upper and since are lower bounds of the true ones."""
        return self._state if self._state.exists else self.refresh()

    def refresh(self) -> State:
        """The current state, linearized with all commits."""
        known = self._state
        found = self._consensus.scan(self.shard_id, known.seqno + 1)
        if not found:
            return known
        versions = [decode(self.shard_id, version) for version in found]
        return self._learn(replay(known, versions), whole=not known.exists)

    def seen(self) -> State:
        """The current state as readers see it: if it follows a log, complete as far as that says.

        Its `upper` is then none to append at; `refresh` has that one.
        """
        if not self._state.follows:
            state = self.refresh()
            if not state.follows:
                return state
        log = self._log_of(self.shard_id, self._state.follows).refresh()
        state = self.refresh()
        return replace(state, upper=upper_by(log, state))

    def known(self) -> State:
        """What `seen` would say as far as this process knows, without asking anyone: since and
        upper are lower bounds of the true ones."""
        state = self.cached
        if not state.follows:
            return state
        return replace(
            state, upper=upper_by(self._log_of(self.shard_id, state.follows).cached, state)
        )

    def apply(self, command: str, step: Callable[[State], tuple[State, T]]) -> T:
        """Run `step` on the newest state and commit what it returns, under the name `command`.

        Steps that change nothing are checked against the newest state, too: a loser learns
        the true upper, not one that this process had cached.

        A commit that fails indeterminately may have happened, so the step runs again on what
        is there now. Every command knows its own effect when it meets it and then reports the
        success; no error raised after that point claims less.
        """
        state, fresh = self._state, False
        if not state.exists:
            state, fresh = self.refresh(), True
        unsure: Indeterminate | None = None
        attempts = 0
        while True:
            try:
                new, outcome = step(state)
            except TidemarkError as error:
                if fresh and unsure is not None and isinstance(error, Fenced):
                    raise unsure from error  # It may have happened before it was shut out.
                if fresh:
                    raise
                # What is wrong by a state of a while ago may be right by now.
                state, fresh = self.refresh(), True
                continue
            if new is state and fresh:
                return outcome
            try:
                if new is not state and self._commit(command, state, new):
                    return outcome
            except Indeterminate as error:
                unsure, attempts = error, attempts + 1
                if attempts == MAX_UNSURE:
                    raise
            except Unavailable as error:
                raise unsure or error from error
            try:
                state, fresh = self.refresh(), True
            except Unavailable as error:
                raise unsure or error from error

    def _commit(self, command: str, old: State, new: State) -> bool:
        version = self._version(command, old, new)
        if not self._consensus.compare_and_set(self.shard_id, version.stored):
            return False
        self._won(version)
        return True

    def _version(self, command: str, old: State, new: State) -> _Version:
        """What is to be stored for `new` to be the shard's state."""
        now_ms = self.clock.now_ms()
        new = expire(replace(new, at_ms=max(now_ms, old.at_ms + 1)), now_ms)
        if not old.exists:
            new = replace(new, born=uuid4().int >> 65)
        check_step(old, new)
        rollup = new.seqno % self.config.rollup_every == 0
        data = encode(old, new, command, rollup=rollup)
        grown = len(new.batches) != len(old.batches) or new.retired is not old.retired
        return _Version(new, Versioned(new.seqno, data), rollup, grown)

    def _won(self, version: _Version) -> None:
        new = version.state
        self._learn(new)
        self._committed(self.shard_id, version.grown)
        if version.rollup and new.seqno:
            # The commit stands whatever becomes of the old versions; the next one tries again.
            with suppress(Unavailable):
                self._consensus.truncate(self.shard_id, new.seqno)

    def _learn(self, state: State, *, whole: bool = False) -> State:
        if whole:
            check(state)
        with self._lock:
            if state.seqno > self._state.seqno:
                self._state = state
            return self._state


class Step(NamedTuple, Generic[T]):
    """A command that is to be committed to a shard."""

    machine: Machine
    command: str
    apply: Callable[[State], tuple[State, T]]


def apply_together(steps: Sequence[Step[T]]) -> list[T | None]:
    """Commit all of them, each to a shard of its own in the same Consensus, as few commits.

    None for one that did not win at the first attempt: whoever wants it looks at the shard again.
    After an error that is all of them, and each may have been done all the same.
    """
    found: list[T | None] = [None] * len(steps)
    tried: list[tuple[int, _Version, T]] = []
    for at, (machine, command, apply) in enumerate(steps):
        old = machine._state
        with suppress(TidemarkError):
            new, outcome = apply(old)
            if old.exists and new is not old:
                tried.append((at, machine._version(command, old, new), outcome))
    if not tried:
        return found
    try:
        consensus = steps[0].machine._consensus
        news = [(steps[at].machine.shard_id, version.stored) for at, version, _ in tried]
        done = consensus.compare_and_set_all(news)
    except Unavailable:
        return found
    for (at, version, outcome), won in zip(tried, done, strict=True):
        if won:
            steps[at].machine._won(version)
            found[at] = outcome
    return found
