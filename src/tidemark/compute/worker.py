"""Threads that keep dataflows and ingestions going: one each, restarted when it fails.

A failure is logged and shown in the status; after a pause the work resumes from the shards, which
is the same path as after a crash. One that cannot go on does not hold back the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from tidemark.clock import Clock
from tidemark.compute.dataflow import Dataflow
from tidemark.compute.protocol import Status
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.source import Ingestion

log = structlog.get_logger("worker")

PAUSES = (0.2, 1.0, 5.0)
LOOK_UP_EVERY = 0.5


class Worker:
    """Runs `body` until told to stop; `body` returns only when `stopping` is set."""

    def __init__(self, id_: str, body: Callable[[Worker], None]):
        self.id = id_
        self.error: str | None = None
        self.failures = 0
        self.hydrated = False
        self.ticks = 0
        self.stopping = threading.Event()
        self._body = body
        self._thread = threading.Thread(target=self._run, name=f"worker-{id_}", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        return Status(self.id, self.hydrated, self.ticks, self.error, self.failures)

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(timeout=30)

    def healthy(self) -> None:
        self.error, self.failures = None, 0

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._body(self)
            except Exception as error:
                if self.stopping.is_set():
                    return
                self.failures += 1
                line = next(iter(str(error).splitlines()), "")
                self.error = f"{type(error).__name__}: {line[:300]}"
                log.error("failed, will resume", id=self.id, exc_info=True)
                self.stopping.wait(PAUSES[min(self.failures, len(PAUSES)) - 1])


def dataflow_worker(id_: str, make: Callable[[], Dataflow], client: PersistClient) -> Worker:
    def body(worker: Worker) -> None:
        dataflow = make()
        try:
            dataflow.start()
            worker.hydrated = True

            def ready() -> Frontier | None:
                upper = dataflow.input_upper()
                stop = worker.stopping.is_set()
                return upper if dataflow.lower < upper or stop else None

            while not worker.stopping.is_set():
                upper = client.watch.wait_for(None, ready, timeout=LOOK_UP_EVERY)
                if upper is not None and not worker.stopping.is_set():
                    dataflow.tick(upper)
                    worker.ticks = dataflow.ticks
                worker.healthy()
        finally:
            dataflow.stop()

    return Worker(id_, body)


def source_worker(id_: str, make: Callable[[], Ingestion], clock: Clock) -> Worker:
    def body(worker: Worker) -> None:
        ingestion = make()
        while not worker.stopping.is_set():
            ingestion.step()
            worker.hydrated = True
            worker.ticks += 1
            worker.healthy()
            pause = (ingestion.next_mint_ms() - clock.now_ms()) / 1000
            worker.stopping.wait(max(0.0, pause))

    return Worker(id_, body)
