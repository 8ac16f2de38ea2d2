"""Kafka sources and sinks: statements into catalog items.

What a source is, is settled here, once: its topic must be there, START TIMESTAMP becomes offsets,
and a registry's newest schemas become the reader's. From then on nothing about it changes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import NamedTuple

import msgspec

from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.checks import source_options
from tidemark.control.connection_ddl import item_of
from tidemark.control.connections import KafkaTarget, RegistryTarget, Uses
from tidemark.control.coordinator import Coordinator
from tidemark.control.hierarchy import two_databases
from tidemark.errors import InvalidUsage, SqlError, TidemarkError, Unavailable, Unsupported
from tidemark.storage.kafka.broker import KafkaBroker, TopicLost
from tidemark.storage.kafka.decode import avro_columns, protobuf_columns
from tidemark.storage.kafka.registry import Registry
from tidemark.storage.kafka.spec import Format, KafkaSink, KafkaSource
from tidemark.storage.remap import COLUMNS
from tidemark.types import check_columns

# Sources.


class _Topic(NamedTuple):
    """What Kafka says of a topic when a source is made."""

    id: str
    start_offsets: tuple[int, ...]


async def create_source(coordinator: Coordinator, statement: s.CreateKafkaSource) -> None:
    every_ms, retain_ms = source_options(statement.with_options)
    connection, target = _kafka(coordinator, statement.connection)
    debezium = statement.envelope == "debezium"
    if debezium and statement.value.kind not in ("json", "avro"):
        raise SqlError(
            f"ENVELOPE DEBEZIUM needs JSON or Avro values, not {statement.value.kind}",
            sqlstate="0A000",
        )
    topic = await asyncio.to_thread(_topic, coordinator, target, statement)
    key_registry = _registry(
        coordinator, statement.key or (statement.value if statement.both else None)
    )
    value_registry = _registry(coordinator, statement.value)
    key = await asyncio.to_thread(_key_format, coordinator, statement)
    value = await asyncio.to_thread(
        _format, coordinator, statement.value, f"{statement.topic}-value", debezium
    )
    uses = Uses(
        connection.id,
        key_registry.id if key_registry and key else None,
        value_registry.id if value_registry else None,
    )
    source = KafkaSource(
        id="",
        connection=target.without_values(),
        topic=statement.topic,
        value=value,
        remap="",
        output="",
        key=key,
        envelope=statement.envelope,
        include=statement.include,
        inline_errors=statement.inline_errors,
        key_names=_key_names(key, statement.key_name),
        start_offsets=topic.start_offsets,
        topic_id=topic.id,
        interval_ms=every_ms,
    )
    try:
        source.check()
    except InvalidUsage as error:
        raise SqlError(error.message, hint=error.hint, sqlstate="42601") from None
    check_columns(source.columns)
    name = statement.name[-1]
    progress = statement.progress or (*statement.name[:-1], f"{name}_progress")

    def make(ids: list[str]) -> tuple[list[Item], KafkaSource]:
        id_, progress_id = ids
        own = msgspec.structs.replace(source, id=id_, remap=f"{id_}-remap", output=id_)
        items = [
            Item(
                id_,
                name,
                "source",
                statement.sql,
                columns=source.columns,
                shard=own.output,
                depends=uses.ids,
                uses=uses,
                retain_ms=retain_ms,
            ),
            Item(
                progress_id,
                progress[-1],
                "progress",
                statement.sql,
                columns=COLUMNS,
                shard=own.remap,
                parent=id_,
            ),
        ]
        return items, own

    await coordinator.create_source([statement.name, progress], make, cluster=statement.cluster)


# Sinks.


async def create_sink(coordinator: Coordinator, statement: s.CreateSink) -> None:
    connection, target = _kafka(coordinator, statement.connection)
    relation = coordinator.relation(statement.relation)
    if relation.database != statement.name[0]:
        raise two_databases(statement.name[0], relation.database)
    shard = relation.shard
    if shard is None:
        raise Unsupported(
            f'"{relation.name}" is not stored, so it cannot be sent',
            hint="create a materialized view of it and send that",
        )
    sink = KafkaSink(
        id=statement.name[-1],
        connection=target.without_values(),
        topic=statement.topic,
        shard=shard,
        columns=relation.columns,
        key=statement.key,
        as_of=0,
        envelope=statement.envelope,
    )
    try:
        sink.check()
    except InvalidUsage as error:
        raise SqlError(error.message, hint=error.hint) from None
    await asyncio.to_thread(_check_answers, coordinator, target, statement.topic)

    depends = (relation.id, connection.id)

    def make(id_: str, name: str, own: str, as_of: int) -> tuple[Item, KafkaSink]:
        uses = Uses(connection.id)
        item = Item(id_, name, "sink", statement.sql, depends=depends, work=own, uses=uses)
        return item, msgspec.structs.replace(sink, id=own, as_of=as_of)

    await coordinator.create_sink(statement.name, shard, depends, make, cluster=statement.cluster)


def _check_answers(coordinator: Coordinator, target: KafkaTarget, topic: str) -> None:
    """The brokers must let us in; a topic that is not there is made by the sink."""
    broker = _broker(coordinator, target, topic)
    try:
        broker.marks()
    except TopicLost:
        pass
    except Unavailable as error:
        raise _unreachable(error) from None
    finally:
        broker.close()


# What both ask.


def _kafka(coordinator: Coordinator, name: s.Name) -> tuple[Item, KafkaTarget]:
    item = item_of(coordinator, name, "connection")
    if not isinstance(item.connection, KafkaTarget):
        raise SqlError(f'"{item.name}" is not a connection to Kafka', sqlstate="42809")
    return item, item.connection


def _topic(coordinator: Coordinator, target: KafkaTarget, statement: s.CreateKafkaSource) -> _Topic:
    """Ask the brokers for the topic; blocks."""
    topic = statement.topic
    broker = _broker(coordinator, target, topic)
    try:
        marks = broker.marks()
        offsets = statement.start_offsets
        if len(offsets) > len(marks):
            raise SqlError(
                f"START OFFSET specified more partitions ({len(offsets)}) than topic "
                f"({topic}) contains ({len(marks)})",
                sqlstate="22023",
            )
        for partition, offset in enumerate(offsets):
            if offset > marks[partition].high:
                raise SqlError(
                    f"START OFFSET {offset} of partition {partition} is past its end, "
                    f"{marks[partition].high}",
                    sqlstate="22023",
                )
        if (at := statement.start_timestamp) is not None:
            found = broker.offsets_at(at if at >= 0 else max(0, coordinator.clock.now_ms() + at))
            offsets = tuple(found.get(partition, 0) for partition in range(max(found) + 1))
        return _Topic(broker.topic_id(), offsets)
    except TopicLost:
        raise SqlError(
            f'topic "{topic}" does not exist',
            hint=f"create it at {target.brokers} first",
            sqlstate="42704",
        ) from None
    except Unavailable as error:
        raise _unreachable(error) from None
    finally:
        broker.close()


def _broker(coordinator: Coordinator, target: KafkaTarget, topic: str) -> KafkaBroker:
    try:
        return KafkaBroker(target.with_values(coordinator.secrets), topic)
    except Unavailable as error:
        raise SqlError(error.message, hint=error.hint, sqlstate="22023") from None


def _unreachable(error: Unavailable) -> SqlError:
    hint = "check the connection's BROKER, SECURITY PROTOCOL and secrets"
    return SqlError(error.message, hint=hint, sqlstate="08001")


# Formats.


def _registry(coordinator: Coordinator, format: s.Format | None) -> Item | None:
    if format is None or format.registry is None:
        return None
    item = item_of(coordinator, format.registry, "connection")
    if not isinstance(item.connection, RegistryTarget):
        raise SqlError(f'"{item.name}" is not a connection to a schema registry', sqlstate="42809")
    return item


def _key_format(coordinator: Coordinator, statement: s.CreateKafkaSource) -> Format | None:
    subject = f"{statement.topic}-key"
    if statement.key is not None:
        return _format(coordinator, statement.key, subject, False)
    wanted = statement.envelope != "none" or any(i.kind == "key" for i in statement.include)
    if not (statement.both and wanted):
        return None
    return _format(coordinator, statement.value, subject, False)


def _key_names(key: Format | None, name: str | None) -> tuple[str, ...]:
    """What the key's columns are called: one that its format has no name for is `key`."""
    if key is None:
        return ()
    if name is not None:
        if len(key.shape) > 1:
            raise SqlError(
                f"INCLUDE KEY AS {name} needs a key of one column, not {len(key.shape)}",
                hint="leave AS out: they have the names that the format gives them",
            )
        return (name,)
    return () if key.columns else ("key",)


