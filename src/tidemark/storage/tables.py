"""Tables: written from SQL, group-committed, atomic across tables, at one timestamp.

All tables of a timeline share one commit log, a shard whose rows are encoded batches of updates:

    txns     (table shard, Arrow IPC bytes)  at commit time t        the commit point
    tables   the same updates at t, applied from the log             what everyone reads

A commit is one append to the log, and from there one to each table that it touches. The tables
follow the log (`persist.state`): the append to it says that they are all complete past t, but for
the ones that it names, which are once they have their updates. So a commit costs what it touches,
however many tables there are, and one that touches none costs one append:

    commit                  txns: upper, lead            a                      b
    rows for a at 5         [6], all to 6 but a          [6]                    [1], complete to 6
    nothing at 7            [8], all to 8                [6], complete to 8     [1], complete to 8
    rows for a, b at 8      [9], all to 9 but a, b       [9]                    [9]

    T1  a commit is applied to all tables that it touches before the next one is appended
    T2  an append to a table is of what the log holds; nobody else appends to it

By T1 the log never holds more than one commit: each retracts the one before. A crash before it was
applied leaves the tables that it touches complete up to the commit and no further; at the next start
what the log holds is applied again (`append` cuts off what is there), before anything is committed.
By T2 whatever a table's own upper is, all before it was applied, and nothing came since.

The log's upper is also the timeline's clock (`oracle`): commit times strictly increase, and all
that is before the upper has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import structlog

from tidemark.clock import Clock
from tidemark.errors import AsOfBeforeSince, Fenced, Indeterminate, Unavailable
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


class _Commit(NamedTuple):
    """What is appended to the log, under which token, and what it then holds and owes."""

    rows: pa.Table
    upper: Frontier
    token: str
    logged: pa.Table
    entries: dict[str, pa.Table]


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
        self._unapplied: dict[str, pa.Table] = {}
        self._unsure: _Commit | None = None

    @property
    def upper(self) -> Frontier:
        """The next commit's earliest time; everything before it has happened."""
        return self._upper

    def open(self, shards: dict[str, pa.Schema], *, not_before: int = 0) -> None:
        """Take charge of the tables that exist, and apply what a crash left unapplied.

        The commit that begins the new charge fences out whoever had it before. Tables from before
        they followed the log begin to when they have all that is in it.
        """
        for shard_id, schema in shards.items():
            self._tables[shard_id] = self._client.open_writer(
                shard_id, schema=schema, log=self._log.shard_id
            )
        while True:
            try:
                self._recover()
                for writer in self._tables.values():
                    writer.follow(self._log.shard_id)
                self.commit([], not_before=not_before)
                return
            except (Fenced, AsOfBeforeSince):
                # The old one was still writing, and faster: take over from where it is now.
                log.info("the log has moved on, taking over again", upper=self._upper.time)

    def create(self, shard_id: str, schema: pa.Schema) -> int:
        """Begin a table: it is empty up to now. Returns the first time at which it is readable."""
        writer = self._client.open_writer(shard_id, schema=schema)
        writer.advance_upper(self._upper)
        writer.follow(self._log.shard_id)
        self._tables[shard_id] = writer
        assert self._upper.time is not None
        return max(self._upper.time - 1, 0)

    def __contains__(self, shard_id: str) -> bool:
        return shard_id in self._tables

    def written_after(self, shard_id: str, time: int) -> bool:
        """Whether the table has updates after `time`, or is gone. By T2 its own batches end where
        it was last written to."""
        if shard_id not in self._tables or shard_id in self._unapplied:
            return True
        if self._unsure is not None and shard_id in self._unsure.entries:
            return True
        appended = self._client.known(shard_id).appended.time
        return appended is None or appended > time + 1

    def drop(self, shard_id: str) -> None:
        self._tables.pop(shard_id, None)
        self._client.finalize(shard_id)

    def commit(self, writes: Sequence[Write], *, not_before: int = 0) -> int:
        """Make `writes` happen at one new time, all or none; returns the time. It may have failed
        `in_doubt`: then `resolve` tells."""
        if self._unsure is not None:
            self.resolve()
        self._apply()
        assert self._upper.time is not None
        time = max(self._upper.time, not_before)
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
        self._unsure = _Commit(
            pa.concat_tables([logged, applied]), Frontier(time + 1), uuid4().hex, logged, entries
        )
        try:
            return self.resolve()
        except Indeterminate:
            raise
        except BaseException:
            self._unsure = None  # Surely not done.
            raise

    @property
    def in_doubt(self) -> bool:
        """Nobody knows whether the last commit has happened."""
        return self._unsure is not None

    def resolve(self) -> int:
        """Append to the log what is to be; repeat just that, if nobody knows whether it was: by its
        token it happens once. Returns its time."""
        commit = self._unsure
        assert commit is not None
        outcome = self._log.compare_and_append(
            commit.rows,
            lower=self._upper,
            upper=commit.upper,
            token=commit.token,
            leading=tuple(commit.entries),
        )
        self._unsure = None
        if isinstance(outcome, UpperMismatch):
            raise Fenced(
                "another control process has taken over this timeline; nothing was written",
                hint="stop this process, or the other one",
            )
        self._upper, self._logged, self._unapplied = commit.upper, commit.logged, commit.entries
        try:
            self._apply()
        except Unavailable as error:
            # It is committed, so it is no failure; the next commit applies it first.
            log.warning("could not apply a commit, will try again", error=str(error))
        assert commit.upper.time is not None
        return commit.upper.time - 1

    def forget_history(self) -> None:
        """Nobody reads the log's past."""
        assert self._upper.time is not None
        self._hold.downgrade(Frontier(max(0, self._upper.time - 1)))

    def _recover(self) -> None:
        """Apply what the log holds to tables that do not have it yet."""
        self._upper = self._log.fetch_upper()
        if self._upper.time:
            self._logged = self._log_reader.snapshot(self._upper.time - 1)
            self._unapplied = {
                e["shard"]: decode_table(e["updates"]) for e in self._logged.to_pylist()
            }
            for shard_id in self._unapplied.keys() - self._tables.keys():
                # Dropped before it had them: nobody shall take it for complete.
                self._client.finalize(shard_id)
            self._apply()

    def _apply(self) -> None:
        """Give the tables that the last commit touches their updates (T1)."""
        for shard_id, updates in self._unapplied.items():
            writer = self._tables.get(shard_id)
            if writer is not None:  # Else it was dropped.
                outcome = writer.append(updates, lower=Frontier.MIN, upper=self._upper)
                assert not isinstance(outcome, UpperMismatch), (shard_id, outcome)
        self._unapplied = {}
