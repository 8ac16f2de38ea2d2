"""Decoding, with both kinds of sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from decoding import Decode, Message
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from services import missing
from tidemark.spark.session import LARGE, SMALL, kafka_jars, session_for
from tidemark.storage.kafka.decode import decoder
from tidemark.storage.kafka.spec import Format


@pytest.fixture(scope="session")
def avro_jars() -> None:
    if not kafka_jars():
        missing("Avro (run make kafka)")


@pytest.fixture(params=["small", "large"])
def decode(spark: SparkSession, request: pytest.FixtureRequest) -> Decode:
    session = session_for(spark, SMALL if request.param == "small" else LARGE)

    def run(format: Format, messages: Sequence[Message], **options: Any) -> list[dict[str, Any]]:
        rows = [(i, None if m is None else bytearray(m)) for i, m in enumerate(messages)]
        frame = session.createDataFrame(rows, "i INT, m BINARY").repartition(1)
        found = frame.select("i", decoder(format, **options)(F.col("m")).alias("d"))
        kinds = {f.name: f.dataType for f in found.schema["d"].dataType}  # pyright: ignore
        wanted = {c.name: F.lit(None).cast(c.type.spark) for c in format.shape}
        typed = session.range(1).select(*(v.alias(k) for k, v in wanted.items())).schema
        assert list(kinds) == ["_error", "_there", *wanted]
        assert {f.name: f.dataType for f in typed} == {k: kinds[k] for k in wanted}
        found = found.orderBy("i").select("d.*").collect()
        return [row.asDict() for row in found]

    return run
