"""Parts read through a small cache: several views on one replica read the same new batch."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa

from tidemark.persist.blob import Blob
from tidemark.persist.part import read_part
from tidemark.persist.state import Part

CACHE_BYTES = 64 * 1024 * 1024


class PartSource:
    def __init__(self, blob: Blob, cache_bytes: int = CACHE_BYTES):
        self.blob = blob
        self._limit = cache_bytes
        self._cache: OrderedDict[str | bytes, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(self, part: Part, schema: pa.Schema) -> pa.Table:
        name = part.key or part.inline
        assert name is not None
        with self._lock:
            table = self._cache.get(name)
            if table is not None:
                self._cache.move_to_end(name)
                return table
        table = read_part(self.blob, part, schema)
        if table.nbytes <= self._limit // 8:
            with self._lock:
                if name not in self._cache:
                    self._cache[name] = table
                    self._size += table.nbytes
                while self._size > self._limit:
                    _, evicted = self._cache.popitem(last=False)
                    self._size -= evicted.nbytes
        return table
