"""Shards as Spark DataFrames: exact snapshots and deltas.

Parts are Parquet files of the shard's own schema, so Spark's vectorised reader takes the list of
those that matter as it is; what the state carries inline joins in as a local relation. A lease
keeps the parts in place while Spark reads them. Small snapshots come through Arrow instead: a
Spark job that opens files costs more than the rows do.

    snapshot    the collection at one time: every row once, with `_diff`, the number of its copies
    rows        the same, each row as often as it counts and without `_diff`
    counted     between the two: with `_diff`, but a row may come more than once
    delta       the updates in [lower, upper), with `_time` and `_diff`

Most of a shard lies in one large batch that compaction has summed up at one time: the *base*.
The other batches that a snapshot needs, the *overlay*, are few rows, so the base is not grouped
again. With the overlay summed up by itself, into rows that came (+) and rows that went (-):

    rows,       base without -, and + as it is                        one scan of the base
    counted
    snapshot    base rows that the overlay does not touch, and the    two scans
                touched ones grouped with it

The joins broadcast the overlay, so the base is not shuffled either. Where this does not hold (no
such base, an overlay that is large beside it) everything is grouped, which is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from functools import lru_cache, partial, reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidemark.errors import DataError, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import filters
from tidemark.persist.blob import Blob
from tidemark.persist.client import PersistClient
from tidemark.persist.filters import Filter, Predicate
from tidemark.persist.holds import check_as_of
from tidemark.persist.part import read_part
from tidemark.persist.runs import schema_of
from tidemark.persist.state import Batch, ColumnStats, Part, State
from tidemark.persist.updates import (
    DIFF,
    ERR,
    TIME,
    between,
    concat,
    consolidate,
    row_names,
    split_errors,
)

SMALL_ROWS = 50_000
"""Snapshots up to this many stored updates are read through Arrow."""

LOCAL_OVERLAY_ROWS = 250_000
"""Overlays up to this many updates are summed up here and sent along with the query."""

OVERLAY_SHARE = 0.25
"""An overlay of more than this share of the base is grouped with it instead."""


class Frames(NamedTuple):
    """Good rows and errors, apart: what is wrong with a collection must not hide in its rows."""

    ok: DataFrame
    err: DataFrame
    may_err: bool
    """False if there is no error for sure, so that nobody need look."""

    def sound(self) -> DataFrame:
        """The good rows, if there is no error; a collection in error fails with its error."""
        if self.may_err and (failed := self.err.take(1)):
            raise DataError(failed[0][ERR])
        return self.ok


@lru_cache(maxsize=1_000)
def spark_schema(schema: pa.Schema) -> StructType:
    try:
        return from_arrow_schema(schema, prefer_timestamp_ntz=True)
    except Exception as error:
        raise InvalidUsage(f"Spark cannot read this shard: {error}") from error


def local_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table as a local relation: projecting or filtering it needs no Spark job."""
    return spark.createDataFrame(table, schema=spark_schema(table.schema))


@contextmanager
def snapshot(
    spark: SparkSession,
    client: PersistClient,
    shard_id: str,
    as_of: int,
    *,
    columns: list[str] | None = None,
    filter: Filter | None = None,
    consolidated: bool = True,
) -> Iterator[Frames]:
    """The collection at `as_of`: its row columns and `_diff`, each row once.

    Of `columns` only and of rows that pass `filter`, if given; then rows of different columns may
    repeat. Not `consolidated`, the updates come as they are stored, which is cheaper and enough
    for whoever sums up anyway. Valid inside the `with` block: the lease on its parts ends with it.
    """
    with _scan(spark, client, shard_id, as_of, filter) as scan:
        ok = scan.consolidated() if consolidated else scan.updates()
        yield Frames(scan.projected(ok, columns, DIFF), scan.errors(), scan.may_err)


@contextmanager
def rows(
    spark: SparkSession,
    client: PersistClient,
    shard_id: str,
    as_of: int,
    *,
    columns: list[str] | None = None,
    filter: Filter | None = None,
) -> Iterator[Frames]:
    """The collection at `as_of` as a table: each row as often as it counts, those that count less
    than once not at all."""
    with _scan(spark, client, shard_id, as_of, filter) as scan:
        yield Frames(scan.projected(scan.rows(), columns), scan.errors(), scan.may_err)


