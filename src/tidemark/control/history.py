"""How far back relations can be read: what is let go of, and what is held for who begins.

All are let go of up to one time, so that they stay readable at a common one:

    what is kept for all            RETAIN_MS behind the oracle
    what a statement reads          never beyond the least of those times
    the slowest relation            as far as that has come, within MAX_LAG_MS
    RETAIN HISTORY                  of who asked for it, no further than that

A table to which nothing was appended for a while has nothing to forget: its hold stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.control.catalog import RETAIN_MS, Item
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient
from tidemark.storage.controller import Storage

MAX_LAG_MS = 300_000
"""A relation that lags further than this no longer keeps the others' history."""


def let_go(
    client: PersistClient, storage: Storage, items: Iterable[Item], *, now: int, least: int | None
) -> dict[str, Frontier]:
    """Let the relations' history go; `least` is the earliest time that somebody still reads.
    Returns how far the shards are, which had to be looked at for that."""
    since = now - RETAIN_MS if least is None else min(now - RETAIN_MS, least)
    states = [(item, client.state(item.shard)) for item in items if item.shard is not None]
    reached = [state.upper.time - 1 for _, state in states if state.upper.time]
    slowest = max(min(reached, default=since), since - MAX_LAG_MS)
    for item, state in states:
        newest = min(since, slowest, now - item.retain_ms)
        if state.appended.time is not None:
            newest = min(newest, state.appended.time - 1)
        if state.since < Frontier(max(newest, 0)):
            storage.allow_compaction(state.shard_id, Frontier(newest))
    return {state.shard_id: state.upper for _, state in states}


def claim(client: PersistClient, holder: str, shards: list[str], *, now: int) -> int:
    """The time at which a new dataflow or sink starts; its inputs stay readable from there."""
    uppers = [client.state(shard).upper for shard in shards]
    reached = (upper.time - 1 for upper in uppers if upper.time is not None)
    # Not in the future, where what is refreshed now and then is complete already.
    as_of = max(0, min([now, *reached])) if shards else 0
    for shard in shards:
        hold = client.open_critical_since(shard, holder)
        held = hold.downgrade(Frontier(as_of))
        assert isinstance(held, Frontier)
        as_of = max(as_of, held.time or 0)
    return as_of
