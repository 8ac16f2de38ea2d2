"""INSERT, UPDATE, DELETE and COPY FROM: what a statement changes, and when that is written.

In a transaction the changes wait until it commits. Outside of one, values that are given are written
at once. What has to be read first is read while others write, and written if no table that it rests
on was written to meanwhile; else it is done again, and in the end with nobody else's write in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidemark.compute.expr import Asked, Lit
from tidemark.compute.plan import Constant, Plan
from tidemark.control import copy_in, dml, returning
from tidemark.control import statements as s
from tidemark.control.catalog import Catalog, Item
from tidemark.control.defaults import literals
from tidemark.control.lineage import tables_of, underneath
from tidemark.control.pgwire import CopyIn, Done, Rows
from tidemark.control.qualify import qualified
from tidemark.control.system_settings import check_memory
from tidemark.control.timeline import Reads
from tidemark.control.values import constant_table
from tidemark.errors import SqlError, TidemarkError
from tidemark.storage.tables import Write
from tidemark.types import Column
from tidemark.units import byte_size

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator
    from tidemark.control.session import Session
    from tidemark.control.transaction import Transaction

Returning = s.Insert | s.Update | s.Delete
Changing = Returning | s.Truncate

ATTEMPTS = 3
"""Times that a statement may come too late before the others have to wait for it."""

TAGS = {s.Insert: "INSERT 0", s.Update: "UPDATE", s.Delete: "DELETE"}


async def write(session: Session, statement: Changing, params: tuple[Lit, ...]) -> Done | Rows:
    item = session.coordinator.writable(statement.table)
    if not isinstance(statement, s.Truncate):
        returning.columns(statement, item)  # What is wrong with that is said before it is written.
    plan = await session.aside(lambda: _planned(session, statement, item, params))
    if isinstance(plan, _Given):
        await _submit(session, item, plan.rows)
        hit = plan.rows
    else:
        hit = await _read_then_write(session, statement, item, plan)
    if isinstance(statement, s.Truncate):
        return Done("TRUNCATE TABLE")
    tag = f"{TAGS[type(statement)]} {hit.num_rows}"
    return returning.result(statement, item, hit, tag) if statement.returning else Done(tag)


def returned(coordinator: Coordinator, statement: Returning) -> tuple[Column, ...]:
    """The columns of what it will return."""
    found = returning.columns(statement, coordinator.writable(statement.table))
    return tuple(column for _, column in found)


def targets(coordinator: Coordinator, statement: s.Statement) -> tuple[Column, ...]:
    """The columns into which an INSERT's values go."""
    if not isinstance(statement, s.Insert):
        return ()
    columns = coordinator.writable(statement.table).columns
    named = {column.name: column for column in columns}
    return tuple(named[n] for n in statement.columns if n in named) or columns


def look(session: Session, statement: s.Statement, params: tuple[Lit, ...]) -> None:
    """Have noted what a statement that writes takes its parameters for; what is wrong with it is
    said when it runs."""
    if isinstance(statement, Changing) and any(isinstance(each, Asked) for each in params):
        with suppress(TidemarkError):
            full = qualified(statement, session.names)
            _planned(session, full, session.coordinator.writable(full.table), params)


class _Given(NamedTuple):
    """Changes that the statement says itself."""

    rows: pa.Table


def _planned(
    session: Session, statement: Changing, item: Item, params: tuple[Lit, ...]
) -> Plan | _Given:
    values = session.session_values()
    match statement:
        case s.Insert():
            plan = dml.plan_insert(
                statement,
                session.names,
                params=params,
                session=values,
                defaults=literals(item.columns, item.defaults, values),
            )
            if isinstance(plan, Constant):
                return _Given(dml.with_diff(constant_table(plan, item.columns), 1))
            return plan
        case s.Update():
            return dml.plan_update(
                statement,
                session.names,
                params=params,
                session=values,
                defaults=literals(item.columns, item.defaults, values),
            )
        case s.Delete():
            return dml.plan_delete(statement, session.names, params=params, session=values)
        case s.Truncate(table=table):
            return dml.plan_delete(s.Delete(table, None, None), session.names)


