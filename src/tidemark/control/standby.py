"""A server that waits beside the one that leads: `tidemark serve --standby`.

    old   leads, serves ─────────────────────────┐ fenced: says so, stops its replicas
    new        reads the catalog, hydrates ──────┴ leads, serves, its replicas may write

Its replicas are processes of their own, of the next *generation*, so that they may be of another
version than those that run. They are told to keep what the catalog says, read-only: they hydrate
and follow, and write nothing. When all is fresh the lead is taken as after a crash, by an append to
the catalog's shard; the coordinator that takes it finds replicas of its generation running and
tells them what they do already, only that they may write now.

Whoever is killed in between leaves a server that leads: the old one until the append, then the
new one. Sources and sinks are not run here: there is nothing in them to hydrate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import structlog

from tidemark.control.catalog import Contents, read_contents
from tidemark.control.clusters import Clusters
from tidemark.control.replica import Place
from tidemark.control.wanted import followed
from tidemark.persist import PersistClient

log = structlog.get_logger("standby")

LOOK_EVERY = 0.5
TELL_EVERY = 10.0


def generation(data: Path) -> int:
    """Of the replicas that run here; each take-over begins another."""
    try:
        return int(_generation_file(data).read_text())
    except FileNotFoundError:
        return 0


def begin_generation(place: Place) -> None:
    """From now on whoever leads here has replicas of this generation."""
    _generation_file(place.data).write_text(str(place.generation))


async def hydrate(client: PersistClient, place: Place, stop: asyncio.Event) -> bool:
    """Until replicas of `place`'s generation keep all that there is; False if stopped before.

    They go on running, for whoever leads next to find; if stopped, they end.
    """
    clusters = Clusters(place)
    fresh = False
    try:
        await clusters.clear()
        fresh = await _follow(client, clusters, stop)
    finally:
        await clusters.stop(terminate=not fresh)
    return fresh


async def _follow(client: PersistClient, clusters: Clusters, stop: asyncio.Event) -> bool:
    contents: Contents | None = None
    told = client.clock.monotonic()
    while not stop.is_set():
        found = await asyncio.to_thread(read_contents, client)
        if found != contents:
            contents = found
            wanted = {name: followed(found, name) for name in found.clusters}
            clusters.become({n: c.following() for n, c in found.clusters.items()}, wanted)
            await clusters.configure(wanted)
        waiting = list(_not_fresh(clusters))
        if not waiting:
            return True
        if client.clock.monotonic() - told > TELL_EVERY:
            told = client.clock.monotonic()
            log.info("not taking over yet", waiting_for=waiting)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY):
                await stop.wait()
    return False


def _not_fresh(clusters: Clusters) -> Iterator[str]:
    """Replicas that are not there, and what those that are do not keep up with yet."""
    for cluster in clusters:
        for replica in cluster.replicas.values():
            if not replica.is_ready:
                yield f"{replica.name}: {replica.error or 'starting'}"
            for id_ in replica.unhydrated if replica.is_ready else ():
                status = replica.statuses.get(id_)
                yield f"{replica.name}: {id_}: {(status and status.error) or 'hydrating'}"


def _generation_file(data: Path) -> Path:
    return data / "clusters" / "generation"
