"""The baselines of `tidemark bench views` compute the view that they are compared by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from services import missing
from tidemark.bench import baselines
from tidemark.bench.baselines import Baseline, ForeachBatch, Pipelines, pipelines_missing
from tidemark.bench.orders import Workload
from tidemark.persist import PersistClient

TICKS = 5


@pytest.fixture
def workload(client: PersistClient) -> Iterator[Workload]:
    return Workload(client, 1_000)


def _expected(workload: Workload) -> list[tuple]:
    region = dict(zip(*(c.to_pylist() for c in workload.customers().columns), strict=True))
    groups: dict[str, list[Decimal]] = {}
    for row in workload.orders().to_pylist():
        groups.setdefault(region[row["customer"]], []).append(row["amount"])
    return sorted((r, len(all_), sum(all_), max(all_)) for r, all_ in groups.items())


def _found(baseline: Baseline) -> list[tuple]:
    view: pa.Table = baseline.result()
    assert view.column_names == ["region", "orders", "total", "largest"]
    return sorted(zip(*(c.to_pylist() for c in view.columns), strict=True))


def test_foreach_batch_is_right_after_each_tick(
    spark: SparkSession,
    workload: Workload,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(baselines, "FOLD", 3)
    orders = workload.orders()
    with closing(ForeachBatch(spark, tmp_path / "f", orders, workload.customers())) as baseline:
        for tick in range(TICKS):
            assert baseline.tick(workload.tick()) > 0
            assert _found(baseline) == _expected(workload)
            if tick == 1:
                baseline.rest()


@pytest.mark.soak
def test_pipelines_are_right_after_a_refresh(workload: Workload, tmp_path: Path):
    if problem := pipelines_missing():
        missing(problem)
    orders = workload.orders()
    with closing(
        Pipelines(tmp_path / "p", orders, workload.customers(), master="local[2]")
    ) as baseline:
        assert _found(baseline) == _expected(workload)
        for again in (baseline.refresh, baseline.run):
            baseline.change(workload.tick())
            assert again() > 0
            assert _found(baseline) == _expected(workload)


def test_missing_packages_say_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(tmp_path))
    monkeypatch.setattr(baselines, "_importable", lambda *_: False)
    assert "make pipelines" in str(pipelines_missing())
