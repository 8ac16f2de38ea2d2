"""What STORAGE can be told to run."""

from __future__ import annotations

import msgspec

from tidemark.storage.kafka.spec import KafkaSink, KafkaSource


class GeneratorSource(msgspec.Struct, frozen=True, tag="generator"):
    """A load generator into one shard per table (`shards`)."""

    id: str
    kind: str
    options: dict[str, str | int]
    remap: str
    shards: dict[str, str]
    tick_ms: int
    interval_ms: int
    up_to: int | None = None


Source = GeneratorSource | KafkaSource
Definition = Source | KafkaSink


def written_by(definition: Definition) -> tuple[str, ...]:
    """The shards that it writes, the remap shard last."""
    match definition:
        case GeneratorSource():
            return (*definition.shards.values(), definition.remap)
        case KafkaSource():
            return definition.output, definition.remap
        case KafkaSink():
            return ()
