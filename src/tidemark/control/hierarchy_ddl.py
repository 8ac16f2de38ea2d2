"""CREATE, ALTER and DROP of databases and schemas; objects that get another name or schema.

What reads an object goes by its id, so it goes on when that is renamed or moved. Nothing moves from
one database to another: they are different timelines.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tidemark.control import statements as s
from tidemark.control.access import OWNER
from tidemark.control.catalog import Item, exists
from tidemark.control.cursor import Cursor
from tidemark.control.hierarchy import (
    DATABASE,
    SCHEMA,
    SYSTEM_SCHEMAS,
    DatabaseItem,
    SchemaItem,
    check_name,
    no_database,
    no_schema,
    spelled,
)
from tidemark.control.pgwire import Done
from tidemark.errors import SqlError, Unsupported

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator
    from tidemark.control.session import Session

Change = (
    s.CreateDatabase
    | s.DropDatabase
    | s.CreateSchema
    | s.DropSchemas
    | s.RenameSchema
    | s.MoveObject
)


async def run(session: Session, statement: Change) -> Done:
    match statement:
        case s.CreateDatabase():
            await _create_database(session, statement)
            return Done("CREATE DATABASE")
        case s.DropDatabase():
            await _drop_database(session, statement)
            return Done("DROP DATABASE")
        case s.CreateSchema():
            await _create_schema(session, statement)
            return Done("CREATE SCHEMA")
        case s.DropSchemas():
            await _drop_schemas(session, statement)
            return Done("DROP SCHEMA")
        case s.RenameSchema():
            await _rename_schema(session, statement)
            return Done("ALTER SCHEMA")
        case s.MoveObject():
            await _move_object(session, statement)
            return Done(f"ALTER {statement.kind.upper()}")


# Databases.


async def _create_database(session: Session, statement: s.CreateDatabase) -> None:
    coordinator, name = session.coordinator, statement.name
    check_name("database", name)
    async with coordinator.ddl:
        if name in coordinator.catalog.databases:
            if not statement.if_not_exists:
                raise SqlError(f'database "{name}" already exists', sqlstate="42P04")
            session.notice(f'database "{name}" already exists, skipping')
            return
        id_, schema_id = await coordinator.timeline.run(coordinator.catalog.next_ids, 2)
        database = DatabaseItem(id_, name, log=f"{id_}-txns")
        schema = SchemaItem(schema_id, SCHEMA, name)
        await coordinator.timelines.begin(database)
        try:
            add = partial(coordinator.catalog.add_database, database, schema, owner=OWNER.get())
            await coordinator.timeline.run(add)
        except BaseException:
            await coordinator.timelines.end(database)
            raise


async def _drop_database(session: Session, statement: s.DropDatabase) -> None:
    coordinator, name = session.coordinator, statement.name
    database = coordinator.catalog.databases.get(name)
    if database is None:
        if not statement.if_exists:
            raise no_database(name)
        session.notice(f'database "{name}" does not exist, skipping')
        return
    if name == DATABASE:
        raise SqlError(
            f'database "{name}" is the first one and cannot be dropped',
            hint="drop its schemas, if it shall be empty",
            sqlstate="2BP01",
        )
    _check_unused(session, name)
    items = coordinator.catalog.within(name)
    if items and statement.restrict:
        raise _not_empty("database", name, items, "leave RESTRICT out")
    if items:
        await coordinator.drop(_owned(items), cascade=True)
    async with coordinator.ddl:
        if coordinator.catalog.databases.get(name) != database:
            raise no_database(name)
        _check_unused(session, name)
        if items := coordinator.catalog.within(name):
            raise _not_empty("database", name, items, "somebody creates in it: try again")
        await coordinator.timeline.run(coordinator.catalog.remove_database, database)
        await coordinator.timelines.end(database)


def _check_unused(session: Session, name: str) -> None:
    if session.database == name:
        raise SqlError(
            "cannot drop the currently open database",
            hint=f"SET database = {DATABASE} first",
            sqlstate="55006",
        )
    others = session.coordinator.activity.sessions.values()
    count = sum(who.variables.get("database") == name for who in others)
    if count:
        raise SqlError(
            f'database "{name}" is being accessed by other users',
            hint=f"sessions that use it: {count}",
            sqlstate="55006",
        )


# Schemas.


async def _create_schema(session: Session, statement: s.CreateSchema) -> None:
    coordinator = session.coordinator
    database, name = session.names.in_database(statement.name)
    if database not in coordinator.catalog.databases:
        raise no_database(database)
    check_name("schema", name)
    async with coordinator.ddl:
        if (database, name) in coordinator.catalog.schemas:
            if not statement.if_not_exists:
                raise _schema_exists(name)
            session.notice(f'schema "{name}" already exists, skipping')
            return
        if database not in coordinator.catalog.databases:
            raise no_database(database)
        (id_,) = await coordinator.timeline.run(coordinator.catalog.next_ids)
        schema = SchemaItem(id_, name, database)
        add = partial(coordinator.catalog.add_schema, schema, owner=OWNER.get())
        await coordinator.timeline.run(add)


async def _drop_schemas(session: Session, statement: s.DropSchemas) -> None:
    coordinator = session.coordinator
    found: list[SchemaItem] = []
    for parts in statement.names:
        schema = _schema(session, parts)
        if schema is not None:
            found.append(schema)
        elif statement.if_exists:
            session.notice(f'schema "{".".join(parts)}" does not exist, skipping')
        else:
            raise no_schema(".".join(parts))
    await drop_schemas(coordinator, found, cascade=statement.cascade)


async def drop_schemas(coordinator: Coordinator, found: list[SchemaItem], *, cascade: bool) -> None:
    items = [i for each in found for i in coordinator.catalog.within(each.database, each.name)]
    if items and not cascade:
        raise _not_empty("schema", found[0].name, items, "use DROP ... CASCADE to drop them too")
    if items:
        await coordinator.drop(_owned(items), cascade=True)
    async with coordinator.ddl:
        for each in found:
            if items := coordinator.catalog.within(each.database, each.name):
                raise _not_empty("schema", each.name, items, "somebody creates in it: try again")
            await coordinator.timeline.run(coordinator.catalog.remove_schema, each)


async def _rename_schema(session: Session, statement: s.RenameSchema) -> None:
    coordinator = session.coordinator
    schema = _schema(session, statement.name)
    if schema is None:
        raise no_schema(".".join(statement.name))
    check_name("schema", statement.to)
    async with coordinator.ddl:
        if (schema.database, statement.to) in coordinator.catalog.schemas:
            raise _schema_exists(statement.to)
        items = coordinator.catalog.within(schema.database, schema.name)
        moved = {item.id: _moved(item, schema=statement.to) for item in items}
        renamed = replace(schema, name=statement.to)
        put = partial(coordinator.catalog.put, *_together(moved), schema=renamed)
        await coordinator.timeline.run(put)


def _schema(session: Session, parts: tuple[str, ...]) -> SchemaItem | None:
    database, name = session.names.in_database(parts)
    if name in SYSTEM_SCHEMAS:
        raise SqlError(f'schema "{name}" is required by the database system', sqlstate="2BP01")
    return session.coordinator.catalog.schemas.get((database, name))


def _schema_exists(name: str) -> SqlError:
    return SqlError(f'schema "{name}" already exists', sqlstate="42P06")


def _owned(items: list[Item]) -> list[Item]:
    """Those that are dropped by themselves; others go with their source."""
    return [item for item in items if item.parent is None]


def _not_empty(kind: str, name: str, items: list[Item], hint: str) -> SqlError:
    names = sorted(item.shown for item in items if item.parent is None)
    return SqlError(
        f'cannot drop {kind} "{name}" because other objects are in it: {", ".join(names)}',
        hint=hint,
        sqlstate="2BP01",
    )


# Objects.


async def _move_object(session: Session, statement: s.MoveObject) -> None:
    coordinator = session.coordinator
    item = coordinator.catalog.find(statement.name)
    if item is None:
        message = f'{statement.kind} "{".".join(statement.name)}" does not exist'
        if not statement.if_exists:
            raise SqlError(message, sqlstate="42P01")
        session.notice(f"{message}, skipping")
        return
    if item.kind_name != statement.kind:
        raise SqlError(f'"{item.name}" is not a {statement.kind}', sqlstate="42809")
    if item.parent is not None:
        parent = coordinator.catalog.items[item.parent].shown
        raise SqlError(
            f'"{item.name}" belongs to source "{parent}"', hint="alter that", sqlstate="42809"
        )
    schema = _target(session, item, statement.schema)
    async with coordinator.ddl:
        if coordinator.catalog.items.get(item.id) != item:
            raise SqlError(f'"{item.name}" was changed meanwhile', sqlstate="42P01")
        parts = [each for each in coordinator.catalog.items.values() if each.parent == item.id]
        moved = {item.id: _moved(item, schema=schema, name=statement.rename)}
        if schema != item.schema:
            # A source's tables are where it is, and indexes are where their relations are.
            ids = {item.id, *(each.id for each in parts)}
            along = [
                each
                for each in coordinator.catalog.items.values()
                if each.kind == "index" and each.depends[0] in ids
            ]
            moved |= {each.id: _moved(each, schema=schema) for each in (*parts, *along)}
        else:
            moved |= {each.id: each for each in parts}
        for id_, new in moved.items():
            there = coordinator.catalog.find(new.full_name)
            if there is not None and (there.id not in moved or id_ == item.id):
                raise exists(there)
        await coordinator.timeline.run(coordinator.catalog.put, *_together(moved))


def _target(session: Session, item: Item, given: tuple[str, ...] | None) -> str:
    """The schema that an object shall be in."""
    if given is None:
        return item.schema
    if item.kind == "index":
        raise Unsupported(
            f'"{item.name}" is an index: it is in the schema of its relation',
            hint="move that, and its indexes go along",
        )
    database, schema = session.names.schema(given)
    if database != item.database:
        raise Unsupported(
            f'"{item.shown}" cannot move to database "{database}": that is another timeline',
            hint="create it there anew",
        )
    if schema in SYSTEM_SCHEMAS:
        raise SqlError(f'cannot move objects into schema "{schema}"', sqlstate="42501")
    return schema


def _moved(item: Item, *, schema: str, name: str | None = None) -> Item:
    """The value of a secret is kept under its name, outside the catalog: it stays where it is."""
    if item.kind == "secret":
        raise Unsupported(
            f'secret "{item.shown}" cannot get another name or schema',
            hint="create another one, and connections that use it",
        )
    renamed = replace(item, schema=schema, name=name or item.name)
    if item.parent is not None:
        return renamed
    return replace(renamed, sql=renamed_sql(item.sql, renamed))


def _together(moved: dict[str, Item]) -> list[Item]:
    """What belongs to a source was made by its statement."""
    return [
        replace(item, sql=moved[item.parent].sql) if item.parent in moved else item
        for item in moved.values()
    ]


_BEFORE_NAME = (
    "CREATE",
    "OR REPLACE",
    "MATERIALIZED VIEW",
    *("VIEW", "TABLE", "SOURCE", "SINK", "CONNECTION", "DEFAULT INDEX", "INDEX"),
    "IF NOT EXISTS",
)


def renamed_sql(sql: str, item: Item) -> str:
    """The statement that made an object, with the name that it has now."""
    cursor = Cursor(sql, item.dialect)
    while any(cursor.take(words) for words in _BEFORE_NAME):
        pass
    first = cursor.peek()
    if first is None or (item.kind == "index" and cursor.looking_at("ON")):
        return sql
    cursor.name()
    last = cursor.tokens[cursor.at - 1]
    return sql[: first.start] + spelled(item.full_name) + sql[last.end + 1 :]
