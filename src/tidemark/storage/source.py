"""An ingestion: brings what comes from outside into shards, definitely and exactly once.

    STAGES   mint     bind how far the upstream is now to a time, in the remap shard
             write    stage what lies between two bindings, at the times that it is bound to
             append   append it to each shard, with one compare-and-append

Invariants:
    G1  no update is written whose time is not bound durably before
    G2  an update's time depends on its offset and the bindings alone, so a restart (or a second
        ingestion of the same source, racing this one) writes the very same updates
    G3  a shard's upper never passes the remap shard's
    G4  what is staged and not appended is deleted by who staged it

So after a crash at any point the ingestion takes each shard's upper, looks up the bindings from
there on, and goes on. Where two race, one append wins; the other is told `UpperMismatch`, deletes
what it staged, and goes on from where the shard is now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.clock import Clock
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, UpperMismatch, WriteHandle
from tidemark.persist.holds import SinceHandle
from tidemark.persist.staging import Staged
from tidemark.persist.updates import DIFF, ERR
from tidemark.storage.remap import Binding, Offsets, Remap

MOST_BINDINGS = 32
"""Of how many timestamps updates are written at a time."""


class Output(NamedTuple):
    """A collection that a source writes: the columns of its rows, and its key."""

    schema: pa.Schema
    key: tuple[str, ...]


class Stretch(NamedTuple):
    """What is to be written: from `start` to the last of `bindings`, at times in [lower, upper)."""

    start: Offsets
    bindings: Sequence[Binding]
    lower: Frontier
    upper: Frontier

    @property
    def stop(self) -> Offsets:
        return self.bindings[-1].offsets if self.bindings else self.start


class Counts(NamedTuple):
    """How many rows come and go, and how many errors."""

    inserts: int = 0
    retractions: int = 0
    error_inserts: int = 0
    error_retractions: int = 0

    @staticmethod
    def of(updates: pa.Table) -> Counts:
        diffs, bad = updates[DIFF], pc.is_valid(updates[ERR])
        come, go = pc.greater(diffs, 0), pc.less(diffs, 0)
        kinds = [(come, pc.invert(bad)), (go, pc.invert(bad)), (come, bad), (go, bad)]
        sums = [pc.sum(diffs.filter(pc.and_(*kind)), min_count=0).as_py() for kind in kinds]
        return Counts(*map(abs, sums))

    @staticmethod
    def sum(counts: Iterable[Counts]) -> Counts:
        return Counts(*map(sum, zip(Counts(), *counts, strict=True)))


class Batch(NamedTuple):
    """Updates that are staged, or few enough to be held."""

    updates: Staged | pa.Table
    counts: Counts

    @property
    def rows(self) -> int:
        updates = self.updates
        return updates.rows if isinstance(updates, Staged) else updates.num_rows


class Written(NamedTuple):
    """What is not appended yet."""

    stretch: Stretch
    batches: Mapping[str, Batch]


class Statistics(msgspec.Struct):
    """What a source has done since it was started, and how far it is."""

    messages_received: int = 0
    bytes_received: int = 0
    updates_staged: int = 0
    updates_committed: int = 0
    inserts: int = 0
    retractions: int = 0
    error_inserts: int = 0
    error_retractions: int = 0
    batches: int = 0
    mismatches: int = 0
    snapshot_committed: bool = False
    offset_known: int = 0
    offset_committed: int = 0
    rehydration_ms: int | None = None
    started_ms: int = 0

    def after(self, earlier: Statistics) -> Statistics:
        """These and what was done before the last start."""
        counters = {name: getattr(self, name) + getattr(earlier, name) for name in COUNTERS}
        return msgspec.structs.replace(self, **counters)


class SinkStatistics(msgspec.Struct, frozen=True):
    """What a sink has sent since it was started; what is staged counts when it is committed."""

    messages_staged: int = 0
    messages_committed: int = 0
    bytes_staged: int = 0
    bytes_committed: int = 0

    def staged(self, messages: int, size: int) -> SinkStatistics:
        return msgspec.structs.replace(
            self,
            messages_staged=self.messages_staged + messages,
            bytes_staged=self.bytes_staged + size,
        )

    @property
    def committed(self) -> SinkStatistics:
        """All that is staged is."""
        return msgspec.structs.replace(
            self, messages_committed=self.messages_staged, bytes_committed=self.bytes_staged
        )

    def after(self, earlier: SinkStatistics) -> SinkStatistics:
        """These and what was done before; of that, what was not committed was for nothing."""
        return SinkStatistics(
            self.messages_staged + earlier.messages_committed,
            self.messages_committed + earlier.messages_committed,
            self.bytes_staged + earlier.bytes_committed,
            self.bytes_committed + earlier.bytes_committed,
        )


COUNTERS = Statistics.__struct_fields__[: Statistics.__struct_fields__.index("snapshot_committed")]


class Upstream(Protocol):
    """Where data comes from: something with partitions, and offsets that only grow."""

    @property
    def outputs(self) -> Mapping[str, Output]: ...

    def probe(self, bound: Offsets, since: int, now: int) -> Offsets:
        """How far it is at `now`, a time of the clock; `bound` is how far it was at `since`."""
        ...

    def write(
        self, stretch: Stretch, writers: Mapping[str, WriteHandle], statistics: Statistics
    ) -> Mapping[str, Batch]:
        """The updates of a stretch."""
        ...

    def close(self) -> None: ...


class Ingestion:
    """Runs one upstream into `shards` (by the names of its outputs)."""

    def __init__(
        self,
        id_: str,
        upstream: Upstream,
        *,
        client: PersistClient,
        remap: str,
        shards: Mapping[str, str],
        interval_ms: int,
        clock: Clock | None = None,
    ):
        self.id = id_
        self.interval_ms = interval_ms
        self.statistics = Statistics(started_ms=(clock or client.clock).now_ms())
        self._upstream = upstream
        self._remap = Remap(client, remap)
        self._clock = clock or client.clock
        self._writers = {
            name: client.open_writer(shards[name], schema=output.schema, key=output.key)
            for name, output in upstream.outputs.items()
        }
        # Before anything is bound: a binding that is compacted before it is written is lost.
        self._hold = held_from_the_beginning(client, remap, id_)
        self._began = self._clock.monotonic()

    def next_mint_ms(self) -> int:
        """When, by the clock, the next binding is due."""
        upper = self._remap.upper.time or 0
        now = self._clock.now_ms()
        due = now - now % self.interval_ms
        return due if due >= upper else due + self.interval_ms

    def step(self) -> Frontier:
        """Write and append what is bound, then mint a binding if one is due, and write that, too.

        What a crash left bound and unwritten is little; what has come since may be much, and comes
        second, so that the collection goes on soon.
        """
        self.finish()
        upper = self.mint()
        self.finish()
        return upper

    def finish(self) -> None:
        """Write and append all that is bound."""
        upper = self._remap.upper
        while (written := self.write(upper)) and self.append(written):
            pass

    def committed(self) -> Offsets:
        """How far the upstream is in the shards."""
        return self._remap.offsets_at((self._lower().time or 0) - 1)

    def close(self) -> None:
        self._upstream.close()

    # The stages.

    def mint(self) -> Frontier:
        """Bind how far the upstream is now, if it is time to; returns how far time is decided."""
        upper = self._remap.upper
        now = self._clock.now_ms()
        time = now - now % self.interval_ms
        if upper.time is None or time < upper.time:
            return upper
        bound = self._remap.offsets_at(upper.time - 1)
        offsets = self._upstream.probe(bound, upper.time - 1, time)
        self.statistics.offset_known = sum(offsets.values())
        minted = self._remap.mint(time, offsets)
        # The first binding is at the minimum time, whatever the clock says; now for the clock's.
        return minted if upper.time else self.mint()

    def write(self, upper: Frontier) -> Written | None:
        """Stage what is bound before `upper` and not there yet, or the first of it."""
        lower = self._lower()
        if not lower < upper:
            return None
        try:
            stretch = self._stretch(lower, upper)
            batches = self._upstream.write(stretch, self._writers, self.statistics)
        except AsOfBeforeSince:
            if lower < self._lower():
                return None  # Another ingestion has gone on, and let go of that time.
            raise
        self.statistics.updates_staged += sum(batch.rows for batch in batches.values())
        return Written(stretch, batches)

    def append(self, written: Written) -> bool:
        """Make it part of the shards; False if somebody else was faster."""
        stretch, won = written.stretch, True
        for name, batch in written.batches.items():
            if self._appended(self._writers[name], batch.updates, stretch):
                self._count(batch)
            else:
                won = False
        if won:
            self._committed(stretch)
        return won

    def _lower(self) -> Frontier:
        return min(writer.fetch_upper() for writer in self._writers.values())

    def _stretch(self, lower: Frontier, upper: Frontier) -> Stretch:
        assert lower.time is not None
        start = self._remap.offsets_at(lower.time - 1)
        bindings = self._remap.bindings(lower, upper)
        if len(bindings) > MOST_BINDINGS:
            upper = Frontier(bindings[MOST_BINDINGS].time)
            bindings = bindings[:MOST_BINDINGS]
        return Stretch(start, bindings, lower, upper)

    def _appended(self, writer: WriteHandle, updates: Staged | pa.Table, stretch: Stretch) -> bool:
        if isinstance(updates, pa.Table):
            # Whoever else wrote some of this wrote the same (G2): what is there is cut off.
            outcome = writer.append(updates, lower=stretch.lower, upper=stretch.upper)
        else:
            outcome = writer.compare_and_append(updates, lower=stretch.lower, upper=stretch.upper)
        if not isinstance(outcome, UpperMismatch):
            return True
        self.statistics.mismatches += 1
        if isinstance(updates, Staged):
            writer.discard(updates)
        return False

    def _count(self, batch: Batch) -> None:
        statistics, counts = self.statistics, batch.counts
        statistics.updates_committed += batch.rows
        statistics.inserts += counts.inserts
        statistics.retractions += counts.retractions
        statistics.error_inserts += counts.error_inserts
        statistics.error_retractions += counts.error_retractions

    def _committed(self, stretch: Stretch) -> None:
        statistics = self.statistics
        statistics.batches += 1
        statistics.snapshot_committed = True
        statistics.offset_committed = sum(stretch.stop.values())
        if statistics.rehydration_ms is None:
            statistics.rehydration_ms = int(1_000 * (self._clock.monotonic() - self._began))
        assert stretch.lower.time is not None
        if stretch.lower.time:
            self._hold.downgrade(Frontier(stretch.lower.time - 1))


def held_from_the_beginning(client: PersistClient, shard_id: str, id_: str) -> SinceHandle:
    """The hold of ingestion `id_`: nothing is let go that it did not let go of."""
    hold = client.open_critical_since(shard_id, f"ingestion-{id_}")
    if hold.since is None:
        hold.downgrade(Frontier.MIN)
    return hold
