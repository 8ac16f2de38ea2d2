"""Ingestions of one topic and their broker, killed again and again while messages flow.

In the end the collection is, at every binding, what the messages up to there say.
`CRASH_SEED` runs one history again; `make soak` runs more of them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest
from confluent_kafka import KafkaException
from serving import Serving

from kafka_child import open_client
from kafka_histories import random_message
from kafka_topics import check_every_binding, keep_history, producer_of
from services import KafkaServer, dying_with_parent
from tidemark.persist import PersistClient
from tidemark.storage.kafka.broker import KafkaBroker
from tidemark.storage.kafka.spec import KafkaConnection
from tidemark.storage.remap import Remap

PARTITIONS = 3
VICTIMS = ("control", "tidemark.compute.clusterd", "java", "everything", "broker")
CHILD = Path(__file__).parent.parent / "kafka_child.py"


def test_killed_again_and_again(kafka_folder: Path, tmp_path: Path, chance: Random) -> None:
    run(kafka_folder, tmp_path, chance, events=4)


@pytest.mark.soak
@pytest.mark.parametrize("attempt", range(5))
def test_killed_for_long(kafka_folder: Path, tmp_path: Path, chance: Random, attempt: int) -> None:
    run(kafka_folder, tmp_path, chance, events=60)


def run(kafka_folder: Path, folder: Path, random: Random, *, events: int) -> None:
    server = KafkaServer(kafka_folder / f"crash-{folder.name}")
    client = open_client(folder)
    keep_history(client)
    server.create_topic("t", partitions=PARTITIONS)
    traffic = Traffic(server, random.randrange(10**9))
    children = {name: Child(name, folder, server.bootstrap) for name in "AB"}
    try:
        for child in children.values():
            child.wait_until_running()
        for _ in range(events):
            time.sleep(random.uniform(0.5, 4.0))
            victim = random.choice(["A", "A", "B", "both", "broker"])
            if victim == "broker":
                server.kill()
                time.sleep(random.uniform(0.0, 2.0))
                server.start()
                continue
            for name in "AB" if victim == "both" else victim:
                children[name].kill()
                children[name] = Child(name, folder, server.bootstrap)
        traffic.stop()
        wait_until_caught_up(client, server)
    finally:
        traffic.stop()
        for child in children.values():
            child.kill()
    try:
        check_every_binding(client, server, "t")
        check_reads(client, folder / "reads")
        assert traffic.sent > 100
    finally:
        server.stop()


def check_reads(client: PersistClient, notes: Path) -> None:
    """No process has read what was in the collection when it was started, nor gone back."""
    remap = Remap(client, "remap")
    reads = [json.loads(line) for line in notes.read_text().splitlines()]
    assert reads
    before: dict[int, dict[str, int]] = {}
    for read in reads:
        done = remap.offsets_at(read["upper"] - 1)
        last = before.setdefault(read["process"], {})
        for partition, begin in read["begins"].items():
            assert begin >= max(done.get(int(partition), 0), last.get(partition, 0)), (read, done)
        last |= read["begins"]


def test_a_server_is_killed_with_its_source(
    kafka_folder: Path, tmp_path: Path, chance: Random
) -> None:
    run_server(kafka_folder, tmp_path, chance, kills=3)


@pytest.mark.soak
def test_a_server_is_killed_for_long(kafka_folder: Path, tmp_path: Path, chance: Random) -> None:
    run_server(kafka_folder, tmp_path, chance, kills=50)


def run_server(kafka_folder: Path, folder: Path, random: Random, *, kills: int) -> None:
    """The same through SQL: control, clusterd, its JVM, all of them and the broker are killed."""
    broker = KafkaServer(kafka_folder / f"server-crash-{folder.name}")
    broker.create_topic("t", partitions=PARTITIONS)
    server = Serving(folder / "data").start()
    traffic = Traffic(broker, random.randrange(10**9))
    try:
        with server.connect() as connection:
            connection.execute(
                f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.bootstrap}', "
                "SECURITY PROTOCOL 'PLAINTEXT')"
            )
            connection.execute(
                "CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC 't') "
                "KEY FORMAT JSON (id bigint, part text) "
                "VALUE FORMAT JSON (amount bigint, note text) "
                "ENVELOPE UPSERT WITH (TIMESTAMP INTERVAL '200ms')"
            )
            found = connection.execute("SELECT id FROM mz_objects WHERE name = 's'").fetchone()
        assert found is not None
        shard, remap_shard = found[0], f"{found[0]}-remap"
        client = open_client(folder / "data")
        keep_history(client, (shard, remap_shard))
        for _ in range(kills):
            time.sleep(random.uniform(0.5, 4.0))
            kill(random.choice(VICTIMS), server, broker)
        traffic.stop()
        wait_until_caught_up(client, broker, 240, shard=shard, remap_shard=remap_shard)
        check_every_binding(client, broker, "t", shard=shard, remap_shard=remap_shard)
        assert traffic.sent > 100
    finally:
        traffic.stop()
        server.destroy()
        broker.stop()


def kill(victim: str, server: Serving, broker: KafkaServer) -> None:
    match victim:
        case "control":
            server.kill_control()
            server.start()
        case "everything":
            server.kill_all()
            server.start()
        case "broker":
            broker.kill()
            broker.start()
        case program:
            for pid in server.pids(program):
                os.kill(pid, signal.SIGKILL)


class Child:
    """A process with an ingestion; its JVM goes with it. B's tasks do all of the work, as they do
    where there are many messages; the driver of A does what it can."""

    def __init__(self, name: str, folder: Path, brokers: str):
        few = {"FEW_MESSAGES": "0"} if name == "B" else {}
        self._log = open(folder / "children.log", "ab")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), str(folder), brokers, "t"],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, **few, "PYTHONPATH": str(CHILD.parent)},
            preexec_fn=dying_with_parent(signal.SIGKILL),
        )

    def wait_until_running(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"running\n"

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


class Traffic:
    """Messages from two producers, one of them in transactions, until told to stop."""

    def __init__(self, server: KafkaServer, seed: int):
        self.sent = 0
        self._server = server
        self._random = Random(seed)
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._produce()
            except KafkaException:
                time.sleep(0.2)  # The broker is away; producers are made anew.

    def _produce(self) -> None:
        random = self._random
        plain = producer_of(self._server)
        careful = producer_of(
            self._server, **{"transactional.id": "traffic", "transaction.timeout.ms": "5000"}
        )
        careful.init_transactions(10)
        while not self._stop.wait(0.02):
            whole = random.random() < 0.2
            producer = careful if whole else plain
            if whole:
                careful.begin_transaction()
            for _ in range(random.randrange(1, 12)):
                message = random_message(random, keys=40)
                to = random.randrange(PARTITIONS)
                producer.produce("t", key=message.key, value=message.value, partition=to)
                self.sent += 1
            producer.flush(5)
            if whole and random.random() < 0.3:
                careful.abort_transaction(10)
            elif whole:
                careful.commit_transaction(10)


def wait_until_caught_up(
    client: PersistClient,
    server: KafkaServer,
    seconds: float = 240,
    *,
    shard: str = "out",
    remap_shard: str = "remap",
) -> None:
    """Until all that is in the topic is in the collection."""
    broker = KafkaBroker(KafkaConnection(server.bootstrap), "t")
    time.sleep(6.0)  # Transactions that were left open end.
    wanted = {partition: marks.high for partition, marks in broker.marks().items()}
    remap = Remap(client, remap_shard)
    deadline = time.monotonic() + seconds
    while True:
        done = remap.offsets_at((client.state(shard).upper.time or 0) - 1)
        if all(done.get(partition, 0) >= high for partition, high in wanted.items()):
            return
        assert time.monotonic() < deadline, f"only {done} of {wanted}"
        time.sleep(0.2)
