"""EXPLAIN: which plan is asked for, of what, and in which form.

    EXPLAIN [PLAN] FOR a query        as it was understood, and the way that its answer is found
    RAW, DECORRELATED PLAN            the same without the way: subqueries are joins from the start
    OPTIMIZED PLAN                    as it is, or would be, maintained; Spark optimises one-off queries
    DELTA, PHYSICAL PLAN              what a tick looks up, keeps and runs
    TIMESTAMP                         when it would be read, and why then
    FILTER PUSHDOWN                   of what is stored, how much its filters leave to be read

AS JSON is the same as a tree. What is explained may be a query, a view, a materialized view, an
index, or a view that a CREATE would make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemark.compute.optimise import optimised
from tidemark.compute.peek import at_time
from tidemark.compute.peek_plan import asked_of, reader_filter
from tidemark.compute.plan import Plan, collections_of
from tidemark.control import ddl
from tidemark.control import statements as s
from tidemark.control.catalog import Item
from tidemark.control.explain import delta_lines, plan_lines, shared_by
from tidemark.control.indexes import way_lines
from tidemark.control.pgwire import Rows
from tidemark.control.timestamps import explain_timestamp, timestamp_lines
from tidemark.control.values import text_rows
from tidemark.errors import SqlError
from tidemark.persist import filters
from tidemark.types import TEXT, Column

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator
    from tidemark.control.names import Names


def explained(
    coordinator: Coordinator,
    statement: s.Explain,
    query: Plan | None,
    *,
    cluster: str,
    behind_ms: int | None,
    names: Names,
) -> Rows:
    """`query` is the plan of a query, if it is one that is explained."""
    if statement.stage == "filter pushdown":
        plan = query or _plan(coordinator, statement, _item(coordinator, statement), names)
        return text_rows(PUSHDOWN, _pushdown(coordinator, plan), "EXPLAIN")
    called = {item.id: item.shown for item in coordinator.catalog.items.values()}
    item = _item(coordinator, statement)
    if item is not None and item.kind == "index":
        found: Any = _index_tree(coordinator, item)
        lines = _index_lines(coordinator, item)
    else:
        plan = query or _plan(coordinator, statement, item, names)
        match statement.stage:
            case "timestamp":
                found = explain_timestamp(
                    coordinator, plan, behind_ms=behind_ms, database=names.database
                )
                lines = timestamp_lines(found, called)
            case "delta plan" | "physical plan":
                others = {
                    each.shown: each.plan
                    for each in coordinator.catalog.running_in(cluster)
                    if each.kind == "materialized-view" and each.plan and each.plan is not plan
                }
                lines = delta_lines(plan, called, shared_by(others))
                found = {"lines": lines}
            case "optimized plan" | "locally optimized plan":
                lines = plan_lines(optimised(plan), called)
                found = {"plan": tree_of(lines)}
            case _:
                lines = plan_lines(plan, called)
                found = {"plan": tree_of(lines)}
                if statement.stage == "plan" and query is not None and collections_of(plan):
                    ways = way_lines(coordinator, plan, cluster)
                    lines, found = lines + ways, found | {"answered": ways}
    if statement.as_json:
        lines = [json.dumps(found, indent=2)]
    return text_rows(("plan",), [(line,) for line in lines], "EXPLAIN")


def _item(coordinator: Coordinator, statement: s.Explain) -> Item | None:
    if statement.name is None:
        return None
    item = coordinator.item(statement.name)
    if item.kind_name != statement.kind:
        article = "an" if statement.kind == "index" else "a"
        raise SqlError(f'"{item.name}" is not {article} {statement.kind}', sqlstate="42809")
    return item


def _plan(coordinator: Coordinator, statement: s.Explain, item: Item | None, names: Names) -> Plan:
    if statement.create is not None:
        return ddl.checked_plan(coordinator, statement.create, names)
    assert item is not None
    assert item.plan is not None
    return item.plan


PUSHDOWN = ("source", "total_bytes", "selected_bytes", "total_parts", "selected_parts")


def columns_of(statement: s.Explain) -> tuple[Column, ...]:
    names = PUSHDOWN if statement.stage == "filter pushdown" else ("plan",)
    return tuple(Column(name, TEXT) for name in names)


def _pushdown(coordinator: Coordinator, plan: Plan) -> Iterator[tuple]:
    """Of each collection that is read, what cannot be skipped by the bounds of its parts."""
    for asked in asked_of(at_time(plan, 0)):
        item = coordinator.catalog.items.get(asked.get.id)
        if item is None or item.shard is None:
            continue
        parts = list(coordinator.client.state(item.shard).parts)
        schema = coordinator.client.open_reader(item.shard).schema
        pushed = reader_filter(asked)
        wanted = filters.clauses(pushed, schema) if pushed else None
        read = [each for each in parts if wanted is None or filters.may_match(each, wanted, schema)]
        size, selected = (sum(each.size for each in some) for some in (parts, read))
        yield item.name, size, selected, len(parts), len(read)


def _index_lines(coordinator: Coordinator, item: Item) -> list[str]:
    relation = coordinator.catalog.items[item.depends[0]]
    listed = ", ".join(column.name for column in relation.columns)
    return [
        f"Index {item.name} by ({', '.join(item.key)}), kept in memory on each replica of {item.cluster}",
        f"  Get {relation.name} ({listed})",
    ]


def _index_tree(coordinator: Coordinator, item: Item) -> dict[str, Any]:
    return {"plan": tree_of(_index_lines(coordinator, item))}


def tree_of(lines: list[str]) -> dict[str, Any]:
    """Lines by their indentation: each node with what it is, in words, and its inputs."""
    root: dict[str, Any] = {"inputs": []}
    path = [root]
    for line in lines:
        text = line.lstrip()
        depth = (len(line) - len(text)) // 2
        node = {"node": text.split()[0], "text": text, "inputs": []}
        del path[depth + 1 :]
        path[-1]["inputs"].append(node)
        path.append(node)
    return root["inputs"][0]
