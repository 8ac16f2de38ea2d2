"""Connections: how to reach what is outside, as the catalog has it, and as a replica is told.

    catalog    brokers, settings, and of secrets the names
    replica    the same with the secrets' values

Between the two is `resolved`, and nothing else puts values of secrets into anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.control.secrets import Secrets
from tidemark.storage.kafka.spec import (
    Format,
    KafkaConnection,
    KafkaSink,
    KafkaSource,
    RegistryConnection,
)


class KafkaTarget(msgspec.Struct, frozen=True, omit_defaults=True, tag="kafka"):
    """`settings` by librdkafka's names; `secrets` are settings by the names of their secrets."""

    brokers: str
    settings: dict[str, str] = {}
    secrets: dict[str, str] = {}

    def with_values(self, secrets: Secrets) -> KafkaConnection:
        values = {setting: secrets.read(name) for setting, name in self.secrets.items()}
        return KafkaConnection(self.brokers, self.settings, values)

    def without_values(self) -> KafkaConnection:
        return KafkaConnection(self.brokers, self.settings)


class RegistryTarget(
    msgspec.Struct, frozen=True, omit_defaults=True, tag="confluent-schema-registry"
):
    """`password` is the name of a secret."""

    url: str
    user: str | None = None
    password: str | None = None

    def with_values(self, secrets: Secrets) -> RegistryConnection:
        password = secrets.read(self.password) if self.password is not None else None
        return RegistryConnection(self.url, self.user, password)

    def without_values(self) -> RegistryConnection:
        return RegistryConnection(self.url, self.user)


Target = KafkaTarget | RegistryTarget


def kind_of(target: Target) -> str:
    return "kafka" if isinstance(target, KafkaTarget) else "confluent-schema-registry"


class Uses(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids of the connections of a source: Kafka's, and the registries of its formats."""

    kafka: str
    key: str | None = None
    value: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        given = (self.kafka, self.key, self.value)
        return tuple(dict.fromkeys(id_ for id_ in given if id_ is not None))


def resolved(
    definition: KafkaSource | KafkaSink,
    uses: Uses,
    targets: Mapping[str, Target],
    secrets: Secrets,
) -> KafkaSource | KafkaSink:
    """The source or sink as a replica is told, with the values of its secrets."""

    def with_registry(format: Format, id_: str | None) -> Format:
        if id_ is None:
            return format
        target = targets[id_]
        assert isinstance(target, RegistryTarget)
        return msgspec.structs.replace(format, registry=target.with_values(secrets))

    kafka = targets[uses.kafka]
    assert isinstance(kafka, KafkaTarget)
    reached = msgspec.structs.replace(definition, connection=kafka.with_values(secrets))
    if isinstance(reached, KafkaSink):
        return reached
    return msgspec.structs.replace(
        reached,
        key=reached.key and with_registry(reached.key, uses.key),
        value=with_registry(reached.value, uses.value),
    )
