"""Reading at a time waits until what is read is complete up to then; or says why that never comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.control.catalog import RUNNING, Item
from tidemark.control.waiting import waiting_for
from tidemark.errors import AsOfBeforeSince, SqlError, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist.state import State

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator

GIVE_UP_AFTER = 5
"""Failures in a row after which readers are told instead of kept waiting."""


class Readable:
    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator
        self._client = coordinator.client

    async def wait(self, shard: str, as_of: int) -> None:
        """Until the shard is complete up to `as_of`."""

        def checked(state: State) -> State | None:
            self.check_there(state)
            if not state.since <= Frontier(as_of):
                raise self.too_early(state, as_of)
            return state if state.upper.covers(as_of) else None

        def readable() -> State | None:
            found = checked(self._client.state(shard))
            if found is None:
                self.check_running(shard)
            return found

        if checked(self._client.known(shard)) is None:
            with waiting_for(lambda: self._not_yet(shard, as_of)):
                await self._client.watch.wait_for_async(shard, readable)

    def check_there(self, state: State) -> None:
        if state.since.is_empty:
            raise SqlError(f"{self._relation(state.shard_id)} was dropped", sqlstate="42P01")

    def check_running(self, shard: str) -> None:
        """Waiting for something that fails again and again would be waiting for ever."""
        items = self._items()
        waited = [item for item in items.values() if item.shard == shard]
        needed = [items[id_] for item in waited for id_ in item.depends if id_ in items]
        for item in (*waited, *needed):
            runs = items.get(item.parent, item) if item.parent else item
            if runs.kind in RUNNING and not runs.is_committed:
                self._coordinator.clusters.named(runs.cluster).check_keeps(_shown(item))
            status = self._coordinator.status(item)
            if status is not None and status.failures >= GIVE_UP_AFTER:
                known = self._client.known(shard)
                meanwhile = ""
                if not known.upper <= known.since:
                    meanwhile = ", SET transaction_isolation = 'serializable' reads what there is"
                raise Unavailable(
                    f"{_shown(item)} is not being kept up to date: {status.error}",
                    hint=f"it is tried again all the time{meanwhile};"
                    " if that does not help, drop and create it",
                )

    def too_early(self, state: State, as_of: int) -> AsOfBeforeSince:
        return AsOfBeforeSince(
            f"{self._relation(state.shard_id)} can be read from time {state.since.time} on,"
            f" not at {as_of}",
            hint="read at a later time; RETAIN HISTORY keeps more of it",
        )

    def _not_yet(self, shard: str, as_of: int) -> str:
        ahead = as_of - self._client.clock.now_ms()
        if ahead > 0:
            return f"it waited for time {as_of}, which is {ahead:,} ms away"
        upper = self._client.known(shard).upper.time
        so_far = f"is {as_of + 1 - upper:,} ms behind" if upper and upper > 1 else "has no data yet"
        return (
            f"it waited for {self._relation(shard)}, which {so_far};"
            " mz_internal.mz_source_statuses and mz_internal.mz_materialization_lag tell more,"
            " SET transaction_isolation = 'serializable' reads what there is"
        )

    def _relation(self, shard: str) -> str:
        """What users call a shard."""
        items = self._items().values()
        name = next((item.shown for item in items if item.shard == shard), "")
        return f'relation "{name}"' if name else "the relation"

    def _items(self) -> dict[str, Item]:
        """A copy: other threads ask, too."""
        return self._coordinator.catalog.items | self._coordinator.transient.items


def _shown(item: Item) -> str:
    return f'"{item.shown}"' if item.name else "the query"
