"""Queries that are analysed and planned once and run again and again, on other rows each time.

A maintained view asks the same questions every tick. Of a question over a thousand rows, Spark
spends most on finding out how to answer it; a `Prepared` keeps the answer to that.

    prepared = Prepared(session, "SELECT k, sum(v) AS v FROM (SELECT /*+ COALESCE(1) */ * FROM t)"
                        " GROUP BY k", {"t": schema})
    prepared.run({"t": monday}), prepared.run({"t": tuesday}), ...

How: a leaf is a Spark RDD of one partition that holds Arrow batches, as `createDataFrame` makes it
of a table that is too large for a local relation. Spark sends what the partition holds along with
every task, and a plan that was run before builds its tasks anew from the same partition. So a run
puts other batches into the partitions and collects the same frame once more: one job, no Catalyst.

    run(tables) -> Arrow batches -> file -> JVM -> partition of each leaf -> toArrow()

P1  Nothing between the leaves and the result outlives a run. Shuffles, broadcasts, subqueries and
    cached tables do: running such a plan again returns what it found the first time. So a plan is
    prepared if it consists of `REPEATABLE` operators, which keep nothing, and is refused if not.
P2  Nothing in the plan depends on when it was made: no current time, no random seed.
P3  Nothing in the plan depends on the rows it was made for: leaves are planned as of unknown
    contents and moderate size.
P4  A partition is replaced only while no job reads it: one run at a time.

A plan without shuffles has one partition from leaf to result, which the text asks for with
`SELECT /*+ COALESCE(1) */`: around every leaf, around constants in a union, and around a join or
a full join of which another join or an aggregate goes on, for Spark does not see by itself that
those have one partition, too. An outer join needs an equality (else it is a broadcast), distinct
aggregates and semi joins are shuffled. Any master will do: the rows travel within the tasks.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.spark.frames import quoted, spark_schema

REPEATABLE = frozenset(
    f"{name}Exec"
    for name in (
        *("RDDScan", "LocalTableScan", "OneRowRelation", "EmptyRelation", "Range"),
        *("Project", "Filter", "Coalesce", "Union", "Expand", "Generate", "Sort"),
        *("HashAggregate", "ObjectHashAggregate", "SortAggregate", "Window", "WindowGroupLimit"),
        *("SortMergeJoin", "ShuffledHashJoin", "CartesianProduct"),
        *("LocalLimit", "GlobalLimit", "WholeStageCodegen"),
    )
) | {"InputAdapter"}
"""Operators that keep nothing from one run to the next (P1)."""

UNREPEATABLE = ("CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PYTHON_UDF")
"""What must not be in a text: Spark replaces it by a constant when it plans (P2)."""

_numbers = itertools.count()


class NotPreparable(Exception):
    """The plan may not be run twice: run the text each time instead."""


def preparable(spark: SparkSession) -> bool:
    """Whether plans can be kept here at all: not through Spark Connect, which has no partitions."""
    return hasattr(spark, "_jsparkSession")


class Prepared:
    """One SQL text over named leaves, analysed and planned once, run again and again.

    `session` has the settings `session.PREPARED`; while this is made, the leaves' names are its
    temporary views. Rows pass through a file in `folder`, or where Spark has its own such files.
    Runs of one `Prepared` wait for each other, those of several do not.
    """

    def __init__(
        self,
        session: SparkSession,
        sql: str,
        leaves: Mapping[str, pa.Schema],
        *,
        folder: Path | None = None,
    ):
        if not preparable(session):
            raise NotPreparable("plans cannot be kept through Spark Connect")
        self._lock = threading.Lock()
        self._jvm: Any = session._jvm
        # By its name alone, a class is looked for in every package, each time.
        self._from_file: Any = self._jvm.PythonSQLUtils.readArrowStreamFromFile
        folder = folder or Path(session.sparkContext._temp_dir)  # type: ignore[attr-defined]
        self._file = folder / f"prepared-{os.getpid()}-{next(_numbers)}.arrow"
        self._schemas = {name: _as_spark_has_it(schema) for name, schema in leaves.items()}
        self._partitions: dict[str, Any] = {}
        try:
            for name, schema in leaves.items():
                frame, self._partitions[name] = self._leaf(session, schema)
                frame.createOrReplaceTempView(quoted(name))
            self._frame = session.sql(sql)
        finally:
            self._file.unlink(missing_ok=True)
            for name in self._partitions:
                session.catalog.dropTempView(name)
        self._empty = self._batches([]).toIndexedSeq()
        _check(self._jvm, self._frame)

    def run(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """What `session.sql(sql).toArrow()` finds with `tables` as views of the leaves' names."""
        with self._lock:
            try:
                self._put(tables)
                return self._frame.toArrow()
            finally:
                # What a table took is free until the next one comes.
                for partition in self._partitions.values():
                    _set(partition, self._empty)

    def close(self) -> None:
        """Waits for a run that is on."""
        with self._lock:
            self._file.unlink(missing_ok=True)
            self._partitions.clear()

    def _leaf(self, session: SparkSession, schema: pa.Schema) -> tuple[DataFrame, Any]:
        """A frame of no rows, and the partition in which others can be put."""
        empty = pa.RecordBatch.from_pylist([], schema=_as_spark_has_it(schema))
        jframe = self._jvm.PythonSQLUtils.toDataFrame(
            self._batches([empty]), spark_schema(schema).json(), session._jsparkSession
        )
        plan = jframe.queryExecution().analyzed()
        if _kind(plan) != "LogicalRDD":
            raise NotPreparable(f"a leaf is a {_kind(plan)}: the session is not one for this")
        (partition,) = plan.rdd().partitions()
        if _kind(partition) != "ParallelCollectionPartition":
            raise NotPreparable(f"a leaf's partition is a {_kind(partition)}")
        return DataFrame(jframe, session), partition

    def _put(self, tables: Mapping[str, pa.Table]) -> None:
        sent: list[pa.RecordBatch] = []
        places = {}
        for name, schema in self._schemas.items():
            table = tables[name]
            if not table.schema.equals(schema):
                table = table.select(schema.names).cast(schema)
            batches = table.combine_chunks().to_batches()
            places[name] = len(sent), len(sent) + len(batches)
            sent += batches
        found = self._batches(sent).toIndexedSeq()
        for name, partition in self._partitions.items():
            _set(partition, found.slice(*places[name]))

    def _batches(self, batches: Iterable[pa.RecordBatch]) -> Any:
        """The batches as Scala's iterator of byte arrays. Py4J would take bytes, as text."""
        with self._file.open("wb") as file:
            for batch in batches:
                file.write(batch.serialize())
        return self._from_file(str(self._file))


def _as_spark_has_it(schema: pa.Schema) -> pa.Schema:
    return to_arrow_schema(spark_schema(schema), timezone="UTC")


def _set(partition: Any, batches: Any) -> None:
    getattr(partition, "values_$eq")(batches)


def _check(jvm: Any, frame: DataFrame) -> None:
    jframe: Any = frame._jdf
    execution = jframe.queryExecution()
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    for name in UNREPEATABLE:
        if execution.analyzed().containsPattern(getattr(pattern, name)()):
            raise NotPreparable(f"the query contains a {name}")
    plan = execution.executedPlan()
    if not plan.subqueriesAll().isEmpty():
        raise NotPreparable("the query contains a subquery")
    kept = sorted({_kind(node) for node in _nodes(plan)} - REPEATABLE)
    if kept:
        raise NotPreparable(f"the plan contains {', '.join(kept)}")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _kind(node: Any) -> str:
    return node.getClass().getSimpleName()
