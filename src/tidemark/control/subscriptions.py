"""The subscriptions under way: who has one, since when, and to what."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from tidemark.clock import Clock
from tidemark.control.activity import Who

T = TypeVar("T")

THREADS = 4
"""Of their own: whoever waits to read does not wait until large snapshots are read."""


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
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="subscribe")

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

    async def read(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
