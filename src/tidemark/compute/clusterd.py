"""clusterd: one replica of a cluster. A Spark driver that does what control tells it.

It is stateless by instruction: everything it must remember is in shards. If control goes away it
keeps working for a while, so that control can restart underneath it, and then stops. If its JVM
dies it stops at once; whoever watches it starts it again.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
import pyarrow.flight as flight
import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK, Clock, Onward
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.index import Indexes
from tidemark.compute.lines import Listener
from tidemark.compute.peek import Peeks
from tidemark.compute.protocol import (
    Address,
    CancelPeek,
    Configure,
    DataflowSpec,
    Failure,
    LookUp,
    Peek,
    Statuses,
    Verify,
)
from tidemark.compute.reaper import Reaper
from tidemark.compute.schedule import Schedule
from tidemark.compute.verify import run_verify
from tidemark.compute.view import Flows, View
from tidemark.compute.warm import warm_up
from tidemark.compute.worker import Worker, sink_worker, source_worker, stop_all
from tidemark.errors import TidemarkError, Unavailable
from tidemark.ipc import encode_table
from tidemark.logs import configure_logging
from tidemark.persist import PersistClient
from tidemark.spark.compact import large_merges
from tidemark.spark.session import jobs_run, jvm_of, start_spark, stop_spark, ui_settings
from tidemark.storage.ingestions import ingestion, secrets_of
from tidemark.storage.kafka.sink import SinkRun
from tidemark.storage.kafka.spec import KafkaSink, KafkaSource
from tidemark.storage.spec import GeneratorSource, Source

log = structlog.get_logger("clusterd")

ORPHANED_AFTER = 60.0
"""Seconds without a word from control after which a replica stops."""

STOP_WITHIN = 25.0
"""Seconds that it has to stop: a request that Spark never answers would hold it up for ever."""

REAP_EVERY = 2.0
"""Seconds."""


class Replica:
    """What runs here, and how it is changed."""

    def __init__(self, client: PersistClient, spark: SparkSession, folder: Path, clock: Clock):
        self.client = client
        self.spark = spark
        self.clock = clock
        self._log = ""
        # Sources take their times from where the tables take theirs, also if that is ahead.
        self._timeline = Onward(clock, self._reached)
        self._folder = folder
        arrangements = Arrangements(client, folder)
        self._flows = Flows(client, spark, arrangements)
        self._schedule = Schedule(client, spark)
        self._indexes = Indexes(client, arrangements)
        self.peeks = Peeks(spark, client, arrangements, self._indexes)
        self.reaper = Reaper(spark, clock)
        self._views: dict[str, DataflowSpec] = {}
        self._workers: dict[str, tuple[Source | KafkaSink, Worker]] = {}
        self._configuring = threading.Lock()
        self._spark_ui = spark.sparkContext.uiWebUrl

    def configure(self, wanted: Configure) -> None:
        """Start what is new, stop what is gone, leave the rest alone.

        What is read-only maintains views without writing them, and runs no sources and sinks.
        """
        with self._configuring:
            self._log = wanted.log
            if self._flows.read_only and not wanted.read_only:
                log.info("writes are allowed")
            self._flows.read_only = wanted.read_only
            self._configure_workers(() if wanted.read_only else (*wanted.sources, *wanted.sinks))
            self._configure_views(wanted.dataflows)
            self._indexes.configure(wanted.indexes)
        self._schedule.wake()

    def _configure_workers(self, wanted: Iterable[Source | KafkaSink]) -> None:
        specs = {spec.id: spec for spec in wanted}
        gone = {i: w for i, (spec, w) in self._workers.items() if specs.get(i) != spec}
        stop_all(gone.values())
        for id_ in gone:
            del self._workers[id_]
        for id_, spec in specs.items():
            if id_ not in self._workers:
                self._workers[id_] = (spec, self._start(spec))

    def _configure_views(self, wanted: Iterable[DataflowSpec]) -> None:
        specs = {spec.id: spec for spec in wanted}
        gone = [i for i, spec in self._views.items() if specs.get(i) != spec]
        if gone:
            self.reaper.suspect()
            self._schedule.remove(gone)
        fresh = [spec for i, spec in specs.items() if self._views.get(i) != spec]
        self._views = specs
        for spec in fresh:
            self._schedule.add(spec.id, lambda spec=spec: self._view(spec))

    def _reached(self) -> int:
        return (self.client.state(self._log).upper.time or 0) if self._log else 0

    def statuses(self) -> Statuses:
        # Not waiting for a change that is under way: to stop something may take a while.
        workers = [worker.status() for _, worker in list(self._workers.values())]
        statuses = (*workers, *self._schedule.statuses(), *self._indexes.statuses())
        return Statuses(os.getpid(), statuses, jobs_run(self.spark), self._spark_ui)

    def look_up(self, asked: LookUp) -> bytes | None:
        with _explained(asked.id):
            found = self.peeks.look_up(asked)
            return None if found is None else encode_table(found)

    def stop(self) -> None:
        self._schedule.stop()
        with self._configuring:
            self._indexes.stop()
            stop_all(worker for _, worker in self._workers.values())

    def _start(self, spec: Source | KafkaSink) -> Worker:
        match spec:
            case GeneratorSource() | KafkaSource():
                return source_worker(
                    spec.id,
                    lambda: ingestion(
                        spec,
                        client=self.client,
                        spark=self.spark,
                        folder=self._folder,
                        clock=self._timeline,
                    ),
                    self._timeline,
                    secrets=secrets_of(spec),
                )
            case KafkaSink():
                return sink_worker(
                    spec.id,
                    spec.shard,
                    lambda: SinkRun(spec, client=self.client, spark=self.spark),
                    self.client,
                    secrets=spec.connection.secrets.values(),
                )

    def _view(self, spec: DataflowSpec) -> View:
        return View(
            spec.id,
            spec.plan,
            inputs=spec.inputs,
            output=spec.output,
            as_of=spec.as_of,
            owners=spec.owners,
            refresh=spec.refresh,
            flows=self._flows,
        )


# Requests come in threads of their own, several at a time: a decoder that they made would be made
# by all of them at once, which crashes.
_CONFIGURE = msgspec.json.Decoder(Configure)
_CANCEL = msgspec.json.Decoder(CancelPeek)
_VERIFY = msgspec.json.Decoder(Verify)
_PEEK = msgspec.json.Decoder(Peek)


class FlightServer(flight.FlightServerBase):
    """The replica's ear: actions carry msgspec JSON, a peek's rows stream back as Arrow."""

    def __init__(self, replica: Replica, token: str):
        super().__init__("grpc://127.0.0.1:0", middleware={"token": _TokenCheck(token)})
        self._replica = replica
        self.last_heard = replica.clock.monotonic()

    def do_action(self, context, action):
        self.last_heard = self._replica.clock.monotonic()
        body = action.body.to_pybytes()
        match action.type:
            case "configure":
                self._replica.configure(_CONFIGURE.decode(body))
                return [b"{}"]
            case "status":
                return [msgspec.json.encode(self._replica.statuses())]
            case "cancel":
                peek = _CANCEL.decode(body)
                self._replica.peeks.cancel(peek.id)
                self._replica.reaper.suspect()
                return [b"{}"]
            case "verify":
                return [self._verified(_VERIFY.decode(body))]
        raise flight.FlightServerError(f"unknown action {action.type}")

    def do_get(self, context, ticket):
        self.last_heard = self._replica.clock.monotonic()
        peek = _PEEK.decode(ticket.ticket)
        with _sent(peek.id):
            table = self._replica.peeks.run(peek)
        return flight.RecordBatchStream(table)

    def _verified(self, asked: Verify) -> bytes:
        with _sent(asked.id):
            return msgspec.json.encode(run_verify(self._replica.spark, self._replica.client, asked))


@contextmanager
def _sent(query: str) -> Iterator[None]:
    """Errors as Flight carries them."""
    try:
        with _explained(query):
            yield
    except TidemarkError as error:
        failure = msgspec.json.encode(Failure.of(error))
        raise flight.FlightServerError(error.message, failure) from error


@contextmanager
def _explained(query: str) -> Iterator[None]:
    """What is told of errors is short: a traceback would not even fit into a gRPC header."""
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:
        log.error("a query failed", query=query, exc_info=True)
        raise _failure(error) from None


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Loopback is open to every local user; only who can read the address file may command."""

    def __init__(self, token: str):
        self._token = token

    def start_call(self, info, headers):
        given = headers.get("x-tidemark-token", [""])[0]
        if not secrets.compare_digest(given, self._token):
            raise flight.FlightUnauthenticatedError("wrong token")


