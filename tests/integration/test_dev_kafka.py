"""`tidemark dev`: a broker and a registry that real clients and our Spark sessions can use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from serving import DEADLINE

from docs_blocks import commands, tried_by, unlike
from services import KafkaServer
from tidemark.dev.kafka import Broker
from tidemark.dev.produce import messages, send

ORDER = json.dumps(
    {
        "type": "record",
        "name": "order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)


def tidemark(*arguments: str | Path, given: str = "", check: bool = True) -> str:
    command = [sys.executable, "-m", "tidemark.cli", *map(str, arguments)]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else f"{done.returncode}: {done.stderr}"


@contextmanager
def consumer(settings: dict[str, str]) -> Iterator[Consumer]:
    options = {"group.id": "test", "auto.offset.reset": "earliest", "log_level": 0}
    opened = Consumer({**settings, **options})
    try:
        yield opened
    finally:
        opened.close()


def consume(settings: dict[str, str], topic: str, count: int) -> list[Message]:
    with consumer(settings) as reading:
        reading.subscribe([topic])
        found = reading.consume(count, timeout=DEADLINE)
    assert all(message.error() is None for message in found)
    return found


def test_the_command_line_from_up_to_down(kafka_folder: Path, spark: SparkSession) -> None:
    at = ("--folder", kafka_folder / "cli")
    assert "bootstrap.servers=127.0.0.1:" in tidemark("dev", "kafka", "up", *at, "--port", "0")
    broker = Broker.running(kafka_folder / "cli")
    try:
        assert broker.bootstrap in tidemark("dev", "kafka", "status", *at)
        assert "already" in tidemark("dev", "kafka", "up", *at, "--port", "0", check=False)
        kept = ("--config", "retention.ms=-1")
        tidemark("dev", "kafka", "topic", "orders", "--partitions", "2", *kept, *at)
        assert "orders" in tidemark("dev", "kafka", "topic", "--list", *at)
        lines = "a\t1\nb\t2\na\t\nno key\n"
        sent = tidemark("dev", "kafka", "produce", "orders", "--tombstones", *at, given=lines)
        assert sent == "4 messages\n"
        nowhere = tidemark("dev", "kafka", "produce", "typo", *at, given="x", check=False)
        assert nowhere.startswith("1: ")
        assert "there is no topic typo" in nowhere

        written = {(b"a", b"1"), (b"b", b"2"), (b"a", None), (None, b"no key")}
        found = consume(broker.client_settings(), "orders", 4)
        assert {(message.key(), message.value()) for message in found} == written

        pid = broker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        tidemark("dev", "kafka", "up", *at, "--port", broker.record.port)
        rows = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        read = rows.option("subscribe", "orders").load().collect()
        keys = [(row.key and bytes(row.key), row.value and bytes(row.value)) for row in read]
        assert len(keys) == 4
        assert set(keys) == written

        tidemark("dev", "kafka", "topic", "orders", "--delete", *at)
        assert "orders" not in tidemark("dev", "kafka", "topic", "--list", *at)
        tidemark("dev", "kafka", "down", *at)
        assert "no broker runs" in tidemark("dev", "kafka", "status", *at, check=False)
    finally:
        broker.stop()


def test_the_commands_of_the_docs(kafka_folder: Path, tmp_path: Path) -> None:
    """Of docs/operations.md, at ports that are free."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (block,) = tried_by("tests/integration/test_dev_kafka.py")
    try:
        for command, shown in commands(block):
            done = subprocess.run(
                ["sh", "-euc", command.replace(" up", " up --port 0")],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=DEADLINE,
            )
            assert done.returncode == 0, done.stderr
            assert unlike(done.stdout, shown) is None, done.stdout
    finally:
        for server in ("kafka", "registry"):
            folder = tmp_path / "dev.tidemark" / server
            tidemark("dev", server, "down", "--folder", folder, check=False)


def test_spark_reads_exactly_the_offsets_it_is_told(
    kafka: KafkaServer, spark: SparkSession
) -> None:
    kafka.create_topic("offsets")
    send(kafka.broker, "offsets", [(None, str(n).encode()) for n in range(10)])
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("assign", json.dumps({"offsets": [0]}))
        .option("startingOffsets", json.dumps({"offsets": {"0": 3}}))
        .option("endingOffsets", json.dumps({"offsets": {"0": 7}}))
        .load()
    )
    found = rows.select("offset", F.col("value").cast("string")).collect()
    assert [tuple(row) for row in found] == [(n, str(n)) for n in range(3, 7)]


