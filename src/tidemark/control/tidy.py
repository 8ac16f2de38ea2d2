"""What is left of what was dropped, and how it goes: shards, and holds on those of others."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from tidemark.compute.dataflow import holder_of
from tidemark.compute.plan import collections_of
from tidemark.compute.view import Keeping, keeping, release
from tidemark.control.catalog import SHARD, STORAGE_SHARD, Catalog, Item, is_ours
from tidemark.persist import PersistClient
from tidemark.persist.state import State
from tidemark.storage.controller import Storage
from tidemark.storage.kafka.spec import KafkaSink, sink_holder
from tidemark.storage.spec import written_by

log = structlog.get_logger("coordinator")


def drop_fragments(
    client: PersistClient, catalog: Catalog, item: Item, others: Iterable[Item]
) -> None:
    """Release what a view that is gone read, and drop what none of the `others` keeps."""
    assert item.plan is not None
    mine, theirs = _keeping(client, item), [_keeping(client, each) for each in others]
    ended = mine.dataflows.difference(*(each.dataflows for each in theirs))
    kept = set().union(*(each.shards for each in theirs))
    inputs = [catalog.items.get(each) for each in collections_of(item.plan)]
    read = {each.shard for each in inputs if each is not None and each.shard is not None}
    for shard in mine.shards - kept:
        client.finalize(shard)
    for shard in read | (mine.shards & kept):
        for dataflow in ended:
            release(client, shard, dataflow)


def living(client: PersistClient) -> dict[str, State]:
    """The shards that the server has made and not dropped. To look at those that are dropped takes
    long, once."""
    return client.living(filter(is_ours, list(client.consensus.keys())))


def sweep(client: PersistClient, catalog: Catalog, storage: Storage, views: Iterable[Item]) -> None:
    """Drop what a crash in the middle of a CREATE or DROP has left: shards and holds.

    And what a dataflow that was slow to end has taken after its DROP. `views` are all that are to
    run, those of subscriptions too.
    """
    # First of all: what a running view makes from now on is not looked at.
    stored = living(client)
    known = {SHARD, STORAGE_SHARD, *(each.log for each in catalog.databases.values())}
    holders = set()
    running = {item.runs_as for item in catalog.items.values()}
    for id_, definition in storage.definitions.items():
        is_sink = isinstance(definition, KafkaSink)
        if id_ not in running:
            log.info("dropping a source or sink that nothing refers to", id=id_)
            (storage.drop_sink if is_sink else storage.drop_source)(id_)
        elif is_sink:
            holders.add(sink_holder(id_))
        known |= set(written_by(definition))
    for item in catalog.items.values():
        known.add(item.shard or "")
    for item in views:
        kept = _keeping(client, item)
        known |= kept.shards | {item.id}
        holders |= set(map(holder_of, kept.dataflows))
    for shard, state in stored.items():
        if shard not in known:
            log.info("dropping a shard that nothing refers to", shard=shard)
            client.finalize(shard)
            continue
        for holder in state.holds:
            # Views without a server hold what they read, too, under names of their own.
            ours = any(
                holder.startswith(kind) and is_ours(holder.removeprefix(kind))
                for kind in (holder_of(""), sink_holder(""))
            )
            if ours and holder not in holders:
                client.open_critical_since(shard, holder).release()


def _keeping(client: PersistClient, item: Item) -> Keeping:
    assert item.plan is not None
    return keeping(item.id, item.plan, item.owners, client)
