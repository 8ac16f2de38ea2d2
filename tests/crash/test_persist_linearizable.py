"""Threads of several processes use one shard, and what they saw is checked to be linearizable.

Every thread notes in its own file when it called what (before) and what came back when (after), on
the clock that all processes of a machine share. Meanwhile a compactor works, processes are killed
with SIGKILL, and some have a consensus that fails before or after the deed. In the end there must
be one order of all operations, true to the clock, in which a shard that does one thing at a time
gives the same answers (`tests/linearizable.py`). Killed and unsure operations may be in it or not.

    CRASH_SEED=17 pytest tests/crash/test_persist_linearizable.py     replays the choices of a run

What the seed fixes is who is killed after how long and what each thread asks for; how they then
interleave is up to the machine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest

from linearizable import (
    Append,
    Appended,
    BeforeSince,
    CompareAndAppend,
    Contents,
    Downgrade,
    EpochMismatch,
    FetchSince,
    FetchUpper,
    Op,
    Operation,
    Refused,
    Result,
    Rows,
    Shard,
    Snapshot,
    Time,
    UpperMismatch,
    check,
)
from tidemark import persist
from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import AsOfBeforeSince, Determinate, Indeterminate, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import Consensus, PersistClient
from tidemark.persist.consensus import Versioned
from tidemark.persist.updates import updates_schema

SHARD = "s"
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("pad", pa.binary())])
UPDATES = updates_schema(SCHEMA)
ROLES = ("client", "client", "flaky", "flaky", "loner", "compactor")
THREADS = {"client": 2, "flaky": 2, "loner": 1}
"""A loner takes its time, so that others get ahead of what its process remembers."""

HOLDS = ("x", "y")
HISTORY = 30
"""About how many timestamps stay readable."""


class Location(NamedTuple):
    blob: str
    consensus: str

    def open(self) -> PersistClient:
        return PersistClient.open(blob=self.blob, consensus=self.consensus)


def embedded(request: pytest.FixtureRequest, folder: Path) -> Location:
    return Location(f"file://{folder}/blob", f"sqlite://{folder}/c.db")


def postgres(request: pytest.FixtureRequest, folder: Path) -> Location:
    return Location(f"file://{folder}/blob", request.getfixturevalue("postgres_uri"))


LOCATIONS = [
    pytest.param(embedded, id="embedded"),
    pytest.param(postgres, id="postgres"),
]


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(40, marks=pytest.mark.soak)], ids=["short", "soak"]
)
@pytest.mark.parametrize("locate", LOCATIONS)
def test_one_order_explains_everything(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    locate: Callable[[pytest.FixtureRequest, Path], Location],
    rounds: int,
):
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CRASH_SEED={seed}")
    chance = random.Random(seed)
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        location = locate(request, folder)
        shard = f"{SHARD}{seed}-{number}"
        kills = let_them_work(folder, location, shard, chance, seconds=6)
        history = noted(folder) + final_reads(location, shard)
        begun = SYSTEM_CLOCK.monotonic()
        found = check(history, Shard())
        took = SYSTEM_CLOCK.monotonic() - begun
        print(f"{kills} kills, {dict(tally(history))}, checked in {took:.1f} s")
        assert found is None, f"CRASH_SEED={seed}, logs in {folder}\n{found}"
        assert kills >= 3
        assert is_enough(folder), "too little happened"


def let_them_work(
    folder: Path, location: Location, shard: str, chance: random.Random, *, seconds: float
) -> int:
    """Processes at work, and killed, until there is enough to check; how many were killed."""
    workers = [
        Worker(
            folder, location, shard, role, chance.randrange(10**9), chance.choice(["one", "own"])
        )
        for role in ROLES
    ]
    kills = 0
    try:
        for worker in workers:
            worker.wait_until_at_work()
        begun = SYSTEM_CLOCK.monotonic()
        # On a busy machine it goes on until there is something to check, but not for ever: what is
        # broken may never happen.
        while (passed := SYSTEM_CLOCK.monotonic() - begun) < seconds or (
            passed < 40 * seconds and (kills < 3 or not is_enough(folder))
        ):
            victim = chance.choice(workers)
            # Few die while they are still starting, most in the middle of their work.
            if chance.random() < 0.9:
                victim.wait_until_at_work()
            victim.run_for(chance.random() * 0.5)
            kills += victim.kill()
            complaints = sorted(folder.glob("*.failed"))
            assert not complaints, complaints[0].read_text()
            victim.start()
    finally:
        for worker in workers:
            worker.kill()
    return kills


class Worker:
    """One process at a time, started again under a fresh name."""

    def __init__(
        self, folder: Path, location: Location, shard: str, role: str, seed: int, handles: str
    ):
        self._arguments = [str(folder), *location, shard, role, handles]
        self._name = f"{role}-{seed}"
        self._life = 0
        self.start()

    def start(self) -> None:
        self._life += 1
        self._at_work = False
        command = [sys.executable, __file__, *self._arguments, f"{self._name}-{self._life}"]
        path = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )

    def wait_until_at_work(self) -> None:
        assert self._process.stdout is not None
        if not self._at_work:
            self._process.stdout.readline()  # "at work", or the end
        self._at_work = True

    def run_for(self, seconds: float) -> None:
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> bool:
        """SIGKILL; False if it had already ended by itself (and then left a complaint)."""
        self._process.send_signal(signal.SIGKILL)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait() == -signal.SIGKILL


# What the threads note


class Called(msgspec.Struct, frozen=True, tag=True):
    number: int
    at: int
    op: Op


class Returned(msgspec.Struct, frozen=True, tag=True):
    number: int
    at: int
    result: Result


_decoder = msgspec.json.Decoder(Called | Returned)


def noted(folder: Path) -> list[Operation]:
    history = []
    for path in sorted(folder.glob("*.log")):
        calls: dict[int, Called] = {}
        returns: dict[int, Returned] = {}
        for line in path.read_bytes().splitlines():
            try:
                note = _decoder.decode(line)
            except msgspec.DecodeError:
                continue  # Cut short by the kill: then it was not noted before going on.
            if isinstance(note, Called):
                calls[note.number] = note
            else:
                returns[note.number] = note
        for number, call in calls.items():
            end = returns.get(number)
            if end is None:
                history.append(Operation(path.stem, call.at, None, call.op))
            else:
                history.append(Operation(path.stem, call.at, end.at, call.op, end.result))
    return history


def final_reads(location: Location, shard: str) -> list[Operation]:
    """What is there when all is over: nothing acknowledged may be missing then."""
    client = location.open()
    reader = client.open_reader(shard)
    history = []

    def note(op: Op, deed: Callable[[], Result]) -> None:
        called = time.monotonic_ns()
        result = deed()
        history.append(Operation("the end", called, time.monotonic_ns(), op, result))

    upper = reader.upper.time
    assert upper
    note(FetchUpper(), lambda: Time(timestamp(reader.upper)))
    note(FetchSince(), lambda: Time(timestamp(reader.since)))
    note(Snapshot(upper - 1), lambda: contents(reader, upper - 1))
    client.close()
    return history


def tally(history: list[Operation]) -> Counter[str]:
    count: Counter[str] = Counter()
    writers = set()
    for operation in history:
        count["operations"] += 1
        match operation.op, operation.result:
            case CompareAndAppend() | Append(), Appended():
                count["appended"] += 1
                writers.add(operation.process)
            case CompareAndAppend() | Append(), UpperMismatch():
                count["lost"] += 1
            case Snapshot(), Contents():
                count["snapshots"] += 1
            case Snapshot(), BeforeSince():
                count["before since"] += 1
            case Downgrade(), Time():
                count["downgrades"] += 1
            case Downgrade(), EpochMismatch():
                count["fenced"] += 1
            case _, Refused():
                count["refused"] += 1
        count["pending"] += operation.is_pending
    count["writers"] = len(writers)
    return count


def is_enough(folder: Path) -> bool:
    count = tally(noted(folder))
    return (
        any(folder.glob("*.merged"))
        and count["appended"] >= 200
        and count["writers"] >= 4
        and count["lost"] >= 50
        and count["snapshots"] >= 50
        and count["downgrades"] >= 20
        and min(count["fenced"], count["before since"], count["refused"]) >= 1
        and count["pending"] >= 5
    )


# What runs in the workers


class Flaky:
    """A consensus that fails now and then: before the deed, after it, surely or perhaps."""

    def __init__(self, inner: Consensus, chance: random.Random):
        self._inner = inner
        self._chance = chance
        self._mine = threading.local()

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    @property
    def unsure(self) -> int:
        """How many commits of this thread have failed so that it cannot know."""
        return getattr(self._mine, "unsure", 0)

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        fate = self._chance.random()
        if fate < 0.04:
            raise Determinate("surely not done")
        if fate < 0.08:
            self._fail()
        won = self._inner.compare_and_set(key, new)
        if fate > 0.9:
            if fate > 0.95:  # Time for the others to go on.
                SYSTEM_CLOCK.sleep(self._chance.random() * 0.02)
            self._fail()
        return won

    def head(self, key: str) -> Versioned | None:
        self._look()
        return self._inner.head(key)

    def scan(self, *args: object, **options: object) -> list[Versioned]:
        self._look()
        return self._inner.scan(*args, **options)

    def _fail(self) -> None:
        self._mine.unsure = self.unsure + 1
        # An operation that cannot even look afterwards stays unsure.
        self._mine.blind = self._chance.random() < 0.4
        raise Indeterminate("done or not, who knows")

    def _look(self) -> None:
        blind = getattr(self._mine, "blind", False)
        self._mine.blind = False
        if blind or self._chance.random() < 0.01:
            raise Determinate("cannot read now")


class Notes:
    """One thread's log. Killed with SIGKILL it may lose half a line, but nothing written."""

    def __init__(self, path: Path, unsure: Callable[[], int]):
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - the process never closes it
        self._unsure = unsure
        self._number = 0

    def around(self, op: Op, deed: Callable[[], Result]) -> Result | None:
        """Do the deed and note it; None if nobody can know what it did."""
        called, unsure = time.monotonic_ns(), self._unsure()
        number = self._call(called, op)
        try:
            result = deed()
        except Indeterminate:
            return None
        except Determinate:
            result = Refused()
        returned = time.monotonic_ns()
        if isinstance(op, Downgrade) and self._unsure() > unsure:
            # An append knows itself by its token. A downgrade does not: repeated after an unsure
            # commit it is a second one, which may find itself overtaken by others.
            self._call(called, op)
        self._write(Returned(number, returned, result))
        return result

    def _call(self, at: int, op: Op) -> int:
        self._number += 1
        self._write(Called(self._number, at, op))
        return self._number

    def _write(self, note: Called | Returned) -> None:
        self._file.write(msgspec.json.encode(note) + b"\n")


