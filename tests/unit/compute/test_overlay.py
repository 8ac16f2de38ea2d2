"""What is not committed yet, on top of what is there."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.compute.overlay import overlaid, overlaid_frame
from tidemark.persist import DIFF
from tidemark.spark.frames import local_frame
from tidemark.types import DOUBLE, TEXT, Column

COLUMNS = (Column("a", TEXT), Column("b", DOUBLE))


def rows(*given: tuple[str | None, float | None, int]) -> pa.Table:
    schema = pa.schema([("a", pa.string()), ("b", pa.float64()), (DIFF, pa.int64())])
    return pa.table(list(map(list, zip(*given, strict=True))), schema=schema)


THERE = rows(("x", 1.0, 2), ("y", None, 1), ("z", 0.0, 1))
CHANGES = rows(
    ("x", 1.0, -1),
    ("y", None, -1),
    ("y", None, 1),
    ("z", 0.0, -1),
    ("new", float("nan"), 1),
    ("new", float("nan"), 1),
    ("gone", 1.0, 1),
    ("gone", 1.0, -1),
    ("never asked for", 1.0, -1),
)
EXPECTED = Counter({("x", "1.0"): 1, ("y", "None"): 1, ("new", "nan"): 2})


def test_rows_with_diffs() -> None:
    found = overlaid(THERE, CHANGES)
    counts = {(r["a"], str(r["b"])): r[DIFF] for r in found.to_pylist()}
    assert counts == EXPECTED
    some = overlaid(THERE.select(["a", DIFF]), CHANGES)
    assert {r["a"]: r[DIFF] for r in some.to_pylist()} == {"x": 1, "y": 1, "new": 2}


def test_rows_of_which_no_column_matters() -> None:
    count = rows(("x", 1.0, 2)).select([DIFF])
    assert overlaid(count, rows(("y", 1.0, 3))).to_pylist() == [{DIFF: 5}]
    assert overlaid(count, rows(("x", 1.0, -2))).num_rows == 0


def test_a_frame(spark: SparkSession) -> None:
    there = pa.table({"c0": ["x", "x", "y", "z"], "c1": [1.0, 1.0, None, 0.0]})
    found = overlaid_frame(spark, local_frame(spark, there), CHANGES, COLUMNS)
    assert found.columns == ["c0", "c1"]
    assert Counter((row[0], str(row[1])) for row in found.collect()) == EXPECTED
