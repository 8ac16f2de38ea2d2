"""Processes write, read, compact and collect one shard while they are killed and started again.

Every writer notes in its own fsynced file what it is about to append (`intent`) and what was
acknowledged (`ack`). In the end each acknowledged append is in exactly once, each unacknowledged
one is in wholly or not at all, nothing else is there, `fsck` finds nothing wrong, and a last sweep
leaves no blob that the shard does not need.

    CRASH_SEED=17 pytest tests/crash/test_persist_crash.py        replays the choices of a run

What the seed fixes is who is killed after how long and what each writer writes; how the processes
then interleave is up to the machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import AsOfBeforeSince, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, PersistClient, Staged
from tidemark.persist.fsck import fsck
from tidemark.persist.part import MissingPart, read_part
from tidemark.persist.updates import updates_schema

SHARD = "s"
SCHEMA = pa.schema([("k", pa.string()), ("pad", pa.binary())])
UPDATES = updates_schema(SCHEMA)
ROLES = ("write", "write", "read", "upkeep", "upkeep", "sweep")
CONFIG = Config(
    lease_ms=2_000,  # Short, so that the leases of dead readers end within the test.
    part_bytes=64 * 1024,
    row_group_bytes=16 * 1024,
    rollup_every=16,
    inline_batches=4,
    small_batches=4,
    level_bytes=4 * 1024,
)

ENOUGH = 50
"""Acknowledged appends before the test may end."""

HISTORY = 20
"""How many timestamps stay readable."""


@pytest.mark.parametrize(
    "seconds", [10, pytest.param(300, marks=pytest.mark.soak)], ids=["short", "soak"]
)
def test_nothing_acknowledged_is_lost_or_doubled(
    tmp_path: Path, chance: random.Random, seconds: int
):
    workers = [Worker(tmp_path, role, chance.randrange(10**9)) for role in ROLES]
    kills = 0
    try:
        deadline = SYSTEM_CLOCK.monotonic() + seconds
        # On a busy machine it goes on until there was something to lose.
        while SYSTEM_CLOCK.monotonic() < deadline or len(noted(tmp_path)[1]) < ENOUGH:
            victim = chance.choice(workers)
            # Few die while they are still starting, most in the middle of their work.
            if chance.random() < 0.9:
                victim.wait_until_at_work()
            victim.run_for(chance.random() * 0.5)
            kills += victim.kill()
            victim.start()
    finally:
        for worker in workers:
            worker.kill()
    complaints = sorted(tmp_path.glob("*.failed"))
    assert not complaints, complaints[0].read_text()

    intents, acked = noted(tmp_path)
    appended = verify(open_client(tmp_path), intents, acked)
    state = open_client(tmp_path).state(SHARD)
    print(
        f"{kills} kills, {len(acked)} appends acknowledged, {appended} in the shard; since "
        f"{state.since}, upper {state.upper}, {len(state.batches)} batches, seqno {state.seqno}"
    )
    assert kills, "nobody was killed"


class Worker:
    """One process at a time, started again under a fresh name."""

    def __init__(self, folder: Path, role: str, seed: int):
        self._folder, self._role, self._seed = folder, role, seed
        self._life = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._life += 1
        name = f"{self._role}-{self._seed}-{self._life}"
        command = [sys.executable, __file__, str(self._folder), self._role, name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def wait_until_at_work(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.readline()  # "at work", or the end

    def run_for(self, seconds: float) -> None:
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> bool:
        """SIGKILL; False if it had already ended by itself (and then left a complaint)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait() == -signal.SIGKILL


def verify(client: PersistClient, intents: dict[str, list], acked: set[str]) -> int:
    """Compare the shard with what was noted; how many appends it holds."""
    report = fsck(client, SHARD)
    assert not report.errors, report.errors
    upper = client.state(SHARD).upper
    assert upper.time
    found = contents(client, upper.time - 1)
    marks = {k for k in found if k.startswith("mark:")}
    committed = {mark.removeprefix("mark:") for mark in marks}
    assert acked <= committed, f"lost: {sorted(acked - committed)[:5]}"
    assert committed <= intents.keys(), "something that nobody wrote"
    model: Counter[str] = Counter()
    for name in committed:
        for k, diff in intents[name]:
            model[k] += diff
    assert found == {k: diff for k, diff in model.items() if diff}
    check_sweeping(client)
    return len(committed)


def check_sweeping(client: PersistClient) -> None:
    """When the leases of the dead have ended and all is swept, only live parts are left."""
    client.clock.sleep(2 * CONFIG.lease_ms / 1000)
    client.sweep(SHARD, older_than_ms=0)
    stored = {key for key, _ in client.blob.list()}
    assert stored == {part.key for part in client.state(SHARD).parts if part.key is not None}
    assert not fsck(client, SHARD).errors


def noted(folder: Path) -> tuple[dict[str, list], set[str]]:
    intents, acked = {}, set()
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines():
            try:
                kind, name, rows = json.loads(line)
            except ValueError:
                continue  # Cut short by the kill: then it was not noted before going on.
            if kind == "intent":
                intents[name] = rows
            else:
                acked.add(name)
    return intents, acked


