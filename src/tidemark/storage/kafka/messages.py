"""A collection's updates as the messages of a sink; all of it in Spark.

    updates at time 7     key       upsert                  debezium
    ({k:1, v:a}, -1)      changes   {"k":1} -> {..,b}       before a,    after b,    op u
    ({k:1, v:b}, +1)
    ({k:2, v:c}, +1)      comes     {"k":2} -> {..,c}       before null, after c,    op c
    ({k:3, v:d}, -1)      goes      {"k":3} -> null         before d,    after null, op d

A debezium event also has the time, as ts_ms. One message for a key and a time, in the order of
time, then of the key's JSON. That order depends on the collection alone, not on how Spark has gone
about it, so a place in it can be found again.

JSON has fewer types than SQL. Integers, doubles (NaN and infinities as text), booleans, text and
jsonb are what they are; numeric is text, so that nobody rounds it; bytea is base64; dates and
times are ISO 8601, to the microsecond. Every column is there, null or not.

A row may come only when its key has none. Whether it had one before, the updates alone do not
tell: unless the plan has proved the key (`KafkaSink.unique`), the keys of the updates are looked
for in the collection as it was, which is a scan of its key columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.errors import DataError
from tidemark.frontier import Frontier
from tidemark.ipc import decode_table, encode_table
from tidemark.persist import PersistClient
from tidemark.persist.read import overlapping
from tidemark.persist.updates import DIFF, ERR, TIME
from tidemark.spark import frames
from tidemark.spark.frames import column
from tidemark.spark.session import LARGE, SMALL, session_for
from tidemark.types import Column

if TYPE_CHECKING:
    from tidemark.storage.kafka.spec import KafkaSink

KEY, VALUE, AT, CLASH = "key", "value", "at", "clash"

CHUNK_BYTES = 16 << 20
"""About how much comes to the driver at once, measured as it is stored."""

SMALL_BYTES = 4 << 20
"""Up to this much is read with the settings for small work."""

JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

_BEFORE, _AFTER, _CAME, _WENT = "_before", "_after", "_came", "_went"


class Place(NamedTuple):
    """In the order of messages: behind all before `time`, and those at `time` up to key `after`."""

    time: int
    after: str | None = None


class Unsound(DataError):
    """The collection is in error, or a key has several rows: there are no messages of that."""


class Chunks(NamedTuple):
    """Messages in order, and the time before which they are all there are."""

    tables: Iterable[pa.Table]
    upper: Frontier


class Messages:
    """Reads a sink's collection as messages, in bounded memory."""

    def __init__(self, sink: KafkaSink, client: PersistClient, spark: SparkSession):
        self._sink = sink
        self._client = client
        self._small, self._large = session_for(spark, SMALL), session_for(spark, LARGE)

    @contextmanager
    def read(self, place: Place, upper: Frontier) -> Iterator[Chunks]:
        """From `place` up to `upper`, or up to an error; an error right at `place` is raised.

        At the sink's as_of that is all the rows there are, later it is what happened.
        """
        first = place.time == self._sink.as_of
        lower = Frontier.MIN if first else Frontier(place.time)
        state = self._client.state(self._sink.shard)
        parts = list(overlapping(state, lower, upper))
        if not parts:
            yield Chunks((), upper)
            return
        looks_up = not first and not self._sink.unique
        stored = sum(part.memory for part in parts)
        scanned = sum(part.memory for part in state.parts) if looks_up else stored
        spark = self._small if scanned <= SMALL_BYTES else self._large
        with ExitStack() as leases:
            if first:
                scan = frames.snapshot(spark, self._client, self._sink.shard, place.time)
                found = leases.enter_context(scan)
                _check_errors(found, place.time)
                made = first_messages(self._sink, _at(found.ok, place.time))
            else:
                scan = frames.delta(
                    spark, self._client, self._sink.shard, lower, upper, consolidated=True
                )
                found = leases.enter_context(scan)
                upper = _sound_up_to(found, place.time, upper)
                updates, before = found.ok.where(_until(upper)), None
                if looks_up:
                    before = leases.enter_context(self._keys(spark, place.time - 1))
                made = messages(self._sink, updates, before)
            if place.after is not None:
                # With the one that was sent last, as another of its key must be found.
                made = made.where((column(AT) > place.time) | (column(KEY) >= F.lit(place.after)))
            tables = _marked(_in_order(made, math.ceil(stored / CHUNK_BYTES)))
            yield Chunks((_behind(table, place) for table in tables), upper)

    @contextmanager
    def settled(self, place: Place, upper: Frontier) -> Iterator[Chunks]:
        """From `place` up to `upper` in one go, at the last time before it: what was wrong in
        between may have been put right. Nothing at `place` itself was sent."""
        assert upper.time is not None
        spark, shard, last = self._large, self._sink.shard, upper.time - 1
        with ExitStack() as leases:
            if place.time == self._sink.as_of:
                scan = frames.snapshot(spark, self._client, shard, last)
                found = leases.enter_context(scan)
                _check_errors(found, last)
                made = first_messages(self._sink, _at(found.ok, last))
            else:
                scan = frames.delta(spark, self._client, shard, Frontier(place.time), upper)
                found = leases.enter_context(scan)
                _check_errors(found, last)
                names = [each.name for each in self._sink.columns]
                before = leases.enter_context(self._keys(spark, place.time - 1))
                made = messages(self._sink, _at(frames.summed_up(found.ok, names), last), before)
            size = sum(part.memory for part in self._client.state(shard).parts)
            yield Chunks(_marked(_in_order(made, max(1, math.ceil(size / CHUNK_BYTES)))), upper)

    @contextmanager
    def _keys(self, spark: SparkSession, time: int) -> Iterator[DataFrame]:
        """The keys as they were at `time`."""
        names = list(self._sink.key)
        scan = frames.snapshot(
            *(spark, self._client, self._sink.shard, time), columns=names, consolidated=False
        )
        with scan as found:
            yield _at(found.ok, time)