def copy_from(session: Session, statement: s.CopyFrom) -> CopyIn:
    check_memory(session.coordinator)
    item = session.coordinator.writable(statement.table)
    if session.transaction is not None:
        session.transaction.begin_write(item.database)
    reader = copy_in.Reader(
        item.name,
        item.columns,
        statement.columns,
        statement.options,
        max_bytes=byte_size(session.variables.get("max_copy_from_size")),
        defaults=literals(item.columns, item.defaults, session.session_values()),
    )

    async def load(pieces: AsyncIterator[bytes]) -> Done:
        rows = dml.with_diff(await copy_in.read_all(reader, pieces), 1)
        if rows.num_rows:
            await _submit(session, item, rows)
        return Done(f"COPY {rows.num_rows}")

    width = len(statement.columns or item.columns)
    binary = statement.options.format == "binary"
    return CopyIn(width, binary, lambda pieces: session.guarded(load(pieces)))


async def _submit(session: Session, item: Item, rows: pa.Table) -> None:
    write = session.coordinator.write_of(item, rows)
    if session.transaction is not None:
        session.transaction.begin_write(item.database)
        _keep(session.coordinator, session.transaction, write)
    else:
        await session.coordinator.timelines[item.database].write([write])


def _keep(coordinator: Coordinator, transaction: Transaction, write: Write) -> None:
    """Until it commits. Its rows are in memory already: who has too many is refused, and then the
    others are not."""
    check_memory(coordinator)
    transaction.writes.append(write)


def check_tables(catalog: Catalog, kept: list[Write]) -> None:
    """A table may have been dropped since the statement that wrote to it."""
    known = {item.shard for item in catalog.items.values()}
    if any(write.shard_id not in known for write in kept):
        raise SqlError(
            "a table that this transaction has written to was dropped; nothing was written",
            sqlstate="42P01",
        )


async def _read_then_write(
    session: Session, statement: Changing, item: Item, plan: Plan
) -> pa.Table:
    """The rows that it has made, or taken away."""
    coordinator, transaction = session.coordinator, session.transaction
    coordinator.database_of(plan, item.database)
    if transaction is None:
        for _ in range(ATTEMPTS):
            hit = await _write_unless_changed(session, statement, item, plan)
            if hit is not None:
                return hit
        return await _write_exclusively(session, statement, item, plan)
    transaction.begin_write(item.database)
    as_of, changes = await session.read_at(plan, strict=True, database=item.database)
    rows, hit = await _changed(session, statement, item, plan, as_of, changes)
    transaction.begin_write(item.database)  # Now that it has read.
    if rows.num_rows:
        _keep(coordinator, transaction, coordinator.write_of(item, rows))
    return hit


async def _write_unless_changed(
    session: Session, statement: Changing, item: Item, plan: Plan
) -> pa.Table | None:
    """None if a table that it has read was written to before it could write itself."""
    coordinator = session.coordinator
    tables = tables_of(underneath(coordinator.catalog, plan))
    as_of, _ = await session.read_at(plan, strict=True, database=item.database)
    rows, hit = await _changed(session, statement, item, plan, as_of, {})
    if not rows.num_rows:
        return hit
    write = coordinator.write_of(item, rows)
    try:
        await coordinator.timelines[item.database].write([write], reads=Reads(as_of, tables))
    except SqlError as error:
        if error.sqlstate == "40001":
            return None
        raise
    return hit


async def _write_exclusively(
    session: Session, statement: Changing, item: Item, plan: Plan
) -> pa.Table:
    """Nothing is written by anyone between this statement's read and its write."""
    coordinator = session.coordinator
    # Nobody else's write should have to wait while a replica starts, or a view catches up.
    await coordinator.clusters.named(session.cluster).wait_ready()
    recent, _ = await session.read_at(plan, strict=True, database=item.database)
    for shard in coordinator.shards_of(plan).values():
        await coordinator.readable.wait(shard, recent)
    async with coordinator.timelines[item.database].exclusively() as timeline:
        as_of = max(recent, session.newest(plan, 0, item.database))
        rows, hit = await _changed(session, statement, item, plan, as_of, {})
        write = coordinator.write_of(item, rows)
        if rows.num_rows:
            await timeline.write_exclusively([write])
        return hit


async def _changed(
    session: Session,
    statement: Changing,
    item: Item,
    plan: Plan,
    as_of: int,
    changes: dict[str, pa.Table],
) -> dml.Changes:
    found = await session.coordinator.peek(
        plan,
        as_of,
        cluster=session.cluster,
        max_bytes=session.max_result_size,
        changes=changes,
        database=session.database,
    )
    return dml.changes(statement, item.columns, found)
