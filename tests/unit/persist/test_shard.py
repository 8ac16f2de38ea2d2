"""One shard with everything that can happen to it, against a dict of updates.

Three processes, tuned differently, share a blob and a consensus that fail now and then: before the
deed, after it, or by refusing. They write, stage, evolve the schema, read, listen, hold, merge and
sweep; they are killed, and time passes. After each step a process that has just started must find
a sound state whose contents are the model's at every readable time.

A failure prints the steps that led to it and the line that replays it (`reproduce_failure`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from shard_model import (
    BOOM,
    CHANCES,
    CONFIGS,
    FILTERS,
    KEY,
    LEASE_MS,
    MINUTE,
    SCHEMAS,
    TROUBLES,
    Batched,
    Leased,
    Model,
    Process,
    Update,
    batches,
    changes,
    contents,
    listed,
    narrowed,
    processes,
    summed,
    tabled,
)

from tidemark.clock import ManualClock
from tidemark.errors import AsOfBeforeSince, Determinate, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import (
    Appended,
    Blob,
    Consensus,
    EpochMismatch,
    FileBlob,
    MemBlob,
    MemConsensus,
    PersistClient,
    ReadHandle,
    SqliteConsensus,
    Staged,
    UpperMismatch,
)
from tidemark.persist.compact import compact
from tidemark.persist.names import staged_ms
from tidemark.persist.part import read_part
from tidemark.persist.state import Batch, Part, State, check
from tidemark.persist.updates import updates_schema
from unreliable import RELIABLE, UnreliableBlob, UnreliableConsensus


class Shard(RuleBasedStateMachine):
    @initialize(
        finalize=st.booleans(),
        troubles=st.fixed_dictionaries(dict.fromkeys(CONFIGS, st.sampled_from(CHANCES))),
        seed=st.integers(0, 2**16),
    )
    def begin(self, finalize, troubles, seed):
        self.clock = ManualClock(1_000_000)
        self.blob, self.consensus = self.create()
        self.model = Model()
        self.last_since = Frontier.MIN
        self.known: dict[str | bytes, list[Update]] = {}
        self.processes: dict[str, Process] = {}
        for name in CONFIGS:
            self.kill(name, width=1, chances=RELIABLE, seed=0)
        # The shard exists, with its first schema.
        self.processes["inline"].writer.register()
        for name, chances in troubles.items():
            self.kill(name, width=1, chances=chances, seed=seed)
        self.leases: list[Leased] = []
        self.staged: list[Batched] = []
        self.planned: tuple[Batch, ...] = ()
        self.holds: dict[str, tuple[int, int]] = {}
        self.finalize = finalize

    def create(self) -> tuple[Blob, Consensus]:
        return MemBlob(), MemConsensus()

    def reopen(self) -> tuple[Blob, Consensus]:
        return self.blob, self.consensus

    def fresh(self, config: str = "inline") -> PersistClient:
        """A process that has just started, and has no trouble."""
        return PersistClient(self.blob, self.consensus, clock=self.clock, config=CONFIGS[config])

    @property
    def state(self) -> State:
        return self.fresh().state("s")

    def reader(self, name: str, **options) -> ReadHandle:
        return self.processes[name].client.open_reader("s", **options)

    # Trouble

    @rule(name=processes, trouble=st.sampled_from(TROUBLES))
    def trouble(self, name, trouble):
        """What this process next asks for fails."""
        of, call, how = trouble
        getattr(self.processes[name], of).fail(how, call=call)

    @rule(
        name=processes,
        width=st.integers(1, 3),
        chances=st.sampled_from(CHANCES),
        seed=st.integers(0, 2**16),
    )
    def kill(self, name, width, chances, seed):
        """SIGKILL and a new process, which knows some schema that the shard has. What it asks for
        fails never, now and then, or rather often."""
        newest = max(1, len(self.fresh().state("s").schemas))
        width = min(width, newest)
        stored, log = self.reopen()
        consensus = UnreliableConsensus(log, seed=seed, chances=chances)
        blob = UnreliableBlob(stored, seed=seed, chances=chances)
        client = PersistClient(blob, consensus, clock=self.clock, config=CONFIGS[name])
        writer = client.open_writer("s", schema=SCHEMAS[width - 1], key=KEY)
        self.processes[name] = Process(client, consensus, blob, writer, width)

    @rule(ms=st.sampled_from([1, 10 * MINUTE, 16 * MINUTE, 61 * MINUTE]), beating=st.booleans())
    def time_passes(self, ms, beating):
        self.clock.advance(ms)
        if beating:
            self.heartbeat()

    # Writing

    @rule(name=processes, several=st.lists(batches, min_size=1, max_size=4), again=st.booleans())
    def write(self, name, several, again):
        """Compare-and-append, again with the same token if it is left unsure."""
        for batch in several:
            self.compare_and_append(name, batch, self.model.upper, again=again)

    @rule(name=processes, batch=batches, lag=st.sampled_from([1, 2, -1]))
    def lose(self, name, batch, lag):
        """The same with a wrong idea of the upper."""
        self.compare_and_append(name, batch, max(self.model.upper - lag, 0), again=False)

    def compare_and_append(self, name: str, batch: list[Update], lower: int, *, again: bool):
        process, upper = self.processes[name], lower + 1 + max([t for _, t, _ in batch], default=0)
        updates = narrowed([(row, lower + t, diff) for row, t, diff in batch], process.width)
        table, token = tabled(updates, process.writer.schema), uuid4().hex

        def act():
            return process.writer.compare_and_append(
                table, lower=Frontier(lower), upper=Frontier(upper), token=token
            )

        first = self.attempt(act, updates, lower, upper)
        if first is None and again:
            if self.model.upper == lower:
                self.attempt(act, updates, lower, upper)
            elif self.model.upper == upper:
                with suppress(Unavailable):
                    assert act() == Appended(Frontier(upper)), "the token knows"

    @rule(name=processes, batch=batches, back=st.integers(0, 3), more=st.integers(1, 4))
    def append_identical(self, name, batch, back, more):
        """What lies before the upper is cut off; it must not be there twice."""
        process, current = self.processes[name], self.model.upper
        lower = max(current - back, 0)
        new = narrowed([(k, current + t % more, d) for k, t, d in batch], process.width)
        known = [(row, t, d) for (row, t), d in self.model.between(lower, current).items()]
        table = tabled(narrowed(known, process.width) + new, process.writer.schema)
        self.attempt(
            lambda: process.writer.append(
                table, lower=Frontier(lower), upper=Frontier(current + more)
            ),
            new,
            current,
            current + more,
        )

    @rule(name=processes, more=st.integers(1, 5))
    def advance_upper(self, name, more):
        writer, lower = self.processes[name].writer, self.model.upper
        upper = Frontier(lower + more)
        self.attempt(lambda: Appended(writer.advance_upper(upper)), [], lower, lower + more)

    def attempt(self, act, updates: list[Update], lower: int, upper: int):
        """Do it, and find out whether it happened; what is said about that must be true."""
        wins = lower == self.model.upper
        try:
            outcome = act()
        except Unavailable as error:
            outcome, refused = None, isinstance(error, Determinate)
            happened = wins and self.state.upper == Frontier(upper)
            assert not (happened and refused), "surely not done, it was told"
        else:
            happened = wins and isinstance(outcome, Appended)
            if wins:
                assert outcome == Appended(Frontier(upper))
            else:
                assert outcome == UpperMismatch(Frontier(self.model.upper))
        if happened:
            self.model.append(updates, upper)
        return outcome

    @rule(name=processes, batch=batches, ahead=st.integers(0, 9), built=st.booleans())
    def stage(self, name, batch, ahead, built):
        """For now, or for a time that is still to come."""
        self.stage_one(name, batch, self.model.upper + ahead, built=built)

    def stage_one(self, name: str, batch: list[Update], first: int, *, built: bool) -> None:
        process = self.processes[name]
        updates = narrowed([(row, first + t, diff) for row, t, diff in batch], process.width)
        with suppress(Unavailable):
            if built:
                builder = process.writer.builder()
                for update in updates:
                    builder.add(tabled([update], process.writer.schema))
                staged = builder.finish()
            else:
                staged = process.writer.stage(tabled(updates, process.writer.schema))
            self.staged.append(Batched(staged.to_bytes(), updates))

    @rule(name=processes, count=st.integers(1, 3), late=st.booleans())
    def append_staged(self, name, count, late):
        self.append_waiting(name, count, late)

    def append_waiting(self, name: str, count: int, late: bool) -> None:
        """Several batches as one, wherever they were staged; some perhaps too late."""
        process, lower = self.processes[name], self.model.upper
        fits = lambda batch: all(lower <= time for _, time, _ in batch.updates)  # noqa: E731
        mine = [batch for batch in self.staged if late or fits(batch)][:count]
        updates = [update for batch in mine for update in batch.updates]
        upper = max([lower, *(time for _, time, _ in updates)]) + 1
        given_up = any(staged_ms(k) < self.state.floor for batch in mine for k in batch.keys)

        def act():
            return process.writer.compare_and_append(
                [Staged.from_bytes(batch.data) for batch in mine],
                lower=Frontier(lower),
                upper=Frontier(upper),
            )

        if given_up or not all(map(fits, mine)):
            with pytest.raises((InvalidUsage, Unavailable)):
                act()
            return
        self.attempt(act, updates, lower, upper)
        if self.model.upper > lower:
            self.staged = [batch for batch in self.staged if batch not in mine]

    @rule(name=processes)
    def discard_staged(self, name):
        if len(self.staged) > 3:
            batch = Staged.from_bytes(self.staged.pop(0).data)
            with suppress(Unavailable):
                self.processes[name].writer.discard(batch)

    @rule(name=processes)
    def evolve(self, name):
        """Add the next column, if the process knows the newest schema."""
        process = self.processes[name]
        newest = len(self.state.schemas)
        width = min(process.width + 1, 3)
        try:
            lost = process.writer.evolve_schema(SCHEMAS[width - 1])
        except Unavailable:
            assert len(self.state.schemas) in (newest, width)
            return
        assert lost is None
        process.width = width
        assert len(self.state.schemas) == max(newest, width)

    # Reading

    @rule(name=processes, back=st.integers(0, 12), streamed=st.booleans())
    def snapshot(self, name, back, streamed):
        as_of = self.model.upper - 1 - back
        if as_of < 0:
            return
        reader, since = self.reader(name), self.state.since
        try:
            if streamed:
                found = summed(
                    (row, diff) for t in reader.stream(as_of) for row, _, diff in listed(t)
                )
            else:
                found = contents(reader.snapshot(as_of, timeout=0))
        except AsOfBeforeSince:
            assert Frontier(as_of) < since
        except Unavailable:
            return
        else:
            assert since <= Frontier(as_of)
            assert found == self.model.at(as_of)

    @rule(name=processes, name_of=st.sampled_from(sorted(FILTERS)))
    def filtered(self, name, name_of):
        state = self.state
        as_of = self.model.upper - 1
        if not self.model.upper or Frontier(as_of) < state.since:
            return
        width, filter, passes = FILTERS[name_of]
        if len(state.schemas) < width:
            return
        with suppress(Unavailable):
            found = contents(self.reader(name, filter=filter).snapshot(as_of, timeout=0))
            truth = self.model.at(as_of).items()
            assert found == {row: diff for row, diff in truth if row == BOOM or passes(row)}

    @rule(name=processes, back=st.integers(0, 12), length=st.integers(0, 12))
    def read_updates(self, name, back, length):
        lower = max(self.model.upper - back, 0)
        upper, since = lower + length, self.state.since
        try:
            found = self.reader(name).updates(Frontier(lower), Frontier(upper))
        except InvalidUsage:
            assert upper > self.model.upper
        except AsOfBeforeSince:
            assert Frontier(max(lower - 1, 0)) < since
        except Unavailable:
            return
        else:
            if lower:
                assert changes(found) == self.model.between(lower, upper)

    @rule(
        name=processes,
        back=st.integers(0, 6),
        what=st.sampled_from(["parts", "listen", "subscribe"]),
    )
    def take_lease(self, name, back, what):
        """For parts that are read later, or for a listener or subscriber."""
        as_of = self.model.upper - 1 - back
        if as_of < 0 or Frontier(as_of) < self.state.since or len(self.leases) > 4:
            return
        reader = self.reader(name)
        expires = self.clock.now_ms() + LEASE_MS
        with suppress(Unavailable):
            if what == "parts":
                truth = self.model.at(as_of)
                self.leases.append(Leased(reader.lease(as_of), as_of, expires, expires, truth))
                return
            leases = self.processes[name].client._leases._live
            before = set(leases)
            if what == "listen":
                steps = reader.listen(as_of, timeout=0)
            else:
                steps = reader.subscribe(as_of, timeout=0)
                assert contents(next(steps).table) == self.model.at(as_of)
            (lease,) = set(leases) - before
            self.leases.append(Leased(lease, as_of, expires, expires, steps=steps))

    @rule(beating=st.booleans())
    def next_steps(self, beating):
        """Listeners whose leases live hear all that comes, in order and once."""
        for one in [one for one in self.leases if one.steps is not None]:
            self.next_step(one)
        if beating:
            self.heartbeat()

    def next_step(self, one: Leased) -> None:
        assert one.steps is not None
        try:
            step = next(one.steps)
        except (AsOfBeforeSince, Unavailable) as error:
            missed = isinstance(error, AsOfBeforeSince)
            assert not missed or one.least < self.clock.now_ms(), "a live lease holds since"
            self.leases.remove(one)
            return
        assert step.lower == Frontier(one.as_of + 1)
        assert step.upper.time is not None
        assert step.lower <= step.upper <= Frontier(max(self.model.upper, one.as_of + 1))
        assert step.lower < step.upper or self.model.upper <= one.as_of + 1, "there is more"
        assert changes(step.table) == self.model.between(one.as_of + 1, step.upper.time)
        one.as_of = step.upper.time - 1

    def heartbeat(self):
        """Every lease is renewed, if it still can be."""
        now = self.clock.now_ms()
        for one in tuple(self.leases):
            try:
                one.lease.renew()
            except Unavailable as error:
                if "expired" in str(error):
                    self.leases.remove(one)
                    assert one.least < now, "a lease ended too early"
                one.most = now + LEASE_MS
            else:
                assert one.most >= now, "a lease lived too long"
                one.least = one.most = now + LEASE_MS

    @rule(which=st.integers(0, 4))
    def end_lease(self, which):
        if which < len(self.leases):
            one = self.leases.pop(which)
            with suppress(Unavailable):
                one.lease.release()

    @rule(
        name=processes,
        hold=st.sampled_from(["control", "view"]),
        back=st.sampled_from([-1, 0, 0, 1, 1, 2, 5]),
        newer=st.sampled_from([0, 0, 1, -1]),
    )
    def downgrade(self, name, hold, back, newer):
        held, known = self.holds.get(hold, (0, 0))
        since, epoch = max(self.model.upper - back, 0), max(known + newer, 0)
        handle = self.processes[name].client.open_critical_since("s", hold, epoch=epoch)
        try:
            outcome = handle.downgrade(Frontier(since))
        except Unavailable:
            outcome = None
        now = self.state.holds.get(hold)
        if isinstance(outcome, EpochMismatch):
            assert epoch < known
            assert outcome.current == known
        elif outcome is not None:
            assert now is not None
            assert outcome == now.since >= Frontier(max(since, held))
        if now is not None and now.since.time is not None:
            assert now.since.time >= held
            assert now.epoch in (known, epoch)
            self.holds[hold] = (now.since.time, now.epoch)

    @rule(name=processes)
    def leave(self, name):
        """A writer goes, and the view; only control's hold is for ever."""
        with suppress(Unavailable):
            self.processes[name].writer.expire()
        epoch = self.holds.get("view", (0, 0))[1]
        with suppress(Unavailable):
            self.processes[name].client.open_critical_since("s", "view", epoch=epoch).release()
        if "view" not in self.state.holds:
            self.holds.pop("view", None)

    # Upkeep

    @rule(name=processes, whole=st.booleans())
    def maintain(self, name, whole):
        client = self.processes[name].client
        with suppress(Unavailable):
            if whole:
                compact(client.machine("s"), client.blob, client.state("s").batches)
            client.maintain("s")

    @rule(name=processes, first=st.integers(0, 3), width=st.integers(1, 4), later=st.booleans())
    def merge(self, name, first, width, later):
        """Some batches, perhaps long after that was decided upon."""
        plan = self.state.batches[first : first + width]
        self.planned, chosen = plan, self.planned if later else plan
        client = self.processes[name].client
        with suppress(Unavailable):
            compact(client.machine("s"), client.blob, chosen)

    @rule(name=processes, minutes=st.sampled_from([0, 0, 0, 30]), staged=batches)
    def sweep(self, name, minutes, staged):
        """What was staged and not appended is given up if it is that old."""
        self.stage_one("blobs", staged, self.model.upper, built=False)
        self.clock.advance(1)
        floor = self.clock.now_ms() - minutes * MINUTE
        with suppress(Unavailable):
            self.processes[name].client.sweep("s", older_than_ms=minutes * MINUTE)
            known = self.state.keys
            left = [key for key, _ in self.blob.list("s/") if key not in known]
            assert all(staged_ms(key) >= floor for key in left), "no leak below the floor"
        self.append_waiting(name, 3, late=False)

    # Chosen more often than the others, as they lead to the rest.
    write_again = write_more = write
    lease_again, hold_again, hold_more = take_lease, downgrade, downgrade
    steps_again, maintain_again, stage_again, stage_more = next_steps, maintain, stage, stage

    # What holds at any time

    @invariant()
    def a_new_process_finds_the_model(self):
        if not hasattr(self, "leases"):
            return
        state = check(self.state)
        assert state.upper == Frontier(self.model.upper)
        assert self.last_since <= state.since
        self.last_since = state.since
        now = self.clock.now_ms()
        for one in self.leases:
            assert one.least < now or state.since <= Frontier(one.as_of), "since passed a lease"
        for since, _ in self.holds.values():
            assert state.since <= Frontier(since), "since passed a hold"
        found = [update for part in state.parts for update in self.read(part)]
        assert sum(diff for *_, diff in found) == sum(self.model.updates.values())
        since = state.since.time
        assert since is not None
        if since < self.model.upper:
            moved = summed(((row, max(time, since)), diff) for row, time, diff in found)
            assert moved == self.model.since(since)

    @invariant()
    def leased_parts_stay(self):
        """A live lease's parts can be read as they were listed, whatever happened since."""
        for one in getattr(self, "leases", ()):
            if one.truth is None or one.least < self.clock.now_ms():
                continue
            found = [update for part in one.lease.state.parts for update in self.read(part)]
            assert summed((r, d) for r, time, d in found if time <= one.as_of) == one.truth

    def read(self, part: Part) -> list[Update]:
        """A part's updates. As no part ever changes, it is read once, and then must be there."""
        name = part.key or part.inline
        assert name is not None
        if name not in self.known:
            self.known[name] = [*listed(read_part(self.blob, part, updates_schema(SCHEMAS[-1])))]
        assert part.key is None or self.blob.get(part.key) is not None, "a part is gone"
        return self.known[name]

    def teardown(self):
        if not hasattr(self, "leases"):
            return
        client = self.fresh("blobs")
        since = client.state("s").since.time
        assert since is not None
        reader = client.open_reader("s")
        for as_of in range(since, self.model.upper):
            assert contents(reader.snapshot(as_of, timeout=0)) == self.model.at(as_of)
        for _ in range(client.config.rollup_every):
            client.open_writer("s", schema=SCHEMAS[0], key=KEY).advance_upper(
                Frontier(self.model.upper + 1)
            )
            self.model.upper += 1
        assert len(self.consensus.scan("s")) <= client.config.rollup_every, "old versions go"
        if self.finalize:
            client.finalize("s")
        self.clock.advance(16 * MINUTE)
        client.maintain("s")
        client.sweep("s", older_than_ms=0)
        state = client.state("s")
        assert {key for key, _ in self.blob.list("s/")} == {p.key for p in state.parts if p.key}
        assert state.is_tombstone == self.finalize


class EmbeddedShard(Shard):
    """The same in a folder: each process opens its own files."""

    def create(self) -> tuple[Blob, Consensus]:
        self.folder = TemporaryDirectory()
        return self.reopen()

    def reopen(self) -> tuple[Blob, Consensus]:
        folder = Path(self.folder.name)
        return FileBlob(folder / "blob"), SqliteConsensus(folder / "consensus")

    def teardown(self):
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


QUICK = settings(
    deadline=None,
    print_blob=True,
    max_examples=50,
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LONG = settings(QUICK, max_examples=3000, stateful_step_count=100)


@pytest.mark.parametrize(
    ("machine", "settings"),
    [
        pytest.param(Shard, QUICK, id="memory"),
        pytest.param(EmbeddedShard, settings(QUICK, max_examples=5), id="embedded"),
        pytest.param(Shard, LONG, id="memory-soak", marks=pytest.mark.soak),
        pytest.param(
            EmbeddedShard,
            settings(LONG, max_examples=300),
            id="embedded-soak",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_shard(machine, settings):
    run_state_machine_as_test(machine, settings=settings)
