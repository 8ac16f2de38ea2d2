"""Maintained views equal batch Spark SQL over the same rows, at every timestamp.

Random histories, random queries; then the same under everything that may happen to a dataflow:
it is thrown away and made anew, it dies between two of its appends, the shards below it are
compacted, the changes are large. A failure names its seed and prints the history:

    pytest tests/oracle/test_views.py -k 'quiet and 7'
    TIDEMARK_ORACLE_SEEDS=500 pytest tests/oracle -m soak        seeds 1000..1499, all variants
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import History, random_history
from maintained import Died, Inputs, View, die_after, everything_is_large
from pyspark.sql import SparkSession
from queries import random_query

from tidemark.compute import dataflow
from tidemark.errors import Unsupported
from tidemark.persist import Config, PersistClient, arrange

QUIET = range(1, 5)
RESTARTS = range(101, 105)
LARGE = range(201, 203)
SOAK = range(1000, 1000 + int(os.environ.get("TIDEMARK_ORACLE_SEEDS", "40")))


@pytest.mark.parametrize("seed", QUIET)
def test_quiet(seed: int, client: PersistClient, spark: SparkSession, tmp_path: Path) -> None:
    """Ticks, one after the other."""
    _check(seed, client, spark, tmp_path, views=2)


@pytest.mark.parametrize("seed", RESTARTS)
def test_restarts(
    seed: int,
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Restarts, crashes between appends, compaction; long backlogs; tiny arrangements."""
    client = _shrink_persist(client, monkeypatch)
    _check(seed, client, spark, tmp_path, views=2, between=_trouble(random.Random(seed)))


@pytest.mark.parametrize("seed", LARGE)
def test_large(
    seed: int,
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything through the path of large changes, with a restart now and then."""
    everything_is_large(monkeypatch)
    _check(seed, client, spark, tmp_path, views=2, between=_trouble(random.Random(seed)))


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK)
def test_soak(
    seed: int,
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(f"soak {seed}")
    if rng.random() < 0.2:
        everything_is_large(monkeypatch)
    if rng.random() < 0.5:
        client = _shrink_persist(client, monkeypatch)
    between = _trouble(rng) if rng.random() < 0.6 else None
    _check(seed, client, spark, tmp_path, views=3, steps=7, between=between)


def _check(
    seed: int,
    client: PersistClient,
    spark: SparkSession,
    folder: Path,
    *,
    views: int,
    steps: int = 4,
    between: Callable[[PersistClient, View], None] | None = None,
) -> None:
    history = random_history(seed, steps=steps)
    inputs = Inputs(client, history)
    inputs.load()
    made = _views(views, history, client, spark, folder)
    for view in made:
        view.start()
        view.check()
    for step in history.steps:
        inputs.advance(step)
        for view in made:
            try:
                if between is not None:
                    between(client, view)
                view.tick()
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(view.explain(f"tick failed: {error}")) from error
            view.check()
    for view in made:
        assert view.checked == history.end, view.explain("did not get to the end")
        view.check_peek()


def _views(
    count: int, history: History, client: PersistClient, spark: SparkSession, folder: Path
) -> list[View]:
    rng = random.Random(f"queries {history.seed}")
    made: list[View] = []
    while len(made) < count:
        query = random_query(rng, history.tables)
        try:
            view = View(f"v{len(made)}", query, history, client=client, spark=spark, folder=folder)
        except Unsupported:
            continue  # Now and then columns turn out as expressions, on which no join can be kept.
        view.ask_oracle()
        made.append(view)
    return made


def _trouble(rng: random.Random) -> Callable[[PersistClient, View], None]:
    """What happens to a view between two ticks."""

    def happen(client: PersistClient, view: View) -> None:
        assert view.flow is not None
        if rng.random() < 0.4:
            for shard in view.shards:
                client.maintain(shard)
        choice = rng.random()
        if choice < 0.5:
            which = rng.randrange(len(view.flow.dataflows))
            die_after(view.flow, which, rng.randrange(len(view.flow.dataflows[which].shards)))
            with contextlib.suppress(Died):
                view.tick()
        if choice < 0.7:
            if rng.random() < 0.3:
                view.flow.stop()
            view.start()

    return happen


def _shrink_persist(client: PersistClient, monkeypatch: pytest.MonkeyPatch) -> PersistClient:
    """Compaction always due, holds always moved, arrangements merged at once, backlogs long."""
    monkeypatch.setattr(dataflow, "HOLD_EVERY_MS", 0)
    monkeypatch.setattr(dataflow, "MAX_TIMES", 2)
    monkeypatch.setattr(arrange, "MAX_TAIL_RUNS", 1)
    monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 2)
    config = Config(small_batches=2, inline_batches=2, rollup_every=3, inline_bytes=1_500)
    assert client.address is not None
    return PersistClient.open(**client.address._asdict(), config=config)
