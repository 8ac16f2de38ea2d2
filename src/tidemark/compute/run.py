"""Runs a delta plan's queries on Spark: small changes in one partition, large ones in parallel.

The text is the same, the leaves' binding and the session's settings differ. A leaf is a temporary
view: over an Arrow table in a tick, over a snapshot scan when hydrating. A text that is run often is
planned once and for all (spark/prepared.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from pyspark.sql import DataFrame, SparkSession

from tidemark.compute.delta import body_sql
from tidemark.compute.expr import Col
from tidemark.compute.queries import tail_sql
from tidemark.compute.reduce import first_sql
from tidemark.compute.shape import Block, Reduction, Shape
from tidemark.persist import ERR
from tidemark.spark.frames import local_frame
from tidemark.spark.prepared import NotPreparable, Prepared, preparable
from tidemark.spark.session import LARGE, PREPARED, SMALL, session_for

log = structlog.get_logger("dataflow")

SMALL_CHANGE = 100_000
"""Rows of a query's leaves, all together, up to which one partition is faster than several."""

BROADCAST_BYTES = 32 * 1024 * 1024
"""Leaves of a large change that are joined without shuffling the others."""

PREPARE_AFTER = 3
"""Runs of a query before its plan is kept: to prepare it costs several of them."""

RANK, COUNT = "_t", "_d"
RANKED = (pa.field(RANK, pa.int32()), pa.field(COUNT, pa.int64()))


class Runner:
    def __init__(self, spark: SparkSession, shape: Shape, group: str):
        self.large = session_for(spark, LARGE)
        self._small = session_for(spark, SMALL)
        self._again = session_for(spark, PREPARED) if preparable(spark) else None
        self._runs: Counter[str] = Counter()
        self._prepared: dict[str, Prepared | None] = {}
        self._shape = shape
        self._group = group
        self._cached: list[DataFrame] = []
        self._body = {small: body_sql(shape, small=small) for small in (True, False)}
        self._tail = {small: tail_sql(shape, small=small) or "" for small in (True, False)}
        reduces = isinstance(shape.tail, Reduction)
        self._first = first_sql(shape) if reduces else self._tail[False]
        self._body_schema = pa.schema(
            [
                *(pa.field(f"o{i}", type_.arrow) for i, type_ in enumerate(shape.body)),
                pa.field(ERR, pa.string()),
                *RANKED,
            ]
        )

    def body(self, leaves: list[pa.Table]) -> pa.Table:
        """Changes of the body's outputs, given each leaf's rows (c0.., _t, _d)."""
        if all(map(_is_plain, self._shape.blocks)):
            return self._picked(leaves)
        if not self._fruitful(leaves):
            return self._body_schema.empty_table()
        named = {f"leaf{i}": table for i, table in enumerate(leaves)}
        return self._run(self._body, named).cast(self._body_schema)

    def tail(self, leaves: Mapping[str, pa.Table], schema: pa.Schema) -> pa.Table:
        """Versions of groups; the columns have the types of `schema`, by position."""
        found = self._run(self._tail, leaves)
        return found.rename_columns(schema.names).cast(schema)

    def large_body(self) -> DataFrame:
        """The body over temporary views of `large` that somebody has made.

        It is asked for a few times. To join two again is cheaper than to keep what came of it.
        """
        body = self.large.sql(self._body[False]).drop(RANK)
        leaves = sum(len(block.leaves) for block in self._shape.blocks)
        return self._cache(body) if leaves > 2 else body

    def first_tail(self) -> DataFrame:
        """The tail over views of `large`, where nothing was there before."""
        found = self._cache(self.large.sql(self._first))
        found.count()  # From now on Spark knows how large it is.
        return found

    def uncache(self) -> None:
        for frame in self._cached:
            frame.unpersist()
        self._cached.clear()

    def close(self) -> None:
        self.uncache()
        for prepared in self._prepared.values():
            if prepared is not None:
                prepared.close()

    def _fruitful(self, leaves: list[pa.Table]) -> bool:
        """False if every block lacks a row to join with, or a change."""
        first = 0
        for block in self._shape.blocks:
            own = leaves[first : first + len(block.leaves)]
            first += len(block.leaves)
            newest = [pc.max(leaf[RANK]).as_py() for leaf in own]
            if None not in newest and max(newest) >= 0:
                return True
        return False

    def _picked(self, leaves: list[pa.Table]) -> pa.Table:
        """Columns as they are need no query."""
        tables = []
        for block, leaf in zip(self._shape.blocks, leaves, strict=True):
            # What was there before is no change.
            fresh = leaf.filter(pc.greater_equal(leaf[RANK], 0))
            picked = [fresh[f"c{o.index}"] for o in block.outputs if isinstance(o, Col)]
            count = pc.negate(fresh[COUNT]) if block.negated else fresh[COUNT]
            errors = pa.nulls(fresh.num_rows, pa.string())
            columns = [*picked, errors, fresh[RANK], count]
            tables.append(pa.table(columns, names=self._body_schema.names))
        return pa.concat_tables(table.cast(self._body_schema) for table in tables)

    def _run(self, sql: dict[bool, str], leaves: Mapping[str, pa.Table]) -> pa.Table:
        small = sum(table.num_rows for table in leaves.values()) <= SMALL_CHANGE
        session = self._small if small else self.large
        session.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
        if small and (prepared := self._prepare(sql[True], leaves)) is not None:
            return prepared.run(leaves)
        for name, table in leaves.items():
            frame = local_frame(session, table)
            if not small and table.nbytes <= BROADCAST_BYTES:
                frame = frame.hint("broadcast")  # Spark does not know how large it is.
            frame.createOrReplaceTempView(name)
        return session.sql(sql[small]).toArrow()

    def _prepare(self, sql: str, leaves: Mapping[str, pa.Table]) -> Prepared | None:
        """The text as a plan that is kept; None if it has none that may be run twice."""
        self._runs[sql] += 1
        if self._again is None or self._runs[sql] <= PREPARE_AFTER:
            return None
        if sql not in self._prepared:
            schemas = {name: table.schema for name, table in leaves.items()}
            try:
                self._prepared[sql] = Prepared(self._again, sql, schemas)
            except NotPreparable as reason:
                log.debug("not prepared", dataflow=self._group, reason=str(reason))
                self._prepared[sql] = None
        return self._prepared[sql]

    def _cache(self, frame: DataFrame) -> DataFrame:
        frame = frame.persist()
        self._cached.append(frame)
        return frame


def _is_plain(block: Block) -> bool:
    """True for a block that only picks columns of its one leaf."""
    simple = len(block.leaves) == 1 and not block.predicates and not block.flat
    return simple and all(isinstance(output, Col) for output in block.outputs)


def timed(table: pa.Table, times: np.ndarray) -> pa.ChunkedArray:
    """The times that a table's ranks stand for."""
    return pa.chunked_array([pa.array(times[table[RANK].to_numpy()], pa.int64())])
