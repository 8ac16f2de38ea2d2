"""Random queries of every kind give what PostgreSQL gives, over random histories.

Each seed makes a history and a few queries (`fuzz.py`). In batch, the plan is one Spark query over
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

import pytest
from checks import Bench, Difference, batch_difference, maintained_difference
from fuzz import random_tree
from histories import History, random_history
from postgres import Refused, database
from pyspark.sql import SparkSession
from query_tree import Query, sql
from shrink import at_one_time, reproduction, shrunk

from services import PostgresServer
from tidemark.errors import SqlError, TidemarkError, Unsupported

BATCH = range(1, 41)
MAINTAINED = range(101, 113)
SOAK = range(5000, 5000 + int(os.environ.get("TIDEMARK_ORACLE_SEEDS", "40")))
SHRINK_SECONDS = float(os.environ.get("TIDEMARK_SHRINK_SECONDS", "60"))
MAX_UNSUPPORTED = 0.25
"""A larger share of refused queries proves nothing."""

Check = Callable[[Bench, History, str], Difference | None]


class Tally:
    """How many queries were compared, and why the others were not."""

    def __init__(self) -> None:
        self.compared = 0
        self.reasons: Counter[str] = Counter()

    def __str__(self) -> str:
        refused = self.reasons.total()
        lines = [f"{self.compared} queries compared, {refused} refused"]
        return "\n".join([*lines, *(f"{n:5} {why}" for why, n in self.reasons.most_common())])


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


@pytest.mark.parametrize("seed", BATCH)
def test_batch(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "batch", batch_difference)


@pytest.mark.parametrize("seed", MAINTAINED)
def test_maintained(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "maintained", maintained_difference)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak_batch(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "batch", batch_difference, queries=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak_maintained(seed: int, bench: Bench, tally: Tally) -> None:
    _check(seed, bench, tally, "maintained", maintained_difference, queries=3)


def test_few_queries_are_refused(tally: Tally) -> None:
    """Runs last: says how much of the above was real."""
    print(tally)
    if tally.compared + tally.reasons.total() >= 20:
        assert tally.reasons.total() <= MAX_UNSUPPORTED * tally.compared, str(tally)


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
            tally.reasons[f"{mode}: {reason.message}"] += 1
            continue
        except TidemarkError as error:
            found = Difference(-1, f"{type(error).__name__}: {error}")
        tally.compared += 1
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

    if mode == "batch" and found.time >= 0:
        alone = at_one_time(history, found.time)
        history = alone if fails(alone, query) else history
    small_history, small = shrunk(history, query, fails, seconds=SHRINK_SECONDS)
    return "\n".join(
        [
            f"seed {seed}, query {number}, {mode}, time {found.time}: {found.what}",
            sql(query),
            "cut down to:",
            reproduction(small_history, small, mode=mode),
        ]
    )