def _failure(error: Exception) -> TidemarkError:
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return Unavailable("the cluster has lost its JVM", hint="it restarts; try again")
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return TidemarkError(f"the query failed on the cluster: {line[:500]}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("clusterd", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the server's data folder")
    parser.add_argument("--name", required=True, help="the replica's name, e.g. quickstart-r1")
    parser.add_argument("--blob", required=True)
    parser.add_argument("--consensus", required=True)
    parser.add_argument("--spark-master", default="local[*]")
    options = parser.parse_args(argv)
    configure_logging()

    folder = options.data / "clusters"
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / f"{options.name}.lock", "w")  # noqa: SIM115 (held until exit)
    fcntl.flock(lock, fcntl.LOCK_EX)

    client = PersistClient.open(blob=options.blob, consensus=options.consensus)
    spark = start_spark(
        master=options.spark_master,
        app=f"tidemark-{options.name}",
        blob=options.blob,
        settings=ui_settings(options.spark_master),
    )
    warm_up(spark)
    client.start_maintenance(large=large_merges(spark, client))
    replica = Replica(client, spark, options.data / "cache", SYSTEM_CLOCK)
    token = secrets.token_hex(16)
    server = FlightServer(replica, token)
    listener = Listener(replica.look_up, token)
    address = Address(os.getpid(), server.port, token, listener.port)
    _write_private(folder / f"{options.name}.json", msgspec.json.encode(address))
    log.info("ready", replica=options.name, port=server.port)

    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    jvm, looked = jvm_of(spark), SYSTEM_CLOCK.monotonic()
    while not stop.wait(0.2):
        if jvm.poll() is not None:
            log.error("the JVM is gone, stopping")
            os._exit(70)
        if SYSTEM_CLOCK.monotonic() - looked > REAP_EVERY:
            looked = SYSTEM_CLOCK.monotonic()
            if overdue := replica.reaper.overdue():
                log.error("cancelled work does not end, starting again", spark_tasks=overdue)
                _exit_with(jvm)
        if SYSTEM_CLOCK.monotonic() - server.last_heard > ORPHANED_AFTER:
            log.warning("no word from control, stopping", seconds=ORPHANED_AFTER)
            break
    giving_up = threading.Timer(STOP_WITHIN, _exit_anyway, [jvm])
    giving_up.daemon = True
    giving_up.start()
    listener.close()
    replica.stop()
    server.shutdown()
    client.close()
    stop_spark(spark)
    sys.exit(0)


def _exit_anyway(jvm: subprocess.Popen[bytes]) -> None:
    log.error("something does not end, stopping without it", seconds=STOP_WITHIN)
    _exit_with(jvm)


def _exit_with(jvm: subprocess.Popen[bytes]) -> NoReturn:
    """It ends with us by itself, but for when it is what does not end."""
    jvm.kill()
    os._exit(70)


def _write_private(path: Path, data: bytes) -> None:
    aside = path.with_suffix(".tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    aside.replace(path)


if __name__ == "__main__":
    main()
