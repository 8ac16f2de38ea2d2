"""What a statement needs, checked in one place before it runs.

    SELECT * FROM v                   SELECT on v, USAGE on its schema and on the session's cluster
    CREATE VIEW v AS SELECT ... t     CREATE on the schema, SELECT on t
    DROP TABLE t                      t's owner, or a member of that role

`NEEDS` is the whole list: a statement that is not in it is for superusers. What a view reads is
asked for when it is made; who reads the view needs the view only. Superusers need nothing.
What there is (names, columns, definitions) everybody may know, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from tidemark.compute.expr import Lit
from tidemark.compute.plan import Get, Plan
from tidemark.compute.sql import Resolver, plan_query
from tidemark.control import dml
from tidemark.control import role_statements as r
from tidemark.control import statements as s
from tidemark.control.access import Securable, of_cluster, of_database, of_item, of_schema
from tidemark.control.catalog import Catalog, Item
from tidemark.control.hierarchy import (
    SYSTEM_SCHEMAS,
    DatabaseItem,
    SchemaItem,
    no_database,
    no_schema,
)
from tidemark.control.identity import Acting
from tidemark.control.parameters import trees
from tidemark.control.roles import ATTRIBUTES, Role
from tidemark.errors import SqlError

if TYPE_CHECKING:
    from tidemark.control.session import Session

PRIVATE = ("mz_internal.mz_recent_activity_log",)
"""System relations for superusers only: they show what others have asked."""

_READ = "tidemark_read"
"""Under which a parsed query remembers the names that it reads."""


def denied(message: str, hint: str) -> SqlError:
    return SqlError(message, hint=hint, sqlstate="42501")


# Needs ------------------------------------------------------------------------------------------


class May(NamedTuple):
    """A privilege on something."""

    privilege: str
    what: Securable

    def refusal(self, acting: Acting, catalog: Catalog) -> SqlError | None:
        if acting.may(self.privilege, catalog.access_to(self.what)):
            return None
        return denied(
            f"permission denied for {self.what.kind} {self.what.name}",
            f"GRANT {self.privilege} ON {self.what.word} {self.what.name} TO {acting.name}",
        )


class Owns(NamedTuple):
    """To be its owner, or a member of that role."""

    what: Securable

    def refusal(self, acting: Acting, catalog: Catalog) -> SqlError | None:
        access = catalog.access_to(self.what)
        if acting.owns(access):
            return None
        owner = catalog.roles.by_id[access.owner]
        join = "" if owner.superuser else f"GRANT {owner.name} TO {acting.name}, or "
        return denied(
            f"must be owner of {self.what.kind} {self.what.name}",
            f"it is {owner.name}'s: {join}"
            f"ALTER {self.what.alter_word} {self.what.name} OWNER TO {acting.name}",
        )


class Has(NamedTuple):
    """An attribute of the role's own, `to` do something."""

    attribute: str
    to: str

    def refusal(self, acting: Acting, _: Catalog) -> SqlError | None:
        if acting.is_superuser or getattr(acting.role, self.attribute):
            return None
        hint = f"ALTER ROLE {acting.name} {self.attribute.upper()}, by a superuser"
        return denied(f"permission denied to {self.to}", hint)


class Member(NamedTuple):
    role: Role

    def refusal(self, acting: Acting, _: Catalog) -> SqlError | None:
        if acting.is_member(self.role):
            return None
        name = self.role.name
        return denied(f'must be member of role "{name}"', f"GRANT {name} TO {acting.name}")


class Private(NamedTuple):
    """To be a superuser, to read this system relation."""

    name: str

    def refusal(self, acting: Acting, _: Catalog) -> SqlError | None:
        if acting.is_superuser:
            return None
        hint = "it shows what others have asked, and is for superusers"
        return denied(f"permission denied for view {self.name}", hint)


Need = May | Owns | Has | Member | Private
Rule = Callable[["Asked", Any], Iterable[Need]]


