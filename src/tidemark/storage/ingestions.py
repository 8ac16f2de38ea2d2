"""From the definition of a source to an ingestion that runs it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.clock import Clock
from tidemark.persist import PersistClient
from tidemark.storage.generated import Generated
from tidemark.storage.generators import generator
from tidemark.storage.kafka.broker import KafkaBroker
from tidemark.storage.kafka.ingest import TABLE, KafkaUpstream
from tidemark.storage.kafka.spec import KafkaSource
from tidemark.storage.source import Ingestion, Upstream
from tidemark.storage.spec import GeneratorSource, Source


def ingestion(
    source: Source,
    *,
    client: PersistClient,
    spark: SparkSession,
    folder: Path,
    clock: Clock | None = None,
) -> Ingestion:
    """`folder` is for arrangements; `clock` is what bindings take their times from."""
    upstream: Upstream
    match source:
        case GeneratorSource():
            made = generator(source.kind, dict(source.options))
            upstream = Generated(made, tick_ms=source.tick_ms, up_to=source.up_to)
            shards = source.shards
        case KafkaSource():
            broker = KafkaBroker(source.connection, source.topic, group=f"tidemark-{source.id}")
            upstream = KafkaUpstream(source, broker, client=client, spark=spark, folder=folder)
            shards = {TABLE: source.output}
    return Ingestion(
        source.id,
        upstream,
        client=client,
        remap=source.remap,
        shards=shards,
        interval_ms=source.interval_ms,
        clock=clock,
    )


def secrets_of(source: Source) -> list[str]:
    """What must never be shown of it."""
    if isinstance(source, GeneratorSource):
        return []
    registries = [f.registry for f in (source.key, source.value) if f is not None and f.registry]
    passwords = [registry.password or "" for registry in registries]
    return [*source.connection.secrets.values(), *passwords]
