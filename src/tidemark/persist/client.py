"""The one way into persist: a process opens one client, and handles come from it.

The client is the registry of everything that its process persists. Handles to one shard share
one view of its state, concurrent commits share one transaction where Consensus can do so, writes
to Blob take turns, one thread keeps leases alive and one keeps the shards in shape.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import InvalidUsage
from tidemark.persist import commands
from tidemark.persist.blob import Blob
from tidemark.persist.compact import compact, due
from tidemark.persist.config import Config
from tidemark.persist.consensus import Consensus
from tidemark.persist.filters import Filter
from tidemark.persist.gc import collect, collect_leaked
from tidemark.persist.holds import Leases, SinceHandle
from tidemark.persist.location import Address, open_blob, open_consensus
from tidemark.persist.machine import Machine
from tidemark.persist.maintain import LargeMerge, Maintenance, careful
from tidemark.persist.names import check_hold, check_shard_id
from tidemark.persist.read import ReadHandle
from tidemark.persist.source import PartSource
from tidemark.persist.state import State
from tidemark.persist.throttle import Throttled
from tidemark.persist.updates import updates_schema
from tidemark.persist.watch import Watch
from tidemark.persist.write import WriteHandle

CRITICAL = "control"
"""The hold that keeps a collection readable for SQL; everyone else's is named after its owner."""

MERGES = 100
"""Merges in a row after which `maintain` lets others have their turn."""


