"""CREATE and DROP: statements into catalog items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.compute.optimise import keys_of, optimised
from tidemark.compute.plan import Get, Plan
from tidemark.compute.queries import check_maintainable
from tidemark.compute.sql import plan_query
from tidemark.control import kafka
from tidemark.control import statements as s
from tidemark.control.catalog import Item, exists
from tidemark.control.checks import check_cluster, duration_ms, interval_ms
from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Done
from tidemark.errors import SqlError, Unsupported
from tidemark.storage.generators import generator
from tidemark.storage.spec import GeneratorSource
from tidemark.types import check_columns

if TYPE_CHECKING:
    from tidemark.control.session import Session

DEFAULT_TICK_MS = 100


async def run(session: Session, statement: s.Statement) -> Done:
    match statement:
        case s.CreateTable():
            return await _guarded(session, statement, _create_table, "CREATE TABLE")
        case s.CreateSource():
            return await _guarded(session, statement, _create_source, "CREATE SOURCE")
        case s.CreateKafkaSource():
            return await _guarded(session, statement, kafka.create_source, "CREATE SOURCE")
        case s.CreateSink():
            return await _guarded(session, statement, kafka.create_sink, "CREATE SINK")
        case s.CreateConnection():
            return await _guarded(session, statement, kafka.create_connection, "CREATE CONNECTION")
        case s.CreateSecret():
            return await _guarded(session, statement, kafka.create_secret, "CREATE SECRET")
        case s.CreateView():
            return await _guarded(session, statement, _create_view, "CREATE VIEW")
        case s.CreateMaterializedView():
            tag = "CREATE MATERIALIZED VIEW"
            return await _guarded(session, statement, _create_materialized_view, tag)
        case s.Drop():
            return await _drop(session, statement)
    raise Unsupported(f"{type(statement).__name__} is not supported")


async def _guarded(session: Session, statement, create, tag: str) -> Done:
    """IF NOT EXISTS turns "already exists" into a notice."""
    found = session.coordinator.find(statement.name)
    if statement.if_not_exists and found is not None:
        session.notice(f"{exists(found).message}, skipping")
        return Done(tag)
    await create(session.coordinator, statement)
    return Done(tag)


async def _create_table(coordinator: Coordinator, statement: s.CreateTable) -> None:
    check_columns(statement.columns)

    def make(id_: str, name: str) -> Item:
        return Item(id_, name, "table", statement.sql, columns=statement.columns, shard=id_)

    await coordinator.create_table(statement.name, make)


async def _create_source(coordinator: Coordinator, statement: s.CreateSource) -> None:
    check_cluster(statement.cluster)
    options = dict(statement.options)
    tick_ms = duration_ms(options.pop("tick interval", f"{DEFAULT_TICK_MS}ms"), "TICK INTERVAL")
    up_to = options.pop("up to", None)
    every_ms = interval_ms(statement.with_options)
    if up_to is not None and not up_to.isdigit():
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
                )
                for table in tables
            ),
        ]
        return items, source

    names = [statement.name, *((*prefix, table) for table in tables)]
    await coordinator.create_source(names, make)


async def _create_view(coordinator: Coordinator, statement: s.CreateView) -> None:
    plan, depends = _planned(coordinator, statement)

    def make(id_: str, name: str) -> Item:
        return Item(
            id_, name, "view", statement.sql, columns=plan.columns, depends=depends, plan=plan
        )

    await coordinator.create_view(statement.name, make, or_replace=statement.or_replace)


async def _create_materialized_view(
    coordinator: Coordinator, statement: s.CreateMaterializedView
) -> None:
    check_cluster(statement.cluster)
    plan, depends = _planned(coordinator, statement)
    check_columns(plan.columns)
    check_maintainable(plan)

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
        )

    await coordinator.create_materialized_view(
        statement.name, plan, make, or_replace=statement.or_replace
    )


async def _drop(session: Session, statement: s.Drop) -> Done:
    coordinator = session.coordinator
    items = []
    for name in statement.names:
        item = coordinator.find(name)
        if item is None:
            if not statement.if_exists:
                raise SqlError(
                    f'{statement.kind} "{".".join(name)}" does not exist', sqlstate="42P01"
                )
            session.notice(f'{statement.kind} "{".".join(name)}" does not exist, skipping')
            continue
        if item.parent is not None:
            parent = coordinator.catalog.items[item.parent].name
            raise SqlError(
                f'"{item.name}" belongs to source "{parent}"',
                hint=f"DROP SOURCE {parent} drops all of its tables",
                sqlstate="2BP01",
            )
        if item.kind_name != statement.kind:
            raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
        items.append(item)
    if items:
        await coordinator.drop(items, cascade=statement.cascade)
    return Done(f"DROP {statement.kind.upper()}")


class _Recording:
    """Resolves names like the coordinator, and remembers what was found."""

    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self.found: dict[str, None] = {}

    def resolve(self, parts: tuple[str, ...]) -> Get | Plan:
        item = self._coordinator.find(parts)
        if item is not None:
            self.found.update(dict.fromkeys((item.id, *item.depends)))
        return self._coordinator.resolve(parts)


def _planned(
    coordinator: Coordinator, statement: s.CreateView | s.CreateMaterializedView
) -> tuple[Plan, tuple[str, ...]]:
    resolver = _Recording(coordinator)
    plan = plan_query(statement.query.tree, resolver, view=True, names=statement.columns)
    return plan, tuple(resolver.found)
