"""A query's rows into this process, no more of them than it is given leave to hold.

`DataFrame.toArrow` takes what comes, however much, and a task has all rows of its partition in the
JVM's memory before the first one leaves it. So the bound is kept in both places:

    here         batches are counted as they arrive; beyond the limit the query is stopped, and what
                 still arrives is let go
    in the JVM   no partition gives more than `PROBED` rows, which tells how large rows are; if that
                 was not all, the query runs again with as many as memory is there for
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.serializers import ArrowCollectSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket  # pyright: ignore[reportPrivateUsage]

from tidemark.errors import TooLarge

PROBED = 20_000
HEAP_SHARE = 16
"""A partition's rows may take one part in so many of the JVM's heap."""

VERDICT_SECONDS = 60
"""Spark says how a query ended as soon as its rows are sent, if it says so at all."""

LESS = "ask for less with LIMIT or WHERE, SUBSCRIBE, read with the Spark data source"

_ROW = "_row"
_WITHIN = (1 << 33) - 1
"""The bits of a monotonically increasing id that count the rows of a partition."""


def collected(
    frame: DataFrame, *, max_bytes: int, stop: Callable[[], None], few: bool = False
) -> pa.Table:
    """All rows of `frame`; more than `max_bytes` (0: as many as there are) are an error.

    `stop` ends the job that computes them. With `few` rows for sure, the JVM has room for them.
    """
    if not max_bytes:
        return frame.toArrow()
    if few:
        return _streamed(frame, max_bytes, stop)
    found = _streamed(_limited(frame, PROBED), max_bytes, stop)
    if found.num_rows < PROBED:
        return found
    jvm: Any = frame.sparkSession.sparkContext._jvm
    heap = jvm.java.lang.Runtime.getRuntime().maxMemory()
    most = max(PROBED, heap // HEAP_SHARE * found.num_rows // max(found.nbytes, 1))
    counted = frame.withColumn(_ROW, F.monotonically_increasing_id())
    found = _streamed(_limited(counted, most), max_bytes, stop, more=8 * found.num_rows)
    places = pc.bit_wise_and(found[_ROW], pa.scalar(_WITHIN, pa.int64()))
    last = pc.max(places).as_py()
    found = found.drop_columns([_ROW])
    if found.nbytes > max_bytes:
        raise too_large(max_bytes)
    if last is not None and last >= most - 1:
        raise TooLarge(
            f"the result has more rows in one place than the cluster's heap of {heap >> 20} MiB"
            " can hand over",
            hint=f"{LESS}, or use a cluster with more MEMORY",
        )
    return found


def too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the result is larger than max_result_size allows ({max_bytes} bytes)",
        hint=f"{LESS}, or SET max_result_size",
    )


def _limited(frame: DataFrame, rows: int) -> DataFrame:
    """At most so many rows of each partition; SQL has only a limit for all of them together."""
    session = frame.sparkSession
    jvm: Any = session.sparkContext._jvm
    # A limit is a global one over a local one.
    whole: Any = frame.limit(min(rows, (1 << 31) - 1))._jdf
    plan = whole.queryExecution().analyzed().child()
    limited = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(limited, session)


def _streamed(
    frame: DataFrame, max_bytes: int, stop: Callable[[], None], *, more: int = 0
) -> pa.Table:
    """`more` is for columns that are not part of the result."""
    counting = _Counted(max_bytes + more, stop)
    port, secret, server = frame._jdf.collectAsArrowToPython()  # pyright: ignore
    batches: list[pa.RecordBatch] = []
    try:
        try:
            with _load_from_socket((port, secret), counting) as stream:  # pyright: ignore
                batches = list(stream)
        finally:
            _hear_out(server, frame)
    except (PySparkException, Py4JError, IndexError):
        # A query that was stopped, or that ended before it could be: some batches were let go.
        if not counting.exceeded:
            raise
    if counting.exceeded:
        raise too_large(max_bytes)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.Table.from_batches(batches, batches[0].schema if batches else schema).cast(schema)


def _hear_out(server: Any, frame: DataFrame) -> None:
    """Raise what went wrong with a query whose rows have come. One that was cancelled may have
    lost the thread that would say so."""
    jvm: Any = frame.sparkSession.sparkContext._jvm
    patience = jvm.scala.concurrent.duration.Duration.create(VERDICT_SECONDS, "seconds")
    with unwrap_spark_exception():
        server.getResult(patience)


class _Counting(ArrowStreamSerializer):
    """What comes from the JVM, until it is too much."""

    def __init__(self, max_bytes: int, stop: Callable[[], None]):
        super().__init__()
        self.exceeded = False
        self._left = max_bytes
        self._stop = stop

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        for batch in super().load_stream(stream):
            self._left -= batch.nbytes
            if self._left >= 0:
                yield batch
            elif not self.exceeded:
                self.exceeded = True
                with contextlib.suppress(PySparkException):
                    self._stop()


class _Counted(ArrowCollectSerializer, _Counting):
    """The same put in order, which PySpark knows how to do."""
