"""The one way into persist: a process opens one client, and handles come from it."""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import structlog

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import InvalidUsage, TidemarkError
from tidemark.persist import state as commands
from tidemark.persist.blob import Blob, FileBlob, MemBlob
from tidemark.persist.compact import collect, compact, due
from tidemark.persist.consensus import Consensus, MemConsensus, SqliteConsensus
from tidemark.persist.machine import Machine
from tidemark.persist.read import ReadHandle, SinceHandle
from tidemark.persist.source import PartSource
from tidemark.persist.state import State
from tidemark.persist.updates import updates_schema
from tidemark.persist.watch import Watch
from tidemark.persist.write import WriteHandle

log = structlog.get_logger("persist")

CRITICAL = "control"
"""The hold that keeps a collection readable for SQL; everyone else's is named after its owner."""

MAINTAIN_EVERY = 0.5


class PersistClient:
    """Handles to shards, and the background care of the shards that this process writes."""

    def __init__(self, blob: Blob, consensus: Consensus, *, clock: Clock = SYSTEM_CLOCK):
        self.blob = blob
        self.consensus = consensus
        self.clock = clock
        self.watch = Watch(consensus, clock)
        self._parts = PartSource(blob)
        self._machines: dict[str, Machine] = {}
        self._written: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._maintainer: threading.Thread | None = None

    @classmethod
    def open(cls, *, blob: str, consensus: str, clock: Clock = SYSTEM_CLOCK) -> PersistClient:
        """Open by URI: `file:///dir` or `mem://`, `sqlite:///file` or `mem://`."""
        return cls(_open_blob(blob), _open_consensus(consensus), clock=clock)

    def open_writer(
        self, shard_id: str, *, schema: pa.Schema, key: tuple[str, ...] = ()
    ) -> WriteHandle:
        """A writer of rows of `schema`; parts are sorted by the hash of the `key` columns."""
        with self._lock:
            self._written.add(shard_id)
        machine = self._machine(shard_id)
        return WriteHandle(machine, self.blob, schema=updates_schema(schema), key=key)

    def open_reader(self, shard_id: str) -> ReadHandle:
        return ReadHandle(self._machine(shard_id), self._parts, self.watch)

    def open_critical_since(
        self, shard_id: str, hold_id: str = CRITICAL, *, epoch: int = 0
    ) -> SinceHandle:
        return SinceHandle(self._machine(shard_id), hold_id, epoch)

    def state(self, shard_id: str) -> State:
        """The shard's whole state, for tools and tests."""
        return self._machine(shard_id).refresh()

    def finalize(self, shard_id: str) -> None:
        """Drop the shard: its contents are gone, its parts are deleted."""
        machine = self._machine(shard_id)
        machine.apply(commands.finalize)
        collect(machine, self.blob)
        if not machine.cached.retired:
            with self._lock:
                self._written.discard(shard_id)

    def maintain(self, shard_id: str) -> None:
        """Compact and collect until the shard is in shape."""
        machine = self._machine(shard_id)
        while compact(machine, self.blob, self._parts):
            pass
        collect(machine, self.blob)

    def start_maintenance(self) -> None:
        """Keep the shards that this process writes in shape, in the background."""
        if self._maintainer is None:
            self._maintainer = threading.Thread(
                target=self._maintain_all, name="persist-maintenance", daemon=True
            )
            self._maintainer.start()

    def close(self) -> None:
        self._stop.set()
        self.watch.close()
        if self._maintainer is not None:
            self._maintainer.join(timeout=5)

    def _maintain_all(self) -> None:
        while not self._stop.wait(MAINTAIN_EVERY):
            with self._lock:
                shards = sorted(self._written)
            for shard_id in shards:
                machine = self._machine(shard_id)
                state = machine.cached
                if due(state) is None and not state.retired:
                    continue
                try:
                    self.maintain(shard_id)
                except TidemarkError as error:
                    log.warning("maintenance failed, will try again", shard=shard_id, error=error)
                except Exception:
                    # One shard's surprise must not end the upkeep of all the others.
                    log.exception("maintenance failed, will try again", shard=shard_id)

    def _machine(self, shard_id: str) -> Machine:
        with self._lock:
            machine = self._machines.get(shard_id)
            if machine is None:
                machine = self._machines[shard_id] = Machine(shard_id, self.consensus, self.clock)
            return machine


def _open_blob(uri: str) -> Blob:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return FileBlob(Path(unquote(parts.path)))
    if parts.scheme == "mem":
        return MemBlob()
    raise InvalidUsage(f"cannot open blob {uri!r}", hint="use file:///some/folder")


def _open_consensus(uri: str) -> Consensus:
    parts = urlsplit(uri)
    if parts.scheme == "sqlite":
        return SqliteConsensus(Path(unquote(parts.path)))
    if parts.scheme == "mem":
        return MemConsensus()
    raise InvalidUsage(f"cannot open consensus {uri!r}", hint="use sqlite:///some/file")
