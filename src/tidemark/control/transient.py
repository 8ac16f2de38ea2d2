"""Views that last as long as the subscriptions that they are made for.

They are never in the catalog, so that after a crash they are among what nothing refers to, and are
swept. While one lasts it is a view like all others: clusters are told to keep it, it holds what it
reads, and it goes when that is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import Plan, collections_of
from tidemark.control.catalog import Item
from tidemark.control.hierarchy import DATABASE
from tidemark.frontier import Frontier

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

log = structlog.get_logger("coordinator")

STOP_WITHIN = 5.0
"""Seconds that what is ending has to end; what is left of it is swept at the next start."""


class TransientViews:
    """Those of one coordinator; what changes `items` holds its lock on what exists."""

    def __init__(self, coordinator: Coordinator):
        self.items: dict[str, Item] = {}
        self._coordinator = coordinator
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def maintained(self, plan: Plan, as_of: int, *, cluster: str) -> AsyncIterator[Item]:
        """A view that is maintained while the block runs, right from `as_of` on, and is then gone.

        The inputs must be readable at `as_of`, and held there by the caller until this begins.
        """
        coordinator, item = self._coordinator, None
        run = coordinator.timeline.run
        try:
            async with coordinator.ddl:
                shards = coordinator.shards_of(plan)
                (id_,) = await run(coordinator.catalog.next_ids)
                item = Item(
                    id_,
                    name="",
                    kind="materialized-view",
                    sql="",
                    columns=plan.columns,
                    shard=id_,
                    depends=collections_of(plan),
                    plan=plan,
                    as_of=as_of,
                    cluster=coordinator.clusters.named(cluster).name,
                    database=coordinator.database_of(plan) or DATABASE,
                )
                self.items[id_] = item
                await run(coordinator.hold_at, holder_of(id_), list(shards.values()), as_of)
                await run(coordinator.storage.allow_compaction, id_, Frontier(as_of))
                await coordinator.configure()
            yield item
        finally:
            if item is not None:
                # The subscriber may be gone by the second time that it is cancelled.
                ending = asyncio.create_task(self._end(item), name=f"end-{item.id}")
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                await asyncio.shield(ending)

    async def _end(self, item: Item) -> None:
        coordinator = self._coordinator
        try:
            async with coordinator.ddl:
                if self.items.pop(item.id, None) is not None:
                    await coordinator.configure()
                    await coordinator.forget_all([item])
        except Exception as error:
            # It is no longer told to run, and swept like whatever else a crash leaves.
            coordinator.sweep_later()
            log.warning("could not end a subscription's view", id=item.id, error=str(error))

    def without_inputs(self, doomed: Iterable[str]) -> list[Item]:
        """Those that read what is being dropped: they go with it."""
        ids = set(doomed)
        return self._taken(lambda item: bool(ids.intersection(item.depends)))

    def without_cluster(self, name: str) -> list[Item]:
        """Those that run in a cluster that is being dropped."""
        return self._taken(lambda item: item.cluster == name)

    def _taken(self, goes: Callable[[Item], bool]) -> list[Item]:
        gone = [item for item in self.items.values() if goes(item)]
        for item in gone:
            del self.items[item.id]
        return gone

    async def stop(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending, timeout=STOP_WITHIN)
