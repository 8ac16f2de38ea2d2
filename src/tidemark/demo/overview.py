"""The live table below the demo's text: every relation, how many rows, how fresh, how it is."""

from __future__ import annotations

from rich.table import Table

from tidemark.control.catalog import Item
from tidemark.control.coordinator import Coordinator
from tidemark.errors import SqlError

_COLUMNS = (
    ("relation", "left"),
    ("kind", "left"),
    ("rows", "right"),
    ("lag ms", "right"),
    ("status", "left"),
)


def overview(coordinator: Coordinator) -> Table:
    table = Table()
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    now = coordinator.clock.now_ms()
    for item, status in statuses(coordinator):
        assert item.shard is not None
        state = coordinator.client.state(item.shard)
        upper = state.upper.time
        table.add_row(
            item.shown,
            item.kind.replace("-", " "),
            f"{sum(batch.diffs for batch in state.batches):,}",
            f"{max(0, now - upper):,}" if upper and upper > 1 else "-",
            status,
        )
    return table


def statuses(coordinator: Coordinator) -> list[tuple[Item, str]]:
    items = coordinator.catalog.items.values()
    return [(item, _status(coordinator, item)) for item in items if item.shard is not None]


def _status(coordinator: Coordinator, item: Item) -> str:
    if item.is_committed:
        return "running"
    try:
        if not coordinator.clusters.named(item.cluster).is_ready:
            return "cluster is starting"
    except SqlError:
        return "stopping"  # Control has let go of its clusters.
    status = coordinator.status(item)
    if status is None:
        return "starting"
    if status.error:
        return status.error
    return "running" if status.hydrated else "hydrating"
