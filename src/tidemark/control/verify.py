"""VERIFY MATERIALIZED VIEW: when it is asked about, where it runs, and what is kept of it.

View and inputs are held readable at one time while a replica compares them (`compute/verify.py`).
The verdict goes to the client, and into the catalog: `mz_internal.mz_verifications`.
"""

from __future__ import annotations

from uuid import uuid4

from tidemark.compute.protocol import Verified, Verify
from tidemark.compute.verify import MOST_SHOWN, difference_columns, differences, verdict_line
from tidemark.control import statements as s
from tidemark.control.catalog import Item, Verdict
from tidemark.control.clusters import Cluster
from tidemark.control.coordinator import Coordinator
from tidemark.control.pgwire import Notice, Rows
from tidemark.control.values import table_rows
from tidemark.errors import AsOfBeforeSince, SqlError
from tidemark.types import Column


def verified_view(coordinator: Coordinator, name: s.Name) -> Item:
    item = coordinator.item(name)
    if item.kind != "materialized-view":
        raise SqlError(
            f'"{item.name}" is a {item.kind_name}, not a materialized view: there is nothing to'
            " verify",
            sqlstate="42809",
        )
    return item


def verify_columns(item: Item) -> tuple[Column, ...]:
    return difference_columns(item.columns)


async def verify(
    coordinator: Coordinator, name: s.Name, as_of: s.AsOf | None, *, cluster: str
) -> tuple[Rows, Notice]:
    """The rows that differ, and the verdict; found out by that cluster."""
    item = verified_view(coordinator, name)
    found = await _verified(coordinator, item, as_of, coordinator.clusters.named(cluster))
    verdict = Verdict(
        found.as_of,
        coordinator.clock.now_ms(),
        found.rows,
        found.missing,
        found.unexpected,
        found.verdict,
    )
    await coordinator.timeline.run(coordinator.catalog.record, item.id, verdict)
    wrong = found.verdict == "different"
    notice = Notice(
        message=verdict_line(found),
        severity="WARNING" if wrong else "NOTICE",
        sqlstate="01000" if wrong else "00000",
    )
    return table_rows(verify_columns(item), differences(found), "VERIFY"), notice


async def _verified(
    coordinator: Coordinator, item: Item, asked: s.AsOf | None, cluster: Cluster
) -> Verified:
    assert item.plan is not None
    assert item.shard is not None
    shards = coordinator.shards_of(item.plan)
    newest = coordinator.timestamp_of(
        [item.shard, *shards.values()], behind_ms=None, database=item.database
    )
    as_of = newest if asked is None else asked.time
    if asked is not None and asked.at_least:
        as_of = max(as_of, newest)
    query_at = _query_at(item, as_of)
    hold = coordinator.holds.acquire(query_at)
    try:
        await coordinator.readable.wait(item.shard, as_of)
        try:
            for shard in shards.values():
                await coordinator.readable.wait(shard, query_at)
        except AsOfBeforeSince as error:
            if query_at == as_of:
                raise
            raise AsOfBeforeSince(
                f'what "{item.name}" was refreshed from at {query_at} is not kept any more',
                hint="verify it soon after its next refresh, or create what it reads WITH (RETAIN"
                " HISTORY FOR …)",
            ) from error
        id_ = f"verify-{uuid4()}"
        return await cluster.verify(
            Verify(id_, item.name, item.plan, shards, item.shard, as_of, query_at, limit=MOST_SHOWN)
        )
    finally:
        coordinator.holds.release(hold)


def _query_at(item: Item, as_of: int) -> int:
    """When the view was last brought up to its inputs: at once, or at its last refresh."""
    if item.refresh is None:
        return as_of
    found = item.refresh.round_down(as_of)
    if found is None:
        raise AsOfBeforeSince(
            f'"{item.name}" had no refresh yet at {as_of}', hint="verify it at a later time"
        )
    return found
