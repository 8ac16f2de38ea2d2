"""Writing to a shard: stage updates as parts, then append them with one compare-and-set."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from uuid import uuid4

import pyarrow as pa

from tidemark.errors import Fenced, Indeterminate, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.ipc import encode_schema
from tidemark.persist import commands
from tidemark.persist.commands import Appended, SchemaMismatch, UpperMismatch, check_frontiers
from tidemark.persist.machine import Machine, Step
from tidemark.persist.runs import schema_of
from tidemark.persist.source import PartSource
from tidemark.persist.staging import Builder, Staged, Stager, check_updates, discard, fuse
from tidemark.persist.state import Batch, State
from tidemark.persist.updates import between, concat, row_names, time_bounds, updates_schema

Appendable = pa.Table | Staged | Sequence[Staged] | None

GIVEN = "given:"
"""How tokens and names of writers begin that callers chose."""

FOR_GOOD = 2**62


class WriteHandle:
    """Appends to one shard. Cheap to open; registers nothing until the first write."""

    def __init__(
        self,
        machine: Machine,
        parts: PartSource,
        *,
        schema: pa.Schema,
        key: tuple[str, ...],
        name: str | None = None,
        rendition: int = 0,
        log: str = "",
    ) -> None:
        self.shard_id = machine.shard_id
        self.schema = schema
        self._machine = machine
        self._parts = parts
        self.key = key
        self._stager = Stager.of(machine, parts.blob, key)
        self._writer = uuid4().hex if name is None else f"{GIVEN}{name}"
        self._lasting = name is not None
        self._rendition = rendition
        self._log = log
        self._tokens = count()
        self._number: int | None = None
        # The token in the state is that of the writer's last append, so there is one at a time.
        self._lock = threading.Lock()
        missing = [name for name in key if name not in row_names(schema)]
        if missing:
            raise InvalidUsage(f"shard {self.shard_id}: key columns {missing} are not in its rows")

    @property
    def upper(self) -> Frontier:
        """The last upper seen; never beyond the true one."""
        return self._machine.cached.upper

    def fetch_upper(self) -> Frontier:
        """The true upper, linearized with all appends."""
        return self._machine.refresh().upper

    @property
    def last_token(self) -> str | None:
        """The token that this writer, or the last of its name, gave its last append."""
        mine = self._machine.refresh().writers.get(self._writer)
        return mine.token.removeprefix(GIVEN) if mine is not None else None

    def stage(self, updates: pa.Table) -> Staged:
        """Store updates without appending them; append or discard what comes back."""
        check_updates(self.shard_id, updates, self.schema)
        return self._stage(updates)

    def builder(self) -> Builder:
        """Stages any amount of updates in bounded memory."""
        return Builder(self._stager, self.schema, self.register(), self._machine.config)

    def discard(self, batch: Staged) -> None:
        discard(self._machine, self._stager, batch)

    def compare_and_append(
        self,
        updates: Appendable,
        *,
        lower: Frontier,
        upper: Frontier,
        token: str | None = None,
        leading: tuple[str, ...] | None = None,
    ) -> Appended | UpperMismatch:
        """Append as the batch [lower, upper) if and only if the shard's upper is `lower`.

        `updates` is a table, batches staged before here or elsewhere (kept by the caller if the
        append loses or fails), or None for progress alone. A caller that is left unsure by
        `Indeterminate` may repeat its last append with the same `token`: it happens once.

        With `leading`, the shards that follow this one are complete to `upper` by this very append,
        but for the ones that it names: they are when they have been appended to themselves.
        """
        token = self._token(token)
        check_frontiers(self.shard_id, lower, upper)
        if not isinstance(updates, pa.Table):
            staged = fuse(self.shard_id, self._staged(updates))
            self._check_there(staged)
            return self._append(staged, lower, upper, token, leading)
        self._check_bounds(updates, lower, upper)
        # Losing is cheap to foresee and dear to find out after writing parts.
        if not token.startswith(GIVEN) and lower < self.upper:
            return UpperMismatch(self.fetch_upper())
        staged = self._stage(updates)
        # After another error the parts stay: the append may have happened.
        try:
            outcome = self._append(staged, lower, upper, token, leading)
        except Fenced:
            self.discard(staged)
            raise
        if isinstance(outcome, UpperMismatch) or token.startswith(GIVEN):
            self.discard(staged)  # It lost, or its first attempt had succeeded.
        return outcome

    def append(
        self, updates: pa.Table | Staged, *, lower: Frontier, upper: Frontier
    ) -> Appended | UpperMismatch:
        """For writers of identical data: what is already there is cut off, a gap is a mismatch.

        A staged batch stays its owner's, who discards it when nobody will append it any more.
        """
        check_frontiers(self.shard_id, lower, upper)
        if isinstance(updates, Staged):
            if self.fetch_upper() == lower:
                outcome = self.compare_and_append(updates, lower=lower, upper=upper)
                if isinstance(outcome, Appended):
                    return outcome
            return self.append(self._read_staged(updates), lower=lower, upper=upper)
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
        check_frontiers(self.shard_id, upper)
        current = self.fetch_upper()
        while current < upper:
            outcome = self._append(Staged(self.shard_id), current, upper, self._token(None))
            current = outcome[0]
        return current

    def progress(
        self, lower: Frontier, upper: Frontier, leading: tuple[str, ...] | None = None
    ) -> Step[Appended | UpperMismatch]:
        """Progress from `lower` to `upper` with no data, for `apply_together`."""
        self.register()
        batch = Batch.of(lower, upper, Frontier.MIN, ())
        return self._step(batch, self._token(None), leading)

    def follow(self, log_id: str) -> None:
        """Leave it to a log to say how far this shard is complete: whoever appends to the log
        (`leading`) also appends here what there is for this shard, before the next one."""
        self.register()  # It may be read before anything is appended.
        self._machine.apply("follow", lambda state: commands.follow(state, log_id))
        self._log = log_id

    def evolve_schema(self, schema: pa.Schema) -> SchemaMismatch | None:
        """Go on with rows of `schema`, which has more nullable columns at the end.

        None if it is done; a mismatch if someone else gave the shard another schema first.
        """
        updates = updates_schema(schema)
        expected, encoded = self.register(), encode_schema(updates)
        outcome = self._machine.apply(
            "evolve_schema", lambda state: commands.evolve_schema(state, expected, encoded)
        )
        if isinstance(outcome, SchemaMismatch):
            return outcome
        self.schema, self._number = updates, outcome
        return None

    def expire(self) -> None:
        """Leave politely: the shard forgets this writer. A crash does the same an hour later."""
        self._machine.apply(
            "expire_writer", lambda state: commands.expire_writer(state, self._writer)
        )

    def register(self) -> int:
        """Make the schema known; its number in the shard's state."""
        if self._number is None:
            encoded = encode_schema(self.schema)
            self._number = self._machine.apply(
                "register_schema",
                lambda state: commands.register_schema(state, encoded, self.key),
            )
        return self._number

    def _stage(self, updates: pa.Table) -> Staged:
        number = self.register()
        inline = self._machine.cached.inline_bytes < self._machine.config.inline_total
        return self._stager.stage(updates, schema=number, inline=inline)

    def _append(
        self,
        staged: Staged,
        lower: Frontier,
        upper: Frontier,
        token: str,
        leading: tuple[str, ...] | None = None,
    ) -> Appended | UpperMismatch:
        self.register()
        flushed = self._flush_inline(staged)
        batch = Batch.of(lower, upper, Frontier.MIN, flushed.runs)
        clock, config = self._machine.clock, self._machine.config
        begun = clock.now_ms()
        try:
            with self._lock:
                step = self._step(batch, token, leading)
                outcome = self._machine.apply(step.command, step.apply)
        except Fenced:
            if flushed is not staged:
                self.discard(flushed)
            raise
        if isinstance(outcome, UpperMismatch):
            if clock.now_ms() > begun + config.writer_lease_ms:
                # So long asleep that even a success would be forgotten by now.
                raise Indeterminate(f"an append to shard {self.shard_id} took too long to tell")
            if flushed is not staged:
                self.discard(flushed)
        return outcome

    def _step(
        self, batch: Batch, token: str, leading: tuple[str, ...] | None
    ) -> Step[Appended | UpperMismatch]:
        clock, lease_ms = self._machine.clock, self._machine.config.writer_lease_ms

        def append(state: State) -> tuple[State, Appended | UpperMismatch]:
            return commands.compare_and_append(
                state,
                batch,
                writer=self._writer,
                token=token,
                expires_ms=FOR_GOOD if self._lasting else clock.now_ms() + lease_ms,
                rendition=self._rendition,
                leading=leading,
                log=self._log,
            )

        return Step(self._machine, "append", append)

    def _flush_inline(self, staged: Staged) -> Staged:
        """Many small batches appended as one would swell the state: they become one part."""
        inline = [part for part in staged.parts if part.inline is not None]
        size = sum(part.size for part in inline)
        if len(inline) < 2 or size < self._machine.config.inline_bytes:
            return staged
        # They may have been staged by others, under a later schema than this writer's.
        state = self._machine.refresh()
        schema, number = schema_of(state), len(state.schemas) - 1
        updates = concat([self._parts.read(part, schema) for part in inline], schema)
        small = self._stager.stage(updates, schema=number, inline=False)
        kept = tuple(run for run in staged.runs if all(part.inline is None for part in run))
        return Staged(self.shard_id, kept + small.runs)

    def _token(self, given: str | None) -> str:
        """The caller's token, or one of our own that no caller's can equal."""
        if given is None:
            return str(next(self._tokens))
        if not isinstance(given, str):
            raise InvalidUsage(f"a token is a string, got {given!r}")
        return f"{GIVEN}{given}"

    def _staged(self, updates: Staged | Sequence[Staged] | None) -> tuple[Staged, ...]:
        if updates is None:
            return ()
        given = (updates,) if isinstance(updates, Staged) else updates
        if isinstance(given, list | tuple) and all(isinstance(one, Staged) for one in given):
            return tuple(given)
        raise InvalidUsage(
            f"shard {self.shard_id} takes an Arrow table, staged batches or None, "
            f"got {type(updates).__name__}"
        )

    def _check_there(self, staged: Staged) -> None:
        """A batch that was discarded, or staged elsewhere, must not become part of the shard."""
        self.register()
        for part in staged.parts:
            if part.schema >= len(self._machine.cached.schemas):
                raise InvalidUsage(
                    f"shard {self.shard_id}: a batch was staged under an unknown schema",
                    hint="it was staged in another place; stage the updates here",
                )
            if part.key is None:
                continue
            file = self._parts.blob.open(part.key)
            if file is None:
                raise InvalidUsage(
                    f"part {part.key} of a staged batch is not there: it was discarded, or staged "
                    "in another place",
                    hint="stage the updates again; nothing was appended",
                )
            file.close()

    def _read_staged(self, batch: Staged) -> pa.Table:
        if any(part.schema != self.register() for part in batch.parts):
            raise InvalidUsage(
                f"shard {self.shard_id}: the batch was staged under another schema",
                hint="append it with a writer of that schema",
            )
        return concat([self._parts.read(part, self.schema) for part in batch.parts], self.schema)

    def _check_bounds(self, updates: pa.Table, lower: Frontier, upper: Frontier) -> None:
        check_updates(self.shard_id, updates, self.schema)
        times = list(time_bounds(updates)) if updates.num_rows else []
        commands.check_bounds(self.shard_id, lower, upper, times)