class User:
    """One thread that does whatever can be done with a shard, in a random order."""

    def __init__(
        self,
        client: PersistClient,
        writer: persist.WriteHandle,
        shard: str,
        notes: Notes,
        name: str,
        chance: random.Random,
        *,
        pause: float,
    ):
        self._pause = pause
        self._client, self._writer, self._shard = client, writer, shard
        self._notes, self._name, self._chance = notes, name, chance
        self._reader = client.open_reader(shard)
        self._known = 0  # The last upper heard of.
        self._epochs = dict.fromkeys(HOLDS, 0)
        self._count = 0

    def work(self) -> None:
        weights = {
            self.compare_and_append: 10,
            self.append: 4,
            self.fetch_upper: 5,
            self.fetch_since: 15 if self._pause else 2,
            self.snapshot: 4,
            self.downgrade: 2,
            self.maintain: 0.2,
        }
        parent = os.getppid()
        while os.getppid() == parent:  # Nobody is left behind if the test itself is killed.
            (deed,) = self._chance.choices([*weights], [*weights.values()])
            if self._pause:
                SYSTEM_CLOCK.sleep(self._chance.random() * self._pause)
            deed()

    def compare_and_append(self) -> None:
        if self._chance.random() < 0.6:
            self.fetch_upper()
        lower = self._known + self._chance.choice([0] * 20 + [1])
        upper = lower + self._chance.randrange(1, 4)
        self._count += 1
        rows = ((self._chance.randrange(lower, upper), f"{self._name}/{self._count}"),)
        op = CompareAndAppend(lower, upper, rows if self._chance.random() < 0.9 else ())
        # No row can be an empty table or no table at all.
        updates = self._updates(op.rows) if op.rows or self._chance.random() < 0.5 else None

        def deed() -> Result:
            bounds = {"lower": Frontier(lower), "upper": Frontier(upper)}
            return outcome(self._writer.compare_and_append(updates, **bounds))

        self._learn(self._notes.around(op, deed))

    def append(self) -> None:
        """Every writer has the same rows for the same times."""
        lower = max(self._known - self._chance.randrange(4), 0) + self._chance.choice([0] * 9 + [3])
        upper = lower + self._chance.randrange(1, 6)
        op = Append(lower, upper, tuple((time, f"={time}") for time in range(lower, upper)))
        updates = self._updates(op.rows)

        def deed() -> Result:
            bounds = {"lower": Frontier(lower), "upper": Frontier(upper)}
            return outcome(self._writer.append(updates, **bounds))

        self._learn(self._notes.around(op, deed))

    def fetch_upper(self) -> None:
        found = self._notes.around(
            FetchUpper(), lambda: Time(timestamp(self._writer.fetch_upper()))
        )
        self._learn(found)

    def fetch_since(self) -> None:
        self._notes.around(FetchSince(), lambda: Time(timestamp(self._reader.since)))

    def snapshot(self) -> None:
        if not self._known:
            return  # A shard that nobody has written to cannot be read.
        # Some lie before since; some must wait for the others to get there.
        as_of = max(self._known - self._chance.choice([0, *range(1, 2 * HISTORY)]), 0)
        self._notes.around(Snapshot(as_of), lambda: contents(self._reader, as_of))

    def downgrade(self) -> None:
        hold = self._chance.choice(HOLDS)
        if self._chance.random() < 0.1:
            self._epochs[hold] += 1
        since = max(self._known - self._chance.randrange(HISTORY, 2 * HISTORY), 0)
        epoch = self._epochs[hold]
        handle = self._client.open_critical_since(self._shard, hold, epoch=epoch)
        found = self._notes.around(
            Downgrade(hold, since, epoch), lambda: outcome(handle.downgrade(Frontier(since)))
        )
        if isinstance(found, EpochMismatch):
            self._epochs[hold] = found.current

    def maintain(self) -> None:
        try:
            self._client.maintain(self._shard)
        except Unavailable:
            return

    def _learn(self, result: Result | None) -> None:
        match result:
            case Time(upper) | Appended(upper) | UpperMismatch(upper):
                self._known = upper

    def _updates(self, rows: tuple[tuple[int, str], ...]) -> pa.Table:
        # Large ones go to Blob, small ones travel in the state.
        pad = self._chance.randbytes(20_000) if self._chance.random() < 0.1 else b""
        times, count = [time for time, _ in rows], len(rows)
        columns = [[name for _, name in rows], times, [pad] * count, times, [1] * count]
        arrays = [pa.array(values, f.type) for values, f in zip(columns, UPDATES, strict=False)]
        return pa.table([*arrays, pa.nulls(count, pa.string())], schema=UPDATES)