class Asked:
    """A statement's session and parameters: what names in it mean."""

    def __init__(self, session: Session, params: tuple[Lit, ...] = ()):
        self.session = session
        self.catalog = session.coordinator.catalog
        self.params = params

    def item(self, name: s.Name) -> Item | None:
        """None is left to the statement to complain about."""
        return self.session.names.find(name)

    def schema(self, name: s.Name) -> SchemaItem | None:
        """By its name; None for one that is not there, or the system's."""
        return self.catalog.schemas.get(self.session.names.in_database(name))

    def database(self, name: str) -> DatabaseItem | None:
        return self.catalog.databases.get(name)

    def uses(self, item: Item) -> Iterator[Need]:
        """What it takes to name an object, whatever is done with it."""
        yield May("USAGE", of_database(self.catalog.databases[item.database]))
        yield May("USAGE", of_schema(self.catalog.schemas[item.database, item.schema]))

    def creates(self, name: s.Name) -> Iterator[Need]:
        """What it takes to make something of that name."""
        database, schema, _ = self.session.names.created(name)
        yield May("USAGE", of_database(self.catalog.databases[database]))
        yield May("CREATE", of_schema(self.catalog.schemas[database, schema]))

    def cluster(self, name: str | None) -> Securable | None:
        found = self.catalog.clusters.get(name or self.session.cluster)
        return of_cluster(found) if found is not None else None

    def relation(self, privilege: str, name: s.Name) -> Iterator[Need]:
        system = self.session.names.system(name)
        if system is not None:
            if system.id in PRIVATE:
                yield Private(system.name)
            return
        item = self.item(name)
        if item is not None:
            yield from self.uses(item)
            yield May(privilege, of_item(item))

    def query(self, query: s.Query, *, view: bool = False) -> Iterator[Need]:
        """What it takes to read all that a query names."""
        for name in self._read(query.tree, view=view):
            yield from self.relation("SELECT", name)

    def runs(self, tree: exp.Expr) -> Iterator[Need]:
        """What it takes to run a query: one without FROM is folded, wherever the session is."""
        cluster = self.cluster(None)
        if cluster is not None and tree.find(exp.From) is not None:
            yield May("USAGE", cluster)

    def _read(self, tree: exp.Expr, *, view: bool) -> tuple[s.Name, ...]:
        """Names of relations, as the planner asks for them: only it knows what is a CTE where."""
        known = tree.meta.get(_READ)
        if known is None:
            resolver = _Reading(self.session.names)
            values = None if view else self.session.session_values()
            plan_query(tree, resolver, params=self.params, session=values, view=view)
            known = tree.meta[_READ] = tuple(resolver.found)
        return known


class _Reading:
    """Resolves names as another does, and remembers them."""

    def __init__(self, resolver: Resolver):
        self._resolver = resolver
        self.found: dict[s.Name, None] = {}

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        self.found[parts] = None
        return self._resolver.resolve(parts)


# Rules ------------------------------------------------------------------------------------------


def _nothing(_: Asked, __: Any) -> Iterable[Need]:
    return ()


def _select(asked: Asked, statement: s.Select) -> Iterator[Need]:
    catalog = asked.session.catalog_query(statement, asked.params)
    if catalog is not None:
        yield from (Private(each.name) for each in catalog.relations if each.id in PRIVATE)
        return
    yield from asked.query(statement.query)
    yield from asked.runs(statement.query.tree)


def _subscribe(asked: Asked, statement: s.Subscribe) -> Iterator[Need]:
    if statement.query is not None:
        yield from asked.query(statement.query, view=True)
        yield from asked.runs(statement.query.tree)
    elif statement.name is not None:
        yield from asked.relation("SELECT", statement.name)
        if (cluster := asked.cluster(None)) is not None:
            yield May("USAGE", cluster)


def _inner(asked: Asked, statement: s.CopyTo | s.Declare) -> Iterable[Need]:
    return NEEDS[type(statement.statement)](asked, statement.statement)


def _insert(asked: Asked, statement: s.Insert) -> Iterator[Need]:
    yield from asked.relation("INSERT", statement.table)
    if statement.returning:
        yield from asked.relation("SELECT", statement.table)
    if statement.query is not None:
        is_values = isinstance(statement.query.tree, exp.Values)
        if not is_values or statement.query.tree.find(exp.Table) is not None:
            yield from asked.query(statement.query)
            yield from asked.runs(statement.query.tree)


