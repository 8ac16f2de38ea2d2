"""Batches that Spark's tasks have staged, appended to a shard by the driver.

Rows without `_time` come at the time of their append: the shard's upper, or the wall clock if it
is further. Updates with `_time` come when they say; the shard must not be complete there yet.

A *token* makes an append happen once, however often it is repeated: the shard remembers the last
token of each named writer in the same commit as the data. A stream gives itself and its batch.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemark.control.catalog import is_ours
from tidemark.errors import Fenced, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.ipc import encode_schema
from tidemark.persist import Appended, PersistClient, Staged, WriteHandle
from tidemark.persist.runs import schema_of
from tidemark.persist.updates import TIME, row_names
from tidemark.region.options import Options
from tidemark.spark.stage import Site

OF_BATCH = "\0"
"""Between a stream and the number of its batch, in a token; in nobody's own."""

ATTEMPTS = 100
"""Races with other writers that an append loses before it gives up."""


class Target(NamedTuple):
    """A shard that is written to, and how."""

    options: Options
    rows: pa.Schema
    timed: bool
    """Updates carry `_time`."""

    @staticmethod
    def of(options: Options, given: pa.Schema) -> Target:
        if options.collection is not None:
            raise InvalidUsage(
                f"collection {options.collection} is written by the server",
                hint="write to a shard of its own; tables are written with SQL",
            )
        if options.given.get("token") and not options.given.get("name"):
            raise InvalidUsage(
                "a token without a name says nothing: whose last token is it?",
                hint='.option("name", "loader")',
            )
        fields = [given.field(name) for name in row_names(given)]
        return Target(options, pa.schema(fields), TIME in given.names)

    def open_writer(self, client: PersistClient) -> WriteHandle:
        """The shard's writer, which begins the shard if there is none."""
        shard_id = self.options.shard or ""
        _refuse_owned(shard_id)
        rows, key = self.rows, tuple(self.options.names("key") or ())
        state = client.state(shard_id)
        if state.schemas:
            known = schema_of(state)
            rows = pa.schema([known.field(name) for name in row_names(known)])
            key = key or state.key
            _check_columns(shard_id, self.rows.names, rows.names)
        return client.open_writer(
            shard_id,
            schema=rows,
            key=key,
            name=self.options.given.get("name"),
            rendition=self.options.number("rendition") or 0,
        )

    def site(self, client: PersistClient) -> Site:
        """Where tasks stage. Nothing is made known of a new shard before there is something in
        it: a job that fails leaves none."""
        writer = self.open_writer(client)
        schemas = client.state(writer.shard_id).schemas
        encoded = encode_schema(writer.schema)
        number = schemas.index(encoded) if encoded in schemas else len(schemas)
        return Site.of(client, writer, number=number)

    def append(self, client: PersistClient, staged: Staged, *, token: str | None) -> None:
        """Make `staged` part of the shard, or say why not; then it is deleted."""
        writer = self.open_writer(client)
        if token is not None and writer.last_token == token:
            writer.discard(staged)
            return
        try:
            self._check_stream(writer, token)
            self._append(client, writer, staged.of_schema(writer.register()), token)
        except (Fenced, InvalidUsage):
            writer.discard(staged)
            raise

    def _check_stream(self, writer: WriteHandle, token: str | None) -> None:
        """Of a stream, the last batch of its name must be the one before."""
        last = writer.last_token
        if token is None or last is None or OF_BATCH not in token:
            return
        query, _, batch = token.rpartition(OF_BATCH)
        known, _, before = last.rpartition(OF_BATCH)
        if known != query or int(before or -1) > int(batch):
            raise InvalidUsage(
                f"the name {self.options.given.get('name')} was given to another stream, or to this "
                "one with a later checkpoint",
                hint="nothing was written; go on with that checkpoint, or choose another name",
            )

    def _append(
        self, client: PersistClient, writer: WriteHandle, staged: Staged, token: str | None
    ) -> None:
        expected = self.options.number("lower")
        for _ in range(ATTEMPTS):
            lower = writer.fetch_upper()
            if lower.time is None:
                raise InvalidUsage(f"shard {writer.shard_id} is finished: nothing can be appended")
            if expected is not None and lower.time != expected:
                raise InvalidUsage(
                    f"shard {writer.shard_id} is complete to {lower}, not to [{expected}]: someone "
                    "else has appended to it",
                    hint="nothing was written; read what came and decide anew",
                )
            batch, upper = self._placed(client, staged, lower)
            outcome = writer.compare_and_append(batch, lower=lower, upper=upper, token=token)
            if isinstance(outcome, Appended):
                return
        raise InvalidUsage(
            f"other writers of shard {writer.shard_id} were faster {ATTEMPTS} times",
            hint="nothing was written; try again when they are done",
        )

    def _placed(
        self, client: PersistClient, staged: Staged, lower: Frontier
    ) -> tuple[Staged, Frontier]:
        assert lower.time is not None
        if self.timed:
            times = [t for part in staged.parts for t in (part.min_time, part.max_time)]
            if times and min(times) < lower.time:
                raise InvalidUsage(
                    f"an update at {min(times)}, but the shard is complete to {lower}",
                    hint="nothing was written; leave `_time` out to append at the present",
                )
            return staged, Frontier(max([lower.time, *times]) + 1)
        given = self.options.number("time")
        now = client.clock.now_ms() if given is None else given
        if given is not None and given < lower.time:
            raise InvalidUsage(
                f"option time is {given}, but the shard is complete to {lower}",
                hint="nothing was written; leave it out to append at the present",
            )
        time = max(lower.time, now)
        return staged.at(time), Frontier(time + 1)


def _check_columns(shard_id: str, given: list[str], known: list[str]) -> None:
    if sorted(given) != sorted(known):
        raise InvalidUsage(
            f"shard {shard_id} has the columns {', '.join(known)}; the frame has "
            f"{', '.join(given) or 'none'}",
            hint="nothing was written; select the columns that the shard has",
        )


def _refuse_owned(shard_id: str) -> None:
    """The server's shards have the server as their only writer: it counts on that."""
    if is_ours(shard_id):
        raise InvalidUsage(
            f"shard {shard_id} is the server's, or may become so",
            hint="choose a name of more than a letter and digits; tables are written with SQL",
        )
