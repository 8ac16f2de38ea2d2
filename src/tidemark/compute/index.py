"""Indexes: the rows of a collection at hand by a key, on a replica, so that a look-up needs no Spark.

An index is an arrangement (persist/arrange.py) that somebody keeps fresh: one thread each, which
follows the shard whenever its upper or its since moves.

    since of the shard ... hold of the index ... as_of of a look-up ... upper of the index
                           (never behind it for long: look-ups are at times that control holds)

A look-up beyond the index's upper waits until the shard has come there and then follows it by
itself. Views on the replica that look the same collection up by the same key share the
arrangement. Error rows are not in it: they are kept beside it, and make every look-up fail.

    TIDEMARK_INDEX_MEMORY   256MB   what all indexes of a replica may hold in memory of its own

What is older than a moment is in mapped files, which are the kernel's to keep; the newest changes
are in memory, and when those of all indexes together exceed the limit they are written to files,
too. So an index beyond the limit is a bit slower, never wrong and never missing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

import pyarrow as pa
import structlog

from tidemark.compute.arrangements import Arrangements
from tidemark.compute.error_rows import Errors
from tidemark.compute.protocol import IndexSize, IndexSpec, Status
from tidemark.errors import Cancelled
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.persist.arrange import Arrangement
from tidemark.persist.state import State
from tidemark.units import byte_size

log = structlog.get_logger("index")

PAUSES = (0.2, 1.0, 5.0)
LOOK_UP_EVERY = 1.0
PATIENCE = 10.0
DEFAULT_MEMORY = "256MB"

MOST_BYTES = 64 << 20
"""A look-up that would find more is a scan's work: Spark need not have it all in one place."""

Cancelling = Callable[[], bool]


class Index:
    """One index, and the thread that keeps it fresh."""

    def __init__(
        self,
        spec: IndexSpec,
        client: PersistClient,
        arrangements: Arrangements,
        moved: Callable[[], None] = lambda: None,
    ):
        """`moved` is called after each step: the index has perhaps grown."""
        self.spec = spec
        self.hydrated = False
        self._client = client
        self._arrangements = arrangements
        self._moved = moved
        self._arrangement: Arrangement | None = None
        self._errors = Errors(client, spec.shard)
        self._steps = 0
        self._error: str | None = None
        self._failures = 0
        self._stopping = threading.Event()
        self._since = Frontier.MIN
        self._thread = threading.Thread(target=self._run, name=f"index-{spec.id}", daemon=True)

    def start(self) -> Index:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=PATIENCE)

    def status(self) -> Status:
        kept, upper = self._arrangement, None
        if kept is not None:
            upper = kept.upper.time
        rows, size, memory = (kept.rows, kept.nbytes, kept.memory) if kept else (0, 0, 0)
        return Status(
            self.spec.id,
            self.hydrated,
            self._steps,
            self._error,
            self._failures,
            index=IndexSize(rows, size, memory, upper),
        )

    @property
    def memory(self) -> int:
        return self._arrangement.memory if self._arrangement is not None else 0

    def spill(self) -> None:
        if self._arrangement is not None:
            self._arrangement.spill()

    def lookup(self, keys: pa.Table, as_of: int, cancelled: Cancelling) -> pa.Table | None:
        """The rows of these keys at `as_of`, with `_diff`; None if the index cannot say."""
        kept = self._arrangement
        if not self.hydrated or kept is None or as_of < kept.base_as_of:
            return None
        if not kept.upper.covers(as_of):
            await_shard(self._client, self.spec.shard, as_of, cancelled)
        found = kept.lookup_within(keys, as_of, MOST_BYTES)
        self._errors.check(as_of)
        return found

    # The thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except Exception as error:
                if self._stopping.is_set():
                    break
                line = next(iter(str(error).splitlines()), "")
                self._error = f"{type(error).__name__}: {line[:500]}"
                self._failures += 1
                log.warning("an index failed, will resume", id=self.spec.id, error=self._error)
                self._stopping.wait(PAUSES[min(self._failures, len(PAUSES)) - 1])
        self.hydrated = False
        if self._arrangement is not None:
            self._arrangements.release(self._arrangement, self._holder)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            state = self._client.watch.wait_for(self.spec.shard, self._news, LOOK_UP_EVERY)
            if state is None:
                if self._client.watch.closed:
                    self._stopping.wait()
                continue
            self.step(state)
            self._error, self._failures = None, 0

    def _news(self) -> State | None:
        """The shard's state, if there is something to do about it."""
        state = self._client.state(self.spec.shard)
        if state.since.is_empty or (not state.upper.time and not state.upper.is_empty):
            return None  # Dropped, or not begun.
        if self._arrangement is None or self._since < state.since:
            return state
        return state if self._arrangement.upper < state.upper and state.upper.time else None

    def step(self, state: State) -> None:
        """Go to where the shard is: hold what it holds, and know what it knows."""
        since = state.since.time
        assert since is not None
        if not state.schemas:
            self.hydrated = True  # There has not been a row yet.
            self._stopping.wait(PAUSES[0])
            return
        target = state.upper.time - 1 if state.upper.time else since
        if target < since:
            self._stopping.wait(PAUSES[0])  # A view that begins later.
            return
        if self._arrangement is None:
            self._arrangement = self._arrangements.acquire(
                self.spec.shard, self.spec.key, holder=self._holder, as_of=since
            )
        elif self._since < state.since:
            self._arrangement.hold(self._holder, since)
        self._since = state.since
        self._arrangement.advance(max(target, self._arrangement.base_as_of))
        self._steps += 1
        self.hydrated = True
        self._moved()

    @property
    def _holder(self) -> str:
        return f"index-{self.spec.id}"