def messages(sink: KafkaSink, updates: DataFrame, before: DataFrame | None = None) -> DataFrame:
    """Consolidated updates as key, value and time; and whether they clash, i.e. the key has
    several rows then. `before` has the keys as they were at an earlier `_time`, with `_diff`."""
    keys = [column(name) for name in sink.key]
    row = F.struct(*(column(each.name) for each in sink.columns))
    diff, none = column(DIFF), F.lit(0).cast("bigint")
    changes = updates.groupBy(*keys, column(TIME)).agg(
        F.first(F.when(diff < 0, row), ignorenulls=True).alias(_BEFORE),
        F.first(F.when(diff > 0, row), ignorenulls=True).alias(_AFTER),
        F.sum(F.greatest(diff, none)).alias(_CAME),
        F.sum(F.least(diff, none)).alias(_WENT),
    )
    clash = (column(_CAME) > 1) | (column(_WENT) < -1)
    if before is not None:
        there = _matching(before, changes, sink.key).groupBy(*keys, column(TIME))
        counted = there.agg(F.sum(diff).alias(_CAME), none.alias(_WENT))
        changes = changes.unionByName(counted, allowMissingColumns=True)
        so_far = Window.partitionBy(*keys).orderBy(column(TIME))
        clash |= F.sum(column(_CAME) + column(_WENT)).over(so_far) > 1
    changes = changes.withColumn(CLASH, clash)
    return _made(sink, changes.where(column(_BEFORE).isNotNull() | column(_AFTER).isNotNull()))


def first_messages(sink: KafkaSink, rows: DataFrame) -> DataFrame:
    """Those of a snapshot. Nothing is grouped: rows of one key are found when they are in order."""
    row = F.struct(*(column(each.name) for each in sink.columns))
    came = rows.select(
        *(column(name) for name in sink.key),
        column(TIME),
        F.when(F.lit(False), row).alias(_BEFORE),
        row.alias(_AFTER),
        (column(DIFF) != 1).alias(CLASH),
    )
    return _made(sink, came)


def _made(sink: KafkaSink, changes: DataFrame) -> DataFrame:
    return changes.select(
        F.to_json(_object(sink.key_columns), JSON).alias(KEY),
        _value(sink).alias(VALUE),
        column(TIME).alias(AT),
        column(CLASH),
    )


