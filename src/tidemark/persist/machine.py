"""Commits commands to a shard: read the state, apply, compare-and-set, look again if it lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tidemark.clock import Clock
from tidemark.errors import Indeterminate
from tidemark.persist.consensus import Consensus, Versioned
from tidemark.persist.state import FORMAT_VERSION, State, check, decode, encode

T = TypeVar("T")

TRUNCATE_EVERY = 32
"""Every version holds the whole state, so older ones are only kept in passing."""


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
                self._state = decode(head.data)
            return self._state

    def apply(self, command: Callable[[State], tuple[State, T]]) -> T:
        """Run `command` on the newest state and commit what it returns.

        Commands that change nothing are checked against the newest state, too: a loser learns
        the true upper, not one that this process had cached.
        """
        state, fresh = self._state, False
        if state is None:
            state, fresh = self.refresh(), True
        while True:
            new, outcome = command(state)
            if new is state:
                if fresh:
                    return outcome
            elif self._commit(check(new)):
                return outcome
            state, fresh = self.refresh(), True

    def _commit(self, new: State) -> bool:
        data = encode(new)
        try:
            won = self._consensus.compare_and_set(self.shard_id, Versioned(new.seqno, data))
        except Indeterminate:
            # It may have happened. If the head is byte for byte ours, it did; otherwise the
            # command runs again, and its idempotency token (or its nature) keeps that harmless.
            head = self._consensus.head(self.shard_id)
            won = head is not None and head == Versioned(new.seqno, data)
        if won:
            with self._lock:
                if self._state is None or new.seqno > self._state.seqno:
                    self._state = new
            if new.seqno % TRUNCATE_EVERY == 0 and new.seqno:
                self._consensus.truncate(self.shard_id, new.seqno)
        return won