@contextmanager
def counted(
    spark: SparkSession, client: PersistClient, shard_id: str, as_of: int
) -> Iterator[Frames]:
    """The collection at `as_of`, with `_diff`, for whoever adds up: no row counts less than once,
    but it may come more than once. Cheaper than `snapshot` beside a base."""
    with _scan(spark, client, shard_id, as_of, None) as scan:
        yield Frames(scan.counted(), scan.errors(), scan.may_err)


@contextmanager
def delta(
    spark: SparkSession,
    client: PersistClient,
    shard_id: str,
    lower: Frontier,
    upper: Frontier,
    *,
    columns: list[str] | None = None,
    filter: Filter | None = None,
    consolidated: bool = False,
) -> Iterator[Frames]:
    """What happened in [lower, upper), with `_time` and `_diff`. `upper` must have been reached."""
    low, high = lower.time, upper.time
    if low is None or not lower <= upper:
        raise InvalidUsage(f"no interval: from {lower} to {upper}")
    state = client.state(shard_id)
    check_as_of(state, None)
    if not upper <= state.upper:
        raise InvalidUsage(f"shard {shard_id} is complete to {state.upper}, not {upper}")
    with client.open_reader(shard_id).lease(max(low - 1, 0) if low else None) as lease:
        scan = _Scan(spark, client, lease.state, low, high, filter)
        ok = scan.updates(TIME, DIFF)
        if consolidated:
            ok = summed_up(ok, [*scan.names, TIME])
        yield Frames(scan.projected(ok, columns, TIME, DIFF), scan.errors(TIME), scan.may_err)


@contextmanager
def _scan(
    spark: SparkSession, client: PersistClient, shard_id: str, as_of: int, filter: Filter | None
) -> Iterator[_Scan]:
    reader = client.open_reader(shard_id)
    check_as_of(client.state(shard_id), as_of)
    reader.wait_for_upper_past(as_of)
    with reader.lease(as_of) as lease:
        yield _Scan(spark, client, lease.state, 0, as_of + 1, filter)


