"""SHOW: questions that control answers by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from tidemark.compute.expr import Lit
from tidemark.control import statements as s
from tidemark.control.catalog import Catalog, Item
from tidemark.control.clusters import Cluster, status_of
from tidemark.control.coordinator import Coordinator
from tidemark.control.hierarchy import SYSTEM_SCHEMAS, no_database
from tidemark.control.indexes import indexes_of
from tidemark.control.names import Names
from tidemark.control.pgwire import Rows
from tidemark.control.role_ddl import privilege_rows
from tidemark.control.roles import Role, Roles
from tidemark.control.show_objects import (
    LISTS,
    Listing,
    chosen,
    cluster_statement,
    listed,
    listed_indexes,
    matching,
)
from tidemark.control.values import text_rows
from tidemark.control.variables import Variables
from tidemark.errors import SqlError, Unsupported
from tidemark.types import DATE, TEXT, TIMESTAMP, TIMESTAMPTZ, Column


async def run(coordinator: Coordinator, statement: s.Show, names: Names) -> Rows:
    columns, rows = _listed(coordinator, statement, names)
    if isinstance(statement, s.ShowMatching) and statement.where is not None:
        rows = await chosen(coordinator, columns, rows, statement.where)
    return text_rows(columns, rows, "SHOW")


def columns_of(coordinator: Coordinator, statement: s.Show, names: Names) -> tuple[Column, ...]:
    """What it will show, which no WHERE makes a difference to."""
    columns, _ = _listed(coordinator, statement, names)
    return tuple(Column(name, TEXT) for name in columns)


def _listed(coordinator: Coordinator, statement: s.Show, names: Names) -> Listing:
    """All that it may show, whatever it says behind WHERE."""
    match statement:
        case s.ShowMatching(show=inner, like=like):
            listing = _listed(coordinator, inner, names)
            return listing if like is None else matching(listing, like)
        case s.ShowPrivileges(role=role):
            return _privileges(coordinator.catalog, role)
        case s.ShowObjects(kind=kind, from_schema=schema) if kind in LISTS:
            return listed(coordinator, kind, _within(coordinator, names, schema))
        case s.ShowObjects(kind="clusters"):
            return ("name", "replicas", "status"), [_cluster(each) for each in coordinator.clusters]
        case s.ShowObjects(kind="cluster replicas"):
            rows = [row for each in coordinator.clusters for row in _replicas(each)]
            return ("cluster", "replica", "status", "read_only"), rows
        case s.ShowObjects(kind="databases"):
            return ("name",), [(each,) for each in coordinator.catalog.databases]
        case s.ShowObjects(kind="schemas", from_schema=given):
            database = names.database if given is None else given[-1]
            if database not in coordinator.catalog.databases:
                raise no_database(database)
            own = (name for where, name in coordinator.catalog.schemas if where == database)
            return ("name",), [(name,) for name in sorted([*own, *SYSTEM_SCHEMAS])]
        case s.ShowObjects(kind="roles"):
            roles = coordinator.catalog.roles
            rows = [_role(each, roles) for each in roles.by_id.values()]
            return ("name", "login", "superuser", "member_of"), rows
        case s.ShowObjects(kind="regions"):
            return ("name",), [(coordinator.region.region,)]
        case s.ShowObjects(kind="account"):
            return ("account",), [(coordinator.region.account,)]
        case s.ShowObjects(kind=kind):
            raise Unsupported(f"SHOW {kind.upper()} is not supported")
        case s.ShowIndexes(relation=relation):
            on = coordinator.relation(relation) if relation is not None else None
            here = _within(coordinator, names, None) if on is None else indexes_of(coordinator, on)
            return listed_indexes(coordinator, [each for each in here if each.kind == "index"])
        case s.ShowColumns(name=name):
            plan = names.resolve(name)
            rows = [(c.name, "f" if not c.nullable else "t", str(c.type)) for c in plan.columns]
            return ("name", "nullable", "type"), rows
        case s.ShowCreateCluster(name=name):
            cluster = coordinator.clusters.named(name).item
            return ("name", "create_sql"), [(cluster.name, cluster_statement(cluster))]
        case s.ShowCreate(kind=kind, name=name):
            item = coordinator.item(name)
            parts = {"subsource": "source", "progress": "source"}
            if parts.get(item.kind, item.kind_name) != kind:
                raise SqlError(f'"{item.name}" is not a {kind}', sqlstate="42809")
            return ("name", "create_sql"), [(item.name, item.sql)]


def _privileges(catalog: Catalog, role: str | None) -> Listing:
    """What was granted, by the owner of each."""
    only = catalog.roles.named(role).name if role is not None else None
    rows = [row for row in privilege_rows(catalog) if only in (None, row[1])]
    columns = ("grantor", "grantee", "name", "object_type", "privilege_type")
    return columns, rows


def _role(role: Role, roles: Roles) -> tuple[str, str, str, str]:
    groups = ", ".join(roles.name_of(id_) for id_ in role.member_of)
    return role.name, "ft"[role.login], "ft"[role.superuser], groups


def _within(coordinator: Coordinator, names: Names, schema: s.Name | None) -> list[Item]:
    """The objects of a schema, or of the one that the session creates in."""
    if schema is not None:
        return coordinator.catalog.within(*names.schema(schema))
    current = names.current_schema
    return coordinator.catalog.within(names.database, current) if current is not None else []


def _cluster(cluster: Cluster) -> tuple[str, str, str]:
    status = "running" if cluster.is_ready else "starting" if cluster.replicas else "no replicas"
    return cluster.name, ", ".join(cluster.replicas), status


def _replicas(cluster: Cluster) -> list[tuple[str, str, str, str]]:
    return [
        (cluster.name, each.name, status_of(cluster.replicas[each.name]), "ft"[each.read_only])
        for each in cluster.item.replicas
    ]


def variable(
    variables: Variables, of_postgres: Mapping[str, str], statement: s.ShowVariable
) -> Rows:
    if statement.name is None:
        return text_rows(("name", "setting"), variables.all(), "SHOW")
    name = statement.name.lower()
    value = of_postgres[name] if name in of_postgres else variables.get(name)
    return text_rows((statement.name,), [(value,)], "SHOW")


def now_literals(now_ms: int) -> dict[str, Lit]:
    """The clock functions of a one-off query, all from one look at the clock."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    text = now.strftime("%Y-%m-%d %H:%M:%S.%f")
    with_zone = Lit(f"{text}+00", TIMESTAMPTZ)
    return {
        "now": with_zone,
        "current_timestamp": with_zone,
        "localtimestamp": Lit(text, TIMESTAMP),
        "current_date": Lit(text[:10], DATE),
    }