def _update(asked: Asked, statement: s.Update) -> Iterator[Need]:
    yield from asked.relation("UPDATE", statement.table)
    yield from _looked_at(asked, statement, dml.plan_update)


def _delete(asked: Asked, statement: s.Delete) -> Iterator[Need]:
    yield from asked.relation("DELETE", statement.table)
    yield from _looked_at(asked, statement, dml.plan_delete)


def _truncate(asked: Asked, statement: s.Truncate) -> Iterator[Need]:
    yield from asked.relation("DELETE", statement.table)
    if (cluster := asked.cluster(None)) is not None:
        yield May("USAGE", cluster)


def _looked_at(
    asked: Asked, statement: s.Update | s.Delete, plan: Callable[..., Plan]
) -> Iterator[Need]:
    """Who says which rows, or computes with them, learns what is in them."""
    nodes = trees(statement)
    if (
        statement.where is not None
        or statement.returning
        or any(node.find(exp.Column, exp.Table) for node in nodes)
    ):
        yield from asked.relation("SELECT", statement.table)
    if any(node.find(exp.Table) for node in nodes):
        reading = _Reading(asked.session.names)
        plan(statement, reading, params=asked.params, session=asked.session.session_values())
        for name in reading.found:
            if name != statement.table:
                yield from asked.relation("SELECT", name)
    if (cluster := asked.cluster(None)) is not None:
        yield May("USAGE", cluster)


def _copy_from(asked: Asked, statement: s.CopyFrom) -> Iterable[Need]:
    return asked.relation("INSERT", statement.table)


def _verify(asked: Asked, statement: s.Verify) -> Iterable[Need]:
    return asked.relation("SELECT", statement.name)


def _explain(asked: Asked, statement: s.Explain) -> Iterator[Need]:
    if statement.query is not None:
        yield from asked.query(statement.query)
    elif statement.create is not None:
        yield from asked.query(statement.create.query, view=True)
    elif statement.name is not None:
        yield from asked.relation("SELECT", statement.name)


def _create(asked: Asked, statement: Any) -> Iterator[Need]:
    """In a schema; and in a cluster, if it runs."""
    yield from asked.creates(statement.name)
    if hasattr(statement, "cluster") and (cluster := asked.cluster(statement.cluster)):
        yield May("CREATE", cluster)


def _create_table_as(asked: Asked, statement: s.CreateTableAs) -> Iterator[Need]:
    yield from _create(asked, statement)
    yield from asked.query(statement.query)
    yield from asked.runs(statement.query.tree)


def _create_view(
    asked: Asked, statement: s.CreateView | s.CreateMaterializedView
) -> Iterator[Need]:
    yield from _create(asked, statement)
    yield from asked.query(statement.query, view=True)
    if statement.or_replace and (replaced := asked.item(statement.name)) is not None:
        yield Owns(of_item(replaced))


def _create_index(asked: Asked, statement: s.CreateIndex) -> Iterator[Need]:
    relation = asked.item(statement.relation)
    if statement.name is not None and relation is not None:
        name = asked.session.names.created(statement.name)
        if name[:2] != relation.full_name[:2]:
            yield from asked.creates(name)
    if (cluster := asked.cluster(statement.cluster)) is not None:
        yield May("CREATE", cluster)
    yield from _owned(asked, [statement.relation])


def _create_connection(asked: Asked, statement: s.CreateConnection) -> Iterator[Need]:
    yield from _create(asked, statement)
    yield from _secrets(asked, statement)


def _alter_connection(asked: Asked, statement: s.AlterConnection) -> Iterator[Need]:
    yield from _owned(asked, [statement.name])
    yield from _secrets(asked, statement)
    connection = asked.item(statement.name)
    if connection is not None and connection.kind == "connection":
        for id_ in connection.depends:  # Its secrets go to wherever it points from now on.
            yield May("USAGE", of_item(asked.catalog.items[id_]))


def _secrets(asked: Asked, statement: s.CreateConnection | s.AlterConnection) -> Iterator[Need]:
    for _, value in statement.options:
        if isinstance(value, s.SecretNamed):
            yield from asked.relation("USAGE", value.name)


