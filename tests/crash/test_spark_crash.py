"""Spark drivers are killed with everything they started, while they stage, stream and append.

    staging     nothing of a job that was killed is ever part of the shard, and a sweep deletes it
    streaming   a copy of a shard that is written meanwhile: in the end the same, each change once
    appending   of two jobs at one shard one is killed: what was acknowledged is there once, what
                was not is there wholly or not at all

    CRASH_SEED=17 pytest tests/crash/test_spark_crash.py         replays the choices of a run

What the seed fixes is who is killed after how long and what is written; how the processes then
interleave is up to the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from serving import DEADLINE, eventually

from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, Appended, Config, FileBlob, PersistClient
from tidemark.persist.fsck import fsck
from tidemark.persist.updates import updates_schema
from tidemark.region.attach import register
from tidemark.spark.session import start_spark
from tidemark.spark.stage import stage

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
CONFIG = Config(
    inline_bytes=1024,
    part_bytes=64 * 1024,
    row_group_bytes=16 * 1024,
    inline_batches=8,
    small_batches=4,
    level_bytes=4 * 1024,
)
BEFORE, GOOD = 1_000, 50_000
"""Rows that are there, and rows that a job which is left alone appends."""

COPIES = {"plain": ["_time"], "timed": []}
"""Copies of a shard by streams, and the columns that each leaves out."""

HISTORY = 20
"""How many timestamps of the source stay readable."""


def rounds(short: int) -> pytest.MarkDecorator:
    soak = pytest.param(25, marks=pytest.mark.soak)
    return pytest.mark.parametrize("kills", [short, soak], ids=["short", "soak"])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PersistClient]:
    opened = open_client(tmp_path)
    yield opened
    opened.close()


@rounds(1)
def test_drivers_die_while_they_stage(
    tmp_path: Path, client: PersistClient, chance: random.Random, kills: int
):
    append(client, "s", [(n, 1) for n in range(-BEFORE, 0)])
    before = client.state("s")

    def stored() -> int:
        return sum(1 for _ in client.blob.list())

    for _ in range(kills):
        known = stored()
        with Job(tmp_path, "stage", "s", 10**9) as doomed:
            doomed.wait_for("at work")
            if chance.random() < 0.8:
                doomed.wait_until("a part is staged", lambda known=known: stored() > known)
            SYSTEM_CLOCK.sleep(chance.random() * 2)
            doomed.kill()
        after = client.state("s")
        assert (after.upper, after.batches) == (before.upper, before.batches)
    garbage = stored() - len(before.keys)
    print(f"{kills} kills left {garbage} parts")
    with Job(tmp_path, "stage", "s", GOOD) as good:
        good.wait_for("appended")
        good.finish()
    assert contents(client, "s") == Counter(range(-BEFORE, GOOD))
    assert client.sweep(older_than_ms=0) >= garbage
    check_clean(client, tmp_path, "s")


@rounds(1)
def test_a_copy_is_killed_and_goes_on(
    tmp_path: Path, client: PersistClient, chance: random.Random, kills: int
):
    append(client, "s", [(n, 1) for n in range(BEFORE)])
    source = Source(tmp_path, chance.randrange(10**9))
    source.start()

    def uppers() -> list[Frontier]:
        return [client.state(shard).upper for shard in COPIES]

    try:
        for _ in range(kills):
            with Job(tmp_path, "copy", "live") as doomed:
                doomed.wait_for("at work")
                if chance.random() < 0.75:
                    seen = uppers()
                    doomed.wait_until(
                        "both go on", lambda seen=seen: all(map(_less, seen, uppers()))
                    )
                SYSTEM_CLOCK.sleep(chance.random() * 3)
                doomed.kill()
    finally:
        source.stop()
    with Job(tmp_path, "copy", "rest") as good:
        good.wait_for("at work")
        good.finish()
    assert source.appends > 10
    print(f"{kills} kills, {source.appends} appends to the source")
    expected = contents(client, "s")
    assert expected == source.model
    for shard in COPIES:
        assert contents(client, shard) == expected, shard
    check_timed(client, chance)
    for shard in ("s", *COPIES):
        assert not fsck(client, shard).errors


@pytest.mark.soak
@rounds(1)
def test_one_of_two_writers_dies(
    tmp_path: Path, client: PersistClient, chance: random.Random, kills: int
):
    stop = tmp_path / "stop"
    jobs: list[Job] = []
    with contextlib.ExitStack() as stack:

        def begin(number: int) -> Job:
            job = stack.enter_context(Job(tmp_path, "append", "s", number, chance.randrange(10**9)))
            jobs.append(job)
            return job

        running = [begin(0), begin(1)]
        for number in range(2, kills + 1):
            victim = chance.randrange(2)
            kill_at_work(running, victim, chance)
            running[victim] = begin(number)
        victim = chance.randrange(2)
        kill_at_work(running, victim, chance)
        survivor = running[1 - victim]
        acked = len(survivor.noted("ack"))
        survivor.wait_until("another append", lambda: len(survivor.noted("ack")) > acked)
        stop.touch()
        survivor.finish()
    found = contents(client, "s")
    for job in jobs:
        intents, acked = job.noted("intent"), job.noted("ack")
        assert acked == intents[: len(acked)]
        assert len(intents) - len(acked) <= (0 if job is survivor else 1)
        for number, intent in enumerate(intents):
            first, rows = map(int, intent.split())
            there = [found.pop(n, 0) for n in range(first, first + rows)]
            allowed = ({1},) if number < len(acked) else ({1}, {0})
            assert set(there) in allowed, f"{intent}: {Counter(there)}"
    assert not found, "rows that nobody wrote"
    print(f"{len(jobs)} jobs, {sum(len(job.noted('ack')) for job in jobs)} appends acknowledged")
    client.sweep(older_than_ms=0)
    check_clean(client, tmp_path, "s")


def kill_at_work(running: list[Job], victim: int, chance: random.Random) -> None:
    """Kill one of two in the middle of its work, of which each has done some."""
    for job in running:
        job.wait_until("a first append", lambda job=job: job.noted("ack"))
    SYSTEM_CLOCK.sleep(chance.random() * 2)
    running[victim].kill()


class Job:
    """A driver program in a process of its own, and all that it starts: a JVM, Python workers."""

    def __init__(self, folder: Path, *arguments: object):
        self._mark = f"TIDEMARK_TEST_JOB={uuid4().hex}"
        self._lines: list[str] = []
        self._errors = folder / f"{uuid4().hex}.stderr"
        name, _, value = self._mark.partition("=")
        with open(self._errors, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(folder), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "TIDEMARK_DRIVER_MEMORY": "1g",
                    "PYSPARK_SUBMIT_ARGS": (
                        "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 pyspark-shell"
                    ),
                    name: value,
                },
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def noted(self, kind: str) -> list[str]:
        """What it said of this kind so far."""
        begin = f"{kind}: "
        return [line.removeprefix(begin) for line in list(self._lines) if line.startswith(begin)]

    def wait_for(self, line: str) -> None:
        self.wait_until(line, lambda: line in self._lines)

    def wait_until(self, what: str, look) -> None:
        """Until `look` returns something true; an error if the process ends before."""

        def done() -> bool:
            ended = self._process.poll() is not None
            if ended:
                self._reader.join(timeout=30)
            found = bool(look())
            assert found or not ended, f"not so: {what}; it said {self._said()}"
            return found

        eventually(what, done, every=0.02)

    def finish(self) -> None:
        code = self._process.wait(timeout=DEADLINE)
        self._reader.join(timeout=30)
        assert code == 0, f"it ended with {code}; it said {self._said()}"

    def kill(self) -> None:
        """SIGKILL, for everything at once."""
        assert self._process.poll() is None, f"it ended by itself; it said {self._said()}"
        self._end()

    def _end(self) -> None:
        # Those that are found have no time to start others, or else are found the next time.
        while found := self._running():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)

    def _running(self) -> list[int]:
        """All that inherited the mark and are alive."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            # It may end, or be someone else's. One that has ended has no variables.
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.rstrip("\n"))

    def _said(self) -> str:
        return "\n".join([*self._lines, self._errors.read_text()[-4000:]])

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Source(threading.Thread):
    """Appends to a shard, takes rows back, and lets it be compacted, until stopped."""

    def __init__(self, folder: Path, seed: int):
        super().__init__(name="source", daemon=True)
        self.model: Counter[int] = Counter(range(BEFORE))
        self.appends = 0
        self._client = open_client(folder)
        self._chance = random.Random(seed)
        self._next = BEFORE
        self._stopping = threading.Event()
        self._failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._chance.random() * 0.2):
                self._step()
        except BaseException as error:
            self._failed = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE)
        assert not self.is_alive()
        if self._failed is not None:
            raise self._failed

    def _step(self) -> None:
        chance = self._chance
        fresh = chance.choice((0, 1, 5, 300))
        gone = chance.sample(
            sorted(self.model), min(len(self.model) // 2, chance.choice((0, 2, 60)))
        )
        again = chance.sample(sorted(self.model), 3)
        changes = Counter(dict.fromkeys(range(self._next, self._next + fresh), 1))
        changes.update(again)
        changes.subtract(dict.fromkeys(gone, 1))
        append(self._client, "s", [each for each in changes.items() if each[1]])
        self._next += fresh
        self.model.update(changes)
        self.model = Counter({n: times for n, times in self.model.items() if times})
        self.appends += 1
        if self._chance.random() < 0.2:
            upper = self._client.state("s").upper.time or 0
            self._client.open_critical_since("s").downgrade(Frontier(max(upper - HISTORY, 0)))
            self._client.maintain("s")


def check_timed(client: PersistClient, chance: random.Random) -> None:
    """A copy that keeps times is the source at each of them; a few are looked at."""
    source, copy = client.state("s"), client.state("timed")
    first = max(source.since.time or 0, copy.since.time or 0)
    last = min((source.upper.time or 0), (copy.upper.time or 0))
    assert first < last
    # Before its first snapshot the copy was empty.
    begun = min(part.min_time for batch in copy.batches for part in batch.parts)
    times = range(max(first, begun), last)
    for as_of in chance.sample(times, min(len(times), 8)):
        assert contents(client, "timed", as_of) == contents(client, "s", as_of), as_of


def check_clean(client: PersistClient, folder: Path, shard: str) -> None:
    """What is stored is what the shard consists of, and nothing is wrong with it."""
    assert not fsck(client, shard).errors
    assert {key for key, _ in client.blob.list()} == client.state(shard).keys
    FileBlob(folder / "blob").remove_leftovers(older_than_ms=0)
    files = [path for path in (folder / "blob").rglob("*") if path.is_file()]
    assert len(files) == len(client.state(shard).keys)


def contents(client: PersistClient, shard: str, as_of: int | None = None) -> Counter[int]:
    """The ids, each as often as it counts."""
    upper = client.state(shard).upper.time
    assert upper
    found = client.open_reader(shard).snapshot(upper - 1 if as_of is None else as_of)
    ids, names = found["id"].to_pylist(), found["name"].to_pylist()
    assert names == [named(n) for n in ids]
    assert len(set(ids)) == len(ids), "a snapshot is consolidated"
    return Counter(dict(zip(ids, found[DIFF].to_pylist(), strict=True)))


def append(client: PersistClient, shard: str, changes: list[tuple[int, int]]) -> None:
    """(id, diff) each, at the shard's upper."""
    writer = client.open_writer(shard, schema=SCHEMA, key=("id",))
    lower = writer.fetch_upper()
    assert lower.time is not None
    size = len(changes)
    updates = pa.table(
        [
            pa.array([n for n, _ in changes], pa.int64()),
            pa.array([named(n) for n, _ in changes], pa.string()),
            pa.array([lower.time] * size, pa.int64()),
            pa.array([diff for _, diff in changes], pa.int64()),
            pa.nulls(size, pa.string()),
        ],
        schema=updates_schema(SCHEMA),
    )
    done = writer.compare_and_append(updates, lower=lower, upper=Frontier(lower.time + 1))
    assert isinstance(done, Appended)


def named(n: int) -> str:
    return f"n{n}"


def _less(one: Frontier, other: Frontier) -> bool:
    return one != other and one <= other


def open_client(folder: Path) -> PersistClient:
    return PersistClient.open(**stores(folder), config=CONFIG)


def stores(folder: Path) -> dict[str, str]:
    return {"blob": f"file://{folder}/blob", "consensus": f"sqlite://{folder}/c.db"}


# What runs in the drivers


def say(line: str) -> None:
    print(line, flush=True)


def numbers(spark: SparkSession, start: int, stop: int, tasks: int) -> DataFrame:
    frame = spark.range(start, stop, 1, tasks)
    return frame.withColumn("name", F.concat(F.lit("n"), F.col("id")))


def run_stage(spark: SparkSession, folder: Path, shard: str, rows: str) -> None:
    """Append that many rows in one batch, which of very many takes longer than anyone waits."""
    client = open_client(folder)
    writer = client.open_writer(shard, schema=SCHEMA, key=("id",))
    say("at work")
    staged = stage(numbers(spark, 0, int(rows), 4), client, writer, small=False)
    lower = writer.fetch_upper()
    assert lower.time is not None
    done = writer.compare_and_append(
        staged.at(lower.time), lower=lower, upper=Frontier(lower.time + 1)
    )
    assert isinstance(done, Appended)
    say("appended")


def run_copy(spark: SparkSession, folder: Path, how: str) -> None:
    """Copy shard `s`, as it goes on or (`rest`) as far as it has come."""
    register(spark)
    queries = []
    for shard, dropped in COPIES.items():
        reading = spark.readStream.format("tidemark").options(**stores(folder), shard="s")
        stream = reading.options(updates="true", name=shard).load().drop(*dropped)
        writing = stream.writeStream.format("tidemark").options(**stores(folder), shard=shard)
        writing = writing.options(
            name="copy", checkpointLocation=str(folder / f"{shard}.checkpoint")
        )
        queries.append((writing.trigger(availableNow=True) if how == "rest" else writing).start())
    say("at work")
    for query in queries:
        query.awaitTermination()


def run_append(spark: SparkSession, folder: Path, shard: str, number: str, seed: str) -> None:
    """Append rows of one's own again and again, until told to stop."""
    register(spark)
    chance, first = random.Random(int(seed)), int(number) * 10**9
    for _ in count():
        if (folder / "stop").exists():
            return
        rows = chance.choice((10, 500, 20_000))
        say(f"intent: {first} {rows}")
        frame = numbers(spark, first, first + rows, 2)
        writing = frame.write.format("tidemark").options(**stores(folder), shard=shard)
        writing.mode("append").save()
        say(f"ack: {first} {rows}")
        first += rows


def main(folder: Path, role: str, *arguments: str) -> None:
    open_client(folder).close()
    spark = start_spark(master="local[2]", app=f"tidemark-crash-{role}")
    {"stage": run_stage, "copy": run_copy, "append": run_append}[role](spark, folder, *arguments)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
