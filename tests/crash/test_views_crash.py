"""A process that keeps views is killed at every failpoint and at random moments, while their inputs
change. In the end each view is what batch says, at every time there ever was.

    CRASH_SEED=17 pytest tests/crash/test_views_crash.py         replays the choices of a run

What the seed fixes is what is written and who dies where; how far the process comes between two
appends of the inputs is up to the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving import DEADLINE, eventually

from batches import check_view
from compute_child import TABLES, VIEWS, open_client, plan_of
from services import dying_with_parent
from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.plan import collections_of
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, Appended, PersistClient
from tidemark.persist.fsck import fsck
from tidemark.persist.updates import updates_schema
from tidemark.types import arrow_schema

CHILD = Path(__file__).parent.parent / "compute_child.py"

HYDRATING = (
    "dataflow.hydrating:2",  # the second of all; the first is complete
    "dataflow.large-head0-written",  # one of a reduction's shards, the others not
    "dataflow.large-acc-written",
    "dataflow.large-hydrated",  # all of a fragment's shards, and nothing after it
    "fixpoint.round-made",
)
TICKING = (
    "dataflow.body-done",
    "dataflow.tail-done",
    "dataflow.head0-written",  # of two shards of state one
    "dataflow.acc-written",  # state, but no output
    "dataflow.rows-written",
    "dataflow.pending-written",
    "dataflow.output-written",  # a fragment's output, but not the view above it
    "fixpoint.round-done",
)


def test_killed_while_hydrating(
    tmp_path: Path, request: pytest.FixtureRequest, chance: random.Random
) -> None:
    run(tmp_path, request, chance, large=True, deaths=list(HYDRATING[1:4]))


def test_killed_in_a_tick(
    tmp_path: Path, request: pytest.FixtureRequest, chance: random.Random
) -> None:
    deaths = [f"{name}:{chance.randrange(3, 6)}" for name in chance.sample(TICKING[2:], 4)]
    run(tmp_path, request, chance, deaths=[*deaths, None])


@pytest.mark.soak
@pytest.mark.parametrize("attempt", range(5))
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_killed_for_long(
    tmp_path: Path, request: pytest.FixtureRequest, chance: random.Random, large: bool, attempt: int
) -> None:
    """Every failpoint, in any order, and as many kills at random."""
    begin = [name for name in HYDRATING if large or "large" not in name]
    then = [f"{name}:{chance.randrange(1, 12)}" for name in TICKING]
    deaths: list[str | None] = [*then, *[None] * len(then)]
    chance.shuffle(deaths)
    run(tmp_path, request, chance, large=large, deaths=[*chance.sample(begin, len(begin)), *deaths])


def run(
    folder: Path,
    request: pytest.FixtureRequest,
    chance: random.Random,
    *,
    deaths: list[str | None] | list[str],
    large: bool = False,
) -> None:
    """One life of the process for each death: at a failpoint, or (None) at any moment; then one
    more in which it catches up."""
    client = open_client(folder)
    for shard in (*TABLES, *VIEWS):
        client.open_critical_since(shard, "test").downgrade(Frontier.MIN)
    inputs = Inputs(client, chance)
    inputs.append(1)
    try:
        for death in deaths:
            print("to die at", death or "random")
            inputs.append(chance.randrange(1, 4))
            child = Child(folder, death, large=large)
            try:
                if death is None:
                    child.wait_until_running()
                    for _ in range(chance.randrange(1, 5)):
                        inputs.append(1)
                        SYSTEM_CLOCK.sleep(chance.random() * 0.4)
                else:
                    child.wait_until_dead(inputs, client)
            finally:
                child.kill()
        child = Child(folder, None, large=large)
        try:
            inputs.append(3)
            eventually(
                "the views catch up",
                lambda: child.is_alive() and inputs.reached(client),
                deadline=DEADLINE,
            )
        finally:
            child.kill()
        print(f"{len(deaths)} deaths, {inputs.upper} times")
        spark = request.getfixturevalue("spark")  # A JVM more, only now.
        for view in VIEWS:
            plan = plan_of(view)
            read = {each: each for each in collections_of(plan)}
            times = range(inputs.upper)
            check_view(spark, client, plan, inputs=read, output=view, times=times)
            assert not fsck(client, view).errors
    finally:
        client.close()


class Inputs:
    """The tables in shards; each `append` is a few times at which a few things happen."""

    def __init__(self, client: PersistClient, chance: random.Random):
        self.upper = 0
        self._chance = chance
        self._writers = {
            name: client.open_writer(name, schema=arrow_schema(columns))
            for name, columns in TABLES.items()
        }
        self._rows: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in TABLES}

    def append(self, times: int) -> None:
        upper = self.upper + times
        for name, writer in self._writers.items():
            updates = [
                (*row, time, diff, None)
                for time in range(self.upper, upper)
                for row, diff in self._happening(name, time)
            ]
            schema = updates_schema(arrow_schema(TABLES[name]))
            columns = list(zip(*updates, strict=True)) or [()] * len(schema)
            names = [*(column.name for column in TABLES[name]), TIME, DIFF, ERR]
            arrays = {
                each: pa.array(values, schema.field(each).type)
                for each, values in zip(names, columns, strict=True)
            }
            table = pa.table([arrays[each] for each in schema.names], schema=schema)
            outcome = writer.compare_and_append(
                table, lower=Frontier(self.upper), upper=Frontier(upper)
            )
            assert outcome == Appended(Frontier(upper))
        self.upper = upper

    def reached(self, client: PersistClient) -> bool:
        """Whether the views have seen it all."""
        return all(client.state(view).upper >= Frontier(self.upper) for view in VIEWS)

    def _happening(self, table: str, time: int) -> list[tuple[tuple[Any, ...], int]]:
        chance, rows = self._chance, self._rows[table]
        found = []
        # A recursion is expensive to check: few of its times differ.
        often = 3 if not time else chance.choice((0, 0, 0, 1) if table == "e" else (0, 1, 2))
        for _ in range(often):
            here = sorted(rows)
            if here and chance.random() < 0.45:
                row, diff = chance.choice(here), -1
            else:
                row, diff = self._row(table, time), chance.choice((1, 1, 2))
            rows[row] += diff
            self._rows[table] = rows = +rows
            found.append((row, diff))
        return found

    def _row(self, table: str, time: int) -> tuple[Any, ...]:
        chance = self._chance
        match table:
            case "t":
                return chance.randrange(4), chance.choice("xyz")
            case "u":
                return chance.randrange(4), chance.randrange(100)
            case "s":
                begin = time + chance.randrange(-3, 6)
                return chance.randrange(1000), begin, begin + chance.randrange(1, 9)
            case _:
                return chance.randrange(5), chance.randrange(5)


class Child:
    """The process and its JVM."""

    def __init__(self, folder: Path, death: str | None, *, large: bool):
        self._log = folder / "child.log"
        self._death = death
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD), str(folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "TIDEMARK_DRIVER_MEMORY": "1g",
                    "TIDEMARK_FAILPOINT": death or "",
                    "LARGE": "yes" if large else "",
                    "PYSPARK_SUBMIT_ARGS": (
                        "--conf spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 pyspark-shell"
                    ),
                },
                preexec_fn=dying_with_parent(signal.SIGKILL),
            )
        self._begun = self._log.stat().st_size

    def is_alive(self) -> bool:
        assert self._process.poll() is None, f"it ended by itself:\n{self._said()}"
        return True

    def wait_until_running(self) -> None:
        eventually("it runs", lambda: self.is_alive() and b"\nrunning\n" in self._output())

    def wait_until_dead(self, inputs: Inputs, client: PersistClient) -> None:
        """Things happen, one after the other as they are seen, until it comes to its failpoint."""

        def died() -> bool:
            if self._process.poll() is not None:
                return True
            if inputs.reached(client):
                inputs.append(1)
            return False

        eventually(f"it dies at {self._death}", died, every=0.02)
        assert self._process.returncode == -signal.SIGKILL, self._said()

    def kill(self) -> None:
        """SIGKILL, for all that is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _output(self) -> bytes:
        with open(self._log, "rb") as log:
            log.seek(self._begun)
            return b"\n" + log.read()

    def _said(self) -> str:
        return self._output().decode(errors="replace")[-4000:]