class _Scan:
    """The updates of a state with low <= time < high, and what can be made of them."""

    def __init__(
        self,
        spark: SparkSession,
        client: PersistClient,
        state: State,
        low: int,
        high: int | None,
        filter: Filter | None,
    ):
        if not state.schemas:
            raise InvalidUsage(f"shard {state.shard_id} is empty: nothing was appended to it yet")
        self._spark = spark
        self._blob = client.blob
        self._shard_id = state.shard_id
        self._schema = schema_of(state)
        self._key = state.key
        self.names = row_names(self._schema)
        self._low, self._high = low, high
        self._clauses = filters.clauses(filter, self._schema) if filter else None
        self._batches = [(batch, self._wanted(batch)) for batch in state.batches]
        self._parts = [part for _, parts in self._batches for part in parts]
        self.may_err = any(part.errors for part in self._parts)
        self._small = sum(part.rows for part in self._parts) <= SMALL_ROWS

    # What comes out.

    def projected(self, frame: DataFrame, columns: list[str] | None, *meta: str) -> DataFrame:
        if columns is None:
            return frame
        unknown = [name for name in columns if name not in self.names]
        if unknown:
            raise InvalidUsage(
                f"no such columns: {', '.join(unknown)}", hint=f"columns: {', '.join(self.names)}"
            )
        return frame.select(*map(column, (*columns, *meta)))

    def updates(self, *meta: str) -> DataFrame:
        """Good updates as they are stored."""
        return self._of(self._parts, [*self.names, *(meta or (DIFF,))])

    def consolidated(self) -> DataFrame:
        if self._small:
            return self._local(self._summed_here(self._parts))
        base, rest = self._split()
        if not base:
            return summed_up(self.updates(), self.names)
        scanned = self._of(base, [*self.names, DIFF])
        if not rest:
            return scanned
        overlay = self.overlay(rest)
        changes = overlay.changes()
        touched = overlay.matched(scanned, changes, "left_semi")
        untouched = overlay.matched(scanned, changes, "left_anti")
        return untouched.unionAll(summed_up(touched.unionAll(changes), self.names))

    def rows(self) -> DataFrame:
        if self._small:
            table = self._summed_here(self._parts)
            # Of rows that do not pass a filter, parts that speak for them may have been skipped.
            return self._copies(self._local(table)) if self._clauses else self._repeated(table)
        base, rest = self._split()
        least, most = _bounds(base) if base else (0, 0)
        if least < 1:
            # Rows that the overlay must make up for are not the base's alone.
            return self._copies(self.consolidated())
        left, came = self._overlaid(base, rest, most)
        left = left.select(*map(column, self.names)) if most == 1 else self._copies(left)
        return reduce(DataFrame.unionAll, [left, *came])

    def counted(self) -> DataFrame:
        base, rest = ([], []) if self._small else self._split()
        least, most = _bounds(base) if base else (0, 0)
        if least < 1:
            return self.consolidated().where(column(DIFF) > 0)
        left, came = self._overlaid(base, rest, most)
        once = [frame.withColumn(DIFF, F.lit(1).cast("bigint")) for frame in came]
        return reduce(DataFrame.unionAll, [left.where(column(DIFF) > 0), *once])

    def errors(self, *meta: str) -> DataFrame:
        """`_err` and the number of its copies (and `_time`)."""
        names = [ERR, *meta]
        parts = [part for part in self._parts if part.errors]
        found = self._scanned(parts, [*names, DIFF]).where(column(ERR).isNotNull())
        return summed_up(found, names) if parts else found

    # Base and overlay.

    def _split(self) -> tuple[list[Part], list[Part]]:
        """The parts of the base, and the others; no base if there is none worth it."""
        most, chosen = max(self._flat(), default=(0, -1))
        overlay = [p for at, (_, parts) in enumerate(self._batches) if at != chosen for p in parts]
        if sum(part.rows for part in overlay) > OVERLAY_SHARE * most:
            return [], self._parts
        return self._batches[chosen][1], overlay

    def _flat(self) -> Iterator[tuple[int, int]]:
        """Sizes and places of the batches in which every row is once: one run in run order, which
        holds every update once, and all of it at one time."""
        for at, (batch, parts) in enumerate(self._batches):
            one_run = len(batch.runs) == 1 and all(part.ordered for part in batch.parts)
            times = {time for part in batch.parts for time in (part.min_time, part.max_time)}
            if parts and one_run and len(times) == 1:
                yield sum(part.rows for part in parts), at

    def _overlaid(
        self, base: list[Part], rest: list[Part], most: int
    ) -> tuple[DataFrame, list[DataFrame]]:
        """What the overlay leaves of the base, in which no row counts more than `most`; and the
        rows that came, if there is an overlay."""
        scanned = self._of(base, [*self.names, DIFF])
        if not rest:
            return scanned, []
        overlay = self.overlay(rest)
        if overlay.went is None:
            left = scanned
        elif most == 1:
            left = overlay.matched(scanned, overlay.went, "left_anti")
        else:
            count = scanned[DIFF] + F.coalesce(overlay.went[DIFF], F.lit(0))
            rows = [scanned[quoted(name)] for name in self.names]
            joined = overlay.matched(scanned, overlay.went, "left")
            left = joined.select(*rows, count.alias(DIFF))
        return left, [overlay.came]

    def overlay(self, parts: list[Part]) -> _Overlay:
        """The overlay summed up, here if it is small enough, else by Spark."""
        if sum(part.rows for part in parts) > LOCAL_OVERLAY_ROWS:
            changes = summed_up(self._of(parts, [*self.names, DIFF]), self.names)
            came = self._copies(changes.where(column(DIFF) > 0))
            return _Overlay(lambda: changes, came, changes.where(column(DIFF) < 0), None)
        # Taken apart here: Spark would do that each time that it plans a query.
        table = self._summed_here(parts)
        went = table.filter(pc.less(table[DIFF], 0))
        came = table.filter(pc.greater(table[DIFF], 0))
        return _Overlay(
            lambda: self._local(table),
            self._copies(self._local(came)) if self._clauses else self._repeated(came),
            self._local(went) if went.num_rows else None,
            self._sieve(table),
        )

    def _sieve(self, overlay: pa.Table) -> _Sieve | None:
        """By an integer of the key, if there is one: Spark looks integers up fastest."""
        for name in self._key:
            if pa.types.is_integer(overlay[name].type) and not overlay[name].null_count:
                return _Sieve.of(self._spark, name, overlay[name].to_numpy().astype(np.int64))
        return None

    # Reading.

    def _wanted(self, batch: Batch) -> list[Part]:
        """The batch's parts that can hold something that is asked for."""
        return [
            part
            for part in batch.parts
            if part.max_time >= self._low
            and (self._high is None or part.min_time < self._high)
            and (self._clauses is None or filters.may_match(part, self._clauses, self._schema))
        ]

    def _of(self, parts: list[Part], names: list[str]) -> DataFrame:
        """Good updates of `parts`."""
        return self._filtered(self._scanned(parts, names, good=True))

    def _scanned(self, parts: list[Part], names: list[str], *, good: bool = False) -> DataFrame:
        """Columns of all updates in time (only the good ones, if asked), wherever they are."""
        frames = []
        stored = sorted((p for p in parts if p.key is not None), key=self._treatment)
        for treatment, group in groupby(stored, key=self._treatment):
            frames.append(self._files(list(group), treatment, names, good=good))
        inline = [part for part in parts if part.key is None]
        if inline or not frames:
            table = self._read_here(inline)
            table = split_errors(table)[0] if good else table
            frames.append(local_frame(self._spark, table.select(names)))
        return reduce(DataFrame.unionAll, frames)

    def _treatment(self, part: Part) -> tuple[bool, bool, int]:
        """Whether it must be looked at for times outside and for errors; the time it says."""
        return not self._within(part), part.errors > 0, -1 if part.at is None else part.at

    def _files(
        self, parts: list[Part], treatment: tuple[bool, bool, int], names: list[str], *, good: bool
    ) -> DataFrame:
        straddling, erring, at = treatment
        paths = [self._blob.uri(part.key) for part in parts if part.key is not None]
        frame = self._spark.read.schema(spark_schema(self._schema)).parquet(*paths)
        if at >= 0:
            frame = frame.withColumn(TIME, F.lit(at).cast("bigint"))
        if straddling:
            frame = frame.where(column(TIME) >= self._low)
            if self._high is not None:
                frame = frame.where(column(TIME) < self._high)
        if good and erring:
            frame = frame.where(column(ERR).isNull())
        return frame.select(*map(column, names))

    def _within(self, part: Part) -> bool:
        before = self._high is None or part.max_time < self._high
        return part.min_time >= self._low and before

    def _read_here(self, parts: list[Part]) -> pa.Table:
        read = partial(read_part, self._blob, schema=self._schema)
        found = concat([read(part) for part in parts], self._schema)
        return between(found, self._low, self._high)

    def _summed_here(self, parts: list[Part]) -> pa.Table:
        """Good rows and `_diff` of a few updates, summed up."""
        found, _ = split_errors(self._read_here(parts))
        return consolidate(found.select([*self.names, DIFF]))

    def _local(self, table: pa.Table) -> DataFrame:
        # Filters are Spark's, whatever the size: Arrow compares NaN differently.
        return self._filtered(local_frame(self._spark, table))

    def _filtered(self, frame: DataFrame) -> DataFrame:
        return frame.where(_condition(self._clauses, self._schema)) if self._clauses else frame

    def _repeated(self, table: pa.Table) -> DataFrame:
        copies = np.maximum(table[DIFF].to_numpy(), 0)
        chosen = np.repeat(np.arange(table.num_rows), copies)
        return self._local(table.select(self.names).take(pa.array(chosen)))

    def _copies(self, frame: DataFrame) -> DataFrame:
        """Rows as often as they count."""
        copies = F.explode(F.array_repeat(F.lit(0), column(DIFF).cast("int"))).alias(_COPY)
        return frame.select(*map(column, self.names), copies).drop(_COPY)


