"""A blob that a whole process shares fairly: so many writes at a time, so many bytes a second."""

from __future__ import annotations

import threading

from tidemark.clock import Clock
from tidemark.persist.blob import Blob, FileBlob
from tidemark.persist.config import Config


class Throttled:
    """Passes everything on to `blob`; writes wait for their turn."""

    def __init__(self, blob: Blob, config: Config, clock: Clock):
        self.inner = blob
        self._clock = clock
        self._turns = threading.BoundedSemaphore(config.blob_writes)
        self._rate = config.blob_bytes_per_second
        self._lock = threading.Lock()
        self._free_at = clock.monotonic()
        self.get, self.open, self.delete = blob.get, blob.open, blob.delete
        self.list, self.uri = blob.list, blob.uri

    def set(self, key: str, value: bytes | memoryview) -> None:
        self._wait(len(value))
        with self._turns:
            self.inner.set(key, value)

    def remove_leftovers(self) -> int:
        """Delete what writers that died left half written, where a store keeps such things."""
        return self.inner.remove_leftovers() if isinstance(self.inner, FileBlob) else 0

    def _wait(self, size: int) -> None:
        """Each write books the next free stretch of time, as long as its size needs."""
        if self._rate is None:
            return
        with self._lock:
            start = max(self._free_at, self._clock.monotonic())
            self._free_at = start + size / self._rate
        pause = start - self._clock.monotonic()
        if pause > 0:
            self._clock.sleep(pause)
