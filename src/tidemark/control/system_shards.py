"""System relations of what lies in persist: the shards of each object, their batches, and who holds
their history.

A source, a table and a view have one shard that is read under their name; what else is kept for
them (bindings of a source, operator state of a view) is in shards that begin with their id.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidemark.compute.error_rows import NONE
from tidemark.control.pg.columns import Row, relation
from tidemark.errors import TidemarkError
from tidemark.persist.state import State

if TYPE_CHECKING:
    from tidemark.control.coordinator import Coordinator


def _states(coordinator: Coordinator) -> Iterator[tuple[str, str, State | TidemarkError]]:
    """Of all shards that are some object's: the object, the shard, and its state, or why it cannot
    be read."""
    items = coordinator.catalog.items
    owners = {item.shard: item.id for item in list(items.values()) if item.shard is not None}
    for shard in sorted(coordinator.client.consensus.keys()):
        owner = owners.get(shard, shard.partition("-")[0])
        if owner not in items:
            continue
        try:
            state = coordinator.client.state(shard)
        except TidemarkError as error:
            yield owner, shard, error
        else:
            if not state.is_tombstone:
                yield owner, shard, state


def _shards(coordinator: Coordinator) -> Iterator[Row]:
    items = coordinator.catalog.items
    for owner, shard, state in _states(coordinator):
        known: Row = {
            "object_id": owner,
            "shard_id": shard,
            "is_collection": items[owner].shard == shard,
        }
        if isinstance(state, TidemarkError):
            yield known | {"error": state.message}
            continue
        broken = coordinator.observed.broken.found(shard) if known["is_collection"] else NONE
        yield known | {
            "read_frontier": state.since.time,
            "write_frontier": state.upper.time,
            "rows": sum(batch.diffs for batch in state.batches) - (broken.rows or 0),
            "error_rows": broken.rows,
            "read_error": broken.message,
            "updates": state.rows,
            "error_updates": sum(part.errors for part in state.parts),
            "bytes": sum(part.size for part in state.parts),
            "inline_bytes": state.inline_bytes,
            "batches": len(state.batches),
            "parts": sum(1 for _ in state.parts),
            "retired_parts": len(state.retired),
            "version": state.seqno,
            "committed_at": _moment(state.at_ms),
        }


def _batches(coordinator: Coordinator) -> Iterator[Row]:
    for owner, shard, state in _states(coordinator):
        for number, batch in enumerate(state.batches if isinstance(state, State) else (), 1):
            yield {
                "object_id": owner,
                "shard_id": shard,
                "number": number,
                "lower": batch.lower.time,
                "upper": batch.upper.time,
                "since": batch.since.time,
                "updates": batch.rows,
                "diffs": batch.diffs,
                "bytes": sum(part.size for part in batch.parts),
                "runs": len(batch.runs),
                "parts": len(batch.parts),
            }


def _holds(coordinator: Coordinator) -> Iterator[Row]:
    for owner, shard, state in _states(coordinator):
        holds: dict[str, Any] = state.holds if isinstance(state, State) else {}
        for id_, hold in sorted(holds.items()):
            yield {
                "object_id": owner,
                "shard_id": shard,
                "hold_id": id_,
                "kind": "critical" if hold.expires_ms is None else "lease",
                "since": hold.since.time,
                "purpose": hold.purpose,
                "expires_at": None if hold.expires_ms is None else _moment(hold.expires_ms),
            }


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


RELATIONS = (
    relation(
        "mz_internal",
        "mz_storage_shards",
        "object_id text, shard_id text, is_collection bool, read_frontier int8,"
        " write_frontier int8, rows int8, error_rows int8, updates int8,"
        " error_updates int8, bytes int8, inline_bytes int8, batches int8, parts int8, retired_parts int8, version int8,"
        " committed_at timestamptz, read_error text,"
        " error text",
        _shards,
    ),
    relation(
        "mz_internal",
        "mz_storage_batches",
        "object_id text, shard_id text, number int8, lower int8, upper int8, since int8,"
        " updates int8, diffs int8, bytes int8, runs int8, parts int8",
        _batches,
    ),
    relation(
        "mz_internal",
        "mz_storage_holds",
        "object_id text, shard_id text, hold_id text, kind text, since int8, purpose text,"
        " expires_at timestamptz",
        _holds,
    ),
)
