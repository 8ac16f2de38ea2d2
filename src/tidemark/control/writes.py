"""INSERT, UPDATE, DELETE and COPY FROM: what a statement changes, and when that is written.

In a transaction the changes wait until it commits. Outside of one, values that are given are written
at once. What has to be read first is read while others write, and written if no table that it rests
on was written to meanwhile; else it is done again, and in the end with nobody else's write in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from tidemark.compute.expr import Lit
from tidemark.compute.plan import Constant, Plan
from tidemark.control import copy_in, dml
from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.lineage import tables_of, underneath
from tidemark.control.pgwire import CopyIn, Done
from tidemark.control.system_settings import check_memory
from tidemark.control.timeline import Reads
from tidemark.control.values import constant_table
from tidemark.errors import SqlError
from tidemark.units import byte_size

if TYPE_CHECKING:
    from tidemark.control.session import Session

Changing = s.Insert | s.Update | s.Delete | s.Truncate

ATTEMPTS = 3
"""Times that a statement may come too late before the others have to wait for it."""

TAGS = {s.Insert: "INSERT 0", s.Update: "UPDATE", s.Delete: "DELETE"}


async def write(session: Session, statement: Changing, params: tuple[Lit, ...]) -> Done:
    item = session.coordinator.writable(statement.table)
    plan = await session.aside(lambda: _planned(session, statement, item, params))
    if isinstance(plan, _Given):
        await _submit(session, item, plan.rows)
        return Done(f"INSERT 0 {plan.rows.num_rows}")
    count = await _read_then_write(session, statement, item, plan)
    if isinstance(statement, s.Truncate):
        return Done("TRUNCATE TABLE")
    return Done(f"{TAGS[type(statement)]} {count}")


class _Given(NamedTuple):
    """Changes that the statement says itself."""

    rows: pa.Table


def _planned(
    session: Session, statement: Changing, item: Item, params: tuple[Lit, ...]
) -> Plan | _Given:
    values = session.session_values()
    match statement:
        case s.Insert():
            plan = dml.plan_insert(statement, session.names, params=params, session=values)
            if isinstance(plan, Constant):
                return _Given(dml.with_diff(constant_table(plan, item.columns), 1))
            return plan
        case s.Update():
            return dml.plan_update(statement, session.names, params=params, session=values)
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
        session.transaction.writes.append(write)
    else:
        await session.coordinator.timelines[item.database].write([write])


async def _read_then_write(session: Session, statement: Changing, item: Item, plan: Plan) -> int:
    """How many rows it was."""
    coordinator, transaction = session.coordinator, session.transaction
    coordinator.database_of(plan, item.database)
    if transaction is None:
        for _ in range(ATTEMPTS):
            count = await _write_unless_changed(session, statement, item, plan)
            if count is not None:
                return count
        return await _write_exclusively(session, statement, item, plan)
    transaction.begin_write(item.database)
    as_of, changes = await session.read_at(plan, strict=True, database=item.database)
    rows, count = await _changed(session, statement, item, plan, as_of, changes)
    transaction.begin_write(item.database)  # Now that it has read.
    if rows.num_rows:
        transaction.writes.append(coordinator.write_of(item, rows))
    return count


async def _write_unless_changed(
    session: Session, statement: Changing, item: Item, plan: Plan
) -> int | None:
    """None if a table that it has read was written to before it could write itself."""
    coordinator = session.coordinator
    tables = tables_of(underneath(coordinator.catalog, plan))
    as_of, _ = await session.read_at(plan, strict=True, database=item.database)
    rows, count = await _changed(session, statement, item, plan, as_of, {})
    if not rows.num_rows:
        return count
    write = coordinator.write_of(item, rows)
    try:
        await coordinator.timelines[item.database].write([write], reads=Reads(as_of, tables))
    except SqlError as error:
        if error.sqlstate == "40001":
            return None
        raise
    return count


async def _write_exclusively(session: Session, statement: Changing, item: Item, plan: Plan) -> int:
    """Nothing is written by anyone between this statement's read and its write."""
    coordinator = session.coordinator
    # Nobody else's write should have to wait while a replica starts, or a view catches up.
    await coordinator.clusters.named(session.cluster).wait_ready()
    recent, _ = await session.read_at(plan, strict=True, database=item.database)
    for shard in coordinator.shards_of(plan).values():
        await coordinator.wait_readable(shard, recent)
    async with coordinator.timelines[item.database].exclusively() as timeline:
        as_of = max(recent, session.newest(plan, 0, item.database))
        rows, count = await _changed(session, statement, item, plan, as_of, {})
        write = coordinator.write_of(item, rows)
        if rows.num_rows:
            await timeline.write_exclusively([write])
        return count


async def _changed(
    session: Session,
    statement: Changing,
    item: Item,
    plan: Plan,
    as_of: int,
    changes: dict[str, pa.Table],
) -> tuple[pa.Table, int]:
    found = await session.coordinator.peek(
        plan, as_of, cluster=session.cluster, max_bytes=session.max_result_size, changes=changes
    )
    return dml.changes(statement, item.columns, found)
