"""A backup: every shard as all of them were at one moment, in a folder or a bucket of its own.

    manifest.json                 what there is, with sizes and SHA-256; written last
    states/<shard>                its state, as a version of a log that holds it whole
    parts/<shard>/<part>.parquet  every part that a state refers to
    files/<name>                  what the caller wants kept beside (secrets, encrypted)

A region is backed up while it works, and what is kept is what a crash at that moment would have
left, which everything above persist knows how to go on from (decision 23). In order:

    B1  a lease on every shard: the parts of its state, and all that come later, stay in place
    B2  all logs in one snapshot of Consensus; a shard that is new since B1 has no lease: again
    B3  the parts that these states refer to are copied, then the states, then the manifest

Without its manifest a backup is none, and the next attempt takes from it what it can use. Whoever
is killed leaves leases that end by themselves.

A state is kept without what belongs to the processes and stores of the original: its number in
their log, leases, and parts that were already replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tidemark.errors import AsOfBeforeSince, Corruption, InvalidUsage, Unavailable
from tidemark.persist.blob import Blob
from tidemark.persist.client import PersistClient
from tidemark.persist.codec import decode, encode, replay
from tidemark.persist.consensus import Versioned
from tidemark.persist.holds import Lease
from tidemark.persist.state import State, check

T = TypeVar("T")

FORMAT = 1
MANIFEST = "manifest.json"
STATES, PARTS, FILES = "states/", "parts/", "files/"
SEQNO = 1
"""The version that every state is kept as: where it is restored, another comes before it."""

AT_ONCE = 4
"""Parts that are copied at one time, each of them in memory."""

Progress = Callable[[int, int, str], None]
"""Called with the bytes done, the bytes there are, and what comes next."""

Files = Mapping[str, bytes]


class Kept(msgspec.Struct, frozen=True):
    """A blob of the backup."""

    key: str
    size: int
    sha256: str


class Shard(msgspec.Struct, frozen=True):
    """For people: what the state says."""

    id: str
    since: int | None
    upper: int | None
    updates: int
    parts: int


class Manifest(msgspec.Struct, frozen=True):
    """What a backup consists of. `sha256` is of the manifest itself, written without it, and is
    the backup's name."""

    taken_ms: int
    shards: tuple[Shard, ...]
    blobs: tuple[Kept, ...]
    format: int = FORMAT
    sha256: str = ""

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self.blobs)

    def named(self) -> Manifest:
        return replace(self, sha256=digest(msgspec.json.encode(replace(self, sha256=""))))


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def back_up(
    client: PersistClient,
    target: Blob,
    *,
    files: Callable[[], Files] = dict,
    progress: Progress = lambda done, total, what: None,
) -> Manifest:
    """Copy the whole region to `target`, which is empty or an unfinished backup."""
    there = _unfinished(target)
    # Looked at before and after the moment, as one may be dropped just then.
    beside = dict(files())
    with _captured(client) as (taken_ms, states, check_leases):
        beside |= files()
        blobs = _copied(client.blob, target, states, there, progress)
        for state in states:
            name, data = STATES + state.shard_id, encode_whole(state)
            blobs.append(_set(target, name, data))
        blobs.extend(_set(target, FILES + name, data) for name, data in beside.items())
        for name in there.keys() - {kept.key for kept in blobs}:
            target.delete(name)
        check_leases()
    manifest = Manifest(
        taken_ms,
        tuple(_described(state) for state in states),
        tuple(sorted(blobs, key=lambda kept: kept.key)),
    ).named()
    target.set(MANIFEST, msgspec.json.encode(manifest))
    return manifest


def encode_whole(state: State) -> bytes:
    """The state as a version that needs none before it."""
    return encode(State(state.shard_id), state, "restore", rollup=True)


def side_by_side(
    items: Iterable[T], size: Callable[[T], int], act: Callable[[T], Kept], progress: Progress
) -> list[Kept]:
    """`act` on each, several at a time, the first error ending it; tells how far it has come."""
    waiting = list(items)
    total, done, results = sum(map(size, waiting)), 0, []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for kept in pool.map(act, waiting):
                done += kept.size
                progress(done, total, kept.key)
                results.append(kept)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results


def _unfinished(target: Blob) -> dict[str, int]:
    """What an attempt before has left in `target`, with sizes."""
    there = dict(target.list())
    if MANIFEST in there:
        raise InvalidUsage(
            "there is a backup there already", hint="name another place; a backup is never changed"
        )
    foreign = [key for key in there if not key.startswith((STATES, PARTS, FILES))]
    if foreign:
        raise InvalidUsage(
            f"there is something else there: {', '.join(foreign[:3])}",
            hint="name a new or an empty place",
        )
    return there


@contextmanager
def _captured(
    client: PersistClient,
) -> Iterator[tuple[int, list[State], Callable[[], None]]]:
    """The moment, the states at it, and what to call to know that their parts were all pinned."""
    leases: dict[str, Lease | None] = {}
    try:
        while True:
            for shard_id in client.consensus.keys():  # noqa: SIM118
                if shard_id not in leases:
                    leases[shard_id] = _leased(client, shard_id)
            taken_ms = client.clock.now_ms()
            states = [_bare(shard_id, log) for shard_id, log in client.consensus.capture().items()]
            if all(state.shard_id in leases for state in states):
                break

        def check_leases() -> None:
            for lease in leases.values():
                if lease is not None:
                    lease.check()

        yield taken_ms, states, check_leases
    finally:
        for lease in leases.values():
            if lease is not None:
                lease.release()


def _leased(client: PersistClient, shard_id: str) -> Lease | None:
    try:
        return client.open_reader(shard_id).lease()
    except AsOfBeforeSince:
        return None  # It was dropped, and has no parts.


def _bare(shard_id: str, log: list[Versioned]) -> State:
    state = replay(State(shard_id), [decode(shard_id, version) for version in log])
    holds = {name: hold for name, hold in state.holds.items() if hold.expires_ms is None}
    return check(replace(state, seqno=SEQNO, holds=holds, retired=()))


def _copied(
    source: Blob,
    target: Blob,
    states: list[State],
    there: dict[str, int],
    progress: Progress,
) -> list[Kept]:
    sizes = {p.key: p.size for state in states for p in state.parts if p.key is not None}

    def copy(key: str) -> Kept:
        data = source.get(key)
        if data is None:
            raise Unavailable(
                f"part {key} is gone from Blob",
                hint="run `tidemark shard fsck --all`; if that is clean, try again",
            )
        if len(data) != sizes[key]:
            raise Corruption(
                f"part {key} has {len(data)} bytes instead of {sizes[key]}",
                hint="run `tidemark shard fsck --all`",
            )
        name, sha256 = PARTS + key, digest(data)
        if there.get(name) == len(data) and digest(target.get(name) or b"") == sha256:
            return Kept(name, len(data), sha256)
        return _set(target, name, data)

    return side_by_side(sorted(sizes), lambda key: sizes[key], copy, progress)


def _set(target: Blob, name: str, data: bytes) -> Kept:
    target.set(name, data)
    return Kept(name, len(data), digest(data))


def _described(state: State) -> Shard:
    parts = sum(part.key is not None for part in state.parts)
    return Shard(state.shard_id, state.since.time, state.upper.time, state.rows, parts)
