"""What is posted to webhooks, as relations and as metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.control.relation import SystemRelation
from tidemark.types import BIGINT, TEXT, Column

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def _sources(coordinator: Coordinator) -> list[tuple]:
    webhooks = coordinator.webhooks
    return [(item.id, item.name, webhooks.url_of(item)) for item in webhooks.sources()]


def _statistics(coordinator: Coordinator) -> list[tuple]:
    found = []
    for item in coordinator.webhooks.sources():
        requests = coordinator.webhooks.of(item)
        refused = requests.refused.total()
        numbers = (requests.accepted, refused, requests.rows, requests.bytes)
        found.append((item.id, item.name, *numbers))
    return found


def _refusals(coordinator: Coordinator) -> list[tuple]:
    return [
        (item.id, item.name, status, count)
        for item in coordinator.webhooks.sources()
        for status, count in sorted(coordinator.webhooks.of(item).refused.items())
    ]


def answers(coordinator: Coordinator) -> Iterable[tuple[tuple[str, ...], float]]:
    """How many requests of each source were answered with each status."""
    for item in coordinator.webhooks.sources():
        requests = coordinator.webhooks.of(item)
        yield (item.id, item.name, "200"), requests.accepted
        for status, count in requests.refused.items():
            yield (item.id, item.name, str(status)), count


RELATIONS = (
    SystemRelation(
        "mz_internal",
        "mz_webhook_sources",
        (Column("id", TEXT), Column("name", TEXT), Column("url", TEXT)),
        _sources,
    ),
    SystemRelation(
        "mz_internal",
        "mz_webhook_statistics",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("requests_accepted", BIGINT),
            Column("requests_refused", BIGINT),
            Column("rows_committed", BIGINT),
            Column("bytes_received", BIGINT),  # Of requests that were accepted.
        ),
        _statistics,
    ),
    SystemRelation(
        "mz_internal",
        "mz_webhook_refusals",
        (
            Column("id", TEXT),
            Column("name", TEXT),
            Column("status", BIGINT),
            Column("requests", BIGINT),
        ),
        _refusals,
    ),
)
