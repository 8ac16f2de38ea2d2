"""Staging: updates become parts that nothing refers to yet.

What comes back is a `Staged` batch: a description that its owner appends, discards, or sends to
another process, which may append it together with others as one logical batch. Memory stays
bounded: a `Builder` writes a run of a few parts whenever enough has come together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tidemark.clock import Clock
from tidemark.errors import InvalidUsage, Unavailable
from tidemark.persist.blob import Blob
from tidemark.persist.commands import spelled
from tidemark.persist.config import Config
from tidemark.persist.machine import Machine
from tidemark.persist.merge import as_run
from tidemark.persist.names import part_name
from tidemark.persist.order import order
from tidemark.persist.part import encode_small, write_part
from tidemark.persist.state import Part
from tidemark.persist.updates import DIFF, TIME


class Staged(msgspec.Struct, frozen=True):
    """Updates that are stored but not appended; `to_bytes` is what other processes are sent."""

    shard_id: str
    runs: tuple[tuple[Part, ...], ...] = ()
    id: str = msgspec.field(default_factory=lambda: uuid4().hex)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for run in self.runs for part in run)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def at(self, time: int) -> Staged:
        """The same updates, all of them at `time`: for rows that were staged before it was known
        when they would be appended."""
        placed = {"at": time, "min_time": time, "max_time": time}
        runs = tuple(tuple(replace(part, **placed) for part in run) for run in self.runs)
        return replace(self, runs=runs)

    def of_schema(self, number: int) -> Staged:
        """The same parts, whose schema turned out to have this number."""
        runs = tuple(tuple(replace(part, schema=number) for part in run) for run in self.runs)
        return replace(self, runs=runs)

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> Staged:
        try:
            return _STAGED.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise InvalidUsage(f"not a staged batch: {error}") from error


def fuse(shard_id: str, batches: Iterable[Staged]) -> Staged:
    """One batch of all of them; they must have been staged for this shard."""
    batches = tuple(batches)
    for batch in batches:
        if batch.shard_id != shard_id:
            raise InvalidUsage(f"a batch staged for shard {batch.shard_id}, not for {shard_id}")
        for part in batch.parts:
            if part.key is not None and not part.key.startswith(f"{shard_id}/"):
                raise InvalidUsage(f"part {part.key} is not one of shard {shard_id}")
    keys = [part.key for batch in batches for part in batch.parts if part.key is not None]
    if len({batch.id for batch in batches}) < len(batches) or len(set(keys)) < len(keys):
        raise InvalidUsage(f"a batch staged for shard {shard_id} was given twice")
    return Staged(shard_id, tuple(run for batch in batches for run in batch.runs))


_STAGED = msgspec.msgpack.Decoder(Staged)


class Stager:
    """Writes the parts of one shard. Parts named before `floor` are given up."""

    def __init__(
        self,
        blob: Blob,
        shard_id: str,
        *,
        key: tuple[str, ...],
        config: Config,
        clock: Clock,
        floor: Callable[[], int],
    ):
        self.shard_id = shard_id
        self._blob = blob
        self._key = key
        self._config = config
        self._clock = clock
        self._floor = floor

    @classmethod
    def of(cls, machine: Machine, blob: Blob, key: tuple[str, ...]) -> Stager:
        return cls(
            blob,
            machine.shard_id,
            key=key,
            config=machine.config,
            clock=machine.clock,
            floor=lambda: machine.cached.floor,
        )

    def stage(self, updates: pa.Table, *, schema: int, inline: bool) -> Staged:
        """All of `updates`: as one run, or, if a merge would read and sort each part whole
        anyway, in the order they came in."""
        if not updates.num_rows:
            return Staged(self.shard_id)
        small = encode_small(updates, self._config, schema=schema) if inline else None
        if small is not None:
            return Staged(self.shard_id, ((small,),))
        ordered = updates.nbytes > self._config.row_group_bytes
        if ordered:
            updates = as_run(updates, self._key)
        parts = tuple(self.write([updates], schema=schema, ordered=ordered))
        return Staged(self.shard_id, (parts,) if ordered else tuple((part,) for part in parts))

    def write(
        self, chunks: Iterable[pa.Table], *, schema: int, ordered: bool = True
    ) -> Iterable[Part]:
        """Parts of about the configured size from a stream, in run order if it is."""
        waiting: list[pa.Table] = []
        size = 0
        for chunk in chunks:
            rows = max(1, chunk.num_rows * self._config.part_bytes // max(chunk.nbytes, 1))
            for start in range(0, chunk.num_rows, rows):
                piece = chunk.slice(start, rows)
                waiting.append(piece)
                size += piece.nbytes
                if size >= self._config.part_bytes:
                    yield self._write(waiting, size, schema, ordered)
                    waiting, size = [], 0
        if waiting:
            yield self._write(waiting, size, schema, ordered)

    def _write(self, chunks: list[pa.Table], size: int, schema: int, ordered: bool) -> Part:
        rows = sum(chunk.num_rows for chunk in chunks)
        group = max(1, rows * self._config.row_group_bytes // max(size, 1))
        # A clock that is behind must not name parts that are given up before they are written.
        name = part_name(self.shard_id, max(self._clock.now_ms(), self._floor()))
        first = order(chunks[0].slice(0, 1), self._key).at(0) if ordered else None
        return write_part(
            self._blob, name, chunks, schema=schema, first=first, row_group_rows=group
        )

    def delete(self, batch: Staged, *, used: Collection[str] = ()) -> None:
        """Delete its parts, but for those in `used`. What cannot be deleted now is garbage, and
        the floor reaches it."""
        for part in batch.parts:
            if part.key is not None and part.key not in used:
                with suppress(Unavailable):
                    self._blob.delete(part.key)


def discard(machine: Machine, stager: Stager, batch: Staged) -> None:
    """Delete a batch that was handed out, unless the shard has come to have it."""
    if any(part.key is not None for part in batch.parts):
        with suppress(Unavailable):
            stager.delete(batch, used=machine.refresh().keys)


RUN_PARTS = 4
"""How many parts of a large batch are sorted together: few runs are quick to merge."""


class Builder:
    """Collects updates of any amount into one staged batch, a part at a time."""

    def __init__(self, stager: Stager, schema: pa.Schema, number: int, config: Config):
        self._stager = stager
        self._schema = schema
        self._number = number
        self._limit = RUN_PARTS * config.part_bytes
        self._waiting: list[pa.Table] = []
        self._size = 0
        self._done: list[Staged] = []

    def add(self, updates: pa.Table) -> None:
        check_updates(self._stager.shard_id, updates, self._schema)
        self._waiting.append(updates)
        self._size += updates.nbytes
        if self._size >= self._limit:
            self._flush(inline=False)

    def finish(self) -> Staged:
        """All that was added since the last time, which is the caller's from now on."""
        self._flush(inline=not self._done)
        done, self._done = self._done, []
        return fuse(self._stager.shard_id, done)

    def discard(self) -> None:
        """Delete what was written so far; the updates are given up."""
        self._waiting, self._size = [], 0
        for batch in self._done:
            self._stager.delete(batch)
        self._done = []

    def _flush(self, *, inline: bool) -> None:
        if self._waiting:
            updates = pa.concat_tables(self._waiting)
            self._waiting, self._size = [], 0
            self._done.append(self._stager.stage(updates, schema=self._number, inline=inline))


MOST_COPIES = 2**48
"""Of one row in one update."""


def check_updates(shard_id: str, updates: pa.Table, schema: pa.Schema) -> None:
    """Refuse what is not a table of the shard's updates."""
    if not isinstance(updates, pa.Table):
        raise InvalidUsage(f"shard {shard_id} takes Arrow tables, got {type(updates).__name__}")
    if updates.schema != schema:
        raise InvalidUsage(
            f"shard {shard_id} takes updates of ({spelled(schema)}), got ({spelled(updates.schema)})"
        )
    if not updates.num_rows:
        return
    for name in (TIME, DIFF):
        if updates[name].null_count:
            raise InvalidUsage(f"shard {shard_id}: an update has no {name}")
    for field in schema:
        if not field.nullable and updates[field.name].null_count:
            raise InvalidUsage(f"shard {shard_id}: a null in {field.name}, which is not nullable")
    diffs = updates[DIFF].to_numpy()
    if len(diffs) and not -MOST_COPIES <= diffs.min() <= diffs.max() <= MOST_COPIES:
        raise InvalidUsage(f"shard {shard_id}: a _diff beyond {MOST_COPIES}; sums would overflow")