def _format(coordinator: Coordinator, given: s.Format, subject: str, debezium: bool) -> Format:
    """The format with its columns; a registry is asked for its newest schema, which blocks."""
    try:
        match given.kind:
            case "avro":
                return _avro(coordinator, given, subject, debezium)
            case "protobuf":
                return _protobuf(given)
    except InvalidUsage as error:
        raise SqlError(error.message, hint=error.hint, sqlstate="22023") from None
    return Format(given.kind, columns=given.columns, delimiter=given.delimiter)


def _avro(coordinator: Coordinator, given: s.Format, subject: str, debezium: bool) -> Format:
    schema, stored = given.schema, None
    item = _registry(coordinator, given)
    if item is not None:
        assert isinstance(item.connection, RegistryTarget)
        schema = _newest(coordinator, item.connection, subject)
        stored = item.connection.without_values()
    assert schema is not None
    columns = avro_columns(schema, debezium=debezium)
    return Format("avro", columns=columns, schema=schema, registry=stored)


def _newest(coordinator: Coordinator, target: RegistryTarget, subject: str) -> str:
    try:
        found = Registry(target.with_values(coordinator.secrets)).version(subject)
    except TidemarkError as error:
        raise SqlError(error.message, hint=error.hint, sqlstate="08001") from None
    if found.kind != "AVRO":
        raise SqlError(f'subject "{subject}" is {found.kind.title()}, not Avro', sqlstate="42809")
    return found.text


def _protobuf(given: s.Format) -> Format:
    assert given.schema is not None
    assert given.message is not None
    text = given.schema.strip()
    try:
        if text.startswith("\\x"):
            text = base64.b64encode(bytes.fromhex(text[2:])).decode()
        base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise SqlError(
            "USING SCHEMA takes a descriptor set in base64, or in hexadecimal after \\x",
            hint="protoc --include_imports --descriptor_set_out=/dev/stdout x.proto | base64 -w0",
            sqlstate="22023",
        ) from None
    columns = protobuf_columns(text, given.message)
    return Format("protobuf", columns=columns, schema=text, message=given.message)
