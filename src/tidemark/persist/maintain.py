"""The background care of the shards that a process writes: merges, and deleting garbage.

Small merges are done one after the other by one thread. A large one has a thread of its own, so
that the newest batches of all shards stay few while it runs. The largest are handed to whoever can
do them elsewhere (spark.compact), if this process has someone; if that fails they are done here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog

from tidemark.clock import Clock
from tidemark.errors import TidemarkError, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist.compact import compact, due
from tidemark.persist.config import Config
from tidemark.persist.gc import collect, collect_leaked
from tidemark.persist.machine import Machine
from tidemark.persist.state import Batch
from tidemark.persist.throttle import Throttled

log = structlog.get_logger("persist")

RETIRED_DUE = 16
"""Retired parts are worth a commit from this many on; a sweep takes fewer."""

RETRY_AFTER = 10.0
"""Seconds before a shard whose upkeep failed is looked at again."""

SWEEP_EVERY = 1800.0
"""Seconds between two sweeps for leftovers, which list what is in Blob."""


LargeMerge = Callable[[str, tuple[Batch, ...]], bool]
"""Merges these batches of a shard as `compact` does, but not in this process."""


class Maintenance:
    """`everyone` lists all shards there are, for whoever sweeps up after those that died."""

    def __init__(
        self, blob: Throttled, config: Config, clock: Clock, everyone: Callable[[], list[Machine]]
    ):
        self._blob = blob
        self._config = config
        self._clock = clock
        self._everyone = everyone
        self._sweeps_all = False
        self._lock = threading.Lock()
        self._machines: dict[str, Machine] = {}
        self._changed: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._elsewhere: LargeMerge | None = None
        self._large: dict[str, tuple[Future, Frontier]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="persist-large-merge")

    def care_for(self, machine: Machine) -> None:
        with self._lock:
            self._machines[machine.shard_id] = machine

    def forget(self, shard_id: str) -> None:
        with self._lock:
            self._machines.pop(shard_id, None)

    def note(self, shard_id: str) -> None:
        """This process has committed to the shard: something may be due."""
        with self._lock:
            if shard_id in self._machines:
                self._changed.add(shard_id)

    def start(self, *, sweep_all: bool, large: LargeMerge | None = None) -> None:
        self._sweeps_all |= sweep_all
        self._elsewhere = large or self._elsewhere
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="persist-maintenance", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        swept = self._clock.monotonic()
        while not self._stop.wait(self._config.maintain_every):
            sweep = self._clock.monotonic() - swept >= SWEEP_EVERY
            if sweep:
                swept = self._clock.monotonic()
                careful("", self._blob.remove_leftovers)
            careful("", partial(self._round, sweep=sweep))

    def _round(self, *, sweep: bool) -> None:
        for machine in self._due(everything=sweep):
            if self._stop.is_set():
                return
            if not careful(machine.shard_id, partial(self._look_after, machine, sweep=sweep)):
                self._retry_at[machine.shard_id] = self._clock.monotonic() + RETRY_AFTER

    def _due(self, *, everything: bool) -> list[Machine]:
        if everything and self._sweeps_all:
            return self._everyone()
        now = self._clock.monotonic()
        again = {name for name, at in list(self._retry_at.items()) if at <= now}
        for name in again:
            del self._retry_at[name]
        with self._lock:
            names = set(self._machines) if everything else self._changed | again
            self._changed = set()
            return [self._machines[name] for name in sorted(names) if name in self._machines]

    def _look_after(self, machine: Machine, *, sweep: bool) -> None:
        future, busy = self._large.get(machine.shard_id, (None, Frontier.MIN))
        if future is not None and future.done():
            del self._large[machine.shard_id]
            busy = Frontier.MIN
        merge = due(machine.cached, self._config, after=busy)
        if merge and not self._is_large(merge):
            compact(machine, self._blob, merge)
        elif merge and machine.shard_id not in self._large:
            task = self._pool.submit(self._merge_large, machine, merge)
            self._large[machine.shard_id] = (task, merge[-1].upper)
        if len(machine.cached.retired) >= (1 if sweep else RETIRED_DUE):
            collect(machine, self._blob)
        if sweep:
            collect_leaked(machine, self._blob, older_than_ms=self._config.leak_after_ms)

    def _merge_large(self, machine: Machine, merge: tuple[Batch, ...]) -> None:
        if not careful(machine.shard_id, partial(self._merge_somewhere, machine, merge)):
            self._retry_at[machine.shard_id] = self._clock.monotonic() + RETRY_AFTER

    def _merge_somewhere(self, machine: Machine, merge: tuple[Batch, ...]) -> None:
        if self._elsewhere is not None and _memory(merge) > self._config.spark_merge_bytes:
            try:
                self._elsewhere(machine.shard_id, merge)
                return
            except Unavailable as error:
                if self._stop.is_set():
                    raise
                log.warning("a large merge is done here", shard=machine.shard_id, error=str(error))
        compact(machine, self._blob, merge)

    def _is_large(self, merge: tuple[Batch, ...]) -> bool:
        return _memory(merge) > self._config.part_bytes


def _memory(merge: tuple[Batch, ...]) -> int:
    return sum(part.memory for batch in merge for part in batch.parts)


def careful(shard_id: str, work: Callable[[], object]) -> bool:
    """One shard's trouble must not end the upkeep of all the others. True if there was none."""
    try:
        work()
        return True
    except TidemarkError as error:
        log.warning("maintenance failed, will try again", shard=shard_id, error=str(error))
    except Exception:
        log.exception("maintenance failed, will try again", shard=shard_id)
    return False