def outcome(value: object) -> Result:
    match value:
        case persist.Appended(upper):
            return Appended(timestamp(upper))
        case persist.UpperMismatch(current):
            return UpperMismatch(timestamp(current))
        case persist.EpochMismatch(current):
            return EpochMismatch(current)
        case Frontier():
            return Time(timestamp(value))
    raise AssertionError(f"not an outcome: {value}")


def timestamp(frontier: Frontier) -> int:
    assert frontier.time is not None
    return frontier.time


def contents(reader: persist.ReadHandle, as_of: int) -> Contents | BeforeSince:
    try:
        table = reader.snapshot(as_of)
    except AsOfBeforeSince:
        return BeforeSince()
    assert set(table["_time"].to_pylist()) <= {as_of}
    columns = (table[name].to_pylist() for name in ("t", "k", "_diff"))
    found = sorted(zip(*columns, strict=True))
    return Rows().plus((t, k if diff == 1 else f"{diff}x{k}") for t, k, diff in found).contents()


def compact(client: PersistClient, shard: str, merged: Path) -> None:
    """Keep the shard in shape; `merged` is there once something was merged."""
    reader = client.open_reader(shard)
    upper, parent = 0, os.getppid()
    while os.getppid() == parent:
        reached = reader.wait_for_upper_past(upper, timeout=1)
        if reached is None:
            continue
        upper = timestamp(reached)
        before = len(client.state(shard).batches)
        client.maintain(shard)
        if len(client.state(shard).batches) < before:
            merged.touch()


def main(folder: Path, location: Location, shard: str, role: str, handles: str, name: str) -> None:
    client = location.open()
    unsure = lambda: 0  # noqa: E731 - nobody is ever unsure
    if role == "flaky":
        flaky = Flaky(client.consensus, random.Random(name))
        client = PersistClient(client.blob, flaky)
        unsure = lambda: flaky.unsure  # noqa: E731
    shared = client.open_writer(shard, schema=SCHEMA, key=("k",))

    def user(thread: str) -> None:
        writer = shared
        if handles == "own":
            writer = client.open_writer(shard, schema=SCHEMA, key=("k",))
        notes = Notes(folder / f"{thread}.log", unsure)
        chance, pause = random.Random(thread), 0.02 if role == "loner" else 0.0
        User(client, writer, shard, notes, thread, chance, pause=pause).work()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            (folder / f"{name}.failed").write_text(traceback.format_exc())
            os._exit(1)

    print("at work", flush=True)
    if role == "compactor":
        guarded(lambda: compact(client, shard, folder / f"{name}.merged"))
        return
    threads = [
        threading.Thread(target=guarded, args=(lambda n=n: user(f"{name}.{n}"),))
        for n in range(THREADS[role])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Location(*sys.argv[2:4]), *sys.argv[4:])
