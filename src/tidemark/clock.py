"""The clock seam: nothing outside this module asks the operating system what time it is."""

from __future__ import annotations

import threading
import time
from typing import Protocol


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
    """A clock that moves only when told to; `sleep` moves it."""

    def __init__(self, now_ms: int = 1_000):
        self._now_ms = now_ms
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(int(seconds * 1000) or 1)

    def advance(self, ms: int) -> None:
        with self._lock:
            self._now_ms += ms


SYSTEM_CLOCK = SystemClock()
