"""SUBSCRIBE: what a relation contains, then every change, as its envelope shows them.

A query is subscribed to as a view that is maintained for as long as somebody subscribes; one that
is a stored relation under another name, as that relation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.compute.expr import Lit
from tidemark.compute.optimise import optimised
from tidemark.compute.plan import Get, Plan, collections_of
from tidemark.compute.queries import check_maintainable
from tidemark.compute.sql import plan_query
from tidemark.control import statements as s
from tidemark.control.activity import Who
from tidemark.control.catalog import Item
from tidemark.control.coordinator import Coordinator
from tidemark.control.envelope import Envelope, envelope_of, sound
from tidemark.control.pgwire import Rows
from tidemark.control.system import BY_ID
from tidemark.control.system_settings import check_memory
from tidemark.errors import SqlError, Unsupported
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, ReadHandle, consolidate
from tidemark.types import check_columns

if TYPE_CHECKING:
    from tidemark.control.session import Session


async def subscription(session: Session, statement: s.Subscribe, params: tuple[Lit, ...]) -> Rows:
    if session.transaction is not None and session.transaction.used:
        raise SqlError("SUBSCRIBE must be the only statement of its transaction", sqlstate="25001")
    check_memory(session.coordinator)
    plan = await session.aside(lambda: subscribed(session, statement, params))
    shown = envelope_of(statement, plan.columns)
    if statement.as_of is not None:
        as_of = statement.as_of.time
        if statement.as_of.at_least:
            as_of = max(as_of, session.newest(plan, None))
    else:
        as_of = await session.now(plan, session.behind_ms)
    if statement.up_to is not None and statement.up_to < as_of:
        raise SqlError(
            f"UP TO {statement.up_to} is before AS OF {as_of}: nothing could ever be returned",
            sqlstate="22023",
        )
    stream = subscribe_query(
        session.coordinator,
        plan,
        cluster=session.cluster,
        as_of=as_of,
        up_to=statement.up_to,
        snapshot=statement.snapshot,
        shown=shown,
        who=session.who,
    )
    return Rows(shown.columns, stream, "SUBSCRIBE")


def subscribed(session: Session, statement: s.Subscribe, params: tuple[Lit, ...]) -> Plan:
    """What it follows."""
    if statement.query is not None:
        plan = plan_query(statement.query.tree, session.names, params=params, view=True)
    else:
        assert statement.name is not None
        plan = session.names.resolve(statement.name)
    session.coordinator.database_of(plan)  # One that reads two is refused.
    return subscribable(session.coordinator, plan)


def subscribable(coordinator: Coordinator, plan: Plan) -> Plan:
    """The plan, or just its relation if that is all it says; what cannot be followed is refused."""
    if any(id_ in BY_ID for id_ in collections_of(plan)):
        raise Unsupported(
            "SUBSCRIBE cannot follow a system relation: it is made up when it is asked for",
            hint="SELECT from it, again and again",
        )
    if not collections_of(plan):
        raise Unsupported("the query reads nothing, so it never changes", hint="SELECT it once")
    simple = optimised(plan)
    if isinstance(simple, Get) and simple.columns == plan.columns:
        return simple
    check_columns(plan.columns)
    check_maintainable(plan)
    return plan


async def subscribe_query(
    coordinator: Coordinator,
    plan: Plan,
    *,
    cluster: str,
    as_of: int,
    up_to: int | None,
    snapshot: bool,
    shown: Envelope,
    who: Who,
) -> AsyncIterator[pa.RecordBatch]:
    """To a plan that is `subscribable`; a query is maintained by that cluster."""
    if up_to is not None and up_to <= as_of:
        return
    async with AsyncExitStack() as stack:
        reads = tuple(dict.fromkeys(collections_of(plan)))
        stack.enter_context(coordinator.subscriptions.opened(who, cluster, reads))
        if isinstance(plan, Get):
            item = coordinator.catalog.items[plan.id]
        else:
            hold = coordinator.holds.acquire(as_of)
            try:
                for shard in coordinator.shards_of(plan).values():
                    await coordinator.readable.wait(shard, as_of)
                view = coordinator.transient.maintained(plan, as_of, cluster=cluster)
                item = await stack.enter_async_context(view)
            finally:
                coordinator.holds.release(hold)
        changes = subscribe(
            coordinator, item, as_of=as_of, up_to=up_to, snapshot=snapshot, shown=shown
        )
        async for batch in await stack.enter_async_context(aclosing(changes)):
            yield batch


async def subscribe(
    coordinator: Coordinator,
    item: Item,
    *,
    as_of: int,
    up_to: int | None,
    snapshot: bool,
    shown: Envelope,
) -> AsyncGenerator[pa.RecordBatch]:
    """Batches of changes in order of time: first all rows at `as_of`, then what comes after.

    With progress, a row that says "nothing more before this time" follows each step.
    """
    assert item.shard is not None
    reader, read = coordinator.client.open_reader(item.shard), coordinator.subscriptions.read
    hold = coordinator.holds.acquire(as_of)
    try:
        if up_to is not None and up_to <= as_of:
            return
        if shown.progresses:
            yield shown.progress(as_of)
        await coordinator.readable.wait(item.shard, as_of)
        if snapshot:
            for batch in await read(_snapshot, reader, as_of, shown):
                yield batch
        else:
            await read(_check_sound, coordinator.client, item.shard, as_of)
        lower = Frontier(as_of + 1)
        while up_to is None or lower < Frontier(up_to):
            assert lower.time is not None
            upper = await reader.wait_for_upper_past_async(lower.time)
            if upper is None or reader.since.is_empty:
                what = f'relation "{item.shown}"' if item.name else "a relation of this query"
                raise SqlError(f"{what} was dropped", sqlstate="42P01")
            if up_to is not None:
                upper = min(upper, Frontier(up_to))
            for batch in await read(_changes, reader, lower, upper, shown):
                yield batch
            if upper.time is None:
                return  # It has ended: nothing will ever change again.
            if shown.progresses:
                yield shown.progress(upper.time)
            lower = upper
            assert lower.time is not None
            coordinator.holds.release(hold)
            hold = coordinator.holds.acquire(lower.time - 1)
    finally:
        coordinator.holds.release(hold)


def _snapshot(reader: ReadHandle, as_of: int, shown: Envelope) -> list[pa.RecordBatch]:
    try:
        return shown.batches(reader.snapshot(as_of))
    finally:
        # It was copied and sorted on the way: this thread gives that back before it takes the next.
        pa.default_memory_pool().release_unused()


def _check_sound(client: PersistClient, shard: str, as_of: int) -> None:
    """Whoever asks for no snapshot would not hear of the errors in it."""
    if any(part.errors for part in client.state(shard).parts):
        sound(client.open_reader(shard, columns=[]).snapshot(as_of))


def _changes(
    reader: ReadHandle, lower: Frontier, upper: Frontier, shown: Envelope
) -> list[pa.RecordBatch]:
    return shown.batches(consolidate(reader.updates(lower, upper)))
