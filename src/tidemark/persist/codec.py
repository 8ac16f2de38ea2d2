"""How a shard's versions are written down (docs/format.md has the specification).

Every commit adds one *version* to the shard's log in Consensus. Most hold only what changed; each
`rollup_every`-th holds the whole state, after which the log before it is dropped. So a commit
costs what it changes, and opening a shard costs one read of a short log:

    seqno   256     257     258     259
          rollup   diff    diff    diff       state = rollup + diffs

A version is the msgpack array [format, name of the command, kind of body, body, checksum], its
body a diff or a state.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tidemark.errors import Corruption, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist.consensus import Versioned
from tidemark.persist.state import Batch, Hold, Lead, Retired, State, WriterState

FORMAT = 3
T = TypeVar("T")


class Splice(msgspec.Struct, frozen=True, array_like=True):
    """The batches from `start` on, `removed` of them, give way to `added`."""

    start: int
    removed: int
    added: tuple[Batch, ...]


class Diff(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one commit changed; a missing field did not change."""

    seqno: int
    at_ms: int
    since: Frontier | UnsetType = UNSET
    upper: Frontier | UnsetType = UNSET
    schemas: tuple[bytes, ...] = ()
    key: tuple[str, ...] | UnsetType = UNSET
    batches: Splice | UnsetType = UNSET
    holds: dict[str, Hold | None] = {}
    writers: dict[str, WriterState | None] = {}
    retired: tuple[Retired, ...] = ()
    forgotten: tuple[str, ...] = ()
    floor: int | UnsetType = UNSET
    rendition: int | UnsetType = UNSET
    follows: str | UnsetType = UNSET
    lead: Lead | UnsetType = UNSET


class Version(NamedTuple):
    seqno: int
    command: str
    body: State | Diff


class _Numbered(msgspec.Struct, array_like=True):
    """Of a version in any format, the first field: the number of the format."""

    format: int


# Made here, once: a decoder that is first made by several threads at a time is not safe to make.
_NUMBERED = msgspec.msgpack.Decoder(_Numbered)
_ENVELOPE = msgspec.msgpack.Decoder(tuple[int, str, str, msgspec.Raw, int])
_STATE = msgspec.msgpack.Decoder(State)
_DIFF = msgspec.msgpack.Decoder(Diff)

RESTORING = "restoring"
"""The kind of a version that only says that a backup's state will come after it."""

RESTORE = "the shard cannot be opened; restore its log in Consensus from a backup"


def encode(old: State, new: State, command: str, *, rollup: bool) -> bytes:
    body = msgspec.msgpack.encode(new if rollup else diff(old, new))
    kind = "rollup" if rollup else "diff"
    checksum = _checksum(command, kind, body)
    return msgspec.msgpack.encode((FORMAT, command, kind, msgspec.Raw(body), checksum))


def encode_restoring(backup: str) -> bytes:
    """A first version that keeps everyone out until a restore of `backup` is done."""
    body = msgspec.msgpack.encode(backup)
    checksum = _checksum(RESTORING, RESTORING, body)
    return msgspec.msgpack.encode((FORMAT, RESTORING, RESTORING, msgspec.Raw(body), checksum))


def decode(shard_id: str, versioned: Versioned) -> Version:
    name = f"version {versioned.seqno} of shard {shard_id}"
    if not isinstance(versioned.data, bytes):
        kind = type(versioned.data).__name__
        raise Corruption(f"{name} cannot be read: it is of type {kind}, not bytes", hint=RESTORE)
    try:
        format_ = _NUMBERED.decode(versioned.data).format
        if format_ != FORMAT:
            raise _other_format(name, format_)
        _, command, kind, body, checksum = _ENVELOPE.decode(versioned.data)
        if _checksum(command, kind, body) != checksum:
            raise Corruption(f"{name} is damaged: its checksum does not fit", hint=RESTORE)
        if kind == RESTORING:
            raise Unavailable(
                f"shard {shard_id} is being restored from a backup, or that was broken off",
                hint="wait for `tidemark restore`, or run it again: it goes on where it ended",
            )
        found = _STATE.decode(body) if kind == "rollup" else _DIFF.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corruption(f"{name} cannot be read: {error}", hint=RESTORE) from error
    if found.seqno != versioned.seqno:
        raise Corruption(f"{name} says that it is version {found.seqno}", hint=RESTORE)
    return Version(versioned.seqno, command, found)


def _checksum(command: str, kind: str, body: bytes | msgspec.Raw) -> int:
    return zlib.crc32(body, zlib.crc32(f"{command} {kind} ".encode()))


