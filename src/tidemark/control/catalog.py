"""The catalog: what exists. Itself a shard, one row per object, written by one leader at a time.

Clusters have names of their own, apart from those of objects. The default one is there without
having been created, and is a row only once it was changed. Objects are in schemas, and those in
databases (`hierarchy.py`); rows of earlier versions are brought up to date first (`migrations.py`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Set
from typing import Literal, NamedTuple

import msgspec

from tidemark.compute.plan import Get, Plan
from tidemark.compute.refresh import Refresh
from tidemark.compute.sql.dialect import hint_of
from tidemark.control import access, hierarchy, migrations, roles
from tidemark.control.connections import Target, Uses
from tidemark.control.hierarchy import DatabaseItem, FullName, RegionItem, SchemaItem
from tidemark.control.webhook.spec import Webhook
from tidemark.errors import InvalidUsage, SqlError
from tidemark.persist import PersistClient
from tidemark.storage.definitions import Definitions, read_definitions
from tidemark.types import Column

SHARD, STORAGE_SHARD, LOG_SHARD = "catalog", "storage", "txns"
LAST_ID = "last_id"
CLUSTER = "quickstart"
"""The default cluster."""

_CLUSTER_ROW, _DATABASE_ROW, _SCHEMA_ROW = "cluster-", "database-", "schema-"
_REGION_ROW = "region"
_ITEM_ROW = re.compile(r"u\d+")
_VERDICTS = "verdicts-"
_NOTES = "note-"

RETAIN_MS = 1_000
"""How long history is kept, unless an object says something else."""

KEPT_VERDICTS = 20
"""Of each view, the newest."""

_OURS = re.compile(rf"{SHARD}|{STORAGE_SHARD}|{LOG_SHARD}|u\d+(-.*)?")


def is_ours(shard_id: str) -> bool:
    """Whether the server makes shards of such a name; all others are left alone."""
    return _OURS.fullmatch(shard_id) is not None


Kind = Literal[
    "table",
    "source",
    "subsource",
    "progress",
    "view",
    "materialized-view",
    "connection",
    "secret",
    "sink",
    "index",
]
UNREADABLE = ("connection", "secret", "sink", "index")
TIMELESS = ("connection", "secret")
"""Kinds that other databases may use: there are no data in them."""

RUNNING = ("source", "materialized-view", "sink", "index")
"""Kinds of objects that a cluster works for."""


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object. `depends` are ids of what it needs; `parent` is the source of a subsource, or
    of a relation of its progress; `uses` are the connections of a source or sink. What flows into
    a source and out of a sink is STORAGE's to know, by the id `work` or the object's own.
    `keys` are sets of columns, by place, of which no two rows have the same; `key` are the columns
    of an index of the relation that it depends on. `owners` are the views that a view's fragments
    are named after (`compute/view.py`); `refresh` is when it changes, if not at once. `cluster` is
    where it runs, if it is something that runs; `retain_ms` is how far back it can be read.
    `webhook` is what makes a source one that requests are posted to. `dialect` is what the query
    in `sql` is written in, whatever a session writes that reads it. `schema` and `database` are
    where it is, by name. `defaults` are the texts of what a table's columns are by default."""

    id: str
    name: str
    kind: Kind
    sql: str
    columns: tuple[Column, ...] = ()
    keys: tuple[tuple[int, ...], ...] = ()
    key: tuple[str, ...] = ()
    shard: str | None = None
    depends: tuple[str, ...] = ()
    plan: Plan | None = None
    as_of: int = 0
    work: str | None = None
    uses: Uses | None = None
    connection: Target | None = None
    parent: str | None = None
    owners: dict[str, str] = {}
    cluster: str = CLUSTER
    refresh: Refresh | None = None
    retain_ms: int = RETAIN_MS
    webhook: Webhook | None = None
    dialect: str = "postgres"
    schema: str = hierarchy.SCHEMA
    database: str = hierarchy.DATABASE
    defaults: dict[str, str] = {}

    @property
    def full_name(self) -> FullName:
        return self.database, self.schema, self.name

    @property
    def shown(self) -> str:
        """What messages call it: with its schema where that is not the default one."""
        return hierarchy.shown(self.full_name)

    @property
    def get(self) -> Get:
        return Get(self.id, self.columns, self.keys)

    @property
    def is_committed(self) -> bool:
        """Whether control writes it, by the timeline's commits, and no cluster does."""
        return self.kind == "table" or self.webhook is not None

    @property
    def runs_as(self) -> str:
        """The id of what does its work on a cluster."""
        return self.work or self.parent or self.id

    @property
    def kind_name(self) -> str:
        """As SQL calls it."""
        return self.kind.replace("-", " ")

    @property
    def kind_phrase(self) -> str:
        return f"{'an' if self.kind == 'index' else 'a'} {self.kind_name}"


class ReplicaItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica; what it does not say itself is its cluster's to say, or the server's."""

    name: str
    memory: str | None = None
    spark_master: str | None = None
    read_only: bool = False


class ClusterItem(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    replicas: tuple[ReplicaItem, ...] = ()
    memory: str | None = None
    spark_master: str | None = None

    def replica_id(self, replica: ReplicaItem) -> str:
        return f"{self.id}-{replica.name}"

    def replica(self, name: str) -> ReplicaItem | None:
        return next((each for each in self.replicas if each.name == name), None)

    def sized(self, count: int) -> ClusterItem:
        """With so many replicas: new ones by the first free names, or without the last ones."""
        kept = list(self.replicas[:count])
        names = (f"r{number}" for number in itertools.count(1))
        free = (name for name in names if self.replica(name) is None)
        kept += [ReplicaItem(next(free)) for _ in range(count - len(kept))]
        return msgspec.structs.replace(self, replicas=tuple(kept))

    def following(self) -> ClusterItem:
        """With replicas that write nothing."""
        kept = [msgspec.structs.replace(each, read_only=True) for each in self.replicas]
        return msgspec.structs.replace(self, replicas=tuple(kept))


DEFAULT_CLUSTER = ClusterItem("s1", CLUSTER, (ReplicaItem("r1"),))


class Verdict(msgspec.Struct, frozen=True):
    """What a VERIFY of a view as of `at` has found; `verified_at` is when it was asked."""

    at: int
    verified_at: int
    rows: int
    missing: int
    unexpected: int
    verdict: str


_VERDICT_LIST = msgspec.json.Decoder(list[Verdict])
_ITEM = msgspec.json.Decoder(Item)
_CLUSTER = msgspec.json.Decoder(ClusterItem)
_DATABASE = msgspec.json.Decoder(DatabaseItem)
_SCHEMA = msgspec.json.Decoder(SchemaItem)
_REGION = msgspec.json.Decoder(RegionItem)


class Catalog:
    """The objects, as this leader has made them; another's first change is this one's last."""

    def __init__(self, client: PersistClient):
        # Who cannot read it must not take the lead from someone who can.
        migrations.pending(read_definitions(client, SHARD))
        self._definitions = Definitions(client, SHARD)
        self.epoch = self._definitions.epoch
        if changes := migrations.pending(self._definitions.rows):
            self._definitions.change(changes)
        self._read()

    def _read(self) -> None:
        rows = self._definitions.rows
        self.items = _items(rows)
        self.clusters = _clusters(rows)
        self.databases = _databases(rows)
        self.schemas = _schemas(rows)
        self.roles = roles.Roles(rows)
        self._access = access.read_access(rows)
        self._by_name = {item.full_name: item for item in self.items.values()}

    def named(
        self, name: str, schema: str = hierarchy.SCHEMA, database: str = hierarchy.DATABASE
    ) -> Item | None:
        return self.find((database, schema, name))

    def find(self, parts: tuple[str, ...]) -> Item | None:
        """By its full name (`names.py` finds that); what has none is not there."""
        return self._by_name.get(parts) if len(parts) == 3 else None

    def region(self, account: str | None = None, region: str | None = None) -> RegionItem:
        """What these data are of: as they are named the first time, and for ever."""
        text = self._definitions.rows.get(_REGION_ROW)
        if text is None:
            found = RegionItem(account or hierarchy.ACCOUNT, region or hierarchy.REGION)
            self._definitions.change({_REGION_ROW: msgspec.json.encode(found).decode()})
            return found
        found = _REGION.decode(text)
        for kind, given, there in (
            ("account", account, found.account),
            ("region", region, found.region),
        ):
            if given not in (None, there):
                raise InvalidUsage(
                    f'these data belong to {kind} "{there}", not "{given}"',
                    hint=f"leave --{kind} out, or start other data under that name",
                )
        return found

    def next_ids(self, count: int = 1) -> list[str]:
        """Fresh ids; never given out twice, not even after a drop."""
        last = int(self._definitions.rows.get(LAST_ID, "0"))
        self._definitions.change({LAST_ID: str(last + count)})
        return [f"u{last + 1 + i}" for i in range(count)]

    def add(
        self,
        *items: Item,
        instead_of: Item | None = None,
        owner: str = roles.SUPERUSER.id,
    ) -> None:
        """With the role that owns them; what takes another's place stays whose it was."""
        for item in items:
            if (found := self._by_name.get(item.full_name)) not in (None, instead_of):
                raise exists(found)
        rows: dict[str, str | None] = {}
        held = access.Access(owner)
        if instead_of is not None:
            rows = dict.fromkeys(_rows_of(instead_of.id))
            held = self.access_to(access.of_item(instead_of))
        rows |= {item.id: msgspec.json.encode(item).decode() for item in items}
        for item in items:
            rows |= self._held(access.item_key(item.id), held)
        self.change(rows)

    def remove(self, ids: list[str]) -> None:
        about = [_NOTES + key for key in self.notes if key.split("-")[1] in ids]
        self.change(dict.fromkeys([*(row for id_ in ids for row in _rows_of(id_)), *about]))

    @property
    def notes(self) -> dict[str, str]:
        """Texts by their keys, `what-about` or `what-about-more`; gone with the object if they are
        about one."""
        rows = self._definitions.rows
        return {k.removeprefix(_NOTES): text for k, text in rows.items() if k.startswith(_NOTES)}

    def note(self, changes: Mapping[str, str | None]) -> None:
        """Put or (None) delete notes."""
        self.change({_NOTES + key: text for key, text in changes.items()})

    def set_cluster(self, cluster: ClusterItem, *, owner: str | None = None) -> None:
        """A new cluster, with who owns it, or another form of one that is there."""
        rows: dict[str, str | None] = {
            _CLUSTER_ROW + cluster.id: msgspec.json.encode(cluster).decode()
        }
        if owner is not None:
            rows |= self._held(access.cluster_key(cluster.id), access.Access(owner))
        self.change(rows)

    def remove_cluster(self, cluster: ClusterItem) -> None:
        key = access.ROW + access.cluster_key(cluster.id)
        self.change({_CLUSTER_ROW + cluster.id: None, key: None})

    def access_to(self, what: access.Securable) -> access.Access:
        return self._access.get(what.key) or access.Access()

    def _held(self, key: str, held: access.Access) -> dict[str, str | None]:
        """A row, but where there is nothing to say."""
        return held.row(key) if held != access.Access() else {}

    def add_database(self, database: DatabaseItem, schema: SchemaItem, *, owner: str) -> None:
        """With the schema that every new one has; everybody may use both."""
        items = {_DATABASE_ROW + database.id: database, _SCHEMA_ROW + schema.id: schema}
        rows: dict[str, str | None] = {
            id_: msgspec.json.encode(item).decode() for id_, item in items.items()
        }
        held = access.Access(owner, {roles.PUBLIC: ("USAGE",)})
        for key in (access.of_database(database).key, access.of_schema(schema).key):
            rows |= held.row(key)
        self.change(rows)

    def remove_database(self, database: DatabaseItem) -> None:
        """And its schemas, which must be empty."""
        schemas = [each for each in self.schemas.values() if each.database == database.name]
        gone = [_DATABASE_ROW + database.id, access.ROW + access.of_database(database).key]
        gone += [row for each in schemas for row in _schema_rows(each)]
        self.change(dict.fromkeys(gone))

    def add_schema(self, schema: SchemaItem, *, owner: str) -> None:
        rows: dict[str, str | None] = {
            _SCHEMA_ROW + schema.id: msgspec.json.encode(schema).decode()
        }
        self.change(rows | self._held(access.of_schema(schema).key, access.Access(owner)))

    def remove_schema(self, schema: SchemaItem) -> None:
        self.change(dict.fromkeys(_schema_rows(schema)))

    def put(self, *items: Item, schema: SchemaItem | None = None) -> None:
        """Other forms of objects that are there, and of the schema that they are in, all at once."""
        rows: dict[str, Item | SchemaItem] = {item.id: item for item in items}
        if schema is not None:
            rows[_SCHEMA_ROW + schema.id] = schema
        self.change({id_: msgspec.json.encode(row).decode() for id_, row in rows.items()})

    def within(self, database: str, schema: str | None = None) -> list[Item]:
        """The objects of a database, or of a schema of it."""
        return [
            item
            for item in self.items.values()
            if item.database == database and schema in (None, item.schema)
        ]

    def running_in(self, cluster: str) -> list[Item]:
        return [i for i in self.items.values() if i.kind in RUNNING and i.cluster == cluster]

    def dependents(self, id_: str) -> list[Item]:
        """What reads `id_`, directly, and a source's subsources' readers."""
        parts = {id_} | {item.id for item in self.items.values() if item.parent == id_}
        return [item for item in self.items.values() if parts & set(item.depends)]

    @property
    def verdicts(self) -> dict[str, list[Verdict]]:
        """What was found of views, by their ids; the oldest first."""
        return {
            id_.removeprefix(_VERDICTS): _VERDICT_LIST.decode(text)
            for id_, text in self._definitions.rows.items()
            if id_.startswith(_VERDICTS)
        }

    def record(self, id_: str, verdict: Verdict) -> None:
        if id_ in self.items:
            kept = [*self.verdicts.get(id_, []), verdict][-KEPT_VERDICTS:]
            self._definitions.change({_VERDICTS + id_: msgspec.json.encode(kept).decode()})

    def change(self, rows: dict[str, str | None]) -> None:
        """Put or (None) delete rows, all or none."""
        self._definitions.change(rows)
        self._read()


