"""The subscriptions under way: who has one, since when, and to what."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tidemark.clock import Clock
from tidemark.control.activity import Who


class Subscription(msgspec.Struct, frozen=True):
    """`reads` are the ids of the collections that it follows."""

    id: str
    who: Who
    cluster: str
    began_ms: int
    reads: tuple[str, ...]


class Subscriptions:
    def __init__(self, clock: Clock):
        self._clock = clock
        self._numbers = itertools.count(1)
        self._open: dict[str, Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._open.values()))

    @contextmanager
    def opened(self, who: Who, cluster: str, reads: tuple[str, ...]) -> Iterator[None]:
        made = Subscription(
            f"t{next(self._numbers)}", who, cluster, self._clock.now_ms(), tuple(reads)
        )
        self._open[made.id] = made
        try:
            yield
        finally:
            del self._open[made.id]