def _other_format(name: str, format_: int) -> Corruption:
    if format_ > FORMAT:
        return Corruption(
            f"{name} was written in format {format_}, this program knows up to {FORMAT}",
            hint="upgrade Tidemark; nothing was changed",
        )
    return Corruption(
        f"{name} was written in format {format_} of a pre-release, this program begins at {FORMAT}",
        hint="read it with the program that wrote it; nothing was changed",
    )


def replay(state: State, versions: Iterable[Version]) -> State:
    """The state after `versions`, which follow it or begin with a whole state of their own."""
    for version in versions:
        if isinstance(version.body, State):
            state = version.body
        elif version.seqno == state.seqno + 1:
            state = patch(state, version.body)
        else:
            raise Corruption(
                f"shard {state.shard_id}: version {version.seqno} follows {state.seqno}; "
                "the ones in between are missing",
                hint=RESTORE,
            )
    return state


def diff(old: State, new: State) -> Diff:
    retired, forgotten = _retirements(old, new)
    return Diff(
        seqno=new.seqno,
        at_ms=new.at_ms,
        since=_changed(old.since, new.since),
        upper=_changed(old.upper, new.upper),
        schemas=new.schemas[len(old.schemas) :],
        key=_changed(old.key, new.key),
        batches=_splice(old, new),
        holds=_changes(old.holds, new.holds),
        writers=_changes(old.writers, new.writers),
        retired=retired,
        forgotten=forgotten,
        floor=_changed(old.floor, new.floor),
        rendition=_changed(old.rendition, new.rendition),
        follows=_changed(old.follows, new.follows),
        lead=UNSET if new.lead is None or new.lead == old.lead else new.lead,
    )


def patch(state: State, diff: Diff) -> State:
    upper = _or(diff.upper, state.upper)
    batches = state.batches
    if not isinstance(diff.batches, UnsetType):
        start, end = diff.batches.start, diff.batches.start + diff.batches.removed
        batches = batches[:start] + diff.batches.added + batches[end:]
    if batches and batches[-1].upper != upper:
        batches = (*batches[:-1], replace(batches[-1], upper=upper))
    retired = state.retired
    if diff.forgotten:
        forgotten = set(diff.forgotten)
        retired = tuple(r for r in retired if r.key not in forgotten)
    return replace(
        state,
        seqno=diff.seqno,
        at_ms=diff.at_ms,
        since=_or(diff.since, state.since),
        upper=upper,
        schemas=state.schemas + diff.schemas,
        key=_or(diff.key, state.key),
        batches=batches,
        holds=_merged(state.holds, diff.holds),
        writers=_merged(state.writers, diff.writers),
        retired=retired + diff.retired,
        floor=_or(diff.floor, state.floor),
        rendition=_or(diff.rendition, state.rendition),
        follows=_or(diff.follows, state.follows),
        lead=_or(diff.lead, state.lead),
    )


def _retirements(old: State, new: State) -> tuple[tuple[Retired, ...], tuple[str, ...]]:
    if old.retired is new.retired:
        return (), ()
    before, after = ({r.key for r in state.retired} for state in (old, new))
    added = tuple(retired for retired in new.retired if retired.key not in before)
    return added, tuple(sorted(before - after))


def _splice(old: State, new: State) -> Splice | UnsetType:
    """What became of the batches. The last one ends at the shard's upper by definition (S1), so
    that progress alone, which stretches it, need not repeat what it holds."""
    before, after = old.batches, new.batches
    start = 0
    while start < min(len(before), len(after)) and _same(before, after, start, start):
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start and _same(
        before, after, len(before) - 1 - tail, len(after) - 1 - tail
    ):
        tail += 1
    if start == len(before) == len(after):
        return UNSET
    return Splice(start, len(before) - start - tail, after[start : len(after) - tail])


def _same(before: tuple[Batch, ...], after: tuple[Batch, ...], at: int, to: int) -> bool:
    old, new = before[at], after[to]
    if old is new:
        return True
    if to == len(after) - 1 and at == len(before) - 1:
        old = replace(old, upper=new.upper)
    return old == new


def _changed(old: T, new: T) -> T | UnsetType:
    return UNSET if old == new else new


def _or(value: T | UnsetType, otherwise: T) -> T:
    return otherwise if isinstance(value, UnsetType) else value


def _changes(old: Mapping[str, T], new: Mapping[str, T]) -> dict[str, T | None]:
    if old is new:
        return {}
    changed: dict[str, T | None] = {k: v for k, v in new.items() if old.get(k) != v}
    return changed | {k: None for k in old if k not in new}


def _merged(old: dict[str, T], changes: Mapping[str, T | None]) -> dict[str, T]:
    if not changes:
        return old
    merged = {k: v for k, v in old.items() if changes.get(k, v) is not None}
    return merged | {k: v for k, v in changes.items() if v is not None}
