"""Tables: written from SQL, group-committed, atomic across tables, at one timestamp.

All tables of a timeline share one commit log, a shard whose rows are encoded batches of updates:

    txns     (table shard, Arrow IPC bytes)  at commit time t        the commit point
    tables   the same updates at t, applied from the log             what everyone reads

A commit is one append to the log. From there it is applied to each table it touches, and every
other table's upper is advanced alongside; the next commit retracts it from the log. So the log
never holds more than one commit, and nothing is retracted before it is applied. A crash in between
is mended at the next start: what the log holds is applied again (`append` cuts off what is there).
Readers need no knowledge of the log: a table is readable at t only once its own upper has passed t.

The log's upper is also the timeline's clock (`oracle`): commit times strictly increase, and all
that is before the upper has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import structlog

from tidemark.clock import Clock
from tidemark.errors import AsOfBeforeSince, Fenced, Unavailable
from tidemark.frontier import Frontier
from tidemark.ipc import decode_table, encode_table
from tidemark.persist import CRITICAL, PersistClient, UpperMismatch, WriteHandle, as_updates
from tidemark.persist.updates import concat, consolidate, negate, with_time

log = structlog.get_logger("tables")

LOG_SCHEMA = pa.schema([pa.field("shard", pa.string()), pa.field("updates", pa.binary())])


class Write(NamedTuple):
    """Rows with `_diff` for one table."""

    shard_id: str
    rows: pa.Table


class Tables:
    """The one writer of a timeline's tables. Not thread-safe: one committer calls it."""

    def __init__(self, client: PersistClient, log_shard: str, *, epoch: int):
        self._client = client
        self._clock: Clock = client.clock
        self._log = client.open_writer(log_shard, schema=LOG_SCHEMA)
        self._log_reader = client.open_reader(log_shard)
        self._hold = client.open_critical_since(log_shard, CRITICAL, epoch=epoch)
        self._tables: dict[str, WriteHandle] = {}
        self._upper = self._log.fetch_upper()
        self._logged = self._log.schema.empty_table()
        self._unapplied: dict[str, pa.Table] | None = None

    @property
    def upper(self) -> Frontier:
        """The next commit's earliest time; everything before it has happened."""
        return self._upper

    def open(self, shards: dict[str, pa.Schema], *, not_before: int = 0) -> None:
        """Take charge of the tables that exist, and apply what a crash left unapplied.

        The commit that begins the new charge fences out whoever had it before.
        """
        for shard_id, schema in shards.items():
            self._tables[shard_id] = self._client.open_writer(shard_id, schema=schema)
        while True:
            try:
                self._recover()
                self.commit([], not_before=not_before)
                return
            except (Fenced, AsOfBeforeSince):
                # The old one was still writing, and faster: take over from where it is now.
                log.info("the log has moved on, taking over again", upper=self._upper.time)

    def create(self, shard_id: str, schema: pa.Schema) -> int:
        """Begin a table: it is empty up to now. Returns the first time at which it is readable."""
        writer = self._client.open_writer(shard_id, schema=schema)
        writer.advance_upper(self._upper)
        self._tables[shard_id] = writer
        assert self._upper.time is not None
        return max(self._upper.time - 1, 0)

    def __contains__(self, shard_id: str) -> bool:
        return shard_id in self._tables

    def drop(self, shard_id: str) -> None:
        self._tables.pop(shard_id, None)
        self._client.finalize(shard_id)

    def commit(self, writes: Sequence[Write], *, not_before: int = 0) -> int:
        """Make `writes` happen at one new time, all or none; returns the time."""
        self._apply()
        assert self._upper.time is not None
        time = max(self._upper.time, not_before)
        lower, upper = self._upper, Frontier(time + 1)
        batches: dict[str, list[pa.Table]] = {}
        for write in writes:
            schema = self._tables[write.shard_id].schema
            batches.setdefault(write.shard_id, []).append(
                as_updates(write.rows, time=time, schema=schema)
            )
        entries = {
            shard_id: consolidate(concat(tables, self._tables[shard_id].schema))
            for shard_id, tables in batches.items()
        }
        logged = as_updates(
            pa.table(
                {
                    "shard": pa.array(list(entries), pa.string()),
                    "updates": pa.array([encode_table(t) for t in entries.values()], pa.binary()),
                }
            ),
            time=time,
            schema=self._log.schema,
        )
        applied = with_time(negate(self._logged), pa.repeat(time, self._logged.num_rows))
        outcome = self._log.compare_and_append(
            pa.concat_tables([logged, applied]), lower=lower, upper=upper
        )
        if isinstance(outcome, UpperMismatch):
            raise Fenced(
                "another control process has taken over this timeline; nothing was written",
                hint="stop this process, or the other one",
            )
        self._upper, self._logged, self._unapplied = upper, logged, entries
        try:
            self._apply()
        except Unavailable as error:
            # It is committed, so it is no failure; the next commit applies it first.
            log.warning("could not apply a commit, will try again", error=str(error))
        return time

    def forget_history(self) -> None:
        """Nobody reads the log's past."""
        assert self._upper.time is not None
        self._hold.downgrade(Frontier(max(0, self._upper.time - 1)))

    def _recover(self) -> None:
        """Read what the log holds, and apply it to tables that do not have it yet."""
        self._upper = self._log.fetch_upper()
        if self._upper.time:
            self._logged = self._log_reader.snapshot(self._upper.time - 1)
            self._unapplied = {
                e["shard"]: decode_table(e["updates"]) for e in self._logged.to_pylist()
            }
            self._apply()

    def _apply(self) -> None:
        """Bring every table up to the log's upper."""
        if self._unapplied is None:
            return
        for shard_id, writer in self._tables.items():
            updates = self._unapplied.get(shard_id, writer.schema.empty_table())
            # Only this class writes a table, so whatever its upper is, all before it was applied.
            outcome = writer.append(updates, lower=Frontier.MIN, upper=self._upper)
            assert not isinstance(outcome, UpperMismatch), (shard_id, outcome)
        self._unapplied = None
