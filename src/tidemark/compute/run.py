"""Runs a delta plan's queries on Spark: small changes in one partition, large ones in parallel.

The text is the same, the leaves' binding and the session's settings differ. A leaf is a temporary
view: over an Arrow table in a tick, over a snapshot scan when hydrating.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.compute import delta
from tidemark.compute.shape import Shape
from tidemark.persist import DIFF, ERR, TIME
from tidemark.spark.frames import Frames, local_frame
from tidemark.spark.prepared import NotPreparable, Prepared, preparable
from tidemark.spark.session import LARGE, PREPARED, SMALL, session_for
from tidemark.types import Column, SqlType, arrow_schema

SMALL_CHANGE = 100_000
"""Rows of a query's leaves, all together, up to which one partition is faster than several."""


class Runner:
    def __init__(self, spark: SparkSession, shape: Shape, group: str):
        self.large = session_for(spark, LARGE)
        self._small = session_for(spark, SMALL)
        self._again = session_for(spark, PREPARED) if preparable(spark) else None
        self._prepared: dict[str, Prepared | None] = {}
        self._shape = shape
        self._group = group
        self._cached: list[DataFrame] = []
        reduces = shape.reduction is not None
        self._block_sql = {s: delta.block_sql(shape.block, small=s) for s in (True, False)}
        self._reduce_sql = (
            {s: delta.reduce_sql(shape, small=s) for s in (True, False)} if reduces else {}
        )

    def block(self, leaves: list[pa.Table]) -> pa.Table:
        named = {f"leaf{i}": table for i, table in enumerate(leaves)}
        types = pa.schema(
            [
                *(pa.field(f"o{i}", e.type.arrow) for i, e in enumerate(self._shape.block.outputs)),
                pa.field(ERR, pa.string()),
                pa.field("_t", pa.int32()),
                pa.field("_d", pa.int64()),
            ]
        )
        return self._run(self._block_sql, named).cast(types)

    def reduce(self, rows: pa.Table, state: dict[str, pa.Table]) -> pa.Table:
        shape = self._shape
        assert shape.reduction is not None
        acc = delta.accumulators(shape.block, shape.reduction)
        for i in acc.summed:
            rows = rows.append_column(f"w{i}", _weight(rows[f"a{i}"], rows["_d"], acc.args[i]))
        found = self._run(self._reduce_sql, {"delta": rows, **state})
        types = [column.type.arrow for column in (*acc.columns, *shape.columns)]
        types += [pa.bool_(), pa.string(), pa.int32(), pa.int64()]
        return found.cast(
            pa.schema([pa.field(n, t) for n, t in zip(found.column_names, types, strict=True)])
        )

    def hydrate(
        self, leaves: dict[str, Frames], columns: tuple[Column, ...], as_of: int
    ) -> dict[str, DataFrame]:
        """Frames of everything that the dataflow's shards should contain at `as_of`."""
        spark = self.large
        errors = []
        for i, get in enumerate(self._shape.block.leaves):
            picked = [F.col(f"`{c.name}`").alias(f"c{j}") for j, c in enumerate(get.columns)]
            leaves[get.id].ok.select(
                *picked, F.lit(0).alias("_t"), F.col(DIFF).alias("_d")
            ).createOrReplaceTempView(f"leaf{i}")
        for frames in leaves.values():
            if frames.may_err:
                errors.append(frames.err.select(F.col(ERR), F.col(DIFF).alias("_d")))
        block = spark.sql(self._block_sql[False])
        acc = None
        if self._shape.reduction is not None:
            block = self._cache(block)
            acc = delta.accumulators(self._shape.block, self._shape.reduction)
        errors.append(block.where(F.col(ERR).isNotNull()).select(ERR, "_d"))
        good = block.where(F.col(ERR).isNull())
        outs = [f"o{i}" for i in range(len(columns))]
        shards: dict[str, DataFrame] = {}
        if acc is None:
            rows = good.select(*outs, "_d")
        else:
            keys = [f"k{i}" for i in range(len(acc.keys))]
            args = [f"a{i}" for i in range(len(acc.args))]
            changes = good.drop(ERR).toDF(*keys, *args, "_t", "_d")
            weights = [
                F.expr(f"{delta.weight_sql(f'a{i}', delta.sum_type(acc.args[i]))} AS w{i}")
                for i in acc.summed
            ]
            changes.select("*", *weights).createOrReplaceTempView("delta")
            self._empty("acc", acc.state)
            for arg in acc.ordered:
                self._empty(f"head{arg}", (*acc.head(arg), Column(DIFF, delta.BIGINT)))
                values = changes.where(F.col(f"a{arg}").isNotNull()).select(
                    *keys, F.col(f"a{arg}").alias("v"), "_d"
                )
                shards[f"head{arg}"] = _updates(values, [*keys, "v"], as_of)
            versions = self._cache(spark.sql(self._reduce_sql[False]))
            names = [column.name for column in acc.state]
            shards["acc"] = _updates(versions.select(*names, "_d"), names, as_of)
            errors.append(versions.where(F.col(ERR).isNotNull()).select(ERR, "_d"))
            rows = versions.where(F.col(ERR).isNull() & F.col("_keep")).select(*outs, "_d")
        rows = rows.toDF(*(column.name for column in columns), "_d")
        output = _updates(rows, [column.name for column in columns], as_of)
        for failed in errors:
            nulls = [F.lit(None).cast(c.type.spark).alias(c.name) for c in columns]
            summed = failed.groupBy(ERR).agg(F.sum("_d").alias(DIFF)).where(F.col(DIFF) != 0)
            bad = summed.select(*nulls, F.lit(as_of).cast("long").alias(TIME), DIFF, ERR)
            output = output.unionAll(bad)
        shards["output"] = output
        return shards

    def uncache(self) -> None:
        for frame in self._cached:
            frame.unpersist()
        self._cached.clear()

    def close(self) -> None:
        self.uncache()
        for prepared in self._prepared.values():
            if prepared is not None:
                prepared.close()

    def _run(self, sql: dict[bool, str], leaves: dict[str, pa.Table]) -> pa.Table:
        small = sum(table.num_rows for table in leaves.values()) <= SMALL_CHANGE
        session = self._small if small else self.large
        session.sparkContext.setJobGroup(self._group, self._group)
        prepared = self._prepare(sql[small], leaves) if small else None
        if prepared is not None:
            return prepared.run(leaves)
        for name, table in leaves.items():
            local_frame(session, table).createOrReplaceTempView(name)
        return session.sql(sql[small]).toArrow()

    def _prepare(self, sql: str, leaves: dict[str, pa.Table]) -> Prepared | None:
        """The text as a plan that is kept; None if it has none that may be run twice."""
        if sql not in self._prepared and self._again is not None:
            schemas = {name: table.schema for name, table in leaves.items()}
            try:
                self._prepared[sql] = Prepared(self._again, sql, schemas)
            except NotPreparable:
                self._prepared[sql] = None
        return self._prepared.get(sql)

    def _cache(self, frame: DataFrame) -> DataFrame:
        frame = frame.persist()
        self._cached.append(frame)
        return frame

    def _empty(self, name: str, columns: tuple[Column, ...]) -> None:
        local_frame(self.large, arrow_schema(columns).empty_table()).createOrReplaceTempView(name)


def _weight(values: pa.ChunkedArray, diffs: pa.ChunkedArray, type_: SqlType) -> pa.ChunkedArray:
    """Values times diffs as wide decimals, nulls as nothing."""
    exact = delta.sum_type(type_)
    wide = pc.cast(pc.fill_null(values, 0), pa.decimal256(38, exact.decimal[1]))
    product = pc.multiply(wide, pc.cast(diffs, pa.decimal256(19, 0)))
    return pc.cast(product, exact.arrow)


def _updates(rows: DataFrame, names: list[str], as_of: int) -> DataFrame:
    """Rows with `_d` as consolidated updates at `as_of`."""
    columns = [F.col(f"`{name}`") for name in names]
    summed = rows.groupBy(*columns).agg(F.sum("_d").alias(DIFF)).where(F.col(DIFF) != 0)
    time = F.lit(as_of).cast("long").alias(TIME)
    return summed.select(*columns, time, DIFF, F.lit(None).cast("string").alias(ERR))