def _create_webhook(asked: Asked, statement: s.CreateWebhookSource) -> Iterator[Need]:
    yield from _create(asked, statement)
    for each in statement.check_with:
        if each.what == "secret":
            yield from asked.relation("USAGE", each.secret)


def _create_kafka_source(asked: Asked, statement: s.CreateKafkaSource) -> Iterator[Need]:
    yield from _create(asked, statement)
    if statement.progress is not None:
        yield from asked.creates(statement.progress)
    yield from asked.relation("USAGE", statement.connection)
    for each in (statement.key, statement.value):
        if each is not None and each.registry is not None:
            yield from asked.relation("USAGE", each.registry)


def _create_sink(asked: Asked, statement: s.CreateSink) -> Iterator[Need]:
    yield from _create(asked, statement)
    yield from asked.relation("SELECT", statement.relation)
    yield from asked.relation("USAGE", statement.connection)


def _owned(asked: Asked, names: Iterable[s.Name]) -> Iterator[Need]:
    for name in names:
        if (item := asked.item(name)) is not None:
            yield Owns(of_item(item))


def _alter_object(asked: Asked, statement: s.AlterObject) -> Iterator[Need]:
    yield from _owned(asked, [statement.name])
    if statement.cluster is not None and (cluster := asked.cluster(statement.cluster)):
        yield May("CREATE", cluster)


def _move_object(asked: Asked, statement: s.MoveObject) -> Iterator[Need]:
    """Where it goes, its owner must be able to create."""
    yield from _owned(asked, [statement.name])
    if statement.schema is not None and (schema := asked.schema(statement.schema)) is not None:
        yield May("CREATE", of_schema(schema))


def _create_schema(asked: Asked, statement: s.CreateSchema) -> Iterator[Need]:
    where, _ = asked.session.names.in_database(statement.name)
    if (database := asked.database(where)) is not None:
        yield May("CREATE", of_database(database))


def _owned_schemas(asked: Asked, names: Iterable[s.Name]) -> Iterator[Need]:
    for name in names:
        if (schema := asked.schema(name)) is not None:
            yield Owns(of_schema(schema))


def _owned_database(asked: Asked, statement: s.DropDatabase) -> Iterator[Need]:
    if (database := asked.database(statement.name)) is not None:
        yield Owns(of_database(database))


def _comment(asked: Asked, statement: s.Comment) -> Iterable[Need]:
    """Of a column, who owns its relation."""
    return _owned(asked, [statement.name if statement.kind else statement.name[:-1]])


def _owned_clusters(asked: Asked, names: Iterable[str]) -> Iterator[Need]:
    for name in names:
        if (cluster := asked.cluster(name)) is not None:
            yield Owns(cluster)


def _show_create(asked: Asked, statement: s.ShowCreate) -> Iterator[Need]:
    if (item := asked.item(statement.name)) is not None:
        yield from asked.uses(item)


# Rules of roles ---------------------------------------------------------------------------------


def _roles(asked: Asked, names: Iterable[str]) -> list[Role]:
    """Those that are there; the statement complains about the others."""
    known = asked.catalog.roles.by_name
    return [known[name] for name in names if name in known]


def _managed(asked: Asked, names: Iterable[str], to: str) -> Iterator[Need]:
    """Roles are for who has CREATEROLE; superusers, and who can become one, for superusers."""
    yield Has("createrole", to)
    roles = asked.catalog.roles
    reached = {id_ for role in _roles(asked, names) for id_ in roles.reach(role.id)}
    if any(roles.by_id[id_].superuser for id_ in reached):
        yield Has("superuser", f"{to} of superusers")


def _attributes(options: r.RoleOptions, to: str) -> Iterator[Need]:
    """Nobody gives, or takes, what they have not."""
    for name in ATTRIBUTES:
        if getattr(options, name) is not None:
            yield Has(name, f"{to} with {name.upper()}")


def _create_role(_: Asked, statement: r.CreateRole) -> Iterator[Need]:
    yield Has("createrole", "create role")
    yield from _attributes(statement.options, "create role")


