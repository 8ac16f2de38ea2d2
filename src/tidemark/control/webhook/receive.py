"""Requests in: which source they are for, whether they may, and the commit that keeps them.

All that is said to a sender is meant for strangers: what is wrong with their request, and nothing
of what goes wrong in here; that is in the log.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import pyarrow as pa
import structlog

from tidemark.control.hierarchy import DATABASE, SCHEMA
from tidemark.control.webhook.body import Headers, rows_of
from tidemark.control.webhook.check import passes
from tidemark.errors import SqlError, TidemarkError, Unavailable
from tidemark.storage.source import Statistics

if TYPE_CHECKING:
    from tidemark.control.catalog import Item
    from tidemark.control.coordinator import Coordinator

log = structlog.get_logger("webhook")

PATH = "/api/webhook"

GONE = "42P01"


class Requests(msgspec.Struct):
    """Those of one source, since the server was started: how many were stored, and of how many
    rows and bytes; how many were `refused`, by the status that they were answered with."""

    accepted: int = 0
    rows: int = 0
    bytes: int = 0
    refused: Counter[int] = msgspec.field(default_factory=Counter)


class Webhooks:
    """All sources that requests are posted to. `url` is how HTTP of this server is reached, if it
    has any; `asks_passwords` is whether everybody else who comes in must say one."""

    def __init__(self, coordinator: Coordinator):
        self.url: str | None = None
        self.asks_passwords: Callable[[], bool] = lambda: False
        self.requests: dict[str, Requests] = {}
        self._coordinator = coordinator
        self._started_ms = coordinator.clock.now_ms()

    def sources(self) -> list[Item]:
        items = self._coordinator.catalog.items.values()
        return [item for item in items if item.webhook is not None]

    def named(self, database: str, schema: str, name: str) -> Item:
        """The source that an address means."""
        found = self._coordinator.catalog.find((database, schema, name))
        if found is None or found.webhook is None:
            raise SqlError(
                f"there is no webhook {database}.{schema}.{name}",
                hint=f"the address of a source s is {PATH}/{DATABASE}/{SCHEMA}/s",
                sqlstate=GONE,
            )
        return found

    def path_of(self, item: Item) -> str:
        """`named`, the other way round."""
        return "/".join((PATH, *(quote(part, safe="") for part in item.full_name)))

    def url_of(self, item: Item) -> str:
        return f"{self.url or ''}{self.path_of(item)}"

    def of(self, item: Item) -> Requests:
        return self.requests.setdefault(item.id, Requests())

    async def accept(self, item: Item, headers: Headers, body: bytes) -> None:
        """Returns when the request's rows are durable, and can be read."""
        # Signatures of large bodies take a while, and so does JSON.
        rows = await asyncio.to_thread(self._rows, item, headers, body)
        if rows.num_rows:
            try:
                write = self._coordinator.write_of(item, rows)
                await self._coordinator.timelines[item.database].write([write])
            except TidemarkError as error:
                if error.sqlstate == GONE:
                    raise
                log.warning("a request could not be stored", source=item.name, error=str(error))
                raise Unavailable(
                    "the request could not be stored", hint="send it again later"
                ) from error
        self._count(item, rows.num_rows, len(body))

    def _rows(self, item: Item, headers: Headers, body: bytes) -> pa.Table:
        assert item.webhook is not None
        check = item.webhook.check
        if check is not None:
            now = dt.datetime.fromtimestamp(self._coordinator.clock.now_ms() / 1000, dt.UTC)
            if not passes(check, headers, body, secret=self._secret, now=now):
                raise SqlError(
                    "the request does not pass the CHECK of this source", sqlstate="42501"
                )
        return rows_of(item.webhook, headers, body)

    def _secret(self, id_: str) -> str:
        found = self._coordinator.catalog.items.get(id_)
        try:
            if found is None:
                raise Unavailable("it was dropped")
            return self._coordinator.secrets.read(found.shown)
        except Unavailable as error:
            log.error("a secret of a CHECK cannot be read", id=id_, error=str(error))
            raise Unavailable(
                "requests to this source cannot be checked at the moment",
                hint="send it again later",
            ) from None

    def _count(self, item: Item, rows: int, size: int) -> None:
        requests = self.of(item)
        requests.accepted += 1
        requests.rows += rows
        requests.bytes += size
        self._coordinator.storage.heard(
            item.id,
            Statistics(
                messages_received=requests.accepted,
                bytes_received=requests.bytes,
                updates_staged=requests.rows,
                updates_committed=requests.rows,
                inserts=requests.rows,
                batches=requests.accepted,
                snapshot_committed=True,
                started_ms=self._started_ms,
            ),
        )
