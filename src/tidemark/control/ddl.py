"""CREATE and DROP: statements into catalog items."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.compute.optimise import keys_of, optimised
from tidemark.compute.plan import Get, Plan
from tidemark.compute.queries import check_maintainable
from tidemark.compute.sql import plan_query
from tidemark.control import (
    alter,
    cluster_ddl,
    comments,
    connection_ddl,
    hierarchy_ddl,
    indexes,
    kafka,
    role_ddl,
    system_settings,
)
from tidemark.control import statements as s
from tidemark.control.access import OWNER
from tidemark.control.catalog import Item, exists
from tidemark.control.checks import duration_ms, retained_ms, source_options
from tidemark.control.coordinator import Coordinator
from tidemark.control.defaults import literals
from tidemark.control.dml import with_diff
from tidemark.control.names import Names
from tidemark.control.pgwire import Done
from tidemark.control.refresh import schedule
from tidemark.control.show_objects import table_statement
from tidemark.control.turns import to_its_end
from tidemark.control.webhook.create import create_webhook, webhook_notices
from tidemark.errors import SqlError, Unsupported
from tidemark.storage.generators import generator
from tidemark.storage.spec import GeneratorSource
from tidemark.types import SYSTEM_SCALARS, Column, arrow_schema, check_columns

if TYPE_CHECKING:
    from tidemark.control.session import Session

DEFAULT_TICK_MS = 100


_THERE = ("42P07", "42710", "42P04", "42P06")
_GONE = ("42P01", "42704", "3D000", "3F000")


async def run(session: Session, statement: s.Statement) -> Done:
    if isinstance(statement, s.CreateTableAs):
        return await _create_table_as(session, statement)
    return await to_its_end(_run_again(session, statement))


async def _run_again(session: Session, statement: s.Statement) -> Done:
    OWNER.set(session.acting.role.id)
    try:
        return await _run(session, statement)
    except SqlError as error:
        # What IF says was looked at before it was this statement's turn: look again.
        is_there = getattr(statement, "if_not_exists", False) and error.sqlstate in _THERE
        is_gone = getattr(statement, "if_exists", False) and error.sqlstate in _GONE
        if not is_there and not is_gone:
            raise
    return await _run(session, statement)


async def _run(session: Session, statement: s.Statement) -> Done:
    if isinstance(statement, s.RoleStatement):
        return await role_ddl.run(session, statement)
    match statement:
        case s.CreateTable():
            literals(statement.columns, statement.defaults, session.session_values())
            return await _guarded(session, statement, _create_table, "CREATE TABLE")
        case s.CreateSource():
            return await _guarded(session, statement, _create_source, "CREATE SOURCE")
        case s.CreateKafkaSource():
            return await _guarded(session, statement, kafka.create_source, "CREATE SOURCE")
        case s.CreateWebhookSource():
            done = await _guarded(session, statement, create_webhook, "CREATE SOURCE")
            for message, hint in webhook_notices(session.coordinator, statement):
                session.notice(message, hint=hint)
            return done
        case s.CreateSink():
            return await _guarded(session, statement, kafka.create_sink, "CREATE SINK")
        case s.CreateConnection():
            create = connection_ddl.create_connection
            return await _guarded(session, statement, create, "CREATE CONNECTION")
        case s.AlterConnection():
            await connection_ddl.alter_connection(session.coordinator, statement, session.notice)
            return Done("ALTER CONNECTION")
        case s.CreateSecret():
            return await _guarded(session, statement, connection_ddl.create_secret, "CREATE SECRET")
        case s.AlterSecret():
            await connection_ddl.alter_secret(session.coordinator, statement)
            return Done("ALTER SECRET")
        case s.CreateView():
            create = partial(_create_view, names=session.names)
            return await _guarded(session, statement, create, "CREATE VIEW")
        case s.CreateMaterializedView():
            tag = "CREATE MATERIALIZED VIEW"
            create = partial(_create_materialized_view, names=session.names)
            return await _guarded(session, statement, create, tag)
        case s.CreateIndex():
            return await _create_index(session, statement)
        case s.Drop():
            return await _drop(session, statement)
        case s.CreateCluster() | s.CreateReplica() | s.AlterCluster() | s.AlterReplica():
            return await cluster_ddl.run(session, statement)
        case s.DropClusters() | s.DropReplicas():
            return await cluster_ddl.run(session, statement)
        case s.Comment():
            return await comments.run(session.coordinator, statement)
        case s.AlterSystem():
            return await system_settings.run(session.coordinator, statement)
        case s.AlterObject():
            return await alter.run(session.coordinator, statement, session.notice)
        case s.CreateDatabase() | s.DropDatabase() | s.CreateSchema() | s.DropSchemas():
            return await hierarchy_ddl.run(session, statement)
        case s.RenameSchema() | s.MoveObject():
            return await hierarchy_ddl.run(session, statement)
    raise Unsupported(f"{type(statement).__name__} is not supported")


async def _guarded(session: Session, statement, create, tag: str) -> Done:
    """IF NOT EXISTS turns "already exists" into a notice, also if it is made just now."""

    def found() -> Item | None:
        return session.coordinator.catalog.find(statement.name) if statement.if_not_exists else None

    if found() is None:
        try:
            await create(session.coordinator, _placed(session, statement))
            return Done(tag)
        except SqlError as error:
            if error.sqlstate != "42P07" or found() is None:
                raise
    if (there := found()) is not None:
        session.notice(f"{exists(there).message}, skipping")
    return Done(tag)


def _placed(session: Session, statement):
    """Without IN CLUSTER, what runs goes where the session is."""
    if not hasattr(statement, "cluster"):
        return statement
    cluster = statement.cluster or session.cluster
    session.coordinator.clusters.named(cluster)
    return dataclasses.replace(statement, cluster=cluster)


async def _create_table(coordinator: Coordinator, statement: s.CreateTable) -> None:
    columns = statement.columns
    check_columns(columns)
    kept = retained_ms(statement.retain)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_,
            name,
            "table",
            statement.sql,
            columns=columns,
            shard=id_,
            retain_ms=kept,
            defaults=statement.defaults,
        )

    await coordinator.create_table(statement.name, make, rows=statement.rows)


async def _create_table_as(session: Session, statement: s.CreateTableAs) -> Done:
    """Reads first, which can be cancelled; then makes the table with its rows in it."""
    there = session.coordinator.catalog.find(statement.name)
    if there is not None:
        if not statement.if_not_exists:
            raise exists(there)
        session.notice(f"{exists(there).message}, skipping")
        return Done("CREATE TABLE AS")
    select = s.Select(statement.query)
    columns = _renamed(session.read(select, ()).columns, statement.columns)
    check_columns(columns)
    rows = arrow_schema(columns).empty_table()
    if statement.with_data:
        found = await session.select(select, ())
        batches = [pa.Table.from_batches([batch]) async for batch in found.batches]
        names = [column.name for column in columns]
        rows = pa.concat_tables(
            [rows, *(b.rename_columns(names).cast(rows.schema) for b in batches)]
        )
    sql = table_statement(statement.name, columns, statement.retain)
    table = s.CreateTable(
        statement.name,
        columns,
        statement.if_not_exists,
        sql,
        statement.retain,
        rows=with_diff(rows, 1),
    )
    await run(session, table)
    return Done(f"SELECT {rows.num_rows}" if statement.with_data else "CREATE TABLE AS")


def _renamed(columns: tuple[Column, ...], names: tuple[str, ...]) -> tuple[Column, ...]:
    if len(names) > len(columns):
        raise SqlError("too many column names were specified")
    for column in columns:
        if (column.type.element or column.type).name in SYSTEM_SCALARS:
            raise Unsupported(
                f'no table can have columns of type {column.type}, as "{column.name}" is',
                hint="cast it: ::bigint if it is an oid, else ::text",
            )
    given = (*names, *(column.name for column in columns[len(names) :]))
    return tuple(Column(name, c.type) for name, c in zip(given, columns, strict=True))


async def _create_source(coordinator: Coordinator, statement: s.CreateSource) -> None:
    options = dict(statement.options)
    tick_ms = duration_ms(options.pop("tick interval", f"{DEFAULT_TICK_MS}ms"), "TICK INTERVAL")
    up_to = options.pop("up to", None)
    every_ms, retain_ms = source_options(statement.with_options)
    if up_to is not None and not up_to.isdecimal():
        raise SqlError(f"UP TO takes a number of steps, not {up_to!r}", sqlstate="22023")
    settings: dict[str, str | int] = {
        name.replace(" ", "_"): value for name, value in options.items()
    }
    made = generator(statement.generator, settings)
    if len(made.tables) > 1 and not statement.all_tables:
        raise SqlError(
            f"load generator {statement.generator.upper()} has several tables "
            f"({', '.join(made.tables)})",
            hint="add FOR ALL TABLES",
        )
    prefix = statement.name[:-1]
    # Without FOR ALL TABLES the source is itself the one table that its generator has.
    tables = list(made.tables) if statement.all_tables else []

    def make(ids: list[str]) -> tuple[list[Item], GeneratorSource]:
        id_, table_ids = ids[0], dict(zip(tables, ids[1:], strict=True))
        source = GeneratorSource(
            id=id_,
            kind=statement.generator,
            options=settings,
            remap=f"{id_}-remap",
            shards=table_ids or dict.fromkeys(made.tables, id_),
            tick_ms=tick_ms,
            interval_ms=every_ms,
            up_to=int(up_to) if up_to is not None else None,
        )
        name = statement.name[-1]
        if not tables:
            (only,) = made.tables.values()
            item = Item(
                id_,
                name,
                "source",
                statement.sql,
                columns=only.columns,
                keys=only.keys,
                shard=id_,
                retain_ms=retain_ms,
            )
            return [item], source
        items = [
            Item(id_, name, "source", statement.sql),
            *(
                Item(
                    table_ids[table],
                    table,
                    "subsource",
                    statement.sql,
                    columns=made.tables[table].columns,
                    keys=made.tables[table].keys,
                    shard=table_ids[table],
                    parent=id_,
                    retain_ms=retain_ms,
                )
                for table in tables
            ),
        ]
        return items, source

    names = [statement.name, *((*prefix, table) for table in tables)]
    await coordinator.create_source(names, make, cluster=statement.cluster)


async def _create_view(coordinator: Coordinator, statement: s.CreateView, names: Names) -> None:
    plan, depends = _planned(coordinator, statement, names)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_,
            name,
            "view",
            statement.sql,
            columns=plan.columns,
            depends=depends,
            plan=plan,
            dialect=statement.query.dialect,
        )

    await coordinator.create_view(statement.name, make, or_replace=statement.or_replace)


async def _create_materialized_view(
    coordinator: Coordinator, statement: s.CreateMaterializedView, names: Names
) -> None:
    plan, depends = _planned(coordinator, statement, names)
    _check_maintained(plan)
    timeline = coordinator.timelines[statement.name[0]]
    refreshes = schedule(statement.refresh, now=timeline.read_ts)
    kept = retained_ms(statement.retain)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_,
            name,
            "materialized-view",
            statement.sql,
            columns=plan.columns,
            keys=keys_of(optimised(plan)),
            shard=id_,
            depends=depends,
            plan=plan,
            retain_ms=kept,
            dialect=statement.query.dialect,
        )

    await coordinator.create_materialized_view(
        statement.name,
        plan,
        make,
        cluster=statement.cluster,
        or_replace=statement.or_replace,
        refresh=refreshes.created,
    )


async def _create_index(session: Session, statement: s.CreateIndex) -> Done:
    coordinator = session.coordinator
    relation = indexes.indexed_relation(coordinator, statement)
    key = indexes.key_of(relation, statement.columns)
    name = indexes.free_name(coordinator, statement, relation)

    def make(id_: str, name: str) -> Item:
        return Item(id_, name, "index", statement.sql, key=key, depends=(relation.id,))

    async def create(_: Coordinator, __: s.CreateIndex) -> None:
        await coordinator.create_index(name, make, cluster=statement.cluster)

    return await _guarded(
        session, dataclasses.replace(statement, name=name), create, "CREATE INDEX"
    )


async def _drop(session: Session, statement: s.Drop) -> Done:
    coordinator = session.coordinator
    items = []
    for name in statement.names:
        item = coordinator.catalog.find(name)
        if item is None:
            if not statement.if_exists:
                raise SqlError(
                    f'{statement.kind} "{".".join(name)}" does not exist', sqlstate="42P01"
                )
            session.notice(f'{statement.kind} "{".".join(name)}" does not exist, skipping')
            continue
        if item.parent is not None:
            parent = coordinator.catalog.items[item.parent].shown
            raise SqlError(
                f'"{item.name}" belongs to source "{parent}"',
                hint=f"DROP SOURCE {parent} drops all of its tables",
                sqlstate="2BP01",
            )
        if item.kind_name != statement.kind:
            raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
        items.append(item)
    if items:
        await coordinator.drop(items, cascade=statement.cascade, if_exists=statement.if_exists)
    return Done(f"DROP {statement.kind.upper()}")


class _Recording:
    """Resolves names as the session does, and remembers what was found."""

    def __init__(self, names: Names):
        self._names = names
        self.found: dict[str, None] = {}

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        item = self._names.find(parts) if self._names.system(parts) is None else None
        if item is not None:
            self.found.update(dict.fromkeys((item.id, *item.depends)))
        return self._names.resolve(parts)


def _planned(
    coordinator: Coordinator, statement: s.CreateView | s.CreateMaterializedView, names: Names
) -> tuple[Plan, tuple[str, ...]]:
    resolver = _Recording(names)
    plan = plan_query(statement.query.tree, resolver, view=True, names=statement.columns)
    coordinator.database_of(plan, statement.name[0])
    return plan, tuple(resolver.found)


def checked_plan(
    coordinator: Coordinator, statement: s.CreateView | s.CreateMaterializedView, names: Names
) -> Plan:
    """The plan that a CREATE would make, if it would make one."""
    plan, _ = _planned(coordinator, statement, names)
    if isinstance(statement, s.CreateMaterializedView):
        _check_maintained(plan)
    return plan


def _check_maintained(plan: Plan) -> None:
    check_columns(plan.columns)
    check_maintainable(plan)
