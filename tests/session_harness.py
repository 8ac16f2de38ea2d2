"""Sessions on a coordinator of their own, without Spark: queries are answered by look-ups and Arrow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tidemark.clock import Clock, ManualClock
from tidemark.compute.peek import Peeks
from tidemark.compute.plan import collections_of
from tidemark.compute.protocol import Peek
from tidemark.control.catalog import CLUSTER, ClusterItem
from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Done, Rows
from tidemark.control.session import Session
from tidemark.errors import TidemarkError
from tidemark.ipc import encode_table
from tidemark.persist import MemBlob, MemConsensus, PersistClient


class Here(Coordinator):
    """Answers queries itself, with no cluster: those that need no Spark."""

    async def peek(  # type: ignore[override]
        self, plan, as_of: int, *, cluster="", max_bytes=0, changes=None, database=""
    ) -> pa.Table:
        shards = self.shards_of(plan)
        assert set(shards) == set(collections_of(plan))
        own = {id_: encode_table(table) for id_, table in (changes or {}).items()}
        peek = Peek("p", plan, as_of, shards, {}, max_bytes, own)
        found = Peeks(cast(Any, None), self.client).without_spark(peek)
        assert found is not None, plan
        return found


class Client:
    """Runs statements as the wire would: each on its own, or several at once."""

    def __init__(self, coordinator: Coordinator):
        self.session = Session(coordinator, user="u", database="tidemark", options={})

    async def __call__(self, *statements: str) -> Any:
        """The tag or the rows of the last one; raises what the client would be sent."""
        try:
            for sql in statements:
                if len(statements) > 1:
                    self.session.begin_implicit()
                prepared = await self.session.prepare(sql, ())
                result = await self.session.execute(prepared, ())
                last: Any = result
                if isinstance(result, Rows):
                    batches = [batch async for batch in result.batches]
                    last = [tuple(row.values()) for b in batches for row in b.to_pylist()]
            await self.session.end_implicit()
        except TidemarkError:
            self.session.fail()
            await self.session.end_implicit()
            raise
        return last.tag if isinstance(last, Done) else last


@asynccontextmanager
async def serving(
    folder: Path, clock: Clock | None = None, client: PersistClient | None = None
) -> AsyncIterator[Coordinator]:
    """`client` is of stores that outlive it, to serve them again."""
    if client is None:
        client = PersistClient(MemBlob(), MemConsensus(), clock=clock or ManualClock(100_000))
    coordinator = Here(client, data=folder, blob="", consensus="", spark_master="local[1]")
    coordinator.catalog.set_cluster(ClusterItem("s1", CLUSTER))
    coordinator.clusters.start(coordinator.catalog.clusters, {})
    coordinator.clusters.named(CLUSTER).wait_ready = _at_once  # type: ignore[method-assign]
    coordinator.timeline.start()
    try:
        yield coordinator
    finally:
        await coordinator.timeline.stop()
        await coordinator.clusters.stop()
        coordinator.engine.close()
        coordinator.aside.close()


async def _at_once() -> None:
    pass
