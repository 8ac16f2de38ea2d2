"""The versions that a shard's log still holds, and what each of them changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UnsetType

from tidemark.errors import TidemarkError
from tidemark.persist import PersistClient
from tidemark.persist.codec import Diff, decode
from tidemark.persist.consensus import Versioned
from tidemark.persist.state import Batch, State
from tidemark.tools.output import moment, print_table, size


def versions(client: PersistClient, shard_id: str, start: int = 0) -> list[dict[str, Any]]:
    return [described(shard_id, each) for each in client.consensus.scan(shard_id, start)]


def follow(client: PersistClient, shard_id: str, start: int) -> Iterator[dict[str, Any]]:
    """Versions from `start` on, as they come; ends when the client is closed."""
    while True:
        found = client.watch.wait_for(
            shard_id, lambda start=start: client.consensus.scan(shard_id, start) or None
        )
        if found is None:
            return
        yield from (described(shard_id, each) for each in found)
        start = found[-1].seqno + 1


def described(shard_id: str, versioned: Versioned) -> dict[str, Any]:
    row: dict[str, Any] = {"seqno": versioned.seqno, "at_ms": None, "command": None}
    row |= {"kind": "damaged", "bytes": len(versioned.data), "changes": [], "error": None}
    try:
        version = decode(shard_id, versioned)
    except (TidemarkError, UnicodeError) as error:
        message = error.message if isinstance(error, TidemarkError) else str(error)
        return row | {"error": message}
    body = version.body
    kind = "rollup" if isinstance(body, State) else "diff"
    changes = _state(body) if isinstance(body, State) else _changes(body)
    row |= {"at_ms": body.at_ms, "command": version.command, "kind": kind, "changes": changes}
    return row


def _state(state: State) -> list[str]:
    counts = f"{len(state.batches)} batches, {state.rows} updates, {len(state.holds)} holds"
    return [f"whole state: since {state.since}, upper {state.upper}, {counts}"]


def _changes(diff: Diff) -> list[str]:
    changes = []
    if diff.schemas:
        changes.append(f"{len(diff.schemas)} new schema{'s' if len(diff.schemas) > 1 else ''}")
    if not isinstance(diff.key, UnsetType):
        changes.append(f"key ({', '.join(diff.key)})")
    if not isinstance(diff.batches, UnsetType):
        splice = diff.batches
        if splice.removed:
            changes.append(f"{splice.removed} batches gave way to {len(splice.added)}")
        changes += [_batch(batch) for batch in splice.added]
    if not isinstance(diff.since, UnsetType):
        changes.append(f"since {diff.since}")
    if not isinstance(diff.upper, UnsetType):
        changes.append(f"upper {diff.upper}")
    for name, hold in diff.holds.items():
        purpose = f" ({hold.purpose})" if hold is not None and hold.purpose else ""
        state = "gone" if hold is None else f"at {hold.since}{purpose}"
        changes.append(f"hold {name} {state}")
    changes += [f"writer {name} gone" for name, writer in diff.writers.items() if writer is None]
    if diff.retired:
        changes.append(f"{len(diff.retired)} parts retired")
    if diff.forgotten:
        changes.append(f"{len(diff.forgotten)} retired parts deleted")
    if not isinstance(diff.floor, UnsetType):
        changes.append(f"floor {moment(diff.floor)}")
    if not isinstance(diff.follows, UnsetType):
        changes.append(f"follows {diff.follows}")
    if not isinstance(diff.lead, UnsetType):
        but = f" but {', '.join(diff.lead.but)}" if diff.lead.but else ""
        changes.append(f"followers complete to {diff.lead.upper}{but}")
    return changes


def _batch(batch: Batch) -> str:
    blobs = sum(part.key is not None for part in batch.parts)
    where = f"{blobs} of {len(batch.parts)} parts in blobs" if batch.parts else "no parts"
    return f"batch {batch.lower} to {batch.upper}: {batch.rows} updates, {where}"


def print_versions(rows: list[dict[str, Any]]) -> None:
    print_table(
        ("version>", "time (UTC)", "command", "size>", "changes"),
        [
            (
                str(row["seqno"]),
                moment(row["at_ms"]) if row["at_ms"] is not None else None,
                row["command"],
                size(row["bytes"]),
                row["error"] or "; ".join(row["changes"]),
            )
            for row in rows
        ],
    )


def line(row: dict[str, Any]) -> str:
    """One version on one line, for --follow."""
    when = moment(row["at_ms"]) if row["at_ms"] is not None else "-"
    changes = row["error"] or "; ".join(row["changes"])
    return (
        f"{row['seqno']:>8}  {when}  {row['command'] or '-':<16}{size(row['bytes']):>10}  {changes}"
    )
