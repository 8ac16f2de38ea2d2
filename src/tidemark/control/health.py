"""Whether queries can be answered, in words."""

from __future__ import annotations

from tidemark.control.clusters import Cluster
from tidemark.control.coordinator import Coordinator


def unready(coordinator: Coordinator) -> str | None:
    """Why not, or None. A cluster that shall have no replicas is as it should be."""
    if coordinator.timelines.lost.is_set():
        return "another control process has taken over"
    for cluster in coordinator.clusters:
        if cluster.replicas and not _answers(cluster):
            why = next((each.error for each in cluster.replicas.values() if each.error), None)
            return f'cluster "{cluster.name}" has no replica that answers: {why or "starting"}'
    return None


def _answers(cluster: Cluster) -> bool:
    return any(each.is_ready and not each.is_doubtful for each in cluster.replicas.values())
