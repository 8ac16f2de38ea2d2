"""Tables: written from SQL, group-committed, atomic across tables, at one timestamp.

All tables of a timeline share one commit log, a shard whose rows are encoded batches of updates:

    txns     (table shard, Arrow IPC bytes)  at commit time t        the commit point
    tables   the same updates at t, applied from the log             what everyone reads

A commit is one append to the log. From there it is applied to each table it touches, and every
other table's upper is advanced alongside; the next commit retracts it from the log. So the log
never holds more than one commit, and a crash in between is mended at the next start: what the log
holds is applied again (`append` cuts off what is there). Readers need no knowledge of the log: a
table is readable at t only once its own upper has passed t.

The log's upper is also the timeline's clock (`oracle`): commit times strictly increase, and all
that is before the upper has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemark.clock import Clock
from tidemark.errors import Fenced
from tidemark.frontier import Frontier
from tidemark.persist import CRITICAL, PersistClient, UpperMismatch, WriteHandle, as_updates
from tidemark.persist.updates import concat, consolidate, negate, with_time

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

    @property
    def upper(self) -> Frontier:
        """The next commit's earliest time; everything before it has happened."""
        return self._upper

    def open(self, shards: dict[str, pa.Schema]) -> None:
        """Take charge of the tables that exist, and apply what a crash left unapplied."""
        for shard_id, schema in shards.items():
            self._tables[shard_id] = self._client.open_writer(shard_id, schema=schema)
        if not self._upper.time:
            return
        self._logged = self._log_reader.snapshot(self._upper.time - 1)
        pending = {e["shard"]: _decoded(e["updates"]) for e in self._logged.to_pylist()}
        for shard_id, writer in self._tables.items():
            updates = pending.get(shard_id, writer.schema.empty_table())
            self._append(writer, updates, self._upper)

    def create(self, shard_id: str, schema: pa.Schema) -> int:
        """Begin a table: it is empty up to now. Returns the first time at which it is readable."""
        writer = self._client.open_writer(shard_id, schema=schema)
        writer.advance_upper(self._upper)
        self._tables[shard_id] = writer
        assert self._upper.time is not None
        return max(self._upper.time - 1, 0)

    def drop(self, shard_id: str) -> None:
        self._tables.pop(shard_id, None)
        self._client.finalize(shard_id)

    def commit(self, writes: Sequence[Write], *, not_before: int = 0) -> int:
        """Make `writes` happen at one new time, all or none; returns the time."""
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
                    "updates": pa.array([_encoded(t) for t in entries.values()], pa.binary()),
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
        self._upper, self._logged = upper, logged
        for shard_id, writer in self._tables.items():
            self._append(writer, entries.get(shard_id, writer.schema.empty_table()), upper)
        return time

    def forget_history(self) -> None:
        """Nobody reads the log's past."""
        assert self._upper.time is not None
        self._hold.downgrade(Frontier(max(0, self._upper.time - 1)))

    def _append(self, writer: WriteHandle, updates: pa.Table, upper: Frontier) -> None:
        # Only this class writes a table, so whatever its upper is, all before it was applied.
        outcome = writer.append(updates, lower=writer.fetch_upper(), upper=upper)
        assert not isinstance(outcome, UpperMismatch), (writer.shard_id, outcome)


def _encoded(updates: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, updates.schema) as writer:
        writer.write_table(updates)
    return sink.getvalue().to_pybytes()


def _decoded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
