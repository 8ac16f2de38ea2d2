"""What control says to a replica, and what it hears: values over Arrow Flight.

A replica is told *everything* it should run (`Configure`), each time something changes. It starts
what is new, stops what is gone and leaves the rest alone; so the first command, a new view and a
reconnect after a restart of control are one and the same.
"""

from __future__ import annotations

import msgspec

from tidemark.compute.plan import Plan
from tidemark.storage.kafka.spec import KafkaSink
from tidemark.storage.source import Statistics
from tidemark.storage.spec import Source


class DataflowSpec(msgspec.Struct, frozen=True):
    """Maintain `plan` over the shards of its collections, in shard `output`, from `as_of` on.

    `owners` are the views that its fragments are named after.
    """

    id: str
    plan: Plan
    inputs: dict[str, str]
    output: str
    as_of: int
    owners: dict[str, str] = {}


class Configure(msgspec.Struct, frozen=True):
    dataflows: tuple[DataflowSpec, ...]
    sources: tuple[Source, ...]
    sinks: tuple[KafkaSink, ...] = ()


class Peek(msgspec.Struct, frozen=True):
    """Run `plan` once: collections as of `as_of`, or given here as Arrow IPC bytes."""

    id: str
    plan: Plan
    as_of: int
    shards: dict[str, str]
    given: dict[str, bytes]


class CancelPeek(msgspec.Struct, frozen=True):
    id: str


class Status(msgspec.Struct, frozen=True):
    """How one dataflow or source is doing; `error` is why it is not running, if it is not, and
    `failures` how often in a row it has failed; `statistics` are a source's."""

    id: str
    hydrated: bool
    ticks: int
    error: str | None
    failures: int = 0
    statistics: Statistics | None = None


class Statuses(msgspec.Struct, frozen=True):
    pid: int
    items: tuple[Status, ...]


class Address(msgspec.Struct, frozen=True):
    """Where a replica listens; written to a file that only its owner can read."""

    pid: int
    port: int
    token: str
