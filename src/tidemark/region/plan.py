"""Reads cut into pieces of work that other processes do: what, and of which parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tidemark.errors import InvalidUsage, Unavailable
from tidemark.persist import DIFF, Lease, PersistClient, filters
from tidemark.persist.config import MIB
from tidemark.persist.filters import Predicate
from tidemark.persist.location import Address
from tidemark.persist.part import read_part
from tidemark.persist.ranges import EVERYTHING, Range, cut, overlapping
from tidemark.persist.runs import is_ordered, memory_of, schema_of, split_runs, stream_runs
from tidemark.persist.state import Part, Run, State
from tidemark.persist.updates import between, split_errors
from tidemark.region.options import CONFIG

READ_BYTES = 64 * MIB
"""About how much memory a piece is of."""


class Piece(msgspec.Struct, frozen=True):
    """What one task reads. It shares the lease on its parts with whoever planned it."""

    address: Address
    shape: State
    """The shard's name, schemas and key."""
    runs: tuple[Run, ...]
    lease: bytes
    lower: int = 0
    upper: int = 0
    """Times from `lower` on, before `upper`."""
    snapshot: bool = True
    """Summed up at the last of these times, or as the updates are."""
    within: Range = EVERYTHING
    pruned: bool = False
    """Parts were left out, so of rows that nobody asked for, some updates may be missing."""

    def read(self) -> Iterator[pa.Table]:
        """Good updates in pieces that fit into memory. Who planned this has looked for errors."""
        client = _client(self.address)
        lease = self._leased(client)
        try:
            for table in self._read(client):
                lease.check()
                good, _ = split_errors(table)
                if good.num_rows:
                    yield good
        finally:
            lease.detach()

    def _leased(self, client: PersistClient) -> Lease:
        """The lease of whoever planned this; if it has ended, a new one, should it come in time."""
        reader = client.open_reader(self.shape.shard_id)
        try:
            return reader.adopt(self.lease)
        except Unavailable as error:
            lease = reader.lease(self.upper - 1 if self.snapshot else self.lower - 1)
            live = {part.key for part in lease.state.parts}
            if live.issuperset(part.key for run in self.runs for part in run):
                return lease
            lease.release()
            raise Unavailable(
                f"this read of shard {self.shape.shard_id} was planned too long ago, and its parts "
                "have been merged",
                hint="load the frame again",
            ) from error

    def _read(self, client: PersistClient) -> Iterator[pa.Table]:
        if self.snapshot:
            yield from stream_runs(
                client.blob,
                self.shape,
                list(self.runs),
                horizon=self.upper - 1,
                until=self.upper,
                config=client.config,
                within=self.within,
            )
            return
        schema = schema_of(self.shape)
        for part in (part for run in self.runs for part in run):
            yield between(read_part(client.blob, part, schema), self.lower, self.upper)


@lru_cache(maxsize=4)
def _client(address: Address) -> PersistClient:
    """One per worker process and region; it lives as long as the process does."""
    return PersistClient.open(blob=address.blob, consensus=address.consensus, config=CONFIG)


def plan_snapshot(
    client: PersistClient,
    lease: Lease,
    as_of: int,
    clauses: list[list[Predicate]] | None = None,
) -> list[Piece]:
    """The collection at `as_of` in ranges of positions, without parts that no row of is wanted."""
    state = lease.state
    runs = [
        kept
        for run in split_runs(state.batches)
        if (kept := tuple(p for p in run if p.min_time <= as_of and _matches(p, clauses, state)))
    ]
    positioned = [run for run in runs if is_ordered(run)]
    size = sum(map(memory_of, runs))
    count = max(size // READ_BYTES, 1)
    ranges = cut(positioned, count, key=state.key) if positioned else [EVERYTHING]
    assert client.address is not None
    whole = Piece(client.address, _shape(state), (), lease.name, 0, as_of + 1)
    whole = replace(whole, pruned=clauses is not None)
    return [
        replace(whole, within=within, runs=tuple(f for r in runs if (f := overlapping(r, within))))
        for within in ranges
    ]


def plan_changes(client: PersistClient, lease: Lease, lower: int, upper: int) -> list[Piece]:
    """The updates in [lower, upper), some parts at a time."""
    state = lease.state
    parts = [p for p in state.parts if p.max_time >= lower and p.min_time < upper]
    assert client.address is not None
    whole = Piece(client.address, _shape(state), (), lease.name, lower, upper, snapshot=False)
    return [replace(whole, runs=tuple((p,) for p in group)) for group in _groups(parts)]


def _shape(state: State) -> State:
    return State(state.shard_id, schemas=state.schemas, key=state.key)


def _matches(part: Part, clauses: list[list[Predicate]] | None, state: State) -> bool:
    return clauses is None or filters.may_match(part, clauses, schema_of(state))


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    group: list[Part] = []
    for part in parts:
        if group and sum(p.memory for p in group) + part.memory > READ_BYTES:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def repeated(table: pa.Table, *, pruned: bool) -> pa.Table:
    """Rows as often as they count."""
    copies = table[DIFF].to_numpy()
    if (copies == 1).all():
        return table
    if pruned:
        copies = np.maximum(copies, 0)
    if (copies < 0).any():
        raise InvalidUsage(
            "rows have gone, which rows alone cannot say",
            hint='.option("updates", "true") brings `_diff`, the number that came or went',
        )
    return table.take(pa.array(np.repeat(np.arange(table.num_rows), copies)))