def exists(item: Item) -> SqlError:
    kind = item.kind if item.kind in UNREADABLE else "relation"
    return SqlError(f'{kind} "{item.name}" already exists', sqlstate="42P07")


class Contents(NamedTuple):
    """The objects by their ids, and the clusters by their names."""

    items: dict[str, Item]
    clusters: dict[str, ClusterItem]


def read_contents(client: PersistClient) -> Contents:
    """What exists now, for someone who does not lead."""
    rows = migrations.migrated(read_definitions(client, SHARD))
    return Contents(_items(rows), _clusters(rows))


def missing(
    parts: tuple[str, ...], items: Iterable[Item], system: Set[tuple[str, ...]]
) -> SqlError:
    """There is no such relation; perhaps one of these was meant."""
    hint = None
    if parts not in system:  # Who names one of those has not mistyped it.
        full = {name[-1]: ".".join(name) for name in system if len(name) == 2}
        shown = {name: text for name, text in full.items() if (name,) not in system}
        for item in items:
            if item.shown != item.name:
                shown[item.name] = item.shown
            elif item.name == parts[-1]:  # It is not where that name was looked for.
                shown[item.name] = ".".join(map(hierarchy.quoted, item.full_name))
        hint = hint_of(parts[-1], [*(item.name for item in items), *full], shown)
    return SqlError(f'relation "{".".join(parts)}" does not exist', hint=hint, sqlstate="42P01")


