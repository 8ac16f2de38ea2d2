"""The error rows of a collection, found without reading the rest of it.

A shard's state says which of its parts have error rows. A collection without any costs a look at
the state; of one that has them, only those parts are read, and again only when they change.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from tidemark.errors import DataError
from tidemark.persist import ERR, TIME, PersistClient
from tidemark.persist.part import read_part
from tidemark.persist.runs import schema_of
from tidemark.persist.state import Part, State
from tidemark.persist.updates import DIFF, between, consolidate, diff_sum, split_errors


class Found(NamedTuple):
    """One of the errors that a collection is in, and how many rows are in error."""

    message: str | None
    rows: int | None


NONE = Found(None, 0)


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
        found = self.found(as_of)
        if found.message is not None:
            raise DataError(found.message)

    def found(self, as_of: int) -> Found:
        """What `check` says, and of how many rows it could be said."""
        state = self._client.machine(self._shard_id).cached
        parts = tuple(part for part in state.parts if part.errors)
        if not parts:
            return NONE
        with self._lock:
            if parts != self._parts or self._rows is None:
                self._rows, self._parts = self._read(state, parts), parts
            rows = self._rows
        seen = consolidate(between(rows, 0, as_of + 1).select([ERR, DIFF]))
        return Found(seen[ERR][0].as_py(), diff_sum(seen)) if seen.num_rows else NONE

    def _read(self, state: State, parts: tuple[Part, ...]) -> pa.Table:
        read = partial(read_part, self._client.blob, schema=schema_of(state), columns=[])
        found = pa.concat_tables([read(part) for part in parts])
        return split_errors(found)[1].select([ERR, TIME, DIFF])
