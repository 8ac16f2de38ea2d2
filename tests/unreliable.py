"""A blob and a consensus that fail on demand or at random, before or after the deed.

`before` fails without doing it, `after` does it and fails all the same: the error is the same
`Indeterminate`, so that nobody can tell. `refuse` fails determinately, as do all reads that fail.
`delay` only takes its time. What is planned with `fail` comes first, in order; what comes after
that follows the given chances, drawn from one seed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from tidemark.errors import Determinate, Indeterminate
from tidemark.persist.blob import Blob
from tidemark.persist.consensus import Consensus, Logs, Versioned, Wake

T = TypeVar("T")

WAYS = ("before", "after", "refuse", "delay")


@dataclass(frozen=True)
class Chances:
    """How likely each trouble is, for each call; the rest goes well."""

    before: float = 0.0
    after: float = 0.0
    refuse: float = 0.0
    delay: float = 0.0
    longest_delay: float = 0.002

    def draw(self, chance: random.Random) -> str | None:
        drawn = chance.random()
        for way in WAYS:
            drawn -= getattr(self, way)
            if drawn < 0:
                return way
        return None


RELIABLE = Chances()
FLAKY = Chances(before=0.1, after=0.1, refuse=0.1, delay=0.1)


class _Faults:
    """The plan and the dice, shared by all calls of one wrapper."""

    def __init__(self, seed: int, chances: Chances):
        self.seed = seed
        self._chances = chances
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.plans: dict[str, list[tuple[str, Callable[[], None] | None]]] = {}

    def plan(self, call: str, how: str, times: int, meanwhile: Callable[[], None] | None) -> None:
        assert how in WAYS, how
        with self._lock:
            self.plans.setdefault(call, []).extend([(how, meanwhile)] * times)

    def planned(self, call: str) -> bool:
        return bool(self.plans.get(call))

    def write(self, call: str, act: Callable[[], T]) -> T:
        how, meanwhile = self._next(call)
        if how == "refuse":
            raise Determinate("surely not done")
        if how in (None, "delay"):
            return act()
        if how == "after":
            act()
        if meanwhile is not None:
            meanwhile()
        raise Indeterminate("done or not, who knows")

    def read(self, call: str, act: Callable[[], T]) -> T:
        how, meanwhile = self._next(call)
        if how in (None, "delay"):
            return act()
        if meanwhile is not None:
            meanwhile()
        raise Determinate("cannot read now")

    def _next(self, call: str) -> tuple[str | None, Callable[[], None] | None]:
        with self._lock:
            if plan := self.plans.get(call):
                return plan.pop(0)
            how = self._chances.draw(self._chance)
            pause = self._chance.random() * self._chances.longest_delay
        if how == "delay":
            time.sleep(pause)
        return how, None


class UnreliableConsensus:
    def __init__(self, inner: Consensus, *, seed: int = 0, chances: Chances = RELIABLE):
        self._inner = inner
        self._faults = _Faults(seed, chances)
        self._blind = 0

    def fail(
        self,
        how: str,
        *,
        times: int = 1,
        meanwhile: Callable[[], None] | None = None,
        call: str = "compare_and_set",
    ) -> None:
        """Plan the next `times` calls; `meanwhile` runs between the deed and its error.

        `head` and `truncate` in place of `how` refuse those; heads fail only once the planned
        commits have failed, which is when they matter.
        """
        if how == "head":
            self._blind += times
        elif how == "truncate":
            self._faults.plan("truncate", "refuse", times, meanwhile)
        else:
            self._faults.plan(call, how, times, meanwhile)

    def head(self, key: str) -> Versioned | None:
        if self._blind and not self._faults.planned("compare_and_set"):
            self._blind -= 1
            raise Determinate("cannot read now")
        return self._faults.read("head", lambda: self._inner.head(key))

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        act = lambda: self._inner.compare_and_set(key, new)  # noqa: E731
        return self._faults.write("compare_and_set", act)

    def compare_and_set_all(self, news: Sequence[tuple[str, Versioned]]) -> list[bool]:
        act = lambda: self._inner.compare_and_set_all(news)  # noqa: E731
        return self._faults.write("compare_and_set_all", act)

    def scan(self, key: str, start: int = 0, limit: int | None = None) -> list[Versioned]:
        return self._faults.read("scan", lambda: self._inner.scan(key, start, limit))

    def truncate(self, key: str, seqno: int) -> int:
        return self._faults.write("truncate", lambda: self._inner.truncate(key, seqno))

    def keys(self) -> list[str]:
        return self._faults.read("keys", self._inner.keys)

    def capture(self) -> Logs:
        return self._faults.read("capture", self._inner.capture)

    def watch(self, wake: Wake) -> Callable[[], None]:
        return self._inner.watch(wake)

    def close(self) -> None:
        self._inner.close()


class UnreliableBlob:
    def __init__(self, inner: Blob, *, seed: int = 0, chances: Chances = RELIABLE):
        self._inner = inner
        self._faults = _Faults(seed, chances)

    def fail(
        self,
        how: str,
        *,
        times: int = 1,
        meanwhile: Callable[[], None] | None = None,
        call: str = "set",
    ) -> None:
        """Plan the next `times` calls; `meanwhile` runs between the deed and its error."""
        self._faults.plan(call, how, times, meanwhile)

    def get(self, key: str) -> bytes | None:
        return self._faults.read("get", lambda: self._inner.get(key))

    def open(self, key: str) -> pa.NativeFile | None:
        return self._faults.read("open", lambda: self._inner.open(key))

    def set(self, key: str, value: bytes) -> None:
        self._faults.write("set", lambda: self._inner.set(key, value))

    def delete(self, key: str) -> int | None:
        return self._faults.write("delete", lambda: self._inner.delete(key))

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        # All at once: a listing that breaks off in the middle is the caller's to begin again.
        yield from self._faults.read("list", lambda: [*self._inner.list(prefix)])

    def uri(self, key: str) -> str:
        return self._inner.uri(key)
