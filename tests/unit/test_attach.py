"""Why a collection is no table in Spark, in words that help."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tidemark.region.attach import reason

OURS = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback:
  File "source.py", line 71, in schema
tidemark.errors.InvalidUsage: shard u17 is empty: nothing was ever appended to it
 SQLSTATE: 38000"""
SPARKS = "[INVALID_SCHEMA_OR_RELATION_NAME] `a b` is not a valid name. SQLSTATE: 42602\n..."


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (OURS, "shard u17 is empty: nothing was ever appended to it"),
        (SPARKS, SPARKS.splitlines()[0]),
        ("", ""),
    ],
)
def test_the_reason_is_what_was_wrong(said: str, why: str):
    assert reason(PySparkException(message=said)) == why