def await_shard(client: PersistClient, shard: str, as_of: int, cancelled: Cancelling) -> None:
    """Until the shard is complete up to `as_of`."""

    def reached() -> bool | None:
        if cancelled():
            raise Cancelled("canceling statement due to user request")
        return client.state(shard).upper.covers(as_of) or None

    if client.watch.wait_for(shard, reached) is None:
        raise Cancelled("the replica stopped while it waited")


class Indexes:
    """The indexes of a replica."""

    def __init__(
        self, client: PersistClient, arrangements: Arrangements, *, memory: int | None = None
    ):
        self._client = client
        self._arrangements = arrangements
        self._memory = memory_limit() if memory is None else memory
        self._running: dict[str, Index] = {}
        self._lock = threading.Lock()

    def configure(self, wanted: Iterable[IndexSpec]) -> None:
        """Start what is new, stop what is gone, leave the rest alone."""
        specs = {spec.id: spec for spec in wanted}
        with self._lock:
            gone = [i for i in self._running.values() if specs.get(i.spec.id) != i.spec]
            for index in gone:
                del self._running[index.spec.id]
            for id_, spec in specs.items():
                if id_ not in self._running:
                    index = Index(spec, self._client, self._arrangements, self._bound)
                    self._running[id_] = index.start()
        for index in gone:
            index.stop()

    def of_shard(self, shard: str) -> list[Index]:
        with self._lock:
            return [index for index in self._running.values() if index.spec.shard == shard]

    def statuses(self) -> list[Status]:
        with self._lock:
            running = list(self._running.values())
        return [index.status() for index in running]

    def stop(self) -> None:
        self.configure(())

    def _bound(self) -> None:
        """Keep within the limit; called by an index that has grown, which pays for it."""
        with self._lock:
            running = list(self._running.values())
        held = sorted(((index.memory, index.spec.id, index) for index in running), reverse=True)
        total = sum(memory for memory, _, _ in held)
        for memory, _, index in held:
            if total <= self._memory:
                return
            index.spill()
            total -= memory


def memory_limit() -> int:
    return byte_size(os.environ.get("TIDEMARK_INDEX_MEMORY") or DEFAULT_MEMORY)
