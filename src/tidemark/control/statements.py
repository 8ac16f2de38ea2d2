"""What a client can say: one frozen value per kind of statement.

Names are tuples of parts, already folded to lower case unless quoted. Queries keep the parsed
tree for planning and the text for storing a view's definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pyarrow as pa
from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.control.pgwire import CopyOptions
from tidemark.control.role_statements import RoleStatement, ShowPrivileges
from tidemark.control.webhook.spec import BodyFormat, HeaderFilter, IncludedHeader
from tidemark.storage.kafka.spec import Envelope, FormatKind, Include
from tidemark.types import Column, SqlType

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    tree: exp.Expr
    sql: str
    dialect: str = "postgres"


@dataclass(frozen=True, slots=True)
class AsOf:
    """`AS OF time`; with `at_least`, that time or the first one later that can be read."""

    time: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`defaults` are the texts of what columns are by default, by name; `rows` are the first ones."""

    name: Name
    columns: tuple[Column, ...]
    if_not_exists: bool
    sql: str
    retain: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    rows: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class CreateTableAs:
    """A table of what a query gives now, its columns under the names of `columns`, if any."""

    name: Name
    columns: tuple[str, ...]
    query: Query
    if_not_exists: bool
    retain: str | None
    with_data: bool


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
class AlterSecret:
    name: Name
    value: str = field(repr=False)


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
class AlterConnection:
    """`options` take the place of what was said, `reset` are as if they had never been said."""

    name: Name
    if_exists: bool
    options: tuple[tuple[str, str | SecretNamed], ...]
    reset: tuple[str, ...]


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
class CheckWith:
    """What a CHECK sees, by the name that it has there; `secret` is the name of one."""

    what: Literal["headers", "body", "secret"]
    name: str
    as_bytes: bool = False
    secret: Name = ()


@dataclass(frozen=True, slots=True)
class CreateWebhookSource:
    name: Name
    format: BodyFormat
    headers: HeaderFilter | None
    included: tuple[IncludedHeader, ...]
    check_with: tuple[CheckWith, ...]
    check: exp.Expr | None
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
class RefreshOption:
    """Texts as they were given; `at` None is the view's creation, also for what is aligned."""

    kind: Literal["on commit", "at", "every"]
    at: str | None = None
    interval: str | None = None


@dataclass(frozen=True, slots=True)
class CreateMaterializedView:
    name: Name
    columns: tuple[str, ...]
    query: Query
    cluster: str | None
    if_not_exists: bool
    or_replace: bool
    sql: str
    refresh: tuple[RefreshOption, ...] = ()
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """No `columns` is the default index; no `name` is one that we choose."""

    name: Name | None
    relation: Name
    columns: tuple[str, ...]
    cluster: str | None
    if_not_exists: bool
    sql: str


ObjectKind = Literal[
    "table", "source", "view", "materialized view", "connection", "secret", "sink", "index"
]