def test_spark_writes_and_streams(kafka: KafkaServer, spark: SparkSession) -> None:
    kafka.create_topic("both_ways", partitions=2)
    at = {"kafka.bootstrap.servers": kafka.bootstrap}
    rows = spark.range(20).select(F.col("id").cast("string").alias("value"))
    rows.write.format("kafka").mode("append").options(**at, topic="both_ways").save()
    stream = spark.readStream.format("kafka").options(
        **at, subscribe="both_ways", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .writeStream.format("memory")
        .queryName("both_ways")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(DEADLINE))
    found = spark.sql("select cast(cast(value as string) as long) as n from both_ways").collect()
    spark.catalog.dropTempView("both_ways")
    assert sorted(row.n for row in found) == list(range(20))


@pytest.mark.parametrize(
    "security",
    ["sasl_scram", *(pytest.param(each, marks=pytest.mark.soak) for each in ("sasl_plain", "tls"))],
)
def test_only_those_who_may_are_let_in(
    security: str, kafka_folder: Path, spark: SparkSession, tmp_path: Path
) -> None:
    server = KafkaServer(kafka_folder / security, security=security)
    try:
        server.create_topic("secret")
        send(server.broker, "secret", [(b"k", b"v")])
        good = server.client_settings()
        assert [message.value() for message in consume(good, "secret", 1)] == [b"v"]

        bad = [{"security.protocol": "PLAINTEXT"}]
        if security == "tls":
            other = tmp_path / "ca.pem"
            command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=o")
            keys = ("-keyout", tmp_path / "key.pem", "-out", other)
            subprocess.run([*command, *keys], check=True, capture_output=True)
            bad.append({"ssl.ca.location": str(other)})
            protocol = {
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": good["ssl.ca.location"],
            }
        else:
            bad.append({"sasl.password": "wrong"})
            module = "plain.Plain" if security == "sasl_plain" else "scram.Scram"
            protocol = {
                "kafka.sasl.mechanism": good["sasl.mechanism"],
                "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule "
                f'required username="{good["sasl.username"]}" password="{good["sasl.password"]}";',
            }
        for change in bad:
            refused = AdminClient({**good, **change, "log_level": 0})
            with pytest.raises(KafkaException):
                refused.list_topics(timeout=3)

        rows = spark.read.format("kafka").options(**protocol).option("subscribe", "secret")
        rows = rows.option("kafka.bootstrap.servers", server.bootstrap)
        rows = rows.option("kafka.security.protocol", good["security.protocol"])
        assert [bytes(row.value) for row in rows.load().collect()] == [b"v"]
    finally:
        server.stop()


def test_avro_by_the_registry(kafka: KafkaServer, registry: str, spark: SparkSession) -> None:
    kafka.create_topic("avro")
    schemas = SchemaRegistryClient({"url": registry})
    context = SerializationContext("avro", MessageField.VALUE)
    order = {"id": 7, "item": "tea"}
    message = AvroSerializer(schemas, ORDER)(order, context)
    assert message is not None
    assert AvroDeserializer(schemas)(message, context) == order
    assert schemas.get_subjects() == ["avro-value"]
    latest = schemas.get_latest_version("avro-value")
    assert latest.version == 1
    assert int.from_bytes(message[1:5], "big") == latest.schema_id

    send(kafka.broker, "avro", [(None, message)])
    rows = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
    body = F.expr("substring(value, 6)")  # After the zero byte and the schema's id.
    found = rows.option("subscribe", "avro").load().select(from_avro(body, ORDER).alias("o"))
    assert [row.asDict() for row in found.select("o.*").collect()] == [order]


def test_the_registry_keeps_its_schemas(registry: str, tmp_path: Path) -> None:
    at = ("--folder", tmp_path)
    try:
        for _ in range(2):
            url = tidemark("dev", "registry", "up", *at, "--port", "0").strip()
            schemas = SchemaRegistryClient({"url": url})
            AvroSerializer(schemas, ORDER)(
                {"id": 1, "item": "x"}, SerializationContext("kept", MessageField.VALUE)
            )
            assert schemas.get_versions("kept-value") == [1]
            tidemark("dev", "registry", "down", *at)
    finally:
        tidemark("dev", "registry", "down", *at, check=False)


def test_lines_are_messages() -> None:
    lines = [b"k\tv\n", b"k\t\n", b"v\n", b"\n", b"a\tb\tc"]
    assert list(messages(lines, b"\t", tombstones=True)) == [
        *((b"k", b"v"), (b"k", None), (None, b"v"), (None, None), (b"a", b"b\tc")),
    ]
    assert list(messages([b"k\t\n"], b"\t", tombstones=False)) == [(b"k", b"")]