def read_items(client: PersistClient) -> dict[str, Item]:
    """The objects that exist now, for someone who only reads (a Spark job, a tool)."""
    return read_contents(client).items


def _rows_of(id_: str) -> tuple[str, ...]:
    """The rows that go with an object."""
    return id_, _VERDICTS + id_, access.ROW + access.item_key(id_)


def _schema_rows(schema: SchemaItem) -> tuple[str, str]:
    return _SCHEMA_ROW + schema.id, access.ROW + access.of_schema(schema).key


def _items(rows: dict[str, str]) -> dict[str, Item]:
    found = [_ITEM.decode(text) for id_, text in rows.items() if _ITEM_ROW.fullmatch(id_)]
    return {item.id: item for item in sorted(found, key=lambda item: int(item.id[1:]))}


def _clusters(rows: dict[str, str]) -> dict[str, ClusterItem]:
    """By name, the default one first."""
    found = [_CLUSTER.decode(text) for id_, text in rows.items() if id_.startswith(_CLUSTER_ROW)]
    created = sorted(found, key=lambda item: (item.name != CLUSTER, int(item.id[1:])))
    return {DEFAULT_CLUSTER.name: DEFAULT_CLUSTER} | {item.name: item for item in created}


def _databases(rows: dict[str, str]) -> dict[str, DatabaseItem]:
    """By name, the default one first."""
    found = [_DATABASE.decode(text) for id_, text in rows.items() if id_.startswith(_DATABASE_ROW)]
    return {item.name: item for item in sorted(found, key=_age)}


def _schemas(rows: dict[str, str]) -> dict[tuple[str, str], SchemaItem]:
    """By database and name."""
    found = [_SCHEMA.decode(text) for id_, text in rows.items() if id_.startswith(_SCHEMA_ROW)]
    return {(item.database, item.name): item for item in sorted(found, key=_age)}


def _age(item: DatabaseItem | SchemaItem) -> tuple[bool, int]:
    return item.id[0] == "u", int(item.id[1:])
