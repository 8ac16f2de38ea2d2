"""Threads that keep ingestions and Kafka sinks going: one each, restarted when it fails.

A failure is logged and shown in the status; after a pause the work resumes from the shards, which
is the same path as after a crash. One that cannot go on does not hold back the others.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable

import structlog

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.compute.protocol import Status
from tidemark.errors import Fenced, TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.kafka.sink import SinkRun
from tidemark.storage.source import Ingestion, SinkStatistics, Statistics

log = structlog.get_logger("worker")

PAUSES = (0.2, 1.0, 5.0)
LOOK_UP_EVERY = 0.5
PATIENCE = 30.0
"""Seconds that one may take to stop; what it does after that, nobody waits for."""

MOST_SHOWN = 500
"""Characters of an error that a status shows."""


def stop_all(workers: Iterable[Worker]) -> None:
    """Stop them together: what all of them take is no longer than one may."""
    workers = list(workers)
    for worker in workers:
        worker.stopping.set()
    deadline = SYSTEM_CLOCK.monotonic() + PATIENCE
    for worker in workers:
        worker.stop(max(0.0, deadline - SYSTEM_CLOCK.monotonic()))


class Health:
    """How something that is kept going is doing. No `secrets` are ever in what it says of its
    errors."""

    def __init__(self, id_: str, *, secrets: Iterable[str] = ()):
        self.id = id_
        self.error: str | None = None
        self.failures = 0
        self.hydrated = False
        self._secrets = tuple(secret for secret in secrets if secret)

    def healthy(self) -> None:
        self.error, self.failures = None, 0

    def failed(self, error: Exception) -> None:
        line = next(iter(self._shown(str(error)).splitlines()), "")
        reason = f"{type(error).__name__}: {line[:MOST_SHOWN]}"
        if isinstance(error, TidemarkError):
            # It says itself what is wrong, once is enough, and where it was raised tells no more.
            if reason != self.error:
                log.error("failed, will resume", id=self.id, error=reason)
        else:
            trace = self._shown("".join(traceback.format_exception(error)))
            log.error("failed, will resume", id=self.id, error=reason, exception=trace)
        self.failures += 1
        self.error = reason

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            # As it is, and as it is between quotes.
            for spelled in (secret, secret.replace("\\", "\\\\").replace('"', '\\"')):
                text = text.replace(spelled, "***")
        return text


class Worker(Health):
    """Runs `body` until told to stop; `body` returns only when `stopping` is set."""

    def __init__(self, id_: str, body: Callable[[Worker], None], *, secrets: Iterable[str] = ()):
        super().__init__(id_, secrets=secrets)
        self.statistics: Statistics | None = None
        self.sent: SinkStatistics | None = None
        self.ticks = 0
        self.stopping = threading.Event()
        self._body = body
        self._thread = threading.Thread(target=self._run, name=f"worker-{id_}", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        return Status(
            self.id,
            self.hydrated,
            self.ticks,
            self.error,
            self.failures,
            self.statistics,
            sent=self.sent,
        )

    def stop(self, patience: float = PATIENCE) -> None:
        self.stopping.set()
        self._thread.join(timeout=patience)

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._body(self)
            except Exception as error:
                if self.stopping.is_set():
                    return
                self.failed(error)
                self.stopping.wait(PAUSES[min(self.failures, len(PAUSES)) - 1])


def source_worker(
    id_: str, make: Callable[[], Ingestion], clock: Clock, *, secrets: Iterable[str] = ()
) -> Worker:
    def body(worker: Worker) -> None:
        ingestion = make()
        try:
            # While one that failed has not gone on, how far it was is still worth knowing.
            worker.statistics = worker.statistics or ingestion.statistics
            while not worker.stopping.is_set():
                ingestion.step()
                worker.statistics = ingestion.statistics
                worker.hydrated = True
                worker.ticks += 1
                worker.healthy()
                pause = (ingestion.next_mint_ms() - clock.now_ms()) / 1000
                worker.stopping.wait(max(0.0, pause))
        finally:
            ingestion.close()

    return Worker(id_, body, secrets=secrets)


def sink_worker(
    id_: str,
    shard: str,
    make: Callable[[], SinkRun],
    client: PersistClient,
    *,
    secrets: Iterable[str] = (),
) -> Worker:
    def body(worker: Worker) -> None:
        run = make()
        before = worker.sent or SinkStatistics()
        try:
            while not worker.stopping.is_set():
                sent = run.step()
                worker.sent = run.sent.after(before)
                worker.hydrated = True
                worker.ticks += 1
                worker.healthy()
                if sent.is_empty:
                    worker.stopping.wait()
                    return

                def more(sent: Frontier = sent) -> bool | None:
                    return sent < client.state(shard).upper or worker.stopping.is_set() or None

                client.watch.wait_for(shard, more, timeout=LOOK_UP_EVERY)
        except Fenced as error:
            # To try again would be to shut out the one that has taken over.
            worker.failed(error)
            worker.stopping.wait()
        finally:
            run.close()

    return Worker(id_, body, secrets=secrets)
