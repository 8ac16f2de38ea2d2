"""A shard's state laid out: as plain values for programs, and from these as tables for people."""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from tidemark.errors import InvalidUsage, TidemarkError
from tidemark.ipc import decode_schema
from tidemark.persist import PersistClient
from tidemark.persist.runs import schema_of
from tidemark.persist.state import Batch, Part, State
from tidemark.tools.location import sql_names
from tidemark.tools.output import console, counted, frontier, moment, print_table, size, span

SORTS = ("id", "name", "updates", "bytes", "batches", "parts", "upper", "since", "committed")


def listed(
    client: PersistClient, *, pattern: str | None, dropped: bool, sort: str
) -> list[dict[str, Any]]:
    """One row per shard; one whose log is damaged says so instead of its state."""
    if sort not in SORTS:
        raise InvalidUsage(f"cannot sort by {sort!r}", hint=f"sort by {', '.join(SORTS)}")
    names = sql_names(client)
    rows = []
    for shard_id in sorted(client.consensus.keys()):
        if pattern and not _matches(pattern, shard_id, names.get(shard_id)):
            continue
        try:
            row = _row(client.state(shard_id), names.get(shard_id))
        except (TidemarkError, UnicodeError) as error:
            message = error.message if isinstance(error, TidemarkError) else str(error)
            row = {"id": shard_id, "name": names.get(shard_id), "state": "damaged"}
            row["error"] = message
        if dropped or row["state"] != "dropped":
            rows.append(row)
    return sorted(rows, key=lambda row: _rank(row, sort))


def _rank(row: dict[str, Any], sort: str) -> tuple[Any, ...]:
    """Names from a on, amounts from the largest on; what is not known comes last."""
    value = row.get({"committed": "committed_ms"}.get(sort, sort))
    if value is None:
        # An empty frontier lies beyond all times.
        return (sort not in ("since", "upper") or row["state"] == "damaged", 0, row["id"])
    amount = value if isinstance(value, str) else -value
    return (sort in ("since", "upper"), amount, row["id"])


def _matches(pattern: str, shard_id: str, name: str | None) -> bool:
    """A glob, or the beginning, of the id or of the relation's name."""
    globbed = any(sign in pattern for sign in "*?[")
    return any(
        fnmatchcase(each, pattern) if globbed else each.startswith(pattern)
        for each in (shard_id, name)
        if each is not None
    )


def _row(state: State, name: str | None) -> dict[str, Any]:
    inline = state.inline_bytes
    leases = sum(hold.expires_ms is not None for hold in state.holds.values())
    return {
        "id": state.shard_id,
        "name": name,
        "state": lifecycle(state),
        "since": state.since.time,
        "upper": state.upper.time,
        "follows": state.follows or None,
        "updates": state.rows,
        "bytes": sum(part.size for part in state.parts),
        "inline_bytes": inline,
        "batches": len(state.batches),
        "parts": sum(1 for _ in state.parts),
        "holds": len(state.holds) - leases,
        "readers": leases,
        "committed_ms": state.at_ms,
        "error": None,
    }


def lifecycle(state: State) -> str:
    if state.is_tombstone:
        return "dropped"
    return "finished" if state.upper.is_empty else "live"


def print_list(rows: list[dict[str, Any]]) -> None:
    named = any(row.get("name") for row in rows)
    columns = ["shard", *(["relation"] if named else []), "state", "since>", "upper>", "updates>"]
    columns += ["size>", "batches>", "parts>", "holds>", "readers>", "last commit (UTC)"]
    print_table(columns, [_cells(row, named) for row in rows])
    for row in rows:
        if row["state"] == "damaged":
            console().print(f"[red]{row['id']} is damaged:[/red] {row['error']}", markup=True)
    console().print(counted(len(rows), "shard"))


def _cells(row: dict[str, Any], named: bool) -> list[object]:
    names = [row["id"], *([row["name"]] if named else []), row["state"]]
    if row["state"] == "damaged":
        return [*names, *[None] * 8]
    return [
        *names,
        frontier(row["since"]),
        frontier(row["upper"]),
        row["updates"],
        size(row["bytes"]),
        *(row[each] for each in ("batches", "parts", "holds", "readers")),
        moment(row["committed_ms"]),
    ]


def inspected(
    client: PersistClient, shard_id: str, *, name: str | None, parts: bool
) -> dict[str, Any]:
    log = client.consensus.scan(shard_id)
    state = client.state(shard_id)
    now = client.clock.now_ms()
    holds = [
        {
            "id": hold_id,
            "since": hold.since.time,
            "kind": "critical" if hold.expires_ms is None else "lease",
            "epoch": hold.epoch,
            "seqno": hold.seqno,
            "purpose": hold.purpose,
            "expires_ms": hold.expires_ms,
            "expires_in_ms": None if hold.expires_ms is None else hold.expires_ms - now,
        }
        for hold_id, hold in sorted(state.holds.items())
    ]
    writers = [
        {"id": writer_id, "upper": writer.upper.time, "expires_ms": writer.expires_ms}
        for writer_id, writer in sorted(state.writers.items())
    ]
    return {
        **_row(state, name),
        "seqno": state.seqno,
        "key": list(state.key),
        "schemas": [_schema(encoded) for encoded in state.schemas],
        "batch_list": [_batch(batch, state if parts else None) for batch in state.batches],
        "hold_list": holds,
        "writers": writers,
        "retired": [{"key": each.key, "seqno": each.seqno} for each in state.retired],
        "appended": state.appended.time,
        "floor_ms": state.floor,
        "log": {
            "first_seqno": log[0].seqno if log else None,
            "versions": len(log),
            "bytes": sum(len(version.data) for version in log),
        },
        "now_ms": now,
    }


