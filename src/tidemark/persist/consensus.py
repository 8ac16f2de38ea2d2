"""Consensus: where a shard's state lives. A linearizable log of versions per key.

`compare_and_set` at sequence 0 succeeds only on an empty log, otherwise only at exactly the
head's sequence + 1. Losing is a value (False), never an error. An error that may hide a success
is `Indeterminate`; the caller looks at the head before it tries again. Sequence numbers are
0 to 2^63 - 1. `sqlite.py` and `postgres.py` have the durable ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import structlog

from tidemark.errors import InvalidUsage

log = structlog.get_logger("persist")

Wake = Callable[[str | None], None]
"""Called with the key that was committed to, or None if any may have been."""


class Versioned(NamedTuple):
    seqno: int
    data: bytes


Logs = dict[str, list[Versioned]]
"""Versions by key, oldest first."""


class Consensus(Protocol):
    def head(self, key: str) -> Versioned | None: ...

    def compare_and_set(self, key: str, new: Versioned) -> bool: ...

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        """`compare_and_set` of each, in few waits for the disk; they win or lose one by one.

        An error leaves all of them unsure: any may have been done.
        """
        ...

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        """Versions from `start` on, oldest first, at most `limit` of them."""
        ...

    def truncate(self, key: str, seqno: int) -> int:
        """Drop versions before `seqno`, which must not be beyond the head."""
        ...

    def keys(self) -> list[str]: ...

    def capture(self) -> Logs:
        """Every log as all of them were at one moment: no commit is in it without those that were
        acknowledged before it began, whatever their keys."""
        ...

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` soon after anyone commits, until the returned function is called.

        Best effort: a wake may be missed or come for nothing, so waiters look again by themselves
        now and then. It comes from any thread, which it must not keep, and must not raise.
        """
        ...

    def close(self) -> None:
        """Give up connections and threads; what is stored stays."""
        ...


def gathered(rows: Iterable[tuple[str, int, bytes]]) -> Logs:
    """Rows of a table of all versions, which are in order, by key."""
    logs: Logs = {}
    for key, seqno, data in rows:
        logs.setdefault(key, []).append(Versioned(seqno, data))
    return logs


class MemConsensus:
    """The in-memory twin, for unit tests."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Versioned]] = {}
        self._lock = threading.Lock()
        self._watchers = Watchers()

    def head(self, key: str) -> Versioned | None:
        with self._lock:
            log = self._logs.get(key)
            return log[-1] if log else None

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        check_seqno(key, new.seqno)
        with self._lock:
            log = self._logs.setdefault(key, [])
            if new.seqno != (log[-1].seqno + 1 if log else 0):
                return False
            log.append(new)
        self._watchers.wake(key)
        return True

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        for key, new in news:
            check_seqno(key, new.seqno)
        return [self.compare_and_set(key, new) for key, new in news]

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        with self._lock:
            found = [version for version in self._logs.get(key, ()) if version.seqno >= start]
            return found[:limit]

    def truncate(self, key: str, seqno: int) -> int:
        with self._lock:
            log = self._logs.get(key, [])
            check_truncate(key, seqno, log[-1].seqno if log else None)
            kept = [version for version in log if version.seqno >= seqno]
            self._logs[key] = kept
            return len(log) - len(kept)

    def keys(self) -> list[str]:
        with self._lock:
            return sorted(key for key, log in self._logs.items() if log)

    def capture(self) -> Logs:
        with self._lock:
            return {key: [*self._logs[key]] for key in sorted(self._logs) if self._logs[key]}

    def watch(self, wake: Wake) -> Callable[[], None]:
        return self._watchers.add(wake)

    def close(self) -> None:
        pass


class Watchers:
    """Those who want to be woken; `first` and `last` are told when someone begins and ends."""

    def __init__(
        self, *, first: Callable[[], None] | None = None, last: Callable[[], None] | None = None
    ):
        self._wakes: tuple[Wake, ...] = ()
        self._first = first
        self._last = last
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._wakes)

    def add(self, wake: Wake) -> Callable[[], None]:
        def once(key: str | None) -> None:  # Its own object, even if `wake` is added twice.
            wake(key)

        with self._lock:
            self._wakes += (once,)
            if len(self._wakes) == 1 and self._first is not None:
                try:
                    self._first()
                except BaseException:
                    self._wakes = ()
                    raise

        def stop() -> None:
            with self._lock:
                if once not in self._wakes:
                    return
                self._wakes = tuple(other for other in self._wakes if other is not once)
                if not self._wakes and self._last is not None:
                    self._last()

        return stop

    def clear(self) -> None:
        with self._lock:
            self._wakes = ()
            if self._last is not None:
                self._last()

    def wake(self, *keys: str | None) -> None:
        for wake in self._wakes:
            for key in keys:
                try:
                    wake(key)
                except Exception:
                    log.exception("a watcher failed", key=key)


def check_seqno(key: str, seqno: int) -> None:
    if not 0 <= seqno < 2**63:
        raise InvalidUsage(f"cannot set {key} at {seqno}: not in 0 to 2^63 - 1")


def check_truncate(key: str, seqno: int, head: int | None) -> None:
    if head is None or seqno > head:
        raise InvalidUsage(f"cannot truncate {key} to {seqno}: its head is at {head}")
