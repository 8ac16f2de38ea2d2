"""Commits commands to a shard: read the state, apply, compare-and-set, look again if it lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tidemark.clock import Clock
from tidemark.errors import Indeterminate, Unavailable
from tidemark.persist.consensus import Consensus, Versioned
from tidemark.persist.state import FORMAT_VERSION, State, check, decode, encode

T = TypeVar("T")

TRUNCATE_EVERY = 32
"""Every version holds the whole state, so older ones are only kept in passing."""

MAX_UNSURE = 10
"""Indeterminate commits in a row after which a command gives up, still not knowing."""


class Machine:
    """One shard's state as this process last saw it; shared by all its handles."""

    def __init__(self, shard_id: str, consensus: Consensus, clock: Clock):
        self.shard_id = shard_id
        self.clock = clock
        self._consensus = consensus
        self._lock = threading.Lock()
        self._state: State | None = None

    @property
    def cached(self) -> State:
        """The last state seen; its upper and since are lower bounds of the true ones."""
        state = self._state
        return state if state is not None else self.refresh()

    def refresh(self) -> State:
        """The current state, linearized with all commits."""
        head = self._consensus.head(self.shard_id)
        if head is None:
            return State(FORMAT_VERSION, self.shard_id, seqno=-1)
        with self._lock:
            if self._state is None or head.seqno > self._state.seqno:
                self._state = decode(head.data, shard_id=self.shard_id)
            return self._state

    def apply(self, command: Callable[[State], tuple[State, T]]) -> T:
        """Run `command` on the newest state and commit what it returns.

        Commands that change nothing are checked against the newest state, too: a loser learns
        the true upper, not one that this process had cached.

        A commit that fails indeterminately may have happened, so the command runs again on what
        is there now. Every command knows its own effect when it meets it (an append by its
        token) and then reports the success; no error raised after that point claims less.
        """
        state, fresh = self._state, False
        if state is None:
            state, fresh = self.refresh(), True
        unsure: Indeterminate | None = None
        attempts = 0
        while True:
            new, outcome = command(state)
            if new is state and fresh:
                return outcome
            try:
                if new is not state and self._commit(check(new)):
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

    def _commit(self, new: State) -> bool:
        if not self._consensus.compare_and_set(self.shard_id, Versioned(new.seqno, encode(new))):
            return False
        with self._lock:
            if self._state is None or new.seqno > self._state.seqno:
                self._state = new
        if new.seqno % TRUNCATE_EVERY == 0 and new.seqno:
            # The commit stands whatever becomes of the old versions; the next one tries again.
            with suppress(Unavailable):
                self._consensus.truncate(self.shard_id, new.seqno)
        return True
