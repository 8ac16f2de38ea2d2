"""Writing to a shard: stage updates as parts, then append them with one compare-and-set."""

from __future__ import annotations

import threading
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import state as commands
from tidemark.persist.blob import Blob
from tidemark.persist.machine import Machine
from tidemark.persist.part import write_parts
from tidemark.persist.state import Appended, Part, UpperMismatch
from tidemark.persist.updates import DIFF, ERR, TIME, between, row_names

INLINE_BUDGET = 128 * 1024
"""Inline bytes that one shard's state may carry; beyond it even small parts go to Blob."""


class WriteHandle:
    """Appends to one shard. Cheap to open; registers nothing until the first append."""

    def __init__(
        self, machine: Machine, blob: Blob, *, schema: pa.Schema, key: tuple[str, ...]
    ) -> None:
        self.shard_id = machine.shard_id
        self.schema = schema
        self._machine = machine
        self._blob = blob
        self._key = key
        self._writer = uuid4().hex
        self._registered = False
        # The token in the state is that of the writer's last append, so there is one at a time.
        self._lock = threading.Lock()
        missing = [name for name in key if name not in schema.names]
        if missing:
            raise InvalidUsage(f"shard {self.shard_id}: key columns {missing} are not in its rows")

    @property
    def upper(self) -> Frontier:
        """The last upper seen; never beyond the true one."""
        return self._machine.cached.upper

    def fetch_upper(self) -> Frontier:
        """The true upper, linearized with all appends."""
        return self._machine.refresh().upper

    def stage(self, updates: pa.Table) -> tuple[Part, ...]:
        """Store updates without appending them; `append` or `discard` what comes back."""
        self._check_schema(updates)
        for name in (TIME, DIFF):
            if updates[name].null_count:
                raise InvalidUsage(f"shard {self.shard_id}: an update has no {name}")
        inline = self._machine.cached.inline_bytes < INLINE_BUDGET
        return write_parts(self._blob, self.shard_id, updates, key=self._key, inline=inline)

    def discard(self, parts: tuple[Part, ...]) -> None:
        for part in parts:
            if part.key is not None:
                self._blob.delete(part.key)

    def compare_and_append(
        self, updates: pa.Table | tuple[Part, ...] | None, *, lower: Frontier, upper: Frontier
    ) -> Appended | UpperMismatch:
        """Append as the batch [lower, upper) if and only if the shard's upper is `lower`.

        `updates` is a table, parts that were staged before (kept by the caller if the append
        loses), or None for progress alone.
        """
        if not isinstance(updates, pa.Table):
            return self._append(updates or (), lower, upper)
        self._check_bounds(updates, lower, upper)
        # Losing is cheap to foresee and dear to find out after writing parts.
        if lower < self.upper:
            return UpperMismatch(self.fetch_upper())
        self._register()
        parts = self.stage(updates)
        # After an error the parts stay: the append may have happened.
        outcome = self._append(parts, lower, upper)
        if isinstance(outcome, UpperMismatch):
            self.discard(parts)
        return outcome

    def append(
        self, updates: pa.Table, *, lower: Frontier, upper: Frontier
    ) -> Appended | UpperMismatch:
        """For writers of identical data: what is already there is cut off, a gap is a mismatch."""
        self._check_bounds(updates, lower, upper)
        while True:
            current = self.fetch_upper()
            if upper <= current:
                return Appended(current)
            if current < lower:
                return UpperMismatch(current)
            assert current.time is not None
            outcome = self.compare_and_append(
                between(updates, current.time, None), lower=current, upper=upper
            )
            if isinstance(outcome, Appended):
                return outcome

    def advance_upper(self, upper: Frontier) -> Frontier:
        """Move the upper to at least `upper` with no data."""
        current = self.fetch_upper()
        while current < upper:
            outcome = self._append((), current, upper)
            current = outcome[0]
        return current

    def _append(
        self, parts: tuple[Part, ...], lower: Frontier, upper: Frontier
    ) -> Appended | UpperMismatch:
        self._register()
        token = uuid4().hex
        with self._lock:
            return self._machine.apply(
                lambda state: commands.compare_and_append(
                    state,
                    parts,
                    lower=lower,
                    upper=upper,
                    writer=self._writer,
                    token=token,
                    now_ms=self._machine.clock.now_ms(),
                )
            )

    def _check_schema(self, updates: pa.Table) -> None:
        if updates.schema != self.schema:
            raise InvalidUsage(
                f"shard {self.shard_id} takes updates of ({_spelled(self.schema)}), "
                f"got ({_spelled(updates.schema)})"
            )

    def _check_bounds(self, updates: pa.Table, lower: Frontier, upper: Frontier) -> None:
        self._check_schema(updates)
        times = pc.min_max(updates[TIME]).as_py().values()
        commands.check_bounds(
            self.shard_id, lower, upper, [time for time in times if time is not None]
        )

    def _register(self) -> None:
        if not self._registered:
            schema = self.schema.serialize().to_pybytes()
            self._machine.apply(lambda state: commands.register_schema(state, schema, self._key))
            self._registered = True


def _spelled(schema: pa.Schema) -> str:
    names = [*row_names(schema), TIME, DIFF, ERR]
    return ", ".join(f"{name} {schema.field(name).type}" for name in names if name in schema.names)