def _value(sink: KafkaSink) -> Expression:
    before, after = (
        F.when(column(name).isNotNull(), _object(sink.columns, name)) for name in (_BEFORE, _AFTER)
    )
    if sink.envelope == "upsert":
        return F.to_json(after, JSON)
    op = F.when(column(_BEFORE).isNull(), "c").when(column(_AFTER).isNull(), "d").otherwise("u")
    event = F.struct(
        before.alias("before"), after.alias("after"), op.alias("op"), column(TIME).alias("ts_ms")
    )
    return F.to_json(event, JSON)


def _object(columns: Iterable[Column], parent: str | None = None) -> Expression:
    """A struct whose JSON is that of a row (or of a row in the struct `parent`)."""
    fields = []
    for each in columns:
        value = column(parent)[each.name] if parent is not None else column(each.name)
        match each.type.name:
            case "numeric" | "interval":  # The latter as its seconds.
                value = value.cast("string")
                if each.type.precision is None:
                    value = F.rtrim(F.rtrim(value, F.lit("0")), F.lit("."))
            case "double precision":
                # -0.0 is 0.0 to SQL, and must not be another key.
                value += F.lit(0.0)
            case "jsonb":
                value = F.parse_json(value)
        fields.append(value.alias(each.name))
    return F.struct(*fields)


def _matching(rows: DataFrame, others: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Those of `rows` whose key is in `others` too."""
    wanted = others.select(*(column(name).alias(f"_key{at}") for at, name in enumerate(key)))
    same = (column(name).eqNullSafe(column(f"_key{at}")) for at, name in enumerate(key))
    return rows.join(wanted, reduce(Expression.__and__, same), "left_semi")


def _at(rows: DataFrame, time: int) -> DataFrame:
    return rows.withColumn(TIME, F.lit(time).cast("bigint"))


def _until(upper: Frontier) -> Expression:
    return F.lit(True) if upper.time is None else column(TIME) < upper.time


def _sound_up_to(found: frames.Frames, lower: int, upper: Frontier) -> Frontier:
    """Up to where there is no error; it is raised if there is nothing before it."""
    error = found.err.sort(column(TIME)).first() if found.may_err else None
    if error is None:
        return upper
    if error[TIME] <= lower:
        raise _in_error(error[ERR], error[TIME])
    return Frontier(error[TIME])


def _check_errors(found: frames.Frames, time: int) -> None:
    """Refuse what is in error at the end of it all."""
    error = frames.summed_up(found.err, [ERR]).first() if found.may_err else None
    if error is not None:
        raise _in_error(error[ERR], time)


def _in_error(error: str, time: int) -> Unsound:
    return Unsound(
        f"the collection is in error at time {time}: {error}",
        hint="nothing is sent until it is not",
    )


def _in_order(frame: DataFrame, chunks: int) -> Iterator[pa.Table]:
    """Sorted, and collected in about so many pieces: never more than two are here."""
    order = (column(AT), column(KEY))
    if chunks == 1:
        yield frame.sort(*order).toArrow()
        return
    ranges = frame.repartitionByRange(chunks, *order).sortWithinPartitions(*order)
    for packed in ranges.mapInArrow(_packed, "chunk binary").toLocalIterator(True):
        yield decode_table(bytes(packed.chunk))


def _marked(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """A message for the same key and time as the one before it clashes with it."""
    last = None
    for table in tables:
        if table.num_rows:
            both = pa.concat_tables([last or table.slice(0, 0), table]).select([AT, KEY])
            ahead, behind = both.slice(1), both.slice(0, both.num_rows - 1)
            same = pc.and_(*(pc.equal(ahead[name], behind[name]) for name in (AT, KEY)))
            same = pa.chunked_array([*([] if last else [pa.array([False])]), *same.chunks])
            clash = pc.or_(table[CLASH], same)
            yield table.set_column(table.schema.get_field_index(CLASH), CLASH, clash)
            last = table.slice(table.num_rows - 1)


def _behind(table: pa.Table, place: Place) -> pa.Table:
    """Without the message that is right at `place`."""
    if place.after is None:
        return table
    there = pc.and_(pc.equal(table[AT], place.time), pc.equal(table[KEY], place.after))
    return table.filter(pc.or_(pc.invert(there), table[CLASH]))


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one value: rows that come one at a time would be Python objects each."""
    for batch in batches:
        chunk = encode_table(pa.Table.from_batches([batch]))
        yield pa.record_batch({"chunk": pa.array([chunk], pa.binary())})
