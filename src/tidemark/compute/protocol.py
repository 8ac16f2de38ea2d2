"""What control says to a replica, and what it hears: values over Arrow Flight, and look-ups over
`lines`.

A replica is told *everything* it should run (`Configure`), each time something changes. It starts
what is new, stops what is gone and leaves the rest alone; so the first command, a new view and a
reconnect after a restart of control are one and the same.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidemark.compute.plan import Plan
from tidemark.compute.refresh import Refresh
from tidemark.errors import TidemarkError, Unavailable
from tidemark.storage.kafka.spec import KafkaSink
from tidemark.storage.source import SinkStatistics, Statistics
from tidemark.storage.spec import Source


class DataflowSpec(msgspec.Struct, frozen=True):
    """Maintain `plan` over the shards of its collections, in shard `output`, from `as_of` on.

    `owners` are the views that its fragments are named after. With a `refresh`, what happens is
    seen only at the times of its schedule.
    """

    id: str
    plan: Plan
    inputs: dict[str, str]
    output: str
    as_of: int
    owners: dict[str, str] = {}
    refresh: Refresh | None = None


class IndexSpec(msgspec.Struct, frozen=True):
    """Keep the rows of `shard` at hand by the columns of `key`."""

    id: str
    shard: str
    key: tuple[str, ...]


class Configure(msgspec.Struct, frozen=True):
    """All that should run. A replica that is `read_only` follows what others write, and takes
    over the moment it is told the same without it. `log` is the tables' (`storage/tables.py`): how
    far it is, is what time it is."""

    dataflows: tuple[DataflowSpec, ...]
    sources: tuple[Source, ...]
    sinks: tuple[KafkaSink, ...] = ()
    indexes: tuple[IndexSpec, ...] = ()
    read_only: bool = False
    log: str = ""


class Peek(msgspec.Struct, frozen=True):
    """Run `plan` once: collections as of `as_of`, or given here as Arrow IPC bytes. A result of
    more than `max_bytes` is an error; 0 is no limit. `changes` are updates that a transaction has
    not committed yet, by the collections that it sees them in."""

    id: str
    plan: Plan
    as_of: int
    shards: dict[str, str]
    given: dict[str, bytes]
    max_bytes: int = 0
    changes: dict[str, bytes] = {}


class LookUp(msgspec.Struct, frozen=True):
    """The `columns` of the rows of some keys, as of `as_of`, from an index of `shard` by the columns
    of `key`. `keys` is Arrow IPC, no two rows of it alike."""

    id: str
    shard: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    as_of: int
    keys: bytes


class CancelPeek(msgspec.Struct, frozen=True):
    id: str


class Verify(msgspec.Struct, frozen=True):
    """Compare the shard `output` as of `as_of` with `plan` over shards as of `query_at`; of what
    differs, `limit` rows are wanted. `name` is what the view is called; the id cancels it."""

    id: str
    name: str
    plan: Plan
    shards: dict[str, str]
    output: str
    as_of: int
    query_at: int
    limit: int


Finding = Literal["verified", "different", "in error"]


class Verified(msgspec.Struct, frozen=True):
    """`rows` are the query's; the view misses some and has some that are `unexpected`, copies
    counted. `differences` is Arrow IPC. "in error" is a view whose query fails just as it says."""

    as_of: int
    rows: int
    missing: int
    unexpected: int
    verdict: Finding
    differences: bytes


class IndexSize(msgspec.Struct, frozen=True):
    """What an index takes: `bytes` in all, and what of it is the replica's own `memory`; the rest
    is mapped from files that the kernel keeps or drops. `upper` is how far it has come."""

    rows: int
    bytes: int
    memory: int
    upper: int | None


class Status(msgspec.Struct, frozen=True):
    """How one dataflow or source is doing; `error` is why it is not running, if it is not, and
    `failures` how often in a row it has failed; `statistics` are a source's, `sent` a
    sink's, `index` an index's. A view's are how many `corrections` its shards have needed, how many
    `updates` it has written here, and what it costs: its last tick, and all of them."""

    id: str
    hydrated: bool
    ticks: int
    error: str | None
    failures: int = 0
    statistics: Statistics | None = None
    corrections: int = 0
    tick_ms: float = 0
    busy_ms: float = 0
    index: IndexSize | None = None
    sent: SinkStatistics | None = None
    awaits_refresh: bool = False
    """There is nothing to do for a view before its first refresh."""
    updates: int = 0


class Statuses(msgspec.Struct, frozen=True):
    """Of all that runs; `jobs` is how many Spark has run so far, `spark_ui` where it shows them."""

    pid: int
    items: tuple[Status, ...]
    jobs: int = 0
    spark_ui: str | None = None


class Address(msgspec.Struct, frozen=True):
    """Where a replica listens; written to a file that only its owner can read. `lines` is the port
    for look-ups, which replicas of older versions do not have."""

    pid: int
    port: int
    token: str
    lines: int = 0


class Failure(msgspec.Struct, frozen=True):
    """An error on its way."""

    message: str
    hint: str | None
    sqlstate: str

    @staticmethod
    def of(error: TidemarkError) -> Failure:
        return Failure(error.message, error.hint, error.sqlstate)

    @property
    def error(self) -> TidemarkError:
        kind = Unavailable if self.sqlstate == Unavailable.sqlstate else TidemarkError
        return kind(self.message, hint=self.hint, sqlstate=self.sqlstate)
