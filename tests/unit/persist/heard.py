"""A watcher of a consensus that remembers what it was told."""

from __future__ import annotations

import threading


class Heard:
    """Collects wakes, and waits for them."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self._came = threading.Condition()

    def __call__(self, key: str | None) -> None:
        with self._came:
            self.keys.append(key)
            self._came.notify_all()

    def wait(self, key: str | None, *, seconds: float = 120) -> bool:
        with self._came:
            return self._came.wait_for(lambda: key in self.keys, seconds)
