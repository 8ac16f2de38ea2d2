"""Waiting for other processes' commits without hot polling.

One thread per process looks at the consensus' change token, and only while someone waits. The
token costs microseconds (SQLite keeps it in shared memory), a look at a shard costs a read, so
waiters are woken only when something did change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tidemark.clock import Clock
from tidemark.errors import Unavailable
from tidemark.persist.consensus import Consensus

T = TypeVar("T")

LOOK_EVERY = 0.005
RECHECK_EVERY = 1.0
"""Waiters look again by themselves this often, whatever the token says."""


class Watch:
    def __init__(self, consensus: Consensus, clock: Clock):
        self._consensus = consensus
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting = 0
        self._version = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def wait_for(self, ready: Callable[[], T | None], timeout: float | None = None) -> T | None:
        """What `ready` returns once it is not None; None after `timeout` seconds or `close`."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        try:
            while True:
                seen = self._version
                found = ready()
                if found is not None or self._closed:
                    return found
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    return None
                pause = RECHECK_EVERY if left is None else min(left, RECHECK_EVERY)
                with self._changed:
                    if self._version == seen:
                        self._changed.wait(pause)
        finally:
            with self._changed:
                self._waiting -= 1

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _look(self) -> None:
        token = None
        while not self._closed:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
            try:
                fresh = self._consensus.change_token()
            except Unavailable:
                fresh = None  # Waiters look for themselves, and meet the trouble if it lasts.
            if fresh != token:
                token = fresh
                with self._changed:
                    self._version += 1
                    self._changed.notify_all()
            self._clock.sleep(LOOK_EVERY)
