"""System relations of how things go: lag, subscriptions, and what replicas cost.

Where Materialize has an interval, these have milliseconds: there is no type of column for those.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidemark.control.catalog import Item
from tidemark.control.observed import Usage, lag_of, machine_memory
from tidemark.control.pg.columns import Row, relation
from tidemark.control.system_objects import stored_inputs
from tidemark.frontier import Frontier

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def _uppers(coordinator: Coordinator) -> dict[str, Frontier]:
    """How far each stored collection is, by the object's id; indexes by what replicas say."""
    items = list(coordinator.catalog.items.values())
    shards = {item.id: item.shard for item in items if item.shard is not None}
    found = coordinator.storage.frontiers(*shards.values())
    uppers = {id_: found[shard].upper for id_, shard in shards.items()}
    for item in items:
        if item.kind == "index" and (upper := _index_upper(coordinator, item)) is not None:
            uppers[item.id] = upper
    return uppers


def _index_upper(coordinator: Coordinator, item: Item) -> Frontier | None:
    status = coordinator.status(item)
    if status is None or status.index is None:
        return None
    return Frontier.EMPTY if status.index.upper is None else Frontier(status.index.upper)


def _lag(coordinator: Coordinator) -> Iterator[Row]:
    now = coordinator.clock.now_ms()
    for id_, upper in _uppers(coordinator).items():
        yield {"object_id": id_, "lag": lag_of(upper, now)}


def _lag_history(coordinator: Coordinator) -> Iterator[Row]:
    for each in coordinator.observed.lags:
        yield {"object_id": each.id, "lag": each.lag, "occurred_at": _moment(each.at)}


def _materialization_lag(coordinator: Coordinator) -> Iterator[Row]:
    """Behind the slowest of what it is kept from, and of the tables and sources at the roots."""
    items, uppers = coordinator.catalog.items, _uppers(coordinator)
    for item in list(items.values()):
        if item.kind in ("materialized-view", "index"):
            own = uppers.get(item.id)
            near = [id_ for id_ in stored_inputs(item) if id_ in uppers]
            far = [id_ for id_ in _roots(items, item) if id_ in uppers]
            slow_near, slow_far = (
                min(ids, key=uppers.__getitem__, default=None) for ids in (near, far)
            )
            yield {
                "object_id": item.id,
                "local_lag": _behind(own, uppers.get(slow_near or "")),
                "global_lag": _behind(own, uppers.get(slow_far or "")),
                "slowest_local_input_id": slow_near,
                "slowest_global_input_id": slow_far,
            }


def _roots(items: dict[str, Item], item: Item) -> list[str]:
    found: dict[str, None] = {}
    waiting, seen = list(stored_inputs(item)), set()
    while waiting:
        id_ = waiting.pop()
        if id_ in seen or id_ not in items:
            continue
        seen.add(id_)
        below = stored_inputs(items[id_])
        waiting += below
        if not below:
            found[id_] = None
    return list(found)


def _behind(own: Frontier | None, slowest: Frontier | None) -> int | None:
    """None if it cannot be read yet, or if its inputs have ended and it has not."""
    if own is None or slowest is None or own.time in (0, 1):
        return None
    if own.time is None:
        return 0
    return None if slowest.time is None else max(0, slowest.time - own.time)


def _subscriptions(coordinator: Coordinator) -> Iterator[Row]:
    ids = {name: cluster.id for name, cluster in coordinator.catalog.clusters.items()}
    for each in coordinator.subscriptions:
        yield {
            "id": each.id,
            "session_id": str(each.who.id),
            "cluster_id": ids.get(each.cluster),
            "created_at": _moment(each.began_ms),
            "referenced_object_ids": list(each.reads),
        }


def _metrics(coordinator: Coordinator) -> Iterator[Row]:
    for id_, pid, usage in _usages(coordinator):
        cores = usage.cores if usage is not None else None
        yield {
            "replica_id": id_,
            "process_id": pid,
            "cpu_nano_cores": None if cores is None else round(cores * 1e9),
            "memory_bytes": usage.memory if usage is not None else None,
        }


def _utilization(coordinator: Coordinator) -> Iterator[Row]:
    for id_, pid, usage in _usages(coordinator):
        cores = usage.cores if usage is not None else None
        yield {
            "replica_id": id_,
            "process_id": pid,
            "cpu_percent": None if cores is None else 100 * cores / (os.cpu_count() or 1),
            "memory_percent": None if usage is None else 100 * usage.memory / machine_memory(),
        }


def _usages(coordinator: Coordinator) -> Iterator[tuple[str, int, Usage | None]]:
    """Of replicas that run: their ids, their processes, and what those took at the last look."""
    for cluster in coordinator.clusters:
        for each in cluster.item.replicas:
            replica = cluster.replicas.get(each.name)
            if replica is not None and replica.is_ready and replica.pid is not None:
                yield (
                    cluster.item.replica_id(each),
                    replica.pid,
                    coordinator.observed.usages.now.get(replica.pid),
                )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


RELATIONS = (
    relation("mz_internal", "mz_wallclock_global_lag", "object_id text, lag int8", _lag),
    relation(
        "mz_internal",
        "mz_wallclock_global_lag_recent_history",
        "object_id text, lag int8, occurred_at timestamptz",
        _lag_history,
    ),
    relation(
        "mz_internal",
        "mz_materialization_lag",
        "object_id text, local_lag int8, global_lag int8, slowest_local_input_id text,"
        " slowest_global_input_id text",
        _materialization_lag,
    ),
    relation(
        "mz_internal",
        "mz_subscriptions",
        "id text, session_id text, cluster_id text, created_at timestamptz,"
        " referenced_object_ids text[]",
        _subscriptions,
    ),
    relation(
        "mz_internal",
        "mz_cluster_replica_metrics",
        "replica_id text, process_id int8, cpu_nano_cores int8, memory_bytes int8",
        _metrics,
    ),
    relation(
        "mz_internal",
        "mz_cluster_replica_utilization",
        "replica_id text, process_id int8, cpu_percent float, memory_percent float",
        _utilization,
    ),
)
