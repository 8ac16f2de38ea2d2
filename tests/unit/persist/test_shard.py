"""One shard with everything that can happen to it, against a dict of updates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import tidemark.persist.compact as compact_module
import tidemark.persist.machine as machine_module
import tidemark.persist.write as write_module
from tidemark.clock import ManualClock
from tidemark.errors import AsOfBeforeSince, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    FileBlob,
    Lease,
    PersistClient,
    SqliteConsensus,
    UpperMismatch,
)
from tidemark.persist.compact import Merge, collect, compact
from tidemark.persist.part import read_part
from tidemark.persist.read import LEASE_MS
from tidemark.persist.state import Batch, check
from tidemark.persist.updates import updates_schema

SCHEMA = pa.schema([("k", pa.string())])
UPDATES = updates_schema(SCHEMA)
PROCESSES = ("p1", "p2")
processes = st.sampled_from(PROCESSES)

batches = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "ä"]),
        st.integers(0, 3),
        st.sampled_from([-2, -1, 1, 1, 2]),
    ),
    max_size=5,
)


def tabled(updates: list[tuple[str | None, int, int]]) -> pa.Table:
    rows = [(k, time, diff, None) for k, time, diff in updates]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(c, f.type) for c, f in zip(columns, UPDATES, strict=True)]
    return pa.table(arrays, schema=UPDATES)


def summed(updates) -> dict:
    sums: Counter = Counter()
    for *what, diff in updates:
        sums[tuple(what)] += diff
    return {what: diff for what, diff in sums.items() if diff}


def counted(table: pa.Table) -> dict:
    rows = zip(*(table[name].to_pylist() for name in ("k", "_time", "_diff")), strict=True)
    return summed(rows)


class Shard(RuleBasedStateMachine):
    """Two processes (clients) with their own idea of the state share a folder and SQLite."""

    @initialize()
    def begin(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(machine_module, "TRUNCATE_EVERY", 5)
        self.patch.setattr(compact_module, "MAX_SMALL_BATCHES", 3)
        self.folder = TemporaryDirectory()
        self.clock = ManualClock()
        self.clients: dict[str, PersistClient] = {}
        for name in PROCESSES:
            self.restart(name)
        self.history: list[tuple[str | None, int, int]] = []
        self.upper = 0
        self.since = 0
        self.held: int | None = None
        self.leases: list[tuple[Lease, tuple[Batch, ...], int, dict, int]] = []
        self.planned: Merge | None = None

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            self.folder.cleanup()

    @rule(name=processes)
    def restart(self, name):
        """SIGKILL: nothing but the folder is left."""
        folder = Path(self.folder.name)
        self.clients[name] = PersistClient(
            FileBlob(folder / "blob"), SqliteConsensus(folder / "consensus"), clock=self.clock
        )

    def truth(self, as_of: int) -> dict:
        return summed((k, as_of, diff) for k, time, diff in self.history if time <= as_of)

    @rule(
        name=processes,
        batch=batches,
        lag=st.integers(-1, 2),
        more=st.integers(1, 4),
        inline=st.booleans(),
    )
    def write(self, name, batch, lag, more, inline):
        """A compare-and-append that may guess the upper wrong."""
        self.patch.setattr(write_module, "INLINE_BUDGET", 128 * 1024 if inline else 0)
        lower = max(self.upper - lag, 0)
        updates = [(k, lower + time % more, diff) for k, time, diff in batch]
        writer = self.clients[name].open_writer("s", schema=SCHEMA, key=("k",))
        outcome = writer.compare_and_append(
            tabled(updates), lower=Frontier(lower), upper=Frontier(lower + more)
        )
        if lower == self.upper:
            assert outcome == Appended(Frontier(lower + more))
            self.history += updates
            self.upper = lower + more
        else:
            assert outcome == UpperMismatch(Frontier(self.upper))

    @rule(name=processes, batch=batches, back=st.integers(0, 3), more=st.integers(1, 4))
    def append_identical(self, name, batch, back, more):
        """What lies before the upper is cut off; it must not be there twice."""
        lower = max(self.upper - back, 0)
        new = [(k, self.upper + time % more, diff) for k, time, diff in batch]
        known = [update for update in self.history if update[1] >= lower]
        writer = self.clients[name].open_writer("s", schema=SCHEMA, key=("k",))
        upper = Frontier(self.upper + more)
        outcome = writer.append(tabled(known + new), lower=Frontier(lower), upper=upper)
        assert outcome == Appended(upper)
        self.history += new
        self.upper += more

    @rule(name=processes, more=st.integers(0, 5))
    def advance_upper(self, name, more):
        writer = self.clients[name].open_writer("s", schema=SCHEMA, key=("k",))
        assert writer.advance_upper(Frontier(self.upper + more)) == Frontier(self.upper + more)
        self.upper += more

    @rule(name=processes, back=st.integers(0, 12))
    def snapshot(self, name, back):
        as_of = self.upper - 1 - back
        if as_of < 0:
            return
        reader = self.clients[name].open_reader("s")
        if as_of < self.since:
            with pytest.raises(AsOfBeforeSince):
                reader.snapshot(as_of)
        else:
            assert counted(reader.snapshot(as_of)) == self.truth(as_of)

    @rule(name=processes, back=st.integers(0, 12), length=st.integers(0, 12))
    def read_updates(self, name, back, length):
        lower = max(self.upper - back, 0)
        upper = lower + length
        reader = self.clients[name].open_reader("s")
        if upper > self.upper:
            with pytest.raises(InvalidUsage, match="complete to"):
                reader.updates(Frontier(lower), Frontier(upper))
        elif 0 < lower <= self.since:
            with pytest.raises(AsOfBeforeSince):
                reader.updates(Frontier(lower), Frontier(upper))
        elif lower > 0:
            found = counted(reader.updates(Frontier(lower), Frontier(upper)))
            assert found == summed(u for u in self.history if lower <= u[1] < upper)

    @rule(name=processes, back=st.integers(-2, 8))
    def downgrade(self, name, back):
        since = max(self.upper - back, 0)
        self.held = max(since, self.held or 0, self.since)
        assert self.clients[name].open_critical_since("s").downgrade(Frontier(since)) == Frontier(
            self.held
        )
        alive = [as_of for *_, as_of, _, expires in self.leases if expires >= self.clock.now_ms()]
        self.since = max(self.since, min(self.held, *alive, self.held))

    @rule(name=processes, back=st.integers(0, 6))
    def take_lease(self, name, back):
        as_of = self.upper - 1 - back
        if as_of < self.since or len(self.leases) > 3:
            return
        lease = self.clients[name].open_reader("s").lease(as_of)
        expires = self.clock.now_ms() + LEASE_MS
        self.leases.append((lease, lease.batches(), as_of, self.truth(as_of), expires))
        # Any change of holds looks at all of them.
        if self.held is not None:
            alive = [as_of for *_, as_of, _, e in self.leases if e >= self.clock.now_ms()]
            self.since = max(self.since, min(self.held, *alive))

    @invariant()
    def leased_parts_stay(self):
        """A live lease's parts can be read as they were listed, whatever happened since."""
        for _, listed, as_of, truth, expires in getattr(self, "leases", ()):
            if expires < self.clock.now_ms():
                continue
            blob = self.clients["p1"].blob
            updates = [read_part(blob, part, UPDATES) for batch in listed for part in batch.parts]
            rows = [
                (k, as_of, diff)
                for table in updates
                for k, time, diff, _ in zip(*table.to_pydict().values(), strict=True)
                if time <= as_of
            ]
            assert summed(rows) == truth

    @invariant()
    def both_ends_read_right(self):
        """The first and the last readable time, as a process sees them that has just started."""
        if hasattr(self, "upper") and self.since < self.upper:
            reader = self.fresh().open_reader("s")
            for as_of in {self.since, self.upper - 1}:
                assert counted(reader.snapshot(as_of)) == self.truth(as_of)

    @rule(which=st.integers(0, 3))
    def end_lease(self, which):
        if which < len(self.leases):
            self.leases.pop(which)[0].release()

    @rule(which=st.integers(0, 3))
    def renew_lease(self, which):
        if which >= len(self.leases):
            return
        lease, listed, as_of, truth, expires = self.leases[which]
        if expires < self.clock.now_ms():
            with pytest.raises(Unavailable, match="expired"):
                lease.renew()
            self.leases.pop(which)
            return
        lease.renew()
        expires = self.clock.now_ms() + LEASE_MS
        self.leases[which] = (lease, listed, as_of, truth, expires)
        if self.held is not None:
            alive = [as_of for *_, as_of, _, e in self.leases if e >= self.clock.now_ms()]
            self.since = max(self.since, min(self.held, *alive))

    @rule(minutes=st.sampled_from([1, 10, 16]))
    def time_passes(self, minutes):
        self.clock.advance(minutes * 60_000)

    @rule(name=processes, whole=st.booleans())
    def maintain(self, name, whole):
        client = self.clients[name]
        found = client.state("s").batches
        if whole and found:
            compact(client._machine("s"), client.blob, client._parts, Merge(found))
        client.maintain("s")

    @rule(name=processes, first=st.integers(0, 5), width=st.integers(1, 5))
    def plan_merge(self, name, first, width):
        found = self.clients[name].state("s").batches[first : first + width]
        self.planned = Merge(found) if found else None

    @rule(name=processes)
    def merge_planned(self, name):
        """Perhaps long after it was decided upon."""
        if self.planned is not None:
            client = self.clients[name]
            compact(client._machine("s"), client.blob, client._parts, self.planned)

    @rule(name=processes)
    def collect(self, name):
        client = self.clients[name]
        collect(client._machine("s"), client.blob)

    def fresh(self) -> PersistClient:
        folder = Path(self.folder.name)
        return PersistClient(
            FileBlob(folder / "blob"), SqliteConsensus(folder / "consensus"), clock=self.clock
        )

    @invariant()
    def state_is_sound(self):
        if not hasattr(self, "upper"):
            return
        client = self.clients["p1"]
        state = check(client.state("s"))
        assert state.upper == Frontier(self.upper)
        assert state.since == Frontier(self.since)
        live = {part.key for batch in state.batches for part in batch.parts if part.key}
        known = live | {retired.key for retired in state.retired}
        there = {key for key, _ in client.blob.list("s/")}
        assert live <= there, "every live part exists"
        assert there <= known, "nothing leaks, as long as nobody is killed in the middle"
        assert sum(b.diffs for b in state.batches) == sum(diff for *_, diff in self.history)
        assert len(client.consensus.scan("s")) <= 5, "old versions go"


TestShard = Shard.TestCase
TestShard.settings = settings(
    deadline=None, print_blob=True, max_examples=40, stateful_step_count=40
)