def _schema(encoded: bytes) -> list[dict[str, Any]]:
    schema = decode_schema(encoded)
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def _batch(batch: Batch, state: State | None) -> dict[str, Any]:
    """With its parts, if there is a state to know their schemas from."""
    described: dict[str, Any] = {
        "lower": batch.lower.time,
        "upper": batch.upper.time,
        "since": batch.since.time,
        "updates": batch.rows,
        "diffs": batch.diffs,
        "bytes": sum(part.size for part in batch.parts),
        "runs": len(batch.runs),
        "parts": len(batch.parts),
    }
    if state is not None:
        described["part_list"] = [_part(part, schema_of(state)) for part in batch.parts]
    return described


def _part(part: Part, schema: pa.Schema) -> dict[str, Any]:
    stats = {}
    for name, each in part.stats.items():
        kind = schema.field(name).type
        least, most = _bound(each.least, kind), _bound(each.most, kind)
        stats[name] = {"nulls": each.nulls, "least": least, "most": most}
    return {
        "key": part.key,
        "updates": part.rows,
        "diffs": part.diffs,
        "errors": part.errors,
        "bytes": part.size,
        "memory": part.memory,
        "min_time": part.min_time,
        "max_time": part.max_time,
        "schema": part.schema,
        "ordered": part.ordered,
        "stats": stats,
    }


def _bound(value: Any, kind: pa.DataType) -> Any:
    """A bound as people write it; the state keeps decimals and dates as integers."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return str(Decimal(value).scaleb(-kind.scale))
    if pa.types.is_date32(kind):
        return str(pa.scalar(value, pa.int32()).cast(kind))
    if pa.types.is_timestamp(kind):
        return str(pa.scalar(value, pa.int64()).cast(pa.timestamp(kind.unit)))
    return value


def print_inspected(shard: dict[str, Any]) -> None:
    out, now = console(), shard["now_ms"]
    relation = f", the relation {shard['name']}" if shard["name"] else ""
    committed = f"{moment(shard['committed_ms'])} UTC, {span(now - shard['committed_ms'])} ago"
    log = shard["log"]
    out.print(f"shard     {shard['id']}{relation} ({shard['state']})", markup=False)
    out.print(f"readable  from {frontier(shard['since'])}, complete to {frontier(shard['upper'])}")
    if shard["follows"]:
        own = frontier(shard["appended"])
        out.print(f"follows   {shard['follows']}; its own appends end at {own}", markup=False)
    size_ = f"{size(shard['bytes'])}, of which {size(shard['inline_bytes'])} inside the state"
    out.print(f"contents  {counted(shard['updates'], 'update')}, {size_}")
    out.print(f"key       {', '.join(shard['key']) or '(none)'}", markup=False)
    out.print(f"version   {shard['seqno']}, committed {committed}")
    first = log["first_seqno"]
    versions = counted(log["versions"], "version")
    out.print(f"log       {versions} from {first} on, {size(log['bytes'])}")
    floor = f"staged before {moment(shard['floor_ms'])} UTC" if shard["floor_ms"] else "none"
    out.print(f"retired   {counted(len(shard['retired']), 'part')}; given up by the floor: {floor}")
    for number, schema in enumerate(shard["schemas"]):
        print_table(
            ("column", "type", "nullable"),
            [(field["name"], field["type"], field["nullable"]) for field in schema],
            title=f"schema {number}",
        )
    _print_batches(shard["batch_list"])
    if shard["hold_list"]:
        print_table(
            ("hold", "kind", "since>", "epoch>", "parts of>", "expires in>", "purpose"),
            [_hold_cells(hold) for hold in shard["hold_list"]],
            title="holds",
        )
    if shard["writers"]:
        print_table(
            ("writer", "appended to>", "forgotten in>"),
            [
                (each["id"], frontier(each["upper"]), span(each["expires_ms"] - now))
                for each in shard["writers"]
            ],
            title="writers",
        )


def _hold_cells(hold: dict[str, Any]) -> tuple[object, ...]:
    left = hold["expires_in_ms"]
    expires = None if left is None else ("expired" if left < 0 else span(left))
    pinned = None if hold["seqno"] is None else f"v{hold['seqno']}"
    kind, since = hold["kind"], frontier(hold["since"])
    return hold["id"], kind, since, hold["epoch"], pinned, expires, hold["purpose"]


def _print_batches(batches: list[dict[str, Any]]) -> None:
    print_table(
        ("lower>", "upper>", "since>", "updates>", "sum of diffs>", "size>", "runs>", "parts>"),
        [
            (
                *(frontier(batch[each]) for each in ("lower", "upper", "since")),
                *(batch[each] for each in ("updates", "diffs")),
                size(batch["bytes"]),
                *(batch[each] for each in ("runs", "parts")),
            )
            for batch in batches
        ],
        title="batches",
    )
    for batch in batches:
        if batch.get("part_list"):
            print_table(
                ("part", "updates>", "errors>", "size>", "times>", "schema>", "ordered", "columns"),
                [_part_cells(part) for part in batch["part_list"]],
                title=f"parts of {frontier(batch['lower'])} to {frontier(batch['upper'])}",
            )


def _part_cells(part: dict[str, Any]) -> tuple[object, ...]:
    bounds = []
    for name, each in part["stats"].items():
        nulls = f", {each['nulls']} nulls" if each["nulls"] else ""
        bounds.append(f"{name}: {each['least']!r} to {each['most']!r}{nulls}")
    return (
        part["key"] or "(inside the state)",
        part["updates"],
        part["errors"],
        size(part["bytes"]),
        f"{part['min_time']} to {part['max_time']}",
        part["schema"],
        part["ordered"],
        "; ".join(bounds),
    )
