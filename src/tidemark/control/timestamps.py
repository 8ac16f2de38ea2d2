"""EXPLAIN TIMESTAMP: the time that a query would be answered at, and what that follows from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.compute.plan import Plan
from tidemark.control.hierarchy import DATABASE
from tidemark.frontier import Frontier

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def explain_timestamp(
    coordinator: Coordinator, plan: Plan, *, behind_ms: int | None, database: str
) -> dict[str, Any]:
    """A query of no relations is asked of `database`. Frontiers are lists of times, as antichains are: an empty one is that of what has ended."""
    database = coordinator.database_of(plan) or database
    as_of = coordinator.timestamp(plan, behind_ms=behind_ms, database=database)
    shards = coordinator.shards_of(plan)
    states = {id_: coordinator.client.state(shard) for id_, shard in shards.items()}
    since = max((state.since for state in states.values()), default=Frontier.MIN)
    upper = min((state.upper for state in states.values()), default=Frontier.EMPTY)
    oracle = coordinator.timelines[database].read_ts
    return {
        "query_timestamp": as_of,
        "oracle_read_timestamp": oracle,
        "largest_not_in_advance_of_upper": max(upper.time - 1, 0)
        if upper.time is not None
        else None,
        "since": _times(since),
        "upper": _times(upper),
        "can_respond_immediately": all(state.upper.covers(as_of) for state in states.values()),
        "timeline": _timeline(database),
        "constraints": _constraints(since, oracle, behind_ms),
        "sources": [
            {"id": id_, "read_frontier": _times(state.since), "write_frontier": _times(state.upper)}
            for id_, state in states.items()
        ],
    }


def timestamp_lines(found: dict[str, Any], names: dict[str, str]) -> list[str]:
    def line(what: str, value: object) -> str:
        return f"{what:>31}: {value}"

    largest = found["largest_not_in_advance_of_upper"]
    lines = [
        line("query timestamp", found["query_timestamp"]),
        line("oracle read timestamp", found["oracle_read_timestamp"]),
        line("largest not in advance of upper", "none" if largest is None else largest),
        line("upper", found["upper"]),
        line("since", found["since"]),
        line("can respond immediately", str(found["can_respond_immediately"]).lower()),
        line("timeline", found["timeline"]),
    ]
    for source in found["sources"]:
        lines.append(f"source {names[source['id']]} ({source['id']}):")
        lines.append(line("read frontier", source["read_frontier"]))
        lines.append(line("write frontier", source["write_frontier"]))
    lines.append("binding constraints:")
    lines += [f"  {each}" for each in found["constraints"]]
    return lines


def _timeline(database: str) -> str:
    return "EpochMilliseconds" + (f" of {database}" if database != DATABASE else "")


def _times(frontier: Frontier) -> list[int]:
    return [] if frontier.time is None else [frontier.time]


def _constraints(since: Frontier, oracle: int, behind_ms: int | None) -> list[str]:
    """What the time is bound by: it could not be less, or it is as fresh as there is."""
    found = []
    if behind_ms == 0:
        found.append(f"strict serializable: not before the oracle's {oracle}")
    elif behind_ms is None:
        found.append("serializable: the newest time that can be read at once")
    else:
        found.append(f"bounded staleness: not before {oracle - behind_ms}")
    if since.time is not None and since.time > oracle:
        found.append(f"history: nothing before {since.time} is kept")
    return found