class PersistClient:
    """Handles to shards, and the background care of the shards that this process writes."""

    def __init__(
        self,
        blob: Blob,
        consensus: Consensus,
        *,
        clock: Clock = SYSTEM_CLOCK,
        config: Config | None = None,
    ):
        self.config = config or Config()
        self.address: Address | None = None
        self.blob = Throttled(blob, self.config, clock)
        self.consensus = consensus
        self.clock = clock
        self.watch = Watch(consensus, clock)
        self._parts = PartSource(self.blob, self.config)
        self._leases = Leases(self.config)
        self._machines: dict[str, Machine] = {}
        # It stays so, and for ever more of them: the name is all that is kept in memory.
        self._dropped: set[str] = set()
        self._lock = threading.Lock()
        self._maintenance = Maintenance(self.blob, self.config, clock, self._everyone)

    @classmethod
    def open(
        cls,
        *,
        blob: str,
        consensus: str,
        clock: Clock = SYSTEM_CLOCK,
        config: Config | None = None,
    ) -> PersistClient:
        """Open by URI: `file:///dir`, `s3://bucket/prefix` or `mem://`; `sqlite:///file`,
        `postgres://…` or `mem://`."""
        client = cls(open_blob(blob), open_consensus(consensus), clock=clock, config=config)
        client.address = Address(blob, consensus)
        return client

    def open_writer(
        self,
        shard_id: str,
        *,
        schema: pa.Schema,
        key: tuple[str, ...] = (),
        name: str | None = None,
        rendition: int = 0,
        log: str = "",
    ) -> WriteHandle:
        """A writer of rows of `schema`; parts are sorted by the hash of the `key` columns.

        Its first append shuts out writers of an older `rendition`, who get `Fenced` from then on.

        The shard remembers the last token of a writer with a `name` for good, so that whoever
        carries that name next can tell whether the append was made.

        A shard that follows a log is for the writer of that `log` alone to append to.
        """
        machine = self.machine(shard_id)
        if not isinstance(key, tuple | list) or len(set(key)) < len(key):
            raise InvalidUsage(f"a key is a tuple of different columns, got {key!r}")
        key = tuple(key)
        self._maintenance.care_for(machine)
        if not isinstance(rendition, int) or rendition < 0:
            raise InvalidUsage(f"a rendition is a number from 0 on, got {rendition!r}")
        rows = updates_schema(schema)
        return WriteHandle(
            machine, self._parts, schema=rows, key=key, name=name, rendition=rendition, log=log
        )

    def open_reader(
        self,
        shard_id: str,
        *,
        columns: list[str] | None = None,
        filter: Filter | None = None,
    ) -> ReadHandle:
        """A reader of all rows, or of these columns of the rows that pass `filter`."""
        machine = self.machine(shard_id)
        if columns is not None and not isinstance(columns, list | tuple):
            raise InvalidUsage(f"columns are a list of names, got {columns!r}")
        return ReadHandle(
            machine, self._parts, self.watch, self._leases, columns=columns, filter=filter
        )

    def open_critical_since(
        self, shard_id: str, hold_id: str = CRITICAL, *, epoch: int = 0
    ) -> SinceHandle:
        """A durable hold on the shard's since. Note `hold_id` down before using it: a hold that
        nobody remembers keeps history for ever."""
        check_hold(hold_id, epoch)
        return SinceHandle(self.machine(shard_id), hold_id, epoch)

    def shards(self) -> Iterator[State]:
        """The state of every shard there is, the dropped ones among them, as their writers see it."""
        return (machine.refresh() for machine in self._everyone())

    def state(self, shard_id: str) -> State:
        """The shard's whole state as readers see it: `upper` is how far it can be read, also if
        that is for a log to say which the shard follows."""
        return self.machine(shard_id).seen()

    def living(self, shard_ids: Iterable[str]) -> dict[str, State]:
        """`state` of those that are not dropped; nobody is asked again about those that are."""
        found = {}
        for shard_id in shard_ids:
            if shard_id not in self._dropped:
                state = self.state(shard_id)
                if state.is_tombstone:
                    self._forget(shard_id)
                else:
                    found[shard_id] = state
        return found

    def known(self, shard_id: str) -> State:
        """`state` as this process last saw it: its frontiers may have gone further since."""
        return self.machine(shard_id).known()

    def shared_address(self) -> Address:
        """Where other processes find what this one has."""
        if self.address is None or "mem:" in (self.address.blob[:4], self.address.consensus[:4]):
            raise InvalidUsage(
                "other processes cannot use stores that are in this one's memory",
                hint="open the client by URI: file:// or s3://, sqlite:// or postgres://",
            )
        return self.address

    def finalize(self, shard_id: str) -> None:
        """Drop the shard: its contents are gone, its parts are deleted.

        Parts that a lease still pins go when it has ended, by whoever sweeps then.
        """
        machine = self.machine(shard_id)
        machine.apply("finalize", commands.finalize)
        collect(machine, self.blob)
        if not machine.cached.retired:
            self._maintenance.forget(shard_id)
        self._forget(shard_id)

    def maintain(self, shard_id: str) -> int:
        """Compact and collect until the shard is in shape; how many merges it took."""
        machine = self.machine(shard_id)
        merges = 0
        while merges < MERGES and compact(machine, self.blob):
            merges += 1
        collect(machine, self.blob)
        return merges

    def maintain_small(self, shard_id: str) -> None:
        """Do what little merge is due, so that a shard that is written by processes that come and
        go stays in shape; what is large waits for someone with time, and so does what fails."""
        machine = self.machine(shard_id)
        merge = due(machine.cached, self.config)
        memory = sum(part.memory for batch in merge for part in batch.parts)
        if merge and memory <= self.config.part_bytes:
            careful(shard_id, lambda: compact(machine, self.blob, merge))
            careful(shard_id, lambda: collect(machine, self.blob))

    def sweep(self, shard_id: str | None = None, *, older_than_ms: int | None = None) -> int:
        """Delete garbage of one shard or of all: retired parts that nobody reads any more, and
        parts that were staged long ago and appended by nobody. How many parts went."""
        age = self.config.leak_after_ms if older_than_ms is None else older_than_ms
        swept = 0
        machines = [self.machine(shard_id)] if shard_id is not None else self._everyone()
        for machine in machines:
            swept += collect(machine, self.blob)
            swept += collect_leaked(machine, self.blob, older_than_ms=age)
        self.blob.remove_leftovers()
        return swept

    def start_maintenance(
        self, *, sweep_all: bool = False, large: LargeMerge | None = None
    ) -> None:
        """Keep the shards that this process writes in shape, in the background.

        `large` does merges of more than `Config.spark_merge_bytes`, where there is one.

        With `sweep_all` it also deletes, now and then, what processes that died left behind in
        any shard; one process of a region should.
        """
        self._maintenance.start(sweep_all=sweep_all, large=large)

    def close(self) -> None:
        self._leases.close()
        self.watch.close()
        self._maintenance.close()
        self.consensus.close()

    def machine(self, shard_id: str) -> Machine:
        with self._lock:
            machine = self._machines.get(shard_id)
            if machine is None:
                machine = Machine(
                    check_shard_id(shard_id),
                    self.consensus,
                    self.clock,
                    self.config,
                    self._committed,
                    self._log_of,
                )
                if shard_id not in self._dropped:
                    self._machines[shard_id] = machine
            return machine

    def _forget(self, shard_id: str) -> None:
        with self._lock:
            self._dropped.add(shard_id)
            self._machines.pop(shard_id, None)

    def _committed(self, shard_id: str, grown: bool) -> None:
        self.watch.ring(shard_id)
        if grown:  # Progress alone makes nothing due.
            self._maintenance.note(shard_id)

    def _log_of(self, shard_id: str, log_id: str) -> Machine:
        self.watch.follow(shard_id, log_id)
        return self.machine(log_id)

    def _everyone(self) -> list[Machine]:
        return [self.machine(shard_id) for shard_id in self.consensus.keys()]  # noqa: SIM118
