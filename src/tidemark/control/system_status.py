"""How sources, views, indexes and sinks are doing, in a word and with the reason; one word for all
who ask: system relations, SHOW, and what is remembered of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tidemark.control.catalog import Item
from tidemark.control.observed import lag_of
from tidemark.control.pg.columns import Row, relation
from tidemark.control.system_objects import source_type
from tidemark.storage.spec import written_by

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


class Doing(NamedTuple):
    """`word` is one of Materialize's: starting, running, stalled, or paused if nobody is to run
    it. `error` is why it is not running, or else what reads of it fail with."""

    word: str
    error: str | None


def doing(coordinator: Coordinator, item: Item) -> Doing:
    """How it does, and whether what it has made can be read; a source's tables do as it does."""
    found = _running(coordinator, coordinator.catalog.items.get(item.parent or "", item))
    return found if found.error else Doing(found.word, error_in(coordinator, item))


def error_in(coordinator: Coordinator, item: Item) -> str | None:
    """What reads fail with now, because there are error rows."""
    if item.is_committed:
        return None
    read = coordinator.catalog.items[item.depends[0]] if item.kind == "index" else item
    found = map(coordinator.observed.broken.message, _shards(coordinator, read))
    return next((message for message in found if message is not None), None)


def _running(coordinator: Coordinator, item: Item) -> Doing:
    if item.is_committed:
        return Doing("running", None)  # Control itself takes what comes.
    cluster = coordinator.clusters.named(item.cluster)
    status = coordinator.status(item)
    if status is not None and status.error:
        return Doing("stalled", status.error)
    if not cluster.item.replicas:
        return Doing("paused", f'cluster "{cluster.name}" has no replicas')
    hydrated = status is not None and status.hydrated
    if cluster.is_ready and (hydrated or _is_written(coordinator, item)):
        return Doing("running", None)
    return Doing("starting", None)


def _is_written(coordinator: Coordinator, item: Item) -> bool:
    """Whether what it writes can be read: the shards know at once, replicas tell once a second."""
    shards = _shards(coordinator, item)
    frontiers = coordinator.storage.frontiers(*shards).values()
    return bool(shards) and all(upper.covers(item.as_of) for _, upper in frontiers)


def _shards(coordinator: Coordinator, item: Item) -> list[str]:
    """Where what it makes is."""
    definition = coordinator.storage.definitions.get(item.runs_as)
    if item.kind == "source" and definition is not None:
        return list(written_by(definition)[:-1])
    return [item.shard] if item.shard is not None else []


async def look(coordinator: Coordinator) -> None:
    """What there is to see now, for those who ask later."""
    at, uppers = coordinator.frontiers
    items = list(coordinator.catalog.items.values())
    found = {item.id: uppers[item.shard] for item in items if item.shard in uppers}
    coordinator.observed.lags.add(at, {id_: lag_of(upper, at) for id_, upper in found.items()})
    running = [item for item in items if item.kind in ("source", "sink")]
    for item in running:
        coordinator.observed.changes.since(item.id, _running(coordinator, item).word)
    coordinator.observed.changes.forget_all_but({item.id for item in running})
    replicas = (each for cluster in coordinator.clusters for each in cluster.replicas.values())
    pids = {each.pid for each in replicas if each.is_ready and each.pid is not None}
    await asyncio.to_thread(coordinator.observed.usages.look, pids)


def _statuses(coordinator: Coordinator, kind: str) -> Iterator[Row]:
    for item in list(coordinator.catalog.items.values()):
        if item.kind == kind:
            word, error = doing(coordinator, item)
            since = coordinator.observed.changes.since(item.id, word)
            yield {
                "id": item.id,
                "name": item.name,
                "type": source_type(coordinator, item),
                "status": word,
                "error": error,
                "last_status_change_at": datetime.fromtimestamp(since / 1000, UTC),
            }


def _sink_statistics(coordinator: Coordinator) -> Iterator[Row]:
    """Of the replica that runs it, since it was started there."""
    for item in list(coordinator.catalog.items.values()):
        if item.kind == "sink":
            status = coordinator.status(item)
            cluster = coordinator.clusters.named(item.cluster)
            host = cluster.item.replica(cluster.host) if cluster.host is not None else None
            if status is not None and status.sent is not None and host is not None:
                yield {
                    "id": item.id,
                    "replica_id": cluster.item.replica_id(host),
                    **msgspec.structs.asdict(status.sent),
                }


_STATUS = (
    "id text, name text, type text, status text, error text, last_status_change_at timestamptz"
)

RELATIONS = (
    relation("mz_internal", "mz_source_statuses", _STATUS, lambda c: _statuses(c, "source")),
    relation("mz_internal", "mz_sink_statuses", _STATUS, lambda c: _statuses(c, "sink")),
    relation(
        "mz_internal",
        "mz_sink_statistics",
        "id text, replica_id text, messages_staged int8, messages_committed int8,"
        " bytes_staged int8, bytes_committed int8",
        _sink_statistics,
    ),
)
