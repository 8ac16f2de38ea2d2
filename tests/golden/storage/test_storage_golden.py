"""Runs the scenarios beside this file: ingestions of one upsert topic, stage by stage.

    produce to=1                    messages, a line each: key and value, `-` for null
    mint on=A                       each stage by itself, of an ingestion that is made on first use
    write on=A
    append on=A
    restart on=A                    what it has not appended is forgotten
    advance ms=1000                 of the clock
    updates | bindings              all there is in the output, and in the remap shard

The format is that of tests/scenarios.py; `Shell` has one method per command.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kafka_histories import source
from scenarios import check_scenario, scenarios_beside
from tidemark.clock import ManualClock
from tidemark.errors import TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.persist.updates import consolidate
from tidemark.storage.kafka.ingest import KafkaUpstream
from tidemark.storage.kafka.memory import MemoryBroker, Message
from tidemark.storage.kafka.spec import Format
from tidemark.storage.source import Ingestion, Written


@pytest.mark.parametrize("path", scenarios_beside(__file__), ids=lambda path: path.name)
def test_scenario(path: Path, spark: SparkSession, tmp_path: Path) -> None:
    check_scenario(path, Shell(spark, tmp_path).run)


class Shell:
    def __init__(self, spark: SparkSession, folder: Path):
        self._spark, self._folder = spark, folder
        self._clock = ManualClock(5_000)
        self._broker = MemoryBroker(2)
        self._source = source(key=Format("text"), value=Format("text"), key_names=("k",))
        self._running: dict[str, Ingestion] = {}
        self._upper: dict[str, Frontier] = {}
        self._written: dict[str, Written] = {}

    def run(self, line: str, rows: list[str]) -> list[str]:
        name, *words = line.split(" ")
        options = dict(word.split("=", 1) for word in words)
        try:
            return getattr(self, f"do_{name}")(rows=rows, **options)
        except TidemarkError as error:
            return [f"{type(error).__name__}: {error.message}"]

    def do_produce(self, rows: list[str], to: str = "0") -> list[str]:
        for row in rows:
            key, value = (None if x == "-" else x.encode() for x in row.split(" "))
            self._broker.partitions[int(to)].append(Message(key, value))
        return []

    def do_advance(self, rows: list[str], ms: str) -> list[str]:
        self._clock.advance(int(ms))
        return []

    def do_mint(self, rows: list[str], on: str) -> list[str]:
        self._upper[on] = self._ingestion(on).mint()
        return [f"decided before {self._upper[on]}"]

    def do_write(self, rows: list[str], on: str) -> list[str]:
        written = self._ingestion(on).write(self._upper[on])
        if written is None:
            return ["nothing to write"]
        self._written[on] = written
        stretch, (batch,) = written.stretch, written.batches.values()
        count = batch.num_rows if isinstance(batch, pa.Table) else batch.rows
        start, stop = dict(stretch.start), dict(stretch.stop)
        return [f"{count} updates of {start} to {stop}, from {stretch.lower} to {stretch.upper}"]

    def do_append(self, rows: list[str], on: str) -> list[str]:
        won = self._ingestion(on).append(self._written.pop(on))
        return ["appended" if won else "somebody was faster"]

    def do_restart(self, rows: list[str], on: str) -> list[str]:
        self._running.pop(on)
        self._written.pop(on, None)
        return []

    def do_lose(self, rows: list[str], partition: str, low: str) -> list[str]:
        self._broker.low[int(partition)] = int(low)
        return []

    def do_recreate(self, rows: list[str]) -> list[str]:
        self._broker.partitions = [[] for _ in self._broker.partitions]
        return []

    def do_add_partition(self, rows: list[str]) -> list[str]:
        self._broker.partitions.append([])
        self._broker.low.append(0)
        return []

    def do_updates(self, rows: list[str]) -> list[str]:
        return self._all("out")

    def do_bindings(self, rows: list[str]) -> list[str]:
        return self._all("remap")

    def _all(self, shard: str) -> list[str]:
        client = self._client()
        reader = client.open_reader(shard)
        found = consolidate(reader.updates(Frontier.MIN, reader.upper)).to_pylist()
        found.sort(key=lambda row: (row["_time"], row["_diff"], *map(str, row.values())))
        lines = []
        for row in found:
            time, diff, error = (row.pop(name) for name in ("_time", "_diff", "_err"))
            text = " ".join("-" if x is None else str(x) for x in row.values())
            lines.append(f"{text} @{time} {diff:+}" + (f" !{error}" if error else ""))
        return [*lines, f"upper {reader.upper}"]

    def _client(self) -> PersistClient:
        return PersistClient.open(
            blob=f"file://{self._folder / 'blob'}",
            consensus=f"sqlite://{self._folder / 'consensus.db'}",
            clock=self._clock,
        )

    def _ingestion(self, name: str) -> Ingestion:
        if name not in self._running:
            client = self._client()
            for shard in ("out", "remap"):
                client.open_critical_since(shard, "test").downgrade(Frontier(0))
            upstream = KafkaUpstream(
                self._source,
                self._broker,
                client=client,
                spark=self._spark,
                folder=self._folder / "cache",
            )
            self._running[name] = Ingestion(
                "s",
                upstream,
                client=client,
                remap="remap",
                shards={"data": "out"},
                interval_ms=1_000,
            )
        return self._running[name]
