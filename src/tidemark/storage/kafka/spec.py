"""What Kafka sources and sinks are: values that are stored in the catalog and sent to replicas.

    connection   where the brokers are, and how to be let in
    key, value   the format of each, and the columns it makes
    envelope     what a message means: none      a row
                                       upsert    the row of its key from now on
                                       debezium  the same, in a change event's `after`
    include      columns of the message itself

The columns of the collection are those of the key (if the envelope has one, or it is included),
then the value's, then the included ones.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.types import BIGINT, BYTEA, INTEGER, JSONB, TEXT, TIMESTAMP, Column

Envelope = Literal["none", "upsert", "debezium"]
FormatKind = Literal["json", "avro", "protobuf", "csv", "text", "bytes"]
Metadata = Literal["key", "partition", "offset", "timestamp", "headers", "header"]


class KafkaConnection(msgspec.Struct, frozen=True, omit_defaults=True):
    """`settings` are librdkafka's names (security.protocol, sasl.mechanism, ...); `secrets` are
    settings that are never shown."""

    brokers: str
    settings: dict[str, str] = {}
    secrets: dict[str, str] = {}

    def __repr__(self) -> str:
        hidden = dict.fromkeys(self.secrets, "***")
        return f"KafkaConnection({self.brokers!r}, {self.settings | hidden})"


class RegistryConnection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema registry with Confluent's REST interface."""

    url: str
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"RegistryConnection({self.url!r}, user={self.user!r})"


class Format(msgspec.Struct, frozen=True, omit_defaults=True):
    """How bytes become columns.

    json      `columns` of an object, or without them one column `data` with all of it
    avro      `schema` is the reader's, pinned when the source is made; with a `registry`
              messages name their writer's, else they are all written with `schema`
    protobuf  `schema` is a base64 FileDescriptorSet, `message` the type in it
    csv       `columns`, all text
    text      one column `text`
    bytes     one column `data`
    """

    kind: FormatKind
    columns: tuple[Column, ...] = ()
    schema: str | None = None
    registry: RegistryConnection | None = None
    message: str | None = None
    delimiter: str = ","

    @property
    def shape(self) -> tuple[Column, ...]:
        """The columns it makes."""
        if self.columns:
            return self.columns
        alone = {"json": ("data", JSONB), "text": ("text", TEXT), "bytes": ("data", BYTEA)}
        if self.kind not in alone:
            raise InvalidUsage(f"a {self.kind} format must say its columns")
        return (Column(*alone[self.kind]),)


class Include(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of the message itself: `header` is the name of a header, for kind "header"."""

    kind: Metadata
    name: str
    header: str | None = None
    as_bytes: bool = False

    @property
    def column(self) -> Column:
        kinds = {
            "partition": INTEGER,
            "offset": BIGINT,
            "timestamp": TIMESTAMP,
            "headers": JSONB,
            "header": BYTEA if self.as_bytes else TEXT,
        }
        return Column(self.name, kinds[self.kind])


class KafkaSource(msgspec.Struct, frozen=True, omit_defaults=True, tag="kafka"):
    """A topic as a collection in the shard `output`; its bindings are in the shard `remap`."""

    id: str
    connection: KafkaConnection
    topic: str
    value: Format
    remap: str
    output: str
    key: Format | None = None
    envelope: Envelope = "none"
    include: tuple[Include, ...] = ()
    inline_errors: str | None = None
    """UPSERT only: the column that takes the errors of values, whose source stays readable."""
    key_names: tuple[str, ...] = ()
    """What the key's columns are called here, if not as its format calls them."""
    start_offsets: tuple[int, ...] = ()
    topic_id: str | None = None
    """What the topic was when the source was made, to tell it from another of its name."""
    interval_ms: int = 1_000

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key that are part of the collection."""
        wanted = self.envelope != "none" or any(i.kind == "key" for i in self.include)
        if not wanted or self.key is None:
            return ()
        shape = self.key.shape
        names = self.key_names or tuple(column.name for column in shape)
        return tuple(Column(n, column.type) for n, column in zip(names, shape, strict=True))

    @property
    def columns(self) -> tuple[Column, ...]:
        keys = {column.name for column in self.key_columns}
        values = [c for c in self.value.shape if c.name not in keys or self.envelope == "none"]
        error = [Column(self.inline_errors, JSONB)] if self.inline_errors else []
        own = [i.column for i in self.include if i.kind != "key"]
        return (*self.key_columns, *values, *error, *own)

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if self.envelope != "none" and self.key is None:
            raise InvalidUsage(
                f"ENVELOPE {self.envelope.upper()} needs a key", hint="add KEY FORMAT ... "
            )
        if any(i.kind == "key" for i in self.include) and self.key is None:
            raise InvalidUsage("INCLUDE KEY needs a key format", hint="add KEY FORMAT ...")
        if self.inline_errors and self.envelope != "upsert":
            raise InvalidUsage("only ENVELOPE UPSERT can have value decoding errors inline")
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidUsage(
                f'column "{twice[0]}" would be there twice',
                hint="give one of them another name with AS",
            )


def sink_holder(id_: str) -> str:
    """The name under which a sink holds back the since of what it sends."""
    return f"sink-{id_}"


class KafkaSink(msgspec.Struct, frozen=True, omit_defaults=True, tag="kafka-sink"):
    """The collection in `shard`, from `as_of` on, as messages in `topic`.

    `id` is unique among all that use the Kafka cluster: it names the transactions and the progress.
    """

    id: str
    connection: KafkaConnection
    topic: str
    shard: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    as_of: int
    envelope: Literal["upsert", "debezium"] = "upsert"
    format: Literal["json"] = "json"
    unique: bool = False
    """The plan proves that a key never has several rows, so that nothing need be looked up."""
    progress_topic: str = "_tidemark_progress"
    partitions: int = -1
    """Of the topic, if it must be created; -1 leaves it to the broker."""
    replication: int = -1
    topic_config: dict[str, str] = {}

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    def check(self) -> None:
        """Refuse what contradicts itself."""
        names = [column.name for column in self.columns]
        if not self.key or len(set(self.key)) < len(self.key):
            raise InvalidUsage(
                f"sink {self.id} needs a key of different columns, got {self.key}",
                hint="add KEY (...)",
            )
        if missing := [name for name in self.key if name not in names]:
            raise InvalidUsage(
                f'sink {self.id}: there is no key column "{missing[0]}"',
                hint=f"columns: {', '.join(names)}",
            )
        if self.progress_topic == self.topic:
            raise InvalidUsage(f"sink {self.id}: topic {self.topic} cannot hold its progress too")
        Frontier(self.as_of)