def _alter_role(asked: Asked, statement: r.AlterRole) -> Iterator[Need]:
    is_own = statement.name == asked.session.acting.role.name
    if is_own and statement.options == r.RoleOptions(password=statement.options.password):
        return  # A password of one's own.
    yield from _managed(asked, [statement.name], "alter role")
    yield from _attributes(statement.options, "alter role")


def _set_default(asked: Asked, statement: r.SetRoleDefault) -> Iterator[Need]:
    if statement.name != asked.session.acting.role.name:
        yield from _managed(asked, [statement.name], "alter role")


def _grant_role(asked: Asked, statement: r.GrantRole) -> Iterable[Need]:
    return _managed(asked, statement.roles, "grant role")


def _grant_on(asked: Asked, statement: r.GrantOn) -> Iterable[Need]:
    return (Owns(each) for each in securables(asked, statement))


def securables(asked: Asked, statement: r.GrantOn) -> list[Securable]:
    """What GRANT and REVOKE name; a name that is nothing's is an error."""
    if not statement.in_schema:
        return [securable(asked, statement.kind, name) for name in statement.names]
    schemas = [_schema(asked, name) for name in statement.names]
    items = (i for each in schemas for i in asked.catalog.within(each.database, each.name))
    return [each for each in map(of_item, items) if each.word == "TABLE"]


def _schema(asked: Asked, name: s.Name) -> SchemaItem:
    found = asked.schema(name)
    if found is not None:
        return found
    if name[-1] in SYSTEM_SCHEMAS:
        raise denied(f'schema "{name[-1]}" is the system\'s', "everybody may use it as it is")
    raise no_schema(".".join(name))


def securable(asked: Asked, kind: str, name: s.Name) -> Securable:
    """Something by its kind and name; `table` is any relation."""
    shown = ".".join(name)
    if kind == "cluster":
        asked.session.coordinator.clusters.named(shown)
        return of_cluster(asked.catalog.clusters[shown])
    if kind == "schema":
        return of_schema(_schema(asked, name))
    if kind == "database":
        database = asked.database(shown)
        if database is None:
            raise no_database(shown)
        return of_database(database)
    item = asked.item(name)
    if item is None:
        what = "relation" if kind == "table" else kind
        raise SqlError(f'{what} "{shown}" does not exist', sqlstate="42P01")
    found = of_item(item)
    if found.word != ("TABLE" if kind == "table" else kind.upper()):
        raise SqlError(f'"{item.name}" is {item.kind_phrase}, not a {kind}', sqlstate="42809")
    return found


def owned(asked: Asked, statement: r.AlterOwner) -> Securable:
    """What ALTER ... OWNER TO names, of exactly that kind."""
    if statement.kind in ("cluster", "schema", "database"):
        return securable(asked, statement.kind, statement.name)
    item = asked.item(statement.name)
    if item is None:
        shown = ".".join(statement.name)
        raise SqlError(f'{statement.kind} "{shown}" does not exist', sqlstate="42P01")
    if item.parent is not None:
        parent = asked.catalog.items[item.parent].shown
        raise SqlError(
            f'"{item.name}" belongs to source "{parent}"',
            hint=f"ALTER SOURCE {parent} OWNER TO {statement.owner}",
            sqlstate="2BP01",
        )
    if item.kind_name != statement.kind:
        raise SqlError(
            f'"{item.name}" is {item.kind_phrase}, not a {statement.kind}', sqlstate="42809"
        )
    return of_item(item)


def _alter_owner(asked: Asked, statement: r.AlterOwner) -> Iterator[Need]:
    yield Owns(owned(asked, statement))
    yield from map(Member, _roles(asked, [statement.owner]))


def _reassign(asked: Asked, statement: r.ReassignOwned) -> Iterable[Need]:
    return map(Member, _roles(asked, [*statement.roles, statement.to]))


def _drop_owned(asked: Asked, statement: r.DropOwned) -> Iterable[Need]:
    return map(Member, _roles(asked, statement.roles))


# The table --------------------------------------------------------------------------------------