@dataclass(frozen=True, slots=True)
class Drop:
    kind: ObjectKind
    names: tuple[Name, ...]
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class CreateCluster:
    """Option names are lower case with single spaces, values are text."""

    name: str
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class CreateReplica:
    cluster: str
    name: str
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterCluster:
    name: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AlterReplica:
    cluster: str
    name: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DropClusters:
    names: tuple[str, ...]
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class DropReplicas:
    """By cluster and name."""

    names: tuple[tuple[str, str], ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """With `restrict`, only an empty one."""

    name: str
    if_exists: bool
    restrict: bool


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """By its name, perhaps with its database's before it."""

    name: Name
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropSchemas:
    names: tuple[Name, ...]
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class RenameSchema:
    name: Name
    to: str


@dataclass(frozen=True, slots=True)
class MoveObject:
    """RENAME TO, or SET SCHEMA."""

    kind: ObjectKind
    name: Name
    if_exists: bool
    rename: str | None = None
    schema: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowObjects:
    """`kind` is tables, sources, views, materialized views, objects, clusters, ..."""

    kind: str
    from_schema: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    """Of all relations, or of the one named."""

    relation: Name | None


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
class Returned:
    """A column of RETURNING and what it is called; without a column, all of them."""

    relation: str | None
    column: str | None = None
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Insert:
    """Either a query, or `rows` of plain literals read without building a tree."""

    table: Name
    columns: tuple[str, ...]
    query: Query | None
    rows: tuple[tuple[Lit, ...], ...] = ()
    returning: tuple[Returned, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    table: Name
    alias: str | None
    assignments: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None
    source: exp.Select | None = None
    """`SELECT 1 FROM ...`: what stands in its FROM."""
    returning: tuple[Returned, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    table: Name
    alias: str | None
    where: exp.Expr | None
    source: exp.Select | None = None
    """`SELECT 1 FROM ...`: what stands in its USING."""
    returning: tuple[Returned, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    table: Name


@dataclass(frozen=True, slots=True)
class Select:
    query: Query
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class Keyed:
    """ENVELOPE UPSERT | DEBEZIUM (KEY (a, b))."""

    kind: Literal["upsert", "debezium"]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OrderBy:
    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Subscribe:
    """To a relation by `name`, or to a `query`; `up_to` is exclusive. Changes as what happened to
    keys if `keyed`, else as rows, at each time by `order_by`."""

    name: Name | None
    query: Query | None
    snapshot: bool
    progress: bool
    as_of: AsOf | None
    up_to: int | None
    keyed: Keyed | None = None
    order_by: tuple[OrderBy, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyTo:
    """COPY ... TO STDOUT; a relation by name is a Select of all its columns."""

    statement: Select | Subscribe
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """COPY ... FROM STDIN; no `columns` is all of them."""

    table: Name
    columns: tuple[str, ...]
    options: CopyOptions


@dataclass(frozen=True, slots=True)
class Declare:
    name: str
    statement: Select | Subscribe
    hold: bool
    binary: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """`count` None is FETCH ALL; `timeout` is in seconds."""

    name: str
    count: int | None
    timeout: float | None


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """`name` None is CLOSE ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """`types` are of the first parameters; those of others come from where they stand."""

    name: str
    types: tuple[SqlType, ...]
    sql: str
    statement: Statement


@dataclass(frozen=True, slots=True)
class ExecutePrepared:
    """`arguments` is a query of one row."""

    name: str
    arguments: Query | None


@dataclass(frozen=True, slots=True)
class Verify:
    """VERIFY MATERIALIZED VIEW."""

    name: Name
    as_of: AsOf | None = None


@dataclass(frozen=True, slots=True)
class ShowMatching:
    """SHOW ... LIKE 'pattern', or WHERE a condition on its columns."""

    show: ShowObjects | ShowIndexes | ShowColumns
    like: str | None = None
    where: exp.Expr | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateCluster:
    name: str


@dataclass(frozen=True, slots=True)
class Comment:
    """COMMENT ON an object of that `kind`; of a column, its last part, if there is none."""

    kind: ObjectKind | None
    name: Name
    text: str | None


@dataclass(frozen=True, slots=True)
class AlterSystem:
    """`value` None is RESET; `name` None is RESET ALL."""

    name: str | None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class AlterObject:
    """SET CLUSTER, or else how long history is kept: None is as long as usual."""

    kind: ObjectKind
    name: Name
    if_exists: bool
    cluster: str | None = None
    retain: str | None = None


ExplainStage = Literal[
    "raw plan",
    "decorrelated plan",
    "locally optimized plan",
    "optimized plan",
    "delta plan",
    "physical plan",
    "timestamp",
    "filter pushdown",
    "plan",
]


@dataclass(frozen=True, slots=True)
class Explain:
    """Of a query, of what a CREATE would make, or of the object of that `kind` and `name`."""

    stage: ExplainStage
    query: Query | None
    kind: Literal["view", "materialized view", "index"] | None
    name: Name | None
    as_json: bool = False
    create: CreateView | CreateMaterializedView | None = None


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
class Savepoint:
    name: str


@dataclass(frozen=True, slots=True)
class Release:
    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    name: str


@dataclass(frozen=True, slots=True)
class Discard:
    what: str


@dataclass(frozen=True, slots=True)
class Deallocate:
    """`name` None is DEALLOCATE ALL."""

    name: str | None


@dataclass(frozen=True, slots=True)
class Unlisten:
    """Of what nobody can LISTEN to: pools make sure when they get a connection back."""


Show: TypeAlias = (
    ShowObjects
    | ShowIndexes
    | ShowColumns
    | ShowCreate
    | ShowCreateCluster
    | ShowMatching
    | ShowPrivileges
)

Statement: TypeAlias = (
    CreateTable
    | CreateTableAs
    | CreateSource
    | CreateSecret
    | CreateConnection
    | CreateKafkaSource
    | CreateWebhookSource
    | CreateSink
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | Drop
    | CreateCluster
    | CreateReplica
    | AlterCluster
    | AlterReplica
    | AlterSecret
    | AlterConnection
    | MoveObject
    | CreateDatabase
    | DropDatabase
    | CreateSchema
    | DropSchemas
    | RenameSchema
    | DropClusters
    | DropReplicas
    | ShowObjects
    | ShowIndexes
    | ShowColumns
    | ShowCreate
    | ShowVariable
    | ShowMatching
    | ShowCreateCluster
    | Comment
    | AlterSystem
    | AlterObject
    | Insert
    | Update
    | Delete
    | Truncate
    | Select
    | Subscribe
    | CopyTo
    | CopyFrom
    | Declare
    | Fetch
    | CloseCursor
    | Prepare
    | ExecutePrepared
    | Verify
    | Explain
    | SetVariable
    | ResetVariable
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | Release
    | RollbackTo
    | Discard
    | Deallocate
    | Unlisten
    | RoleStatement
    | ShowPrivileges
)
