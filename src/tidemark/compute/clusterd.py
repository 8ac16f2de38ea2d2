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
import sys
import threading
from pathlib import Path

import msgspec
import pyarrow.flight as flight
import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.peek import run_peek
from tidemark.compute.protocol import (
    Address,
    CancelPeek,
    Configure,
    DataflowSpec,
    Peek,
    Statuses,
)
from tidemark.compute.view import Flows, View
from tidemark.compute.warm import warm_up
from tidemark.compute.worker import Worker, dataflow_worker, sink_worker, source_worker, stop_all
from tidemark.errors import TidemarkError, Unavailable
from tidemark.logs import configure_logging
from tidemark.persist import PersistClient
from tidemark.spark.compact import large_merges
from tidemark.spark.session import jvm_of, start_spark, stop_spark
from tidemark.storage.ingestions import ingestion, secrets_of
from tidemark.storage.kafka.sink import SinkRun
from tidemark.storage.kafka.spec import KafkaSink, KafkaSource
from tidemark.storage.spec import GeneratorSource, Source

log = structlog.get_logger("clusterd")

Spec = DataflowSpec | Source | KafkaSink

ORPHANED_AFTER = 60.0
"""Seconds without a word from control after which a replica stops."""


class Replica:
    """What runs here, and how it is changed."""

    def __init__(self, client: PersistClient, spark: SparkSession, folder: Path, clock: Clock):
        self.client = client
        self.spark = spark
        self.clock = clock
        self._folder = folder
        self._flows = Flows(client, spark, Arrangements(client, folder))
        self._workers: dict[str, tuple[Spec, Worker]] = {}
        self._lock = threading.Lock()

    def configure(self, wanted: Configure) -> None:
        """Start what is new, stop what is gone, leave the rest alone."""
        specs = {spec.id: spec for spec in (*wanted.sources, *wanted.dataflows, *wanted.sinks)}
        with self._lock:
            gone = {i: w for i, (spec, w) in self._workers.items() if specs.get(i) != spec}
            stop_all(gone.values())
            for id_ in gone:
                del self._workers[id_]
            for id_, spec in specs.items():
                if id_ not in self._workers:
                    self._workers[id_] = (spec, self._start(spec))

    def statuses(self) -> Statuses:
        with self._lock:
            return Statuses(
                os.getpid(), tuple(worker.status() for _, worker in self._workers.values())
            )

    def stop(self) -> None:
        with self._lock:
            stop_all(worker for _, worker in self._workers.values())

    def _start(self, spec: Spec) -> Worker:
        match spec:
            case DataflowSpec():
                return dataflow_worker(spec.id, lambda: self._view(spec), self.client)
            case GeneratorSource() | KafkaSource():
                return source_worker(
                    spec.id,
                    lambda: ingestion(
                        spec, client=self.client, spark=self.spark, folder=self._folder
                    ),
                    self.clock,
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
            flows=self._flows,
        )


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
                self._replica.configure(msgspec.json.decode(body, type=Configure))
                return [b"{}"]
            case "status":
                return [msgspec.json.encode(self._replica.statuses())]
            case "cancel":
                peek = msgspec.json.decode(body, type=CancelPeek)
                self._replica.spark.sparkContext.cancelJobGroup(peek.id)
                return [b"{}"]
        raise flight.FlightServerError(f"unknown action {action.type}")

    def do_get(self, context, ticket):
        self.last_heard = self._replica.clock.monotonic()
        peek = msgspec.json.decode(ticket.ticket, type=Peek)
        try:
            table = run_peek(self._replica.spark, self._replica.client, peek)
        except TidemarkError as error:
            raise flight.FlightServerError(error.message, encode_error(error)) from error
        except Exception as error:
            # Flight would send the whole traceback, which does not fit into a gRPC header.
            log.error("a query failed", peek=peek.id, exc_info=True)
            short = _failure(error)
            raise flight.FlightServerError(short.message, encode_error(short)) from None
        return flight.RecordBatchStream(table)


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Loopback is open to every local user; only who can read the address file may command."""

    def __init__(self, token: str):
        self._token = token

    def start_call(self, info, headers):
        given = headers.get("x-tidemark-token", [""])[0]
        if not secrets.compare_digest(given, self._token):
            raise flight.FlightUnauthenticatedError("wrong token")


class Failure(msgspec.Struct, frozen=True):
    message: str
    hint: str | None
    sqlstate: str


def _failure(error: Exception) -> TidemarkError:
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return Unavailable("the cluster has lost its JVM", hint="it restarts; try again")
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return TidemarkError(f"the query failed on the cluster: {line[:500]}")


def encode_error(error: TidemarkError) -> bytes:
    return msgspec.json.encode(Failure(error.message, error.hint, error.sqlstate))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("clusterd", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the server's data folder")
    parser.add_argument("--name", required=True, help="the cluster's name")
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
        master=options.spark_master, app=f"tidemark-{options.name}", blob=options.blob
    )
    warm_up(spark)
    client.start_maintenance(large=large_merges(spark, client))
    replica = Replica(client, spark, options.data / "cache", SYSTEM_CLOCK)
    token = secrets.token_hex(16)
    server = FlightServer(replica, token)
    address = Address(os.getpid(), server.port, token)
    _write_private(folder / f"{options.name}.json", msgspec.json.encode(address))
    log.info("ready", cluster=options.name, port=server.port)

    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    jvm = jvm_of(spark)
    while not stop.wait(0.2):
        if jvm.poll() is not None:
            log.error("the JVM is gone, stopping")
            os._exit(70)
        if SYSTEM_CLOCK.monotonic() - server.last_heard > ORPHANED_AFTER:
            log.warning("no word from control, stopping", seconds=ORPHANED_AFTER)
            break
    replica.stop()
    server.shutdown()
    client.close()
    stop_spark(spark)
    sys.exit(0)


def _write_private(path: Path, data: bytes) -> None:
    aside = path.with_suffix(".tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    aside.replace(path)


if __name__ == "__main__":
    main()
