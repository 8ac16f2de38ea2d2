"""Garbage: parts that the shard has moved on from, and parts that it never came to have."""

from __future__ import annotations

from tidemark.persist import commands
from tidemark.persist.blob import Blob
from tidemark.persist.machine import Machine
from tidemark.persist.names import by_age


def collect(machine: Machine, blob: Blob) -> int:
    """Delete retired parts that nobody can be reading any more; how many went."""
    keys = commands.collectable(machine.refresh(), machine.clock.now_ms())
    for key in keys:
        blob.delete(key)
    if keys:
        gone = frozenset(keys)
        machine.apply("collect", lambda state: commands.forget_retired(state, gone))
    return len(keys)


def collect_leaked(machine: Machine, blob: Blob, *, older_than_ms: int) -> int:
    """Delete parts that were staged so long ago and appended by nobody; how many went.

    First the floor is raised past them. From then on nobody can append them any more, so that
    what the state does not refer to after that, it never will.
    """
    floor = machine.clock.now_ms() - older_than_ms
    if not by_age(leaked(machine, blob), floor).old:
        return 0
    machine.apply("raise_floor", lambda state: commands.raise_floor(state, floor))
    old = by_age(leaked(machine, blob), floor).old
    for key in old:
        blob.delete(key)
    return len(old)


def leaked(machine: Machine, blob: Blob) -> dict[str, int]:
    """Keys and sizes of the blobs that the state does not refer to.

    The list is made first: a part that is appended meanwhile must not look like a leak. A young
    one may just be about to be appended.
    """
    stored = list(blob.list(f"{machine.shard_id}/"))
    known = machine.refresh().keys
    return {key: size for key, size in stored if key not in known}
