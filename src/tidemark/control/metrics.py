"""What Prometheus is told: counts and gauges of what the coordinator knows already.

Nothing is asked of anybody for it: no replica, no Spark, no shard. Replicas report once a second,
and how far the shards are is looked at every few seconds anyway (`Coordinator.frontiers`).

`FAMILIES` is the whole list, each by the function that gives its samples.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidemark.compute.protocol import Status
from tidemark.control.activity import BOUNDS
from tidemark.control.catalog import Item
from tidemark.control.clusters import Cluster
from tidemark.control.coordinator import Coordinator
from tidemark.control.timeline import Timeline
from tidemark.control.webhook.relations import answers

Sample = tuple[tuple[str, ...], float]
"""By the values of the labels."""
Samples = Iterable[Sample]
Taken = tuple[tuple[str, str], list[int], float]
"""How long statements of a kind and outcome took."""


class Family(NamedTuple):
    name: str
    help: str
    labels: tuple[str, ...]
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    samples: Callable[[Coordinator], Samples]


async def exposition(coordinator: Coordinator) -> bytes:
    """What is known is read here, where it changes; the text of many views is made in a thread."""
    found = [(family, list(family.samples(coordinator))) for family in FAMILIES]
    durations: list[Taken] = [
        (labels, list(each.counts), each.seconds)
        for labels, each in coordinator.activity.durations.items()
    ]
    return await asyncio.to_thread(_text, found, durations)


def _text(found: list[tuple[Family, list[Sample]]], durations: list[Taken]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Collector(found, durations))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, found: list[tuple[Family, list[Sample]]], durations: list[Taken]):
        self._found = found
        self._durations = durations

    def describe(self) -> Iterable[Metric]:
        return ()  # Else what is registered is collected once more.

    def collect(self) -> Iterator[Metric]:
        for family, samples in self._found:
            metric: Any = family.kind(family.name, family.help, labels=family.labels)
            for labels, value in samples:
                metric.add_metric(labels, value)
            yield metric
        metric = HistogramMetricFamily(
            "tidemark_statement_seconds",
            "How long statements took, to their last row.",
            labels=("kind", "outcome"),
        )
        bounds = [*map(str, BOUNDS), "+Inf"]
        for labels, counts, seconds in self._durations:
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            metric.add_metric(labels, buckets, seconds)
        yield metric


# Sessions and tables.


def _sessions(coordinator: Coordinator) -> Samples:
    return [((), len(coordinator.activity.sessions))]


def _running(coordinator: Coordinator) -> Samples:
    kinds = Counter(ran.kind for ran in coordinator.activity.running.values())
    return [((kind,), count) for kind, count in kinds.items()]


def _commits(coordinator: Coordinator) -> Samples:
    return [((), sum(each.commits for each in _timelines(coordinator)))]


def _writes(coordinator: Coordinator) -> Samples:
    return [((), sum(each.writes for each in _timelines(coordinator)))]


def _oracle_lag(coordinator: Coordinator) -> Samples:
    """Of the database that is furthest behind."""
    oldest = min(each.read_ts for each in _timelines(coordinator))
    return [((), max(0, coordinator.clock.now_ms() - oldest) / 1000)]


def _timelines(coordinator: Coordinator) -> list[Timeline]:
    return [coordinator.timelines[database] for database in coordinator.timelines]


def _objects(coordinator: Coordinator) -> Samples:
    kinds = Counter(item.kind for item in coordinator.catalog.items.values())
    return [((kind,), count) for kind, count in kinds.items()]


# Collections.


def _lag(coordinator: Coordinator) -> Samples:
    """Of what can be read: what has not come to its first time yet is not hydrated, not late."""
    at, uppers = coordinator.frontiers
    for item in coordinator.catalog.items.values():
        upper = uppers.get(item.shard) if item.shard is not None else None
        if upper is None or upper.time in (0, 1):
            continue
        behind = 0 if upper.time is None else at - (upper.time - 1)
        yield (item.id, item.name, item.kind), max(0, behind) / 1000


def _frontiers_age(coordinator: Coordinator) -> Samples:
    return [((), (coordinator.clock.now_ms() - coordinator.frontiers.at) / 1000)]


def _hydrated(coordinator: Coordinator) -> Samples:
    for item in coordinator.catalog.items.values():
        if item.kind in ("materialized-view", "index", "source", "sink") and item.parent is None:
            for replica, status in _reports(coordinator, item):
                yield (item.id, item.name, item.kind, item.cluster, replica), status.hydrated


def _failures(coordinator: Coordinator) -> Samples:
    for item in coordinator.catalog.items.values():
        if item.kind in ("materialized-view", "index", "source", "sink") and item.parent is None:
            for replica, status in _reports(coordinator, item):
                yield (item.id, item.name, item.kind, item.cluster, replica), status.failures


def _reports(coordinator: Coordinator, item: Item) -> Iterator[tuple[str, Status]]:
    """What the replicas that answer say of it."""
    for name, replica in coordinator.clusters.named(item.cluster).replicas.items():
        if replica.is_ready and (status := replica.statuses.get(item.runs_as)) is not None:
            yield name, status


def _of_views(number: Callable[[Status], float]) -> Callable[[Coordinator], Samples]:
    def samples(coordinator: Coordinator) -> Samples:
        for item in coordinator.catalog.items.values():
            if item.kind == "materialized-view":
                for replica, status in _reports(coordinator, item):
                    yield (item.id, item.name, item.cluster, replica), number(status)

    return samples


def _of_indexes(number: Callable[[Any], float]) -> Callable[[Coordinator], Samples]:
    def samples(coordinator: Coordinator) -> Samples:
        for item in coordinator.catalog.items.values():
            if item.kind == "index":
                for replica, status in _reports(coordinator, item):
                    if status.index is not None:
                        yield (item.id, item.name, item.cluster, replica), number(status.index)

    return samples


def _of_sources(name: str) -> Callable[[Coordinator], Samples]:
    def samples(coordinator: Coordinator) -> Samples:
        for item in coordinator.catalog.items.values():
            if item.kind == "source" and item.parent is None:
                numbers = coordinator.storage.statistics(item.runs_as)
                yield (item.id, item.name), getattr(numbers, name)

    return samples


# Clusters.


def _replica_up(coordinator: Coordinator) -> Samples:
    return [
        ((cluster.name, name), replica.is_ready and not replica.is_doubtful)
        for cluster, name, replica in _replicas(coordinator)
    ]


def _spark_jobs(coordinator: Coordinator) -> Samples:
    return [
        ((cluster.name, name), replica.jobs)
        for cluster, name, replica in _replicas(coordinator)
        if replica.is_ready
    ]


def _peeks(coordinator: Coordinator) -> Samples:
    return [
        ((cluster.name, name), replica.peeks) for cluster, name, replica in _replicas(coordinator)
    ]


def _replicas(coordinator: Coordinator) -> Iterator[tuple[Cluster, str, Any]]:
    for cluster in coordinator.clusters:
        for name, replica in cluster.replicas.items():
            yield cluster, name, replica


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily
_WHERE = ("cluster", "replica")
_VIEW = ("id", "name", *_WHERE)
_KEPT = ("id", "name", "kind", *_WHERE)
_SOURCE = ("id", "name")

FAMILIES = (
    Family("tidemark_sessions", "Sessions that are open.", (), _GAUGE, _sessions),
    Family("tidemark_statements_running", "Statements under way.", ("kind",), _GAUGE, _running),
    Family("tidemark_table_commits_total", "Commits that wrote to tables.", (), _COUNTER, _commits),
    Family(
        "tidemark_table_transactions_total",
        "Transactions in those commits.",
        (),
        _COUNTER,
        _writes,
    ),
    Family(
        "tidemark_oracle_lag_seconds",
        "How far the time of strict reads is behind the clock.",
        (),
        _GAUGE,
        _oracle_lag,
    ),
    Family("tidemark_objects", "Objects in the catalog.", ("kind",), _GAUGE, _objects),
    Family(
        "tidemark_collection_lag_seconds",
        "How far a collection was behind the clock when it was last looked at.",
        ("id", "name", "kind"),
        _GAUGE,
        _lag,
    ),
    Family(
        "tidemark_frontiers_age_seconds",
        "Since collections were last looked at.",
        (),
        _GAUGE,
        _frontiers_age,
    ),
    Family("tidemark_hydrated", "1 if it is kept up to date there.", _KEPT, _GAUGE, _hydrated),
    Family("tidemark_failures", "How often in a row it has failed.", _KEPT, _GAUGE, _failures),
    Family("tidemark_view_ticks_total", "Ticks.", _VIEW, _COUNTER, _of_views(lambda s: s.ticks)),
    Family(
        "tidemark_view_busy_seconds_total",
        "Time in all ticks.",
        _VIEW,
        _COUNTER,
        _of_views(lambda s: s.busy_ms / 1000),
    ),
    Family(
        "tidemark_view_last_tick_seconds",
        "Time in the last tick.",
        _VIEW,
        _GAUGE,
        _of_views(lambda s: s.tick_ms / 1000),
    ),
    Family(
        "tidemark_view_corrections_total",
        "Updates that corrected what a shard had wrong.",
        _VIEW,
        _COUNTER,
        _of_views(lambda s: s.corrections),
    ),
    Family(
        "tidemark_view_updates_total",
        "Updates written to the view.",
        _VIEW,
        _COUNTER,
        _of_views(lambda s: s.updates),
    ),
    Family("tidemark_index_rows", "Rows.", _VIEW, _GAUGE, _of_indexes(lambda i: i.rows)),
    Family(
        "tidemark_index_bytes",
        "In memory and in mapped files.",
        _VIEW,
        _GAUGE,
        _of_indexes(lambda i: i.bytes),
    ),
    Family(
        "tidemark_index_memory_bytes",
        "In the replica's own memory.",
        _VIEW,
        _GAUGE,
        _of_indexes(lambda i: i.memory),
    ),
    Family(
        "tidemark_source_messages_received_total",
        "Messages.",
        _SOURCE,
        _COUNTER,
        _of_sources("messages_received"),
    ),
    Family(
        "tidemark_source_bytes_received_total",
        "Bytes of messages.",
        _SOURCE,
        _COUNTER,
        _of_sources("bytes_received"),
    ),
    Family(
        "tidemark_source_updates_committed_total",
        "Updates that are in the source's collections.",
        _SOURCE,
        _COUNTER,
        _of_sources("updates_committed"),
    ),
    Family(
        "tidemark_source_error_inserts_total",
        "Error rows that came.",
        _SOURCE,
        _COUNTER,
        _of_sources("error_inserts"),
    ),
    Family(
        "tidemark_source_offset_known",
        "How far the upstream is, over all partitions.",
        _SOURCE,
        _GAUGE,
        _of_sources("offset_known"),
    ),
    Family(
        "tidemark_source_offset_committed",
        "How far of that is in the collections.",
        _SOURCE,
        _GAUGE,
        _of_sources("offset_committed"),
    ),
    Family(
        "tidemark_webhook_requests_total",
        "Requests posted to a source, by the status that they were answered with.",
        (*_SOURCE, "status"),
        _COUNTER,
        answers,
    ),
    Family("tidemark_replica_up", "1 if it answers.", _WHERE, _GAUGE, _replica_up),
    Family("tidemark_spark_jobs_total", "Spark jobs run.", _WHERE, _COUNTER, _spark_jobs),
    Family("tidemark_replica_queries", "Queries it is answering.", _WHERE, _GAUGE, _peeks),
)
