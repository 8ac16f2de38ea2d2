"""Random queries of every kind give what PostgreSQL gives, over random histories.

Each seed makes a history and a few queries (`fuzz.py`). All are planned; in batch, the plan is one Spark query over
the tables at a few times; maintained, the view is kept through the history and compared at every
time. A query that we refuse as unsupported is counted by reason, and the run says how many were.
What fails is cut down and printed as a test (`shrink.py`).

    pytest tests/oracle/test_fuzz.py -k 'batch and 7'
    TIDEMARK_ORACLE_SEEDS=500 pytest tests/oracle/test_fuzz.py -m soak
    TIDEMARK_SHRINK_SECONDS=300                                     how long to cut down, per failure
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator

import checks
import pytest
from checks import (
    Bench,
    Difference,
    batch_difference,
    maintained_difference,
    planned_difference,
)
from fuzz import random_tree
from histories import History, random_history
from maintained import everything_is_large
from postgres import Refused, database
from pyspark.sql import SparkSession
from query_tree import Query, sql
from shrink import at_one_time, reproduction, shrunk

from services import PostgresServer
from tidemark.compute.plan import Join, OuterJoin, Plan, inputs_of, with_inputs
from tidemark.errors import SqlError, TidemarkError, Unsupported

PLANNED = range(301, 321)
BATCH = range(1, 21)
MAINTAINED = range(101, 110)
SCANNED = range(151, 155)
SOAK = range(5000, 5000 + int(os.environ.get("TIDEMARK_ORACLE_SEEDS", "40")))
SHRINK_SECONDS = float(os.environ.get("TIDEMARK_SHRINK_SECONDS", "60"))
MAX_REFUSED = {"planned": 0.1, "batch": 0.1, "maintained": 0.1}
"""A larger share of refused queries would prove little."""

Check = Callable[[Bench, History, str], Difference | None]


class Tally:
    """How many queries were compared, and why the others were not."""

    def __init__(self) -> None:
        self.compared: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()

    def refuse(self, mode: str, reason: str) -> None:
        self.refused[mode] += 1
        self.reasons[mode, reason] += 1

    def share_refused(self, mode: str) -> float:
        return self.refused[mode] / max(1, self.refused[mode] + self.compared[mode])

    def __str__(self) -> str:
        lines = [
            f"{mode}: {self.compared[mode]} queries compared, {self.refused[mode]} refused"
            f" ({self.share_refused(mode):.0%})"
            for mode in MAX_REFUSED
        ]
        reasons = self.reasons.most_common()
        return "\n".join([*lines, *(f"{n:5} {mode}: {why}" for (mode, why), n in reasons)])


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    counts = Tally()
    yield counts
    print(f"\n{counts}")


@pytest.fixture(scope="module")
def bench(
    spark: SparkSession, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Bench:
    return Bench(spark, database(postgres_server.uri()), tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("seed", PLANNED)
def test_planned(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "planned", planned_difference, queries=10)


@pytest.mark.parametrize("seed", BATCH)
def test_batch(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "batch", batch_difference)


@pytest.mark.parametrize("seed", MAINTAINED)
def test_maintained(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "maintained", maintained_difference)


@pytest.mark.parametrize("seed", SCANNED)
def test_scanned(seed: int, bench: Bench, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrated by scans, and every change taken for a large one."""
    everything_is_large(monkeypatch)
    _check(seed, bench, tally, "maintained", maintained_difference)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak_batch(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "planned", planned_difference, queries=50)
    _check(seed, bench, tally, "batch", batch_difference, queries=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak_maintained(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "maintained", maintained_difference, queries=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak_scanned(
    seed: int, bench: Bench, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything_is_large(monkeypatch)
    _check(seed, bench, tally, "maintained", maintained_difference, queries=3)


RECURSIVE = {
    # What can be reached from where, and by which number of steps at most three.
    """SELECT k, length(s) FROM t0 UNION
       SELECT r.a, length(t.s) FROM reach r JOIN t0 t ON r.b = t.k""": "a integer, b integer",
    """SELECT k, 1 FROM t0 UNION
       SELECT length(t.s), r.b + 1 FROM reach r JOIN t0 t ON r.a = t.k WHERE r.b < 3""": (
        "a integer, b integer"
    ),
}


@pytest.mark.parametrize("query", RECURSIVE)
def test_recursion(query: str, bench: Bench) -> None:
    """The one thing that PostgreSQL spells differently."""
    theirs = f"WITH RECURSIVE reach (a, b) AS ({query}) SELECT a, b FROM reach"
    ours = f"WITH MUTUALLY RECURSIVE reach ({RECURSIVE[query]}) AS ({query}) SELECT a, b FROM reach"
    found = batch_difference(bench, random_history(2), theirs, ours=ours)
    assert found is None, found


def test_few_queries_are_refused(tally: Tally) -> None:
    """Runs last: says how much of the above was real."""
    for mode, most in MAX_REFUSED.items():
        if tally.compared[mode] + tally.refused[mode] >= 20:
            assert tally.share_refused(mode) <= most, str(tally)


def test_a_planted_bug_is_found_and_cut_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that takes every LEFT JOIN for a JOIN: the fuzzer must be able to fail."""
    honest = checks.plan_of

    def inner(plan: Plan) -> Plan:
        plan = with_inputs(plan, tuple(inner(input_) for input_ in inputs_of(plan)))
        if isinstance(plan, OuterJoin) and plan.kind == "left":
            return Join((plan.left, plan.right), plan.on)
        return plan

    monkeypatch.setitem(globals(), "SHRINK_SECONDS", 15.0)
    monkeypatch.setattr(checks, "plan_of", lambda history, sql: inner(honest(history, sql)))
    history = random_history(3)
    rng = random.Random("planted")
    for _ in range(40):
        query = random_tree(rng, history.tables)
        with contextlib.suppress(Refused, Unsupported):
            if "LEFT JOIN" in sql(query) and (
                found := batch_difference(bench, history, sql(query))
            ):
                break
    else:
        pytest.fail("the planted bug was not found")
    said = _explained(0, 0, bench, history, query, "batch", batch_difference, found)
    small = said.split('sql = """')[1].split('"""')[0]
    assert "LEFT JOIN" in small
    assert len(small) <= len(sql(query))


def _check(
    seed: int, bench: Bench, tally: Tally, mode: str, check: Check, *, queries: int = 1
) -> None:
    history = random_history(seed)
    rng = random.Random(f"fuzz {seed}")
    for number in range(queries):
        query = random_tree(rng, history.tables)
        try:
            found = check(bench, history, sql(query))
        except Refused:
            continue  # Not a query at all: a FULL JOIN that PostgreSQL cannot do, say.
        except Unsupported as reason:
            tally.refuse(mode, reason.message)
            continue
        except TidemarkError as error:
            found = Difference(-1, f"{type(error).__name__}: {error}")
        tally.compared[mode] += 1
        if found is not None:
            pytest.fail(_explained(seed, number, bench, history, query, mode, check, found))


def _explained(
    seed: int,
    number: int,
    bench: Bench,
    history: History,
    query: Query,
    mode: str,
    check: Check,
    found: Difference,
) -> str:
    kind = found.what.split(":")[0]

    def fails(history: History, query: Query) -> bool:
        """In the same way: another failure may be another bug, or nonsense."""
        with contextlib.suppress(Refused, Unsupported):
            try:
                again = check(bench, history, sql(query))
            except TidemarkError as error:
                if isinstance(error, SqlError) and kind not in ("SqlError", "DataError"):
                    return False
                again = Difference(-1, f"{type(error).__name__}: {error}")
            return again is not None and again.what.split(":")[0] == kind
        return False

    culprit = ""
    if mode == "maintained" and found.time >= 0:
        other = batch_difference(bench, history, sql(query), times=[found.time])
        culprit = "batch is right there: it is the engine" if other is None else f"batch: {other}"
    if mode == "batch" and found.time >= 0:
        alone = at_one_time(history, found.time)
        history = alone if fails(alone, query) else history
    small_history, small = shrunk(history, query, fails, seconds=SHRINK_SECONDS)
    return "\n".join(
        [
            f"seed {seed}, query {number}, {mode}, time {found.time}: {found.what}",
            culprit,
            sql(query),
            "cut down to:",
            reproduction(small_history, small, mode=mode),
        ]
    )
