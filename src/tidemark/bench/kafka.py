"""`tidemark bench kafka`: a Kafka source, on a real broker on the same machine.

    catch-up   a backlog of JSON upserts, against plain Spark that reads the same range, parses the
               same JSON and writes Parquet; and the most memory that both backlogs, this one and a
               fifth of it, have needed
    steady     messages at a constant rate: from the moment that one is produced to the moment that
               it can be read at a sealed time
    restart    SIGKILL in the middle of a step, with many keys: from the moment that Spark is up
               again to the first append, and how much of what was read is read again
    interval   1,000 messages a step, with many keys and with few, in turn

On local files and SQLite with full durability.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import IO, NamedTuple

import numpy as np
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from tidemark.bench.memory import family
from tidemark.bench.persist import Bar, bar_table
from tidemark.bench.spark_io import Metrics, timed
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.warm import warm_up
from tidemark.dev.kafka import Broker
from tidemark.logs import configure_logging
from tidemark.persist import PersistClient
from tidemark.persist.config import MIB
from tidemark.spark.session import LARGE, session_for, start_spark
from tidemark.storage.ingestions import ingestion
from tidemark.storage.kafka.broker import KafkaBroker
from tidemark.storage.kafka.spec import Format, KafkaConnection, KafkaSource
from tidemark.storage.source import Ingestion
from tidemark.types import BIGINT, DOUBLE, TEXT, Column

PARTITIONS = 8
WARM_UP = 30
"""Steps of a fresh process that are not measured."""

KEY = Format("json", (Column("id", BIGINT),))
VALUE = Format("json", (Column("customer", BIGINT), Column("amount", DOUBLE), Column("note", TEXT)))


class Size(NamedTuple):
    messages: int
    keys: int
    many_keys: int
    few_keys: int
    rate: int
    seconds: int
    rounds: int


QUICK = Size(500_000, 100_000, 500_000, 50_000, 2_000, 10, 10)
FULL = Size(5_000_000, 1_000_000, 5_000_000, 100_000, 10_000, 40, 30)

BARS = [
    Bar("catchup_vs_spark", "backlog / plain Spark to Parquet", most=2.5),
    Bar("peak_rss_growth", "memory of the backlog / of a fifth of it", most=1.2),
    Bar("freshness_p50_ms", "produced to readable, median, ms", most=1_500),
    Bar("freshness_p99_ms", "the same, 99th percentile, ms", most=3_000),
    Bar("restart_s", "Spark is up to first append after SIGKILL, s", most=5),
    Bar("reread_intervals", "messages read again, in intervals", most=2),
    Bar("interval_growth", "1,000 messages with many keys / with few", most=1.3),
]


def run(*, quick: bool) -> None:
    size = QUICK if quick else FULL
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker.at(Path(folder) / "kafka", port=0)
        broker.start()
        try:
            metrics = Trial(Path(folder), broker, size, console).run()
        finally:
            broker.stop()
    console.print(bar_table(metrics, BARS))
    print(json.dumps(metrics))


class Trial:
    def __init__(self, folder: Path, broker: Broker, size: Size, console: Console):
        self._folder = folder
        self._broker = broker
        self._size = size
        self._say = console.log

    def run(self) -> Metrics:
        self._others = set(family()) - {os.getpid()}  # The broker.
        spark = start_spark(app="tidemark-bench")
        large = session_for(spark, LARGE)
        size, metrics = self._size, {}
        for topic, count, keys in (
            ("warm", size.messages // 50, size.keys // 50),
            ("fifth", size.messages // 5, size.keys // 5),
            ("backlog", size.messages, size.keys),
            ("many", size.many_keys, size.many_keys),
            ("few", size.few_keys, size.few_keys),
        ):
            self._say(f"producing {count:,} messages")
            self._broker.create_topic(topic, partitions=PARTITIONS)
            self._fill(large, topic, count, keys)
        metrics |= self._catch_up(spark, large)
        metrics |= self._intervals(spark)
        spark.stop()
        return metrics | self._steady_and_restart()

    # The backlog.

    def _catch_up(self, spark: SparkSession, large: SparkSession) -> Metrics:
        peaks = {}
        for topic in ("warm", "fifth", "backlog"):
            self._say(f"catching up: {topic}")
            with Peak(self._others) as peak, self._opened(spark, topic) as ingestion:
                ours = timed(ingestion.step)
            peaks[topic] = peak.most / MIB
            theirs = timed(lambda t=topic: self._plain(large, t))
            self._say(f"{topic}: {ours:.1f} s, plain Spark {theirs:.1f} s")
        return {
            "catchup_s": ours,
            "catchup_messages_s": self._size.messages / ours,
            "catchup_vs_spark": ours / theirs,
            "peak_rss_mib": peaks["backlog"],
            "peak_rss_growth": peaks["backlog"] / peaks["fifth"],
        }

    def _plain(self, spark: SparkSession, topic: str) -> None:
        """What a Spark user would write: the same range, the same JSON, to Parquet."""
        broker = KafkaBroker(self._connection, topic)
        ranges = {p: (m.low, m.high) for p, m in broker.marks().items()}
        key, value = (
            F.from_json(F.col(name).cast("string"), _ddl(format))
            for name, format in (("key", KEY), ("value", VALUE))
        )
        parsed = broker.read(spark, ranges).select(key.alias("k"), value.alias("v"))
        parsed.select("k.*", "v.*").write.parquet(str(self._folder / f"plain-{topic}"))

    def _fill(self, spark: SparkSession, topic: str, count: int, keys: int) -> None:
        rows = spark.range(0, count, 1, 4)
        key = (F.col("id") * 7_919) % keys
        frame = rows.select(
            F.to_json(F.struct(key.alias("id"))).alias("key"),
            F.to_json(
                F.struct(
                    (F.col("id") % 1_000).alias("customer"),
                    (F.col("id") * 0.25).alias("amount"),
                    F.concat(F.lit("note "), F.col("id")).alias("note"),
                )
            ).alias("value"),
            (key % PARTITIONS).cast("int").alias("partition"),
        )
        writer = frame.write.format("kafka").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", self._broker.bootstrap).save()

    # Steps of 1,000 messages.

    def _intervals(self, spark: SparkSession) -> Metrics:
        seconds: dict[str, list[float]] = {"many": [], "few": []}
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        opened = {topic: self._opened(spark, topic, interval_ms=1) for topic in seconds}
        with opened["many"] as many, opened["few"] as few:
            running = {"many": many, "few": few}
            for topic, ingestion in running.items():
                self._say(f"loading {topic}")
                ingestion.step()
            for turn in range(self._size.rounds + 5):
                for topic, ingestion in running.items():
                    keys = self._size.many_keys if topic == "many" else self._size.few_keys
                    _send(producer, topic, 1_000, keys, turn)
                    seconds[topic].append(timed(ingestion.step))
        slow, fast = (median(seconds[topic][5:]) for topic in ("many", "few"))
        return {
            "interval_many_ms": 1_000 * slow,
            "interval_few_ms": 1_000 * fast,
            "interval_growth": slow / fast,
        }

    # A constant rate, and a kill.

    def _steady_and_restart(self) -> Metrics:
        """In a process of its own, that can be killed; on the shards of `many`."""
        load = Load(self._broker.bootstrap, "many", self._size)
        first = Child(self._folder, self._broker.bootstrap, "many")
        first.wait_for_steps(2)
        load.start()
        self._say("a fresh JVM warms up")
        first.wait_for_steps(WARM_UP)
        self._say(f"steps at {self._size.rate:,} messages a second")
        first.wait_for_steps(self._size.seconds)
        first.wait_until_reading()
        first.kill()
        SYSTEM_CLOCK.sleep(1.0)
        second = Child(self._folder, self._broker.bootstrap, "many")
        second.wait_for_steps(5)
        load.stop()
        second.kill()
        lags = load.lags(first.steps[2 + WARM_UP :])
        begin = second.steps[0]
        assert sum(begin.offsets.values()) > begin.start, "nothing was left to read"
        self._say(f"{len(lags):,} messages at {self._size.rate:,}/s")
        return {
            "freshness_p50_ms": float(np.percentile(lags, 50)),
            "freshness_p99_ms": float(np.percentile(lags, 99)),
            "restart_s": begin.at - second.ready,
            "restart_from_nothing_s": begin.at - second.started,
            "reread_intervals": max(0, first.reading - begin.start) / self._size.rate,
        }

    @property
    def _connection(self) -> KafkaConnection:
        return KafkaConnection(self._broker.bootstrap)

    def _opened(self, spark: SparkSession, topic: str, *, interval_ms: int = 1_000) -> Opened:
        return Opened(spark, self._folder, self._broker.bootstrap, topic, interval_ms)


class Opened:
    """A source on a topic, in shards of its own."""

    def __init__(
        self, spark: SparkSession, folder: Path, bootstrap: str, topic: str, interval_ms: int
    ):
        self.client = PersistClient.open(
            blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
        )
        self.client.start_maintenance()
        source = KafkaSource(
            id=topic,
            connection=KafkaConnection(bootstrap),
            topic=topic,
            key=KEY,
            value=VALUE,
            envelope="upsert",
            remap=f"{topic}-remap",
            output=topic,
            interval_ms=interval_ms,
        )
        self._ingestion = ingestion(
            source, client=self.client, spark=spark, folder=folder / "cache"
        )

    def __enter__(self) -> Ingestion:
        return self._ingestion

    def __exit__(self, *_: object) -> None:
        self._ingestion.close()
        self.client.close()


class Step(NamedTuple):
    """Of the child: when a step ended, how many messages were there before, and how far it got."""

    at: float
    start: int
    offsets: dict[int, int]


class Child:
    """A process that runs the source, and says before each step how far it will read, and after
    it how far it is."""

    def __init__(self, folder: Path, bootstrap: str, topic: str):
        self.steps: list[Step] = []
        self.started = SYSTEM_CLOCK.now_ms() / 1_000
        self.ready = 0.0
        self.reading = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidemark.bench.kafka", str(folder), bootstrap, topic],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_for_steps(self, count: int) -> None:
        until = len(self.steps) + count
        while len(self.steps) < until:
            self._hear()

    def wait_until_reading(self) -> None:
        before = self.reading
        while self.reading == before:
            self._hear()

    def _hear(self) -> None:
        output: IO[bytes] | None = self._process.stdout
        assert output is not None
        line = output.readline()
        if not line:
            raise SystemExit("the source has stopped")
        match json.loads(line):
            case {"ready": at}:
                self.ready = at
            case {"reading": count}:
                self.reading = count
            case {"at": at, "start": start, "offsets": offsets}:
                self.steps.append(Step(at, start, {int(p): o for p, o in offsets.items()}))

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Load:
    """Messages at a constant rate to all partitions, in order, so that offsets tell when each
    was sent."""

    EVERY = 0.05

    def __init__(self, bootstrap: str, topic: str, size: Size):
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._keys = size.many_keys
        self._each = max(1, int(size.rate * self.EVERY) // PARTITIONS)
        marks = KafkaBroker(KafkaConnection(bootstrap), topic).marks()
        self._base = {partition: mark.high for partition, mark in marks.items()}
        self._sent: list[float] = []
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush()

    def lags(self, steps: list[Step]) -> np.ndarray:
        """Of every message that became readable in `steps`: how long that took, in ms."""
        found = []
        done = dict(steps[0].offsets)
        sent = np.array(self._sent)
        for step in steps[1:]:
            for partition, offset in step.offsets.items():
                numbers = np.arange(done[partition], offset) - self._base[partition]
                found.append(1_000 * (step.at - sent[numbers // self._each]))
                done[partition] = max(done[partition], offset)
        return np.concatenate(found)

    def _run(self) -> None:
        turn, due = 0, SYSTEM_CLOCK.monotonic()
        while not self._stop.is_set():
            self._sent.append(SYSTEM_CLOCK.now_ms() / 1_000)
            for partition in range(PARTITIONS):
                messages = [
                    _message((turn * self._each + i) * 101 * PARTITIONS + partition, self._keys)
                    for i in range(self._each)
                ]
                self._producer.produce_batch(self._topic, messages, partition=partition)
            self._producer.poll(0)
            turn, due = turn + 1, due + self.EVERY
            SYSTEM_CLOCK.sleep(max(0.0, due - SYSTEM_CLOCK.monotonic()))


class Peak:
    """The most memory that this process and its children have together, but for `others`."""

    def __init__(self, others: set[int]) -> None:
        self.most = 0
        self._others = others
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            found = family()
            self.most = max(self.most, sum(found[pid] for pid in found.keys() - self._others))


def _message(number: int, keys: int) -> dict[str, str]:
    return {
        "key": f'{{"id":{number % keys}}}',
        "value": f'{{"customer":{number % 1_000},"amount":{number}.5,"note":"again {number}"}}',
    }


def _send(producer: Producer, topic: str, count: int, keys: int, turn: int) -> None:
    numbers = (turn * count + i for i in range(count))
    messages = [{**_message(n * 104_729, keys), "partition": n % PARTITIONS} for n in numbers]
    producer.produce_batch(topic, messages)
    producer.flush()


def _ddl(format: Format) -> str:
    return ", ".join(f"{column.name} {column.type.spark}" for column in format.shape)


def _child(folder: str, bootstrap: str, topic: str) -> None:
    configure_logging(logging.WARNING)
    # As `clusterd` does it.
    spark: SparkSession = start_spark(app="tidemark-bench-child")
    warm_up(spark)
    print(json.dumps({"ready": SYSTEM_CLOCK.now_ms() / 1_000}), flush=True)
    with Opened(spark, Path(folder), bootstrap, topic, 1_000) as ingestion:
        while True:
            # As `step` does it, and saying so in between.
            start = sum(ingestion.committed().values())
            ingestion.finish()
            said = {"at": SYSTEM_CLOCK.now_ms() / 1_000, "start": start}
            print(json.dumps({**said, "offsets": ingestion.committed()}), flush=True)
            pause = (ingestion.next_mint_ms() - SYSTEM_CLOCK.now_ms()) / 1_000
            SYSTEM_CLOCK.sleep(max(0.0, pause))
            ingestion.mint()
            print(json.dumps({"reading": ingestion.statistics.offset_known}), flush=True)


if __name__ == "__main__":
    _child(*sys.argv[1:])
