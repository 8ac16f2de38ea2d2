"""What a client can say: one frozen value per kind of statement.

Names are tuples of parts, already folded to lower case unless quoted. Queries keep the parsed
tree for planning and the text for storing a view's definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.storage.kafka.spec import Envelope, FormatKind, Include
from tidemark.types import Column

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    tree: exp.Expr
    sql: str


@dataclass(frozen=True, slots=True)
class AsOf:
    """`AS OF time`; with `at_least`, that time or the first one later that can be read."""

    time: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Name
    columns: tuple[Column, ...]
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateSource:
    """`generator` is the load generator's name in lower case; options keep the order given.

    Option names are lower case with single spaces (`tick interval`), values are text.
    """

    name: Name
    generator: str
    options: tuple[tuple[str, str], ...]
    with_options: tuple[tuple[str, str], ...]
    cluster: str | None
    all_tables: bool
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateSecret:
    """`sql` is without the value, which is never shown."""

    name: Name
    value: str = field(repr=False)
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class SecretNamed:
    name: Name


@dataclass(frozen=True, slots=True)
class CreateConnection:
    """Options by their names in lower case; `brokers` has several values, joined by commas."""

    name: Name
    kind: Literal["kafka", "confluent schema registry"]
    options: tuple[tuple[str, str | SecretNamed], ...]
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class Format:
    """As storage's Format, with what is only named here: the registry's connection."""

    kind: FormatKind
    columns: tuple[Column, ...] = ()
    schema: str | None = None
    registry: Name | None = None
    message: str | None = None
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class CreateKafkaSource:
    """`key` None with `both` is a format that says what the key is, too (a registry's)."""

    name: Name
    connection: Name
    topic: str
    start_offsets: tuple[int, ...]
    start_timestamp: int | None
    key: Format | None
    value: Format
    both: bool
    include: tuple[Include, ...]
    key_name: str | None
    envelope: Envelope
    inline_errors: str | None
    progress: Name | None
    with_options: tuple[tuple[str, str], ...]
    cluster: str | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateSink:
    name: Name
    relation: Name
    connection: Name
    topic: str
    key: tuple[str, ...]
    envelope: Literal["upsert", "debezium"]
    cluster: str | None
    if_not_exists: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateView:
    name: Name
    columns: tuple[str, ...]
    query: Query
    if_not_exists: bool
    or_replace: bool
    sql: str


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    name: Name
    columns: tuple[str, ...]
    query: Query
    cluster: str | None
    if_not_exists: bool
    or_replace: bool
    sql: str


ObjectKind = Literal["table", "source", "view", "materialized view", "connection", "secret", "sink"]


@dataclass(frozen=True, slots=True)
class Drop:
    kind: ObjectKind
    names: tuple[Name, ...]
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class ShowObjects:
    """`kind` is tables, sources, views, materialized views, objects, clusters, ..."""

    kind: str
    from_schema: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowColumns:
    name: Name


@dataclass(frozen=True, slots=True)
class ShowCreate:
    kind: ObjectKind
    name: Name


@dataclass(frozen=True, slots=True)
class ShowVariable:
    """`name` None is SHOW ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Insert:
    """Either a query, or `rows` of plain literals read without building a tree."""

    table: Name
    columns: tuple[str, ...]
    query: Query | None
    rows: tuple[tuple[Lit, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    table: Name
    alias: str | None
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None


@dataclass(frozen=True, slots=True)
class Delete:
    table: Name
    alias: str | None
    where: exp.Expr | None


@dataclass(frozen=True, slots=True)
class Select:
    query: Query
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """To a relation by `name`, or to a `query`; `up_to` is exclusive."""

    name: Name | None
    query: Query | None
    snapshot: bool
    progress: bool
    as_of: AsOf | None
    up_to: int | None


@dataclass(frozen=True, slots=True)
class CopyTo:
    """COPY ... TO STDOUT; a relation by name is a Select of all its columns."""

    statement: Select | Subscribe


ExplainStage = Literal["optimized plan", "delta plan", "physical plan", "timestamp"]


@dataclass(frozen=True, slots=True)
class Explain:
    stage: ExplainStage
    query: Query | None
    kind: Literal["view", "materialized view"] | None
    name: Name | None


@dataclass(frozen=True, slots=True)
class SetVariable:
    """`value` None is SET x TO DEFAULT; several values are joined by commas."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class ResetVariable:
    """`name` None is RESET ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Begin:
    """`modes` are the words after BEGIN, in lower case, e.g. `isolation level serializable`."""

    modes: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    pass


@dataclass(frozen=True, slots=True)
class Rollback:
    pass


@dataclass(frozen=True, slots=True)
class Discard:
    what: str


@dataclass(frozen=True, slots=True)
class Deallocate:
    """`name` None is DEALLOCATE ALL."""

    name: str | None


Statement: TypeAlias = (
    CreateTable
    | CreateSource
    | CreateSecret
    | CreateConnection
    | CreateKafkaSource
    | CreateSink
    | CreateView
    | CreateMaterializedView
    | Drop
    | ShowObjects
    | ShowColumns
    | ShowCreate
    | ShowVariable
    | Insert
    | Update
    | Delete
    | Select
    | Subscribe
    | CopyTo
    | Explain
    | SetVariable
    | ResetVariable
    | Begin
    | Commit
    | Rollback
    | Discard
    | Deallocate
)
