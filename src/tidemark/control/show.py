"""SHOW and EXPLAIN: questions that control answers by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

from tidemark.clock import Clock
from tidemark.compute.expr import Lit
from tidemark.compute.plan import Plan
from tidemark.control import statements as s
from tidemark.control.catalog import Item, Kind
from tidemark.control.connections import kind_of
from tidemark.control.coordinator import CLUSTER, DATABASE, SCHEMA, Coordinator
from tidemark.control.explain import delta_lines, plan_lines, shared_by
from tidemark.control.pgwire import Rows
from tidemark.control.values import text_rows
from tidemark.control.variables import Variables
from tidemark.errors import SqlError, Unsupported
from tidemark.types import DATE, TIMESTAMP, TIMESTAMPTZ

_KINDS = {
    "tables": ("table",),
    "sources": ("source", "subsource", "progress"),
    "views": ("view",),
    "materialized views": ("materialized-view",),
    "connections": ("connection",),
    "secrets": ("secret",),
    "sinks": ("sink",),
    "objects": get_args(Kind),
}

_SCHEMAS = ((SCHEMA,), (DATABASE, SCHEMA))


def run(coordinator: Coordinator, statement: s.ShowObjects | s.ShowColumns | s.ShowCreate) -> Rows:
    match statement:
        case s.ShowObjects(from_schema=schema) if schema not in (None, *_SCHEMAS):
            raise SqlError(f'unknown schema "{".".join(schema)}"', sqlstate="3F000")
        case s.ShowObjects(kind=kind) if kind in _KINDS:
            items = [i for i in coordinator.catalog.items.values() if i.kind in _KINDS[kind]]
            rows = [(i.name, _type(i, kind)) for i in sorted(items, key=lambda i: i.name)]
            if kind in ("objects", "sources", "connections"):
                return text_rows(("name", "type"), rows, "SHOW")
            return text_rows(("name",), [row[:1] for row in rows], "SHOW")
        case s.ShowObjects(kind="clusters"):
            ready = "running" if coordinator.cluster.is_ready else "starting"
            return text_rows(("name", "status"), [(CLUSTER, ready)], "SHOW")
        case s.ShowObjects(kind="databases"):
            return text_rows(("name",), [(DATABASE,)], "SHOW")
        case s.ShowObjects(kind="schemas"):
            names = [(SCHEMA,), ("mz_catalog",), ("mz_internal",)]
            return text_rows(("name",), names, "SHOW")
        case s.ShowObjects(kind=kind):
            raise Unsupported(f"SHOW {kind.upper()} is not supported")
        case s.ShowColumns(name=name):
            plan = coordinator.resolve(name)
            rows = [(c.name, "f" if not c.nullable else "t", str(c.type)) for c in plan.columns]
            return text_rows(("name", "nullable", "type"), rows, "SHOW")
        case s.ShowCreate(kind=kind, name=name):
            item = coordinator.item(name)
            parts = {"subsource": "source", "progress": "source"}
            if parts.get(item.kind, item.kind_name) != kind:
                raise SqlError(f'"{item.name}" is not a {kind}', sqlstate="42809")
            return text_rows(("name", "create_sql"), [(item.name, item.sql)], "SHOW")


def _type(item: Item, kind: str) -> str:
    if kind == "connections" and item.connection is not None:
        return kind_of(item.connection)
    return item.kind


def variable(variables: Variables, statement: s.ShowVariable) -> Rows:
    if statement.name is None:
        return text_rows(("name", "setting"), variables.all(), "SHOW")
    return text_rows((statement.name,), [(variables.get(statement.name),)], "SHOW")


def explain(coordinator: Coordinator, plan: Plan, stage: str, *, strict: bool) -> Rows:
    names = {item.id: item.name for item in coordinator.catalog.items.values()}
    match stage:
        case "delta plan" | "physical plan":
            views = {
                item.name: item.plan
                for item in coordinator.catalog.items.values()
                if item.kind == "materialized-view" and item.plan and item.plan is not plan
            }
            lines = delta_lines(plan, names, shared_by(views))
        case "timestamp":
            lines = _timestamp_lines(coordinator, plan, names, strict)
        case _:
            lines = plan_lines(plan, names)
    return text_rows(("plan",), [(line,) for line in lines], "EXPLAIN")


def _timestamp_lines(
    coordinator: Coordinator, plan: Plan, names: dict[str, str], strict: bool
) -> list[str]:
    as_of = coordinator.timestamp(plan, strict=strict)
    shards = coordinator.shards_of(plan)
    states = {id_: coordinator.client.state(shard) for id_, shard in shards.items()}
    ready = all(state.upper.covers(as_of) for state in states.values())
    lines = [
        f"                query timestamp: {as_of}",
        f"          oracle read timestamp: {coordinator.timeline.read_ts}",
        f"        can respond immediately: {str(ready).lower()}",
        "                       timeline: EpochMilliseconds",
    ]
    for id_, state in states.items():
        lines.append(f"source {names[id_]} ({id_}):")
        lines.append(f"                  read frontier: {state.since}")
        lines.append(f"                 write frontier: {state.upper}")
    return lines


def now_literals(clock: Clock) -> dict[str, Lit]:
    """The clock functions of a one-off query, all from one look at the clock."""
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    text = now.strftime("%Y-%m-%d %H:%M:%S.%f")
    with_zone = Lit(f"{text}+00", TIMESTAMPTZ)
    return {
        "now": with_zone,
        "current_timestamp": with_zone,
        "localtimestamp": Lit(text, TIMESTAMP),
        "current_date": Lit(text[:10], DATE),
    }
