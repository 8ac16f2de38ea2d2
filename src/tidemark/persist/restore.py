"""A backup brought back, into stores of any kind that hold nothing yet.

    R1  the manifest and all states are read and checked; nothing has been changed until here
    R2  every shard, `first` the first, gets a version 0 that only says that it is being restored
    R3  the parts are copied, each held against its checksum
    R4  every shard gets its state as version 1, `first` the last, and loses its version 0

From R2 to R4 nobody can open a shard that is not done, so nothing begins to work on half a region;
whoever is killed in between runs it again, and it goes on. A server opens its catalog before
anything else: that is what `first` is for.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from tidemark.errors import Corruption, InvalidUsage
from tidemark.persist.backup import (
    FILES,
    FORMAT,
    MANIFEST,
    PARTS,
    SEQNO,
    STATES,
    Files,
    Kept,
    Manifest,
    Progress,
    digest,
    encode_whole,
    side_by_side,
)
from tidemark.persist.blob import Blob
from tidemark.persist.codec import decode, encode_restoring
from tidemark.persist.consensus import Consensus, Versioned
from tidemark.persist.names import check_shard_id
from tidemark.persist.state import State, check

ANOTHER = "use another backup; this one is damaged, and nothing tells what was there"


class Backup(NamedTuple):
    """What was read of a backup and found to be whole, but for its parts."""

    manifest: Manifest
    states: dict[str, State]
    files: Files

    @property
    def parts(self) -> list[Kept]:
        return [kept for kept in self.manifest.blobs if kept.key.startswith(PARTS)]


def read_backup(source: Blob) -> Backup:
    """Everything of a backup but its parts, of which only names and sizes are looked at (R1)."""
    manifest = _manifest(source)
    there = dict(source.list())
    states, files = {}, {}
    for kept in manifest.blobs:
        if there.get(kept.key) != kept.size:
            found = f"has {there[kept.key]} bytes" if kept.key in there else "is missing"
            raise Corruption(f"{kept.key} of the backup {found}, not {kept.size}", hint=ANOTHER)
        if kept.key.startswith(STATES):
            shard_id = check_shard_id(kept.key.removeprefix(STATES))
            states[shard_id] = _state(shard_id, fetch(source, kept))
        elif kept.key.startswith(FILES):
            files[kept.key.removeprefix(FILES)] = fetch(source, kept)
    backup = Backup(manifest, states, files)
    kept = {each.key.removeprefix(PARTS) for each in backup.parts}
    missing = {p.key for s in states.values() for p in s.parts if p.key is not None} - kept
    if missing or set(states) != {shard.id for shard in manifest.shards}:
        raise Corruption("the backup's manifest and its states do not fit together", hint=ANOTHER)
    return backup


def check_parts(backup: Backup, source: Blob, *, progress: Progress) -> None:
    """Read all parts and hold them against their checksums."""

    def read(kept: Kept) -> Kept:
        fetch(source, kept)
        return kept

    side_by_side(backup.parts, lambda kept: kept.size, read, progress)


def check_place(backup: Backup, blob: Blob, consensus: Consensus) -> None:
    """Raise unless the stores are empty, or a restore of this backup was broken off there."""
    mark = _mark(backup)
    shards = consensus.keys()
    if any(consensus.scan(shard_id, 0, 1) == [mark] for shard_id in shards):
        return  # Broken off before; goes on.
    if shards:
        raise InvalidUsage(
            f"there are {len(shards)} shards there already: {', '.join(shards[:3])}",
            hint="restore to a new folder, an empty bucket or prefix, a new schema",
        )
    stray = next(blob.list(), None)
    if stray is not None:
        raise InvalidUsage(
            f"there is something in Blob already: {stray[0]}",
            hint="restore to a new folder, or an empty bucket or prefix",
        )


def restore(
    backup: Backup,
    source: Blob,
    blob: Blob,
    consensus: Consensus,
    *,
    first: str,
    progress: Progress = lambda done, total, what: None,
) -> None:
    """Make the stores hold what the backup does; they are empty, or a restore of the same backup
    was broken off there."""
    check_place(backup, blob, consensus)
    mark = _mark(backup)
    order = sorted(backup.states, key=lambda shard_id: (shard_id != first, shard_id))
    for shard_id in order:
        if not consensus.compare_and_set(shard_id, mark) and not _is_begun(
            consensus, shard_id, mark
        ):
            raise InvalidUsage(
                f"somebody else has begun to write shard {shard_id} here",
                hint="restore to a place that nothing else uses",
            )
    there = dict(blob.list())

    def copy(kept: Kept) -> Kept:
        key = kept.key.removeprefix(PARTS)
        if there.get(key) != kept.size or digest(blob.get(key) or b"") != kept.sha256:
            blob.set(key, fetch(source, kept))
        return kept

    side_by_side(backup.parts, lambda kept: kept.size, copy, progress)
    for shard_id in reversed(order):
        # It is another shard from now on, which caches must not take for the one it was.
        state = replace(backup.states[shard_id], born=uuid4().int >> 65)
        consensus.compare_and_set(shard_id, Versioned(SEQNO, encode_whole(state)))
        consensus.truncate(shard_id, SEQNO)


def fetch(source: Blob, kept: Kept) -> bytes:
    data = source.get(kept.key)
    if data is None or digest(data) != kept.sha256:
        what = "is missing" if data is None else "is not what was written: its checksum differs"
        raise Corruption(f"{kept.key} of the backup {what}", hint=ANOTHER)
    return data


def _manifest(source: Blob) -> Manifest:
    data = source.get(MANIFEST)
    if data is None:
        begun = any(True for _ in source.list(PARTS)) or any(True for _ in source.list(STATES))
        if begun:
            raise InvalidUsage(
                "the backup there was never finished: it has no manifest",
                hint="run `tidemark backup` to the same place again, or use another backup",
            )
        raise InvalidUsage("there is no backup there", hint="name what `backup --to` was given")
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Corruption(f"the backup's manifest cannot be read: {error}", hint=ANOTHER) from error
    if manifest.format > FORMAT:
        raise InvalidUsage(
            f"the backup is of format {manifest.format}, this program knows up to {FORMAT}",
            hint="restore it with the Tidemark that made it, or a newer one",
        )
    if manifest.named() != manifest:
        raise Corruption("the backup's manifest is damaged: its checksum differs", hint=ANOTHER)
    return manifest


def _state(shard_id: str, data: bytes) -> State:
    body = decode(shard_id, Versioned(SEQNO, data)).body
    if not isinstance(body, State) or body.shard_id != shard_id:
        raise Corruption(f"the backup's state of shard {shard_id} is of something else")
    return check(body)


def _mark(backup: Backup) -> Versioned:
    return Versioned(0, encode_restoring(backup.manifest.sha256))


def _is_begun(consensus: Consensus, shard_id: str, mark: Versioned) -> bool:
    """Whether a restore before this one has marked it, or has even given it its state."""
    found = consensus.scan(shard_id, 0, 1)[0]
    return found == mark or found.seqno == SEQNO