class _Overlay(NamedTuple):
    """Updates beside the base, summed up."""

    changes: Callable[[], DataFrame]
    came: DataFrame
    """Rows that are there more often, each as often as that."""
    went: DataFrame | None
    """Rows that are there less often, with `_diff`; None if there are none."""
    sieve: _Sieve | None
    """An integer column, never null here, that rows can be found by; else by whole rows."""

    def matched(self, base: DataFrame, others: DataFrame, how: str) -> DataFrame:
        """`base` joined with rows of the overlay that are the same."""
        names = [name for name in base.columns if name != DIFF]
        left, right = ([frame[quoted(name)] for name in names] for frame in (base, others))
        same = reduce(Column.__and__, map(_same, left, right))
        if self.sieve is not None:
            found = self.sieve.passed(base) == others[quoted(self.sieve.name)]
        else:
            kinds = [kind for name, kind in base.dtypes if name != DIFF]
            found = _fingerprint(left, kinds) == _fingerprint(right, kinds)
        return base.join(F.broadcast(others), found & same, how)


SIEVE_BITS = 20


class _Sieve(NamedTuple):
    """A bit for every integer of the overlay, at its place in 128 KiB.

    The join's own table of hashes is a cache miss for each row of the base (measured: half the
    time of the scan); rows whose bit is not set are spared that.
    """

    name: str
    words: DataFrame

    @staticmethod
    def of(spark: SparkSession, name: str, values: np.ndarray) -> _Sieve:
        folded = (values ^ values >> 20 ^ values >> 40) & (1 << SIEVE_BITS) - 1
        bits = np.zeros(1 << SIEVE_BITS, dtype=np.uint8)
        bits[folded] = 1
        words = np.packbits(bits, bitorder="little").view("<i8")
        table = pa.table({"words": pa.array([words], pa.list_(pa.int64()))})
        return _Sieve(name, local_frame(spark, table))

    def passed(self, base: DataFrame) -> Column:
        """The column of `base` where its bit is set, else null, which no join looks up."""
        value = base[quoted(self.name)].cast("bigint")
        folded = value.bitwiseXOR(F.shiftright(value, 20)).bitwiseXOR(F.shiftright(value, 40))
        place = folded.bitwiseAND(F.lit((1 << SIEVE_BITS) - 1).cast("bigint")).cast("int")
        word = F.get(self.words.scalar(), F.shiftright(place, 6))
        bit = F.call_function("shiftright", word, place.bitwiseAND(F.lit(63)))
        return F.when(bit.bitwiseAND(F.lit(1).cast("bigint")) == 1, value)


