"""The error rows of a collection, found without reading the rest of it.

A shard's state says which of its parts have error rows. A collection without any costs a look at
the state; of one that has them, only those parts are read, and again only when they change.
"""

from __future__ import annotations

import threading
from functools import partial

import pyarrow as pa

from tidemark.errors import DataError
from tidemark.persist import ERR, TIME, PersistClient
from tidemark.persist.part import read_part
from tidemark.persist.runs import schema_of
from tidemark.persist.state import Part, State
from tidemark.persist.updates import DIFF, between, consolidate, split_errors


class Errors:
    """The error rows of a shard, read again only when parts with errors come or go."""

    def __init__(self, client: PersistClient, shard_id: str):
        self._client = client
        self._shard_id = shard_id
        self._parts: tuple[Part, ...] = ()
        self._rows: pa.Table | None = None
        self._lock = threading.Lock()

    def check(self, as_of: int) -> None:
        """Raise the error that the collection is in at `as_of`, which this process has seen the
        shard complete to."""
        error = self.message(as_of)
        if error is not None:
            raise DataError(error)

    def message(self, as_of: int) -> str | None:
        """What `check` says; None if there is nothing to say."""
        state = self._client.machine(self._shard_id).cached
        parts = tuple(part for part in state.parts if part.errors)
        if not parts:
            return None
        with self._lock:
            if parts != self._parts or self._rows is None:
                self._rows, self._parts = self._read(state, parts), parts
            rows = self._rows
        seen = consolidate(between(rows, 0, as_of + 1).select([ERR, DIFF]))
        return seen[ERR][0].as_py() if seen.num_rows else None

    def _read(self, state: State, parts: tuple[Part, ...]) -> pa.Table:
        read = partial(read_part, self._client.blob, schema=schema_of(state), columns=[])
        found = pa.concat_tables([read(part) for part in parts])
        return split_errors(found)[1].select([ERR, TIME, DIFF])
