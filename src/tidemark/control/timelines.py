"""The timelines of a region: one for each database, with a clock, a log and a committer of its own.

    tidemark    log shard txns            made with the catalog; its thread also writes the catalog
    any other   log shard <id>-txns       made by CREATE DATABASE

Nothing but the process is shared: a commit in one waits for nobody in another, and times of two mean
nothing to each other. All count milliseconds, though, and none begins before the first one's: so all
of them are about as far, also when the wall clock was set back, and the first one's log tells
replicas what time it is for sources of any database (`Configure.log`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tidemark.control.catalog import Catalog
from tidemark.control.hierarchy import DATABASE, DatabaseItem, no_database
from tidemark.control.timeline import Timeline
from tidemark.persist import PersistClient
from tidemark.storage.tables import Tables
from tidemark.types import arrow_schema


class Timelines:
    """By the names of their databases."""

    def __init__(self, client: PersistClient, catalog: Catalog):
        self._client = client
        self._catalog = catalog
        self.lost = asyncio.Event()
        self._running = False
        self._all: dict[str, Timeline] = {}
        for database in catalog.databases.values():
            self._all[database.name] = self._opened(database)

    def __getitem__(self, database: str) -> Timeline:
        found = self._all.get(database)
        if found is None:
            raise no_database(database)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._all))

    @property
    def home(self) -> Timeline:
        return self._all[DATABASE]

    @property
    def _reached(self) -> int:
        return self._all[DATABASE].read_ts if DATABASE in self._all else 0

    def start(self) -> None:
        self._running = True
        for timeline in self._all.values():
            timeline.start()

    async def stop(self) -> None:
        # The one that writes the catalog last.
        for timeline in reversed(self._all.values()):
            await timeline.stop()

    async def begin(self, database: DatabaseItem) -> None:
        """A new one, whose clock starts now. What is not in the catalog by the next start goes."""
        timeline = await asyncio.to_thread(self._opened, database)
        self._all[database.name] = timeline
        if self._running:
            timeline.start()

    async def end(self, database: DatabaseItem) -> None:
        """Its tables must be gone."""
        timeline = self._all.pop(database.name)
        await timeline.stop(no_database(database.name))
        await asyncio.to_thread(self._client.finalize, database.log)

    def _opened(self, database: DatabaseItem) -> Timeline:
        tables = Tables(self._client, database.log, epoch=self._catalog.epoch)
        # Its first commit fences out the old leader, and starts the oracle.
        tables.open(
            {
                item.shard: arrow_schema(item.columns)
                for item in self._catalog.within(database.name)
                if item.is_committed and item.shard
            },
            not_before=max(self._client.clock.now_ms(), self._reached),
        )
        return Timeline(tables, self._client.clock, lost=self.lost)