_COPY = "_copy"


def quoted(name: str) -> str:
    """A name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """The column of exactly this name."""
    return F.col(quoted(name))


def check_sound(blob: Blob, state: State, as_of: int) -> None:
    """Raise the error that the collection is in at `as_of`, if it is."""
    parts = [part for part in state.parts if part.errors and part.min_time <= as_of]
    if not parts:
        return
    schema = schema_of(state)
    read = partial(read_part, blob, schema=schema, columns=[])
    found = between(pa.concat_tables([read(part) for part in parts]), 0, as_of + 1)
    errors = consolidate(split_errors(found)[1].select([ERR, DIFF]))
    if errors.num_rows:
        raise DataError(errors[ERR][0].as_py())


def _same(left: Column, right: Column) -> Column:
    """Equality in which nulls are equal. Not `<=>`, which Spark would make a key of its join of:
    a join by one integer is several times faster than by all columns."""
    return F.when(left.isNull(), right.isNull()).otherwise(F.coalesce(left == right, F.lit(False)))


def _fingerprint(columns: list[Column], kinds: list[str]) -> Column:
    """64 bits of a row, for joining by: rows that are equal have equal ones."""
    # xxhash64 tells -0.0 from 0.0.
    return F.xxhash64(
        *(
            each + F.lit(0.0).cast(kind) if kind in ("float", "double") else each
            for each, kind in zip(columns, kinds, strict=True)
        )
    )


def summed_up(frame: DataFrame, names: list[str]) -> DataFrame:
    """Updates of the same `names` as one; what came and went is not there."""
    summed = frame.groupBy(*map(column, names)).agg(F.sum(column(DIFF)).alias(DIFF))
    return summed.where(column(DIFF) != 0)


def _bounds(parts: list[Part]) -> tuple[int, int]:
    """The least and the greatest `_diff`, as far as statistics tell."""
    stats = [part.stats.get(DIFF, ColumnStats(0)) for part in parts]
    least = min(s.least if isinstance(s.least, int) else -1 for s in stats)
    return least, max(s.most if isinstance(s.most, int) else 2 for s in stats)


def _condition(clauses: list[list[Predicate]], schema: pa.Schema) -> Column:
    """The filter as Spark evaluates it."""
    every = (
        reduce(Column.__and__, (_comparison(each, schema.field(each[0]).type) for each in clause))
        for clause in clauses
    )
    return reduce(Column.__or__, every)


def _comparison(predicate: Predicate, kind: pa.DataType) -> Column:
    name, operator, value = predicate
    if operator in ("in", "not in"):
        found = column(name).isin([_literal(each, kind) for each in value])
        return found if operator == "in" else ~found
    return _COMPARISONS[operator](column(name), _literal(value, kind))


def _literal(value: object, kind: pa.DataType) -> Column:
    if pa.types.is_timestamp(kind) and kind.tz is None and isinstance(value, datetime):
        # As a timestamp it would be one of the session's zone.
        return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
    if pa.types.is_date(kind) and isinstance(value, date):
        # As a date of Java it would be one of another calendar, or none.
        return F.lit(value.isoformat()).cast("date")
    return F.lit(value)


_COMPARISONS: dict[str, Callable[[Column, Column], Column]] = {
    "=": Column.__eq__,
    "==": Column.__eq__,
    "!=": Column.__ne__,
    "<": Column.__lt__,
    "<=": Column.__le__,
    ">": Column.__gt__,
    ">=": Column.__ge__,
}
