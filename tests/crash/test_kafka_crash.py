"""Ingestions of one topic and their broker, killed again and again while messages flow.

In the end the collection is, at every binding, what the messages up to there say.
`CRASH_SEED` runs one history again; `make soak` runs more of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Thread

import pytest
from confluent_kafka import KafkaException

from kafka_child import open_client
from kafka_histories import random_message
from kafka_topics import check_every_binding, keep_history, producer_of
from services import KafkaServer, dying_with_parent
from tidemark.persist import PersistClient
from tidemark.storage.kafka.broker import KafkaBroker
from tidemark.storage.kafka.spec import KafkaConnection
from tidemark.storage.remap import Remap

PARTITIONS = 3
CHILD = Path(__file__).parent.parent / "kafka_child.py"


def test_killed_again_and_again(kafka_folder: Path, tmp_path: Path) -> None:
    run(kafka_folder, tmp_path, events=6)


@pytest.mark.soak
@pytest.mark.parametrize("attempt", range(5))
def test_killed_for_long(kafka_folder: Path, tmp_path: Path, attempt: int) -> None:
    run(kafka_folder, tmp_path, events=60)


def run(kafka_folder: Path, folder: Path, *, events: int) -> None:
    seed = int(os.environ.get("CRASH_SEED") or SystemRandom().randrange(10**6))
    print(f"CRASH_SEED={seed}")
    random = Random(seed)
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
        assert client.state("out").upper <= Remap(client, "remap").upper
        check_every_binding(client, server, "t")
        assert traffic.sent > 100
    finally:
        server.stop()


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


def wait_until_caught_up(client: PersistClient, server: KafkaServer, seconds: float = 120) -> None:
    """Until all that is in the topic is in the collection."""
    broker = KafkaBroker(KafkaConnection(server.bootstrap), "t")
    time.sleep(6.0)  # Transactions that were left open end.
    wanted = {partition: marks.high for partition, marks in broker.marks().items()}
    remap = Remap(client, "remap")
    deadline = time.monotonic() + seconds
    while True:
        done = remap.offsets_at((client.state("out").upper.time or 0) - 1)
        if all(done.get(partition, 0) >= high for partition, high in wanted.items()):
            return
        assert time.monotonic() < deadline, f"only {done} of {wanted}"
        time.sleep(0.2)
