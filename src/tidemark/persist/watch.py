"""Waiting for commits, of this process and of others, without polling.

Consensus rings when a shard has a new version (`Consensus.watch`); whoever waits for that shard
looks again, and so does who waits for a shard that follows it. Ringing is best effort, so waiters
also look by themselves once in a while.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from tidemark.clock import Clock
from tidemark.errors import TidemarkError
from tidemark.persist.consensus import Consensus

T = TypeVar("T")

RECHECK_EVERY = 1.0
"""Waiters look again by themselves this often, whether it rang or not."""


class Watch:
    def __init__(self, consensus: Consensus, clock: Clock):
        self._consensus = consensus
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: dict[str | None, set[Callable[[], None]]] = {}
        self._followers: dict[str, set[str]] = {}
        self._stop: Callable[[], None] | None = None
        self.closed = False

    def follow(self, shard_id: str, log_id: str) -> None:
        """From now on a new version of the log wakes those who wait for the shard, too."""
        if shard_id not in self._followers.get(log_id, ()):
            with self._lock:
                self._followers.setdefault(log_id, set()).add(shard_id)

    def ring(self, shard_id: str | None) -> None:
        """Wake who waits for this shard (None: for any)."""
        with self._lock:
            if shard_id is None:
                keys = set(self._waiters)
            else:
                followers = self._followers.get(shard_id, set())
                keys = {shard_id, None} | (followers & self._waiters.keys())
            wake = [waiter for key in keys for waiter in self._waiters.get(key, ())]
        for waiter in wake:
            waiter()

    def subscribe(self, shard_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the shard has a new version, until what comes back is called."""
        stack = ExitStack()
        # One of its own: the same may be given twice.
        stack.enter_context(self._waiting(shard_id, lambda: wake()))
        return stack.close

    def wait_for(
        self, shard_id: str | None, ready: Callable[[], T | None], timeout: float | None = None
    ) -> T | None:
        """What `ready` returns once it is not None; None after `timeout` seconds or `close`.

        `ready` is asked again when `shard_id` has a new version (None: when any shard has).
        """
        rung = threading.Event()
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._waiting(shard_id, rung.set):
            while True:
                rung.clear()
                found = self._ask(ready)
                pause = self._pause(deadline)
                if found is not None or pause <= 0:
                    return found
                rung.wait(pause)

    async def wait_for_async(
        self, shard_id: str | None, ready: Callable[[], T | None], timeout: float | None = None
    ) -> T | None:
        """The same in an event loop; `ready` runs in a thread of it."""
        rung, loop = asyncio.Event(), asyncio.get_running_loop()
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._waiting(shard_id, lambda: _soon(loop, rung)):
            while True:
                rung.clear()
                found = await asyncio.to_thread(self._ask, ready)
                pause = self._pause(deadline)
                if found is not None or pause <= 0:
                    return found
                await _rung_within(rung, pause)

    def close(self) -> None:
        self.closed = True
        with self._lock:
            stop, self._stop = self._stop, None
        if stop is not None:
            stop()
        self.ring(None)

    def _ask(self, ready: Callable[[], T | None]) -> T | None:
        """None once all is closed, as there is nothing to be seen then."""
        try:
            return None if self.closed else ready()
        except TidemarkError:
            if self.closed:
                return None
            raise

    def _pause(self, deadline: float | None) -> float:
        if self.closed:
            return 0
        left = RECHECK_EVERY if deadline is None else deadline - self._clock.monotonic()
        return min(left, RECHECK_EVERY)

    @contextmanager
    def _waiting(self, shard_id: str | None, waiter: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._waiters.setdefault(shard_id, set()).add(waiter)
            if self._stop is None and not self.closed:
                self._stop = self._consensus.watch(self.ring)
        try:
            yield
        finally:
            with self._lock:
                waiters = self._waiters[shard_id]
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[shard_id]


def _soon(loop: asyncio.AbstractEventLoop, rung: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(rung.set)


async def _rung_within(rung: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await rung.wait()
    except TimeoutError:
        return