NEEDS: dict[type, Rule] = {
    # Reading.
    s.Select: _select,
    s.Subscribe: _subscribe,
    s.CopyTo: _inner,
    s.Declare: _inner,
    s.Verify: _verify,
    s.Explain: _explain,
    # Writing.
    s.Insert: _insert,
    s.Update: _update,
    s.Delete: _delete,
    s.Truncate: _truncate,
    s.CopyFrom: _copy_from,
    # Objects.
    s.CreateTable: _create,
    s.CreateTableAs: _create_table_as,
    s.CreateSource: _create,
    s.CreateKafkaSource: _create_kafka_source,
    s.CreateWebhookSource: _create_webhook,
    s.CreateSink: _create_sink,
    s.CreateView: _create_view,
    s.CreateMaterializedView: _create_view,
    s.CreateIndex: _create_index,
    s.CreateConnection: _create_connection,
    s.AlterConnection: _alter_connection,
    s.CreateSecret: _create,
    s.AlterSecret: lambda asked, each: _owned(asked, [each.name]),
    s.AlterObject: _alter_object,
    s.MoveObject: _move_object,
    s.Comment: _comment,
    s.Drop: lambda asked, each: _owned(asked, each.names),
    # Where they are.
    s.CreateDatabase: lambda _, __: [Has("createdb", "create database")],
    s.DropDatabase: _owned_database,
    s.CreateSchema: _create_schema,
    s.DropSchemas: lambda asked, each: _owned_schemas(asked, each.names),
    s.RenameSchema: lambda asked, each: _owned_schemas(asked, [each.name]),
    # Clusters.
    s.CreateCluster: lambda _, __: [Has("createcluster", "create cluster")],
    s.CreateReplica: lambda asked, each: _owned_clusters(asked, [each.cluster]),
    s.AlterCluster: lambda asked, each: _owned_clusters(asked, [each.name]),
    s.AlterReplica: lambda asked, each: _owned_clusters(asked, [each.cluster]),
    s.DropClusters: lambda asked, each: _owned_clusters(asked, each.names),
    s.DropReplicas: lambda asked, each: _owned_clusters(asked, [c for c, _ in each.names]),
    # The server.
    s.AlterSystem: lambda _, __: [Has("superuser", "change settings of the server")],
    # Roles.
    r.CreateRole: _create_role,
    r.AlterRole: _alter_role,
    r.RenameRole: lambda asked, each: _managed(asked, [each.name], "rename role"),
    r.SetRoleDefault: _set_default,
    r.DropRoles: lambda asked, each: _managed(asked, each.names, "drop role"),
    r.GrantRole: _grant_role,
    r.GrantOn: _grant_on,
    r.AlterOwner: _alter_owner,
    r.ReassignOwned: _reassign,
    r.DropOwned: _drop_owned,
    # What is there.
    s.ShowCreate: _show_create,
    s.ShowObjects: _nothing,
    s.ShowIndexes: _nothing,
    s.ShowColumns: _nothing,
    s.ShowMatching: _nothing,
    s.ShowCreateCluster: _nothing,
    s.ShowVariable: _nothing,
    r.ShowPrivileges: _nothing,
    # The session's own. What EXECUTE runs is checked then, and what FETCH gives was.
    s.Prepare: _nothing,
    s.ExecutePrepared: _nothing,
    s.Fetch: _nothing,
    s.CloseCursor: _nothing,
    s.SetVariable: _nothing,
    s.ResetVariable: _nothing,
    s.Begin: _nothing,
    s.Commit: _nothing,
    s.Rollback: _nothing,
    s.Savepoint: _nothing,
    s.Release: _nothing,
    s.RollbackTo: _nothing,
    s.Discard: _nothing,
    s.Deallocate: _nothing,
    s.Unlisten: _nothing,
}


def _superusers(_: Asked, statement: Any) -> Iterable[Need]:
    return [Has("superuser", f"run {type(statement).__name__}")]


def check(session: Session, statement: s.Statement, params: tuple[Lit, ...]) -> None:
    """Raise what the session's role lacks for the statement, if it lacks anything."""
    rule = NEEDS.get(type(statement), _superusers)
    if rule is _nothing:
        return
    acting = session.acting
    if acting.is_superuser:
        return
    asked = Asked(session, params)
    for need in rule(asked, statement):
        refusal = need.refusal(acting, asked.catalog)
        if refusal is not None:
            raise refusal