def contents(client: PersistClient, as_of: int) -> dict[str, int]:
    table = client.open_reader(SHARD, columns=["k"]).snapshot(as_of)
    keys = table["k"].to_pylist()
    assert len(set(keys)) == len(keys), "a snapshot is consolidated"
    return dict(zip(keys, table["_diff"].to_pylist(), strict=True))


def open_client(folder: Path) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/c.db", config=CONFIG
    )


# What runs in the workers


def write(client: PersistClient, folder: Path, name: str, chance: random.Random) -> None:
    """Append rows and take back earlier ones of one's own, each append with a mark of its own."""
    log = open(folder / f"{name}.log", "a")  # noqa: SIM115 - the process never closes it
    writer = client.open_writer(SHARD, schema=SCHEMA, key=("k",))

    def note(*what: object) -> None:
        log.write(json.dumps(what) + "\n")
        log.flush()
        os.fsync(log.fileno())

    mine: list[str] = []
    count = 0
    while True:
        count += 1
        intent = f"{name}/{count}"
        fresh = [f"{intent}/{n}" for n in range(chance.randrange(4))]
        doomed = [mine.pop() for _ in range(min(len(mine), chance.randrange(4)))]
        rows = [(f"mark:{intent}", 1), *((k, 1) for k in fresh), *((k, -1) for k in doomed)]
        note("intent", intent, rows)
        # Large ones go to Blob, small ones travel in the state.
        pad = chance.randbytes(20_000) if chance.random() < 0.2 else b""
        while True:
            lower = writer.fetch_upper()
            assert lower.time is not None
            upper = Frontier(lower.time + chance.randrange(1, 4))
            updates = pa.table(
                [
                    pa.array([k for k, _ in rows]),
                    pa.array([pad if k.startswith("mark:") else b"" for k, _ in rows], pa.binary()),
                    pa.array([lower.time] * len(rows)),
                    pa.array([diff for _, diff in rows]),
                    pa.nulls(len(rows), pa.string()),
                ],
                schema=UPDATES,
            )
            try:
                outcome = writer.compare_and_append(
                    handed_on(writer.stage(updates)) if chance.random() < 0.3 else updates,
                    lower=lower,
                    upper=upper,
                )
            except InvalidUsage as error:
                # The sweeper was faster than this process: it must stage anew.
                assert "stage the updates again" in str(error)  # noqa: PT017
                continue
            if isinstance(outcome, Appended):
                break
        note("ack", intent, None)
        mine += fresh


def handed_on(batch: Staged) -> Staged:
    """As it would come from another process. If it loses, it stays behind as garbage."""
    return Staged.from_bytes(batch.to_bytes())


def read(client: PersistClient, folder: Path, name: str, chance: random.Random) -> None:
    """Whatever is readable is whole: the same at the same time, and marks never go away."""
    reader = client.open_reader(SHARD)
    known: set[str] = set()
    while True:
        upper = reader.wait_for_upper_past(0)
        assert upper is not None
        assert upper.time
        as_of = upper.time - 1
        begun = client.clock.now_ms()
        try:
            with reader.lease(as_of) as lease:
                found = contents(client, as_of)
                leased: Counter[str] = Counter()
                for batch in lease.batches():
                    for part in batch.parts:
                        table = read_part(client.blob, part, UPDATES)
                        columns = (table[c].to_pylist() for c in ("k", "_time", "_diff"))
                        for k, time, diff in zip(*columns, strict=True):
                            leased[k] += diff if time <= as_of else 0
                assert found == {k: n for k, n in leased.items() if n}, "two reads differ"
                assert found == contents(open_client(folder), as_of), "another client differs"
        except AsOfBeforeSince:
            continue  # Between the look at the upper and the lease the shard moved on.
        except (MissingPart, Unavailable):
            if client.clock.now_ms() <= begun + CONFIG.lease_ms:
                raise
            continue  # Too slow for its own lease.
        assert set(found.values()) <= {1}
        marks = {k for k in found if k.startswith("mark:")}
        assert known <= marks
        known = marks


def upkeep(client: PersistClient, folder: Path, name: str, chance: random.Random) -> None:
    """Let since follow the upper, compact and collect."""
    reader, since = client.open_reader(SHARD), client.open_critical_since(SHARD)
    upper = 0
    while True:
        reached = reader.wait_for_upper_past(upper)
        assert reached is not None
        assert reached.time
        upper = reached.time
        since.downgrade(Frontier(max(upper - HISTORY, 0)))
        client.maintain(SHARD)


def sweep(client: PersistClient, folder: Path, name: str, chance: random.Random) -> None:
    """Give up what others stage, much too early: they must notice and lose nothing."""
    while True:
        client.clock.sleep(chance.random() * 0.2)
        client.sweep(SHARD, older_than_ms=chance.randrange(100, 3_000))


def main(folder: Path, role: str, name: str) -> None:
    chance = random.Random(name)
    try:
        client = open_client(folder)
        print("at work", flush=True)
        roles = {"write": write, "read": read, "upkeep": upkeep, "sweep": sweep}
        roles[role](client, folder, name, chance)
    except BaseException:
        (folder / f"{name}.failed").write_text(traceback.format_exc())
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
