"""The clock seam: nothing outside this module asks the operating system what time it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

log = structlog.get_logger("clock")

SLACK_MS = 1_000
"""How far the wall clock may be behind before it counts as set back."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever go up; for measuring and for deadlines."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to; `sleep` moves it, and `step` sets it to another time
    without any time passing."""

    def __init__(self, now_ms: int = 1_000):
        self._now_ms = now_ms
        self._elapsed_ms = now_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(int(seconds * 1000) or 1)

    def advance(self, ms: int) -> None:
        with self._lock:
            self._now_ms += ms
            self._elapsed_ms += ms

    def step(self, ms: int) -> None:
        with self._lock:
            self._now_ms += ms


class Onward:
    """The clock that timestamps are taken from: never behind a time that was `reached`.

    A wall clock that is set forward takes the timeline with it. When it is set back, what was given
    out stays: time goes on from there, at half speed, until the wall clock has caught up.

        wall clock   10:00   12:00 (set forward)   10:01 (set back)   10:03   ...   14:00
        here         10:00   12:00                 12:00              12:01   ...   14:00
    """

    def __init__(self, clock: Clock, reached: Callable[[], int]):
        self._clock = clock
        self._reached = reached
        self._ahead: tuple[float, int] | None = None

    def now_ms(self) -> int:
        wall, reached = self._clock.now_ms(), self._reached()
        if reached <= wall + SLACK_MS:
            if self._ahead is not None:
                self._ahead = None
                log.info("the clock has caught up with the timeline")
            return wall
        now = self._clock.monotonic()
        if self._ahead is None:
            self._ahead = now, reached
            log.warning(
                "the clock is behind the timeline, as if it was set back: timestamps go on from"
                " where they were, at half speed, until it has caught up",
                behind_seconds=(reached - wall) // 1000,
            )
        began, base = self._ahead
        return max(reached, base + int((now - began) * 500))

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
