"""Parts read through a small cache: several views on one replica read the same new batch."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict

import pyarrow as pa

from tidemark.errors import Corruption
from tidemark.persist.blob import Blob
from tidemark.persist.config import Config
from tidemark.persist.filters import Predicate, may_match
from tidemark.persist.part import read_part
from tidemark.persist.state import Part


class PartSource:
    def __init__(self, blob: Blob, config: Config):
        self.blob = blob
        self._config = config
        self._cache: OrderedDict[tuple, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(
        self,
        part: Part,
        schema: pa.Schema,
        *,
        columns: list[str] | None = None,
        clauses: list[list[Predicate]] | None = None,
    ) -> pa.Table:
        """The part's updates, as `read_part` gives them; none if its statistics rule it out."""
        if clauses:
            if may_match(part, clauses, schema):
                return read_part(self.blob, part, schema, columns=columns, clauses=clauses)
            self._audit(part, schema, clauses)
            return schema.empty_table()
        chosen = tuple(columns) if columns is not None else None
        name = (part.key or part.inline, part.at, schema, chosen)
        with self._lock:
            table = self._cache.get(name)
            if table is not None:
                self._cache.move_to_end(name)
                return table
        table = read_part(self.blob, part, schema, columns=columns)
        if table.nbytes <= self._config.cache_bytes // 8:
            with self._lock:
                if name not in self._cache:
                    self._cache[name] = table
                    self._size += table.nbytes
                while self._size > self._config.cache_bytes:
                    _, evicted = self._cache.popitem(last=False)
                    self._size -= evicted.nbytes
        return table

    def _audit(self, part: Part, schema: pa.Schema, clauses: list[list[Predicate]]) -> None:
        """Now and then read what was skipped: statistics that lie would lose rows silently."""
        # Which parts is up to their names, so that a finding can be repeated.
        chosen = zlib.crc32((part.key or "").encode()) % 10_000 < self._config.audit * 10_000
        if chosen and read_part(self.blob, part, schema, clauses=clauses).num_rows:
            raise Corruption(
                f"part {part.key} was skipped for the filter {clauses}, but has rows that pass",
                hint="its statistics are wrong: run `tidemark shard fsck`, and read unfiltered",
            )
