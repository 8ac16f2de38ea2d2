"""The arrangements of a replica: one per (shard, key, order), shared by the dataflows that use it."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

from tidemark.persist import PersistClient
from tidemark.persist.arrange import Arrangement
from tidemark.persist.cache import Cache

Name = tuple[str, tuple[str, ...], tuple[str, ...]]


class Arrangements:
    def __init__(self, client: PersistClient, folder: Path):
        self._client = client
        # What an earlier process left is used again, if it is still what it says.
        self._cache = Cache(folder, client.config)
        self._lock = threading.Lock()
        self._arrangements: dict[Name, Arrangement] = {}

    def acquire(
        self,
        shard_id: str,
        key: tuple[str, ...],
        *,
        holder: str,
        as_of: int,
        order: tuple[str, ...] = (),
        schema: pa.Schema | None = None,
    ) -> Arrangement:
        """The shard by `key`, readable by `holder` from `as_of` on."""
        name = (shard_id, key, order)
        with self._lock:
            arrangement = self._arrangements.get(name)
            if arrangement is None:
                arrangement = Arrangement(
                    self._client, shard_id, key, cache=self._cache, order=order, schema=schema
                )
                self._arrangements[name] = arrangement
        arrangement.hold(holder, as_of)
        return arrangement

    def keys_of(self, shard_id: str) -> list[tuple[str, ...]]:
        """The keys by which somebody keeps the shard, and could look it up by now."""
        with self._lock:
            return [
                key
                for (shard, key, order), arrangement in self._arrangements.items()
                if shard == shard_id and not order and arrangement.is_loaded
            ]

    def borrow(
        self, shard_id: str, key: tuple[str, ...], *, holder: str, as_of: int
    ) -> Arrangement | None:
        """An arrangement that is there and can be read at `as_of`; never a new one."""
        with self._lock:
            found = self._arrangements.get((shard_id, key, ()))
            if found is None or not found.is_loaded or as_of < found.base_as_of:
                return None
            found.hold(holder, as_of)
            return found

    def release(self, arrangement: Arrangement, holder: str) -> None:
        with self._lock:
            if arrangement.release(holder):
                for name, known in list(self._arrangements.items()):
                    if known is arrangement:
                        del self._arrangements[name]

    def describe(self) -> list[tuple[str, str, str | None, int]]:
        with self._lock:
            return [
                (shard, ", ".join(key), ", ".join(order) or None, arrangement.rows)
                for (shard, key, order), arrangement in self._arrangements.items()
            ]
