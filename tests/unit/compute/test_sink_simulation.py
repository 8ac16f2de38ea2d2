"""Random schedules of sinks that write one shard: virtual, one thread, one seed.

Replicas start, stall, die, race, are read-only and promoted; the store fails before or after the
deed; strangers write what does not belong there. All of them compute the same collection. Whoever
is alive at the end writes what is missing, and then the shard is what was desired: at every time
if no stranger came, from the repair on if one did.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.compute.sink import Description, Done, Sink
from tidemark.errors import TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, MemBlob, MemConsensus, PersistClient
from tidemark.persist.updates import DIFF, ERR, TIME, updates_schema
from unreliable import FLAKY, UnreliableBlob, UnreliableConsensus

SHARD = "v"
ROWS = pa.schema([("row", pa.int64())])
SEEDS = int(os.environ.get("TIDEMARK_SIMULATIONS", "60"))
LAST = 60
STEPS = 250


@pytest.mark.parametrize("seed", range(SEEDS))
def test_replicas_race(seed: int):
    World(seed, strangers=False).run()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_strangers_are_corrected(seed: int):
    World(seed, strangers=True).run()


def test_a_seed_says_it_all():
    ran = [World(7, strangers=True) for _ in range(2)]
    for world in ran:
        world.run()
    assert ran[0].story == ran[1].story


class Replica:
    def __init__(self, world: World, name: str, *, read_only: bool):
        self.name = name
        self.read_only = read_only
        self.minted: list[Description] = []
        self._world = world
        self._stages: Iterator[Done] | None = None
        blob = UnreliableBlob(world.blob, seed=world.draw(), chances=world.chances)
        consensus = UnreliableConsensus(world.consensus, seed=world.draw(), chances=world.chances)
        config = Config(heartbeat=False, audit=0, inline_bytes=world.dice.choice([1, 4096]))
        self.client = PersistClient(blob, consensus, clock=world.clock, config=config)
        self.sink = Sink(self.client, SHARD, schema=ROWS, read_only=lambda: self.read_only)
        agreed = world.vouched if world.vouched and self.sink.upper.time else 0
        self.sink.start(Frontier(agreed), begin=Frontier(world.as_of))
        self.lower = agreed
        if not agreed:
            self._desire(world.snapshot(world.as_of), world.as_of + 1)

    def _desire(self, updates: Counter, upper: int) -> None:
        self.sink.desire(_table(updates), Frontier(upper))
        self.lower = upper

    def compute(self, upper: int) -> None:
        """One tick of what it should be; one that is read-only is a tick ahead at most."""
        if self.lower < upper and (not self.read_only or self.settled):
            self._desire(self._world.between(self.lower, upper), upper)

    @property
    def settled(self) -> bool:
        return self.sink.catch_up(Frontier(self.lower))

    def step(self) -> str:
        if self._stages is None:
            self._stages = self.sink.stages()
        done = next(self._stages, None)
        if done is None:
            self._stages = None
            return "nothing"
        self._check(done)
        return f"{done.stage} {done.description.lower}..{done.description.upper}"

    def flush(self) -> None:
        while self.step() != "nothing":
            pass

    def _check(self, done: Done) -> None:
        assert not self.read_only or done.stage != "mint", "I4"
        if done.stage == "mint":
            for before in self.minted[-1:]:
                assert before.lower < done.description.lower, "I1"
                assert before.upper <= done.description.upper, "I2"
            self.minted.append(done.description)
        assert done.description == self.minted[-1], "I3"


class World:
    def __init__(self, seed: int, *, strangers: bool):
        self.seed = seed
        self.dice = random.Random(f"{seed} {strangers}")
        self.clock = ManualClock(1_000)
        self.blob, self.consensus = MemBlob(), MemConsensus()
        self.chances = self.dice.choice([FLAKY, type(FLAKY)()])
        self.as_of = self.dice.randrange(4)
        self.vouched = 0
        self.story: list[str] = []
        self._strangers = strangers
        self._changes = _history(self.dice)
        self._replicas: dict[str, Replica] = {}
        self._made = 0
        self._upper = 0
        self._disturbed = False

    def draw(self) -> int:
        return self.dice.randrange(2**32)

    def snapshot(self, time: int) -> Counter:
        total: Counter = Counter()
        for (row, at), diff in self._changes.items():
            if at <= time:
                total[row, time] += diff
        return total

    def between(self, lower: int, upper: int) -> Counter:
        return Counter({k: diff for k, diff in self._changes.items() if lower <= k[1] < upper})

    def run(self) -> None:
        try:
            now = self.as_of + 1
            for _ in range(STEPS):
                now = min(now + (self.dice.random() < 0.3), LAST)
                self._act(now)
                self._watch()
            self._end()
        except BaseException:
            print(f"seed {self.seed}, strangers {self._strangers}", *self.story, sep="\n")
            raise

    def _act(self, now: int) -> None:
        deed = self.dice.choices(
            ["start", "die", "compute", "step", "flush", "promote", "vouch", "stranger"],
            [4 if len(self._replicas) < 3 else 0, 1, 20, 40, 10, 2, 4, 2 * self._strangers],
        )[0]
        if deed == "start":
            self._made += 1
            name = f"r{self._made}"
            said = self._trying(
                lambda: self._replicas.update(
                    {name: Replica(self, name, read_only=self.dice.random() < 0.3)}
                )
            )
            self.story.append(f"{name} starts {said}")
            return
        if deed == "stranger":
            self.story.append(f"stranger {self._disturb()}")
            return
        if not self._replicas:
            return
        replica = self.dice.choice(list(self._replicas.values()))
        actions = {
            "die": lambda: self._replicas.pop(replica.name) and None,
            "compute": lambda: replica.compute(now),
            "step": replica.step,
            "flush": replica.flush,
            "promote": lambda: setattr(replica, "read_only", False),
            "vouch": lambda: self._vouch(replica),
        }
        said = self._trying(actions[deed])
        self.story.append(f"{replica.name} {deed} {said}")
        if isinstance(said, TidemarkError):
            # As the schedule does: it is thrown away, and another resumes from the shard.
            self._replicas.pop(replica.name, None)

    def _trying(self, action) -> object:
        try:
            return action()
        except TidemarkError as error:
            return error

    def _vouch(self, replica: Replica) -> None:
        """What a dataflow's hold says: all before this is computed, and was written."""
        replica.flush()
        if not replica.read_only and not replica.sink.held:
            self.vouched = max(self.vouched, replica.lower)

    def _disturb(self) -> object:
        client = PersistClient(self.blob, self.consensus, clock=self.clock)
        writer = client.open_writer(SHARD, schema=ROWS)
        upper = writer.fetch_upper()
        assert upper.time is not None
        to = upper.time + self.dice.randint(1, 3)
        if upper.time < self.as_of or to > LAST:
            return "passes by"
        rows = Counter(
            {
                (self.dice.randrange(6), self.dice.randrange(upper.time, to)): self.dice.choice(
                    [-2, -1, 1, 2]
                )
                for _ in range(self.dice.randrange(3))
            }
        )
        outcome = writer.compare_and_append(_table(rows), lower=upper, upper=Frontier(to))
        self._disturbed |= isinstance(outcome, Appended)
        return f"{dict(rows)} up to {to}"

    def _watch(self) -> None:
        """A frontier that was seen is never taken back."""
        client = PersistClient(self.blob, self.consensus, clock=self.clock)
        upper = client.state(SHARD).upper.time
        assert upper is not None
        assert upper >= self._upper
        self._upper = upper

    def _end(self) -> None:
        """Whoever is alive, or one that comes now, writes all there is left; on a store that works."""
        self.chances = type(FLAKY)()
        self._replicas.clear()
        last = Replica(self, "last", read_only=False)
        last.compute(LAST + 5)
        last.flush()
        client = PersistClient(self.blob, self.consensus, clock=self.clock)
        reader = client.open_reader(SHARD)
        assert reader.upper == Frontier(LAST + 5)
        times = [LAST + 4] if self._disturbed else range(self.as_of, LAST + 5)
        for time in times:
            found = reader.snapshot(time)
            rows = dict(zip(found["row"].to_pylist(), found[DIFF].to_pylist(), strict=True))
            wanted = {row: diff for (row, _), diff in self.snapshot(time).items() if diff}
            assert rows == wanted, f"at {time}"


def _history(dice: random.Random) -> Counter:
    """Rows that come and go, never less than none of each."""
    changes: Counter = Counter()
    there: Counter = Counter()
    for time in range(LAST + 1):
        for _ in range(dice.choice([0, 0, 1, 2])):
            row = dice.randrange(6)
            diff = -there[row] if there[row] and dice.random() < 0.5 else dice.randint(1, 2)
            changes[row, time] += diff
            there[row] += diff
    return Counter({key: diff for key, diff in changes.items() if diff})


def _table(updates: Counter) -> pa.Table:
    kept = [(row, time, diff) for (row, time), diff in updates.items() if diff]
    columns = {
        "row": [row for row, _, _ in kept],
        TIME: [time for _, time, _ in kept],
        DIFF: [diff for _, _, diff in kept],
        ERR: [None] * len(kept),
    }
    schema = updates_schema(ROWS)
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)
