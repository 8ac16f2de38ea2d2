"""Messages into updates.

    none      every message is a row: +row at its time
    upsert    a message is its key's row from its time on. Per key and time the last one counts
              (by partition, then offset); what it replaces goes at the same time

            time     1      2      3          +a at 1, -a at 2, +b at 2, -b at 3
            key k    a      b      (null)

What the first message of a key replaces is not among the messages: it is looked up in the
collection itself, as it was before the stretch (`retracted`). There is no other state.

Both envelopes do this in two ways, which give the same:

    many      `updates`: all of it in Spark
    few       `rows`: Spark only decodes; `changes`: the rest in Arrow, on the driver. Windows and
              pairs cost a small job more, mostly in planning it, than everything else does

Errors are rows, too: the row of a key whose value is bad is an error, until the next message of
that key. A key that is bad is one by its bytes; its error goes when a null comes for these bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.persist.arrange import Arrangement
from tidemark.persist.updates import DIFF, ERR, TIME, canonical
from tidemark.spark.frames import column
from tidemark.storage.kafka.decode import decoder
from tidemark.storage.kafka.spec import Format, Include, KafkaSource
from tidemark.storage.remap import Binding

FIRST = "_first"
"""Whether an update's message is its key's first: then what was there before it has to go."""

KEY_ERROR = "key: "
VALUE_ERROR = "value: "

NULL_KEY = (
    f"{KEY_ERROR}record with a null key; "
    "to retract this error, produce a record with a null key and a null value"
)

_NAME = r"(?s)^.*( \[[0-9]+ bytes, [0-9a-f]+\])$"

RAW = ("key", "value", "partition", "offset")

SIZE = "_size"
"""The bytes of a message, its key's and its value's."""

Writers = tuple[tuple[int, str], ...]
"""Schemas of Avro's writers, by number."""


class Appends:
    """Envelope NONE. The expressions are made once: that takes longer than a few messages do."""

    def __init__(self, source: KafkaSource, key_writers: Writers = (), value_writers: Writers = ()):
        include = source.include
        decoded = [_decoded(source.value, "value", value_writers).alias("_v")]
        errors = [F.col("_v._error"), *_header_errors(include)]
        if source.key_columns and source.key is not None:
            decoded.append(_decoded(source.key, "key", key_writers).alias("_k"))
            errors.insert(0, F.concat(F.lit(KEY_ERROR), F.col("_k._error")))
        error = F.coalesce(*errors)
        outputs = [
            *_keys(source),
            *(_field("_v", c.name) for c in source.value.shape),
            *(column(i.name) for i in include if i.kind != "key"),
        ]
        good = [
            F.when(error.isNull(), output).alias(c.name)
            for output, c in zip(outputs, source.columns, strict=True)
        ]
        self._decoded = [*decoded, *_included(include), message_size().alias(SIZE)]
        self._outputs = [*good, column(TIME), F.lit(1).cast("bigint").alias(DIFF), error.alias(ERR)]

    def updates(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        return self._timed(messages, bindings).select(*self._outputs)

    def rows(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        return self._timed(messages, bindings).select(*self._outputs, column(SIZE))

    def changes(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns([SIZE])

    def _timed(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        return messages.select(*self._decoded, _time(bindings).alias(TIME))


class Upserts:
    """Envelopes UPSERT and DEBEZIUM: the updates among messages, with `_first`. A first update
    that is none (`_diff` 0) only says that what was there before goes."""

    def __init__(self, source: KafkaSource, key_writers: Writers = (), value_writers: Writers = ()):
        assert source.key is not None
        self._decoded = [
            _decoded(source.key, "key", key_writers).alias("_k"),
            *(column(name).alias(f"_{name}") for name in RAW),
            *_included(source.include),
            message_size().alias(SIZE),
        ]
        bad = F.when(column("_key").isNull(), F.lit(NULL_KEY)).when(
            F.col("_k._error").isNotNull(),
            F.concat(F.lit(KEY_ERROR), F.col("_k._error"), _named(column("_key"))),
        )
        included = [i.name for i in source.include if i.kind != "key"]
        checks = [f"_h{at}" for at, i in enumerate(source.include) if i.kind == "header"]
        rest = [TIME, *(f"_{name}" for name in RAW if name != "key"), *included, *checks, SIZE]
        self._keyed = [*_keys(source), bad.alias("_bad"), *map(column, rest)]
        self._identity = [*(c.name for c in source.key_columns), "_bad"]
        self._last = _Last(self._identity)
        debezium = source.envelope == "debezium"
        self._value = _decoded(source.value, "_value", value_writers, debezium=debezium)
        self._update = [*(c.name for c in source.columns), TIME, DIFF, ERR]
        row, copies = _row(source)
        self._rows = [
            *row,
            copies.alias(DIFF),
            *map(column, (TIME, "_bad", "_partition", "_offset", SIZE)),
        ]
        self._both = [*row, _came_and_went(copies).alias("_u")]
        self._outputs = [
            *(column(c.name) for c in source.columns),
            F.col("_u.time").alias(TIME),
            F.col("_u.diff").alias(DIFF),
            column(ERR),
            F.col("_u.first").alias(FIRST),
        ]

    def updates(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        last = self._last.of(self._with_key(messages, bindings), several=len(bindings) > 1)
        both = last.withColumn("_v", self._value).select(*self._both)
        changes = both.where("_u.first OR (_u.time IS NOT NULL AND _u.diff != 0)")
        return changes.select(*self._outputs)

    def rows(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        keyed = self._with_key(messages, bindings)
        return keyed.withColumn("_v", self._value).select(*self._rows)

    def changes(self, rows: pa.Table) -> pa.Table:
        rows = canonical(rows)
        key, time = _grouped(rows, self._identity), rows[TIME].to_numpy()
        order = np.lexsort((rows["_offset"], rows["_partition"], time, key))
        last = _ends(key[order], time[order])
        order = order[last]
        key, time = key[order], time[order]
        came = rows.take(order).select(self._update)
        came = came.append_column(FIRST, pa.array(np.diff(key, prepend=-1) != 0))
        # When the next one of its key comes it goes.
        followed = np.flatnonzero(~_ends(key))
        went = _with(came.take(followed), TIME, pa.array(time[followed + 1]))
        went = _with(went, DIFF, pc.negate(went[DIFF]))
        went = _with(went, FIRST, pa.array(np.zeros(len(followed), dtype=bool)))
        both = pa.concat_tables([came, went])
        return both.filter(pc.or_(both[FIRST], pc.not_equal(both[DIFF], 0)))

    def _with_key(self, messages: DataFrame, bindings: Sequence[Binding]) -> DataFrame:
        timed = messages.select(*self._decoded, _time(bindings).alias(TIME))
        return timed.select(*self._keyed)


Envelope = Appends | Upserts


class _Last:
    """The messages that count, with `_next`, when the next one of the key comes, and `_first`."""

    def __init__(self, identity: list[str]):
        by = Window.partitionBy(*map(column, identity))
        place = (column("_partition"), column("_offset"))
        self._newest = F.row_number().over(by.orderBy(*(each.desc() for each in place)))
        self._next = F.lead(TIME).over(by.orderBy(column(TIME), *place))
        self._first = F.row_number().over(by.orderBy(column(TIME))) == 1
        self._alone = {"_next": F.lit(None).cast("bigint"), FIRST: F.lit(True)}

    def of(self, keyed: DataFrame, *, several: bool) -> DataFrame:
        if not several:
            newest = keyed.withColumn("_rank", self._newest).where("_rank = 1")
            return newest.withColumns(self._alone)
        counting = keyed.withColumn("_next", self._next)
        counting = counting.where(f"_next IS NULL OR _next > {TIME}")
        return counting.withColumn(FIRST, self._first)


def _row(source: KafkaSource) -> tuple[list[Column], Column]:
    """A message's row with its error, and how many there are of it: one, or none."""
    headers = _header_errors(source.include)
    wrong = F.when(
        column("_bad").isNull() & F.col("_v._there"),
        F.concat(F.lit(VALUE_ERROR), F.coalesce(F.col("_v._error"), *headers)),
    )
    there = F.when(column("_bad").isNotNull(), column("_value").isNotNull()).otherwise(
        F.col("_v._there")
    )
    inline = source.inline_errors
    error = column("_bad") if inline else F.coalesce(column("_bad"), wrong)
    keys = {c.name for c in source.key_columns}
    fine = column("_bad").isNull() & (F.lit(True) if inline else wrong.isNull())
    outputs = [
        *(column(c.name) for c in source.key_columns),
        *(
            F.when(fine, _field("_v", c.name)).alias(c.name)
            for c in source.value.shape
            if c.name not in keys
        ),
    ]
    if inline:
        text = F.to_json(F.struct(wrong.alias("description")))
        outputs.append(F.when(wrong.isNotNull(), text).alias(inline))
    outputs += [
        F.when(fine, column(i.name)).alias(i.name) for i in source.include if i.kind != "key"
    ]
    return [*outputs, error.alias(ERR)], F.when(there, 1).otherwise(0).cast("bigint")


def _came_and_went(copies: Column) -> Column:
    """Twice: as a message comes, and as the next one of its key comes."""
    came = F.struct(column(TIME).alias("time"), copies.alias("diff"), column(FIRST).alias("first"))
    went = F.struct(
        column("_next").alias("time"), (-copies).alias("diff"), F.lit(False).alias("first")
    )
    return F.explode(F.array(came, went))


def _named(key: Column) -> Column:
    """What tells a bad key from others, whatever is said of it: its length and its hash."""
    return F.concat(
        F.lit(" ["),
        F.length(key),
        F.lit(" bytes, "),
        F.substring(F.sha2(key, 256), 1, 32),
        F.lit("]"),
    )


def _decoded(format: Format, name: str, writers: Writers, *, debezium: bool = False) -> Column:
    return decoder(format, debezium=debezium, writers=dict(writers))(column(name))


def retracted(
    updates: pa.Table, key: Sequence[str], arrangement: Arrangement | None, as_of: int
) -> pa.Table:
    """`updates` as the collection takes them: with what their first messages replace, which is
    what `arrangement` (with errors) has for their keys at `as_of`; None if it is empty."""
    updates = canonical(updates)
    real = updates.filter(pc.not_equal(updates[DIFF], 0)).drop_columns([FIRST])
    if arrangement is None:
        return real
    first = updates.filter(updates[FIRST])
    old = arrangement.lookup(first.select(list(key)), as_of)
    if not old.num_rows:
        return real
    times = _times_of(old, first, key)
    gone = _with(old, DIFF, pc.negate(old[DIFF]))
    gone = gone.append_column(TIME, times).filter(pc.is_valid(times))
    return pa.concat_tables([real, gone.select(real.column_names).cast(real.schema)])


def _times_of(old: pa.Table, first: pa.Table, key: Sequence[str]) -> pa.Array:
    """When each row of `old` is replaced; null if it is another's with the same key columns.

    Keys are the same if their columns are, and they are bad in the same way; nulls are equal,
    which is why this groups instead of joining.
    """
    both = pa.concat_tables([_identified(first, key), _identified(old, key)])
    group = _grouped(both, both.column_names)
    times = np.full(len(group), -1)
    times[group[: first.num_rows]] = first[TIME]
    found = times[group[first.num_rows :]]
    return pa.array(found, mask=found < 0)


def _grouped(rows: pa.Table, by: Sequence[str]) -> np.ndarray:
    """For each row the number of its group; nulls are equal."""
    places = pa.array(np.arange(rows.num_rows))
    grouped = rows.select(list(by)).append_column("_place", places).group_by(list(by))
    listed = grouped.aggregate([("_place", "list")])["_place_list"].combine_chunks()
    result = np.empty(rows.num_rows, dtype=np.int64)
    result[pc.list_flatten(listed).to_numpy()] = pc.list_parent_indices(listed).to_numpy()
    return result


def _ends(*columns: np.ndarray) -> np.ndarray:
    """Whether a row is the last of those, one after another, that have the same in all columns."""
    more = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    return np.append(~more, np.ones(min(1, len(columns[0])), dtype=bool))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)


def _identified(table: pa.Table, key: Sequence[str]) -> pa.Table:
    bad = pc.fill_null(pc.starts_with(table[ERR], KEY_ERROR), False)
    # By its name alone: the rest of the text may be put in other words some day.
    name = pc.replace_substring_regex(table[ERR], _NAME, r"\1")
    nothing = pa.scalar(None, pa.string())
    return table.select(list(key)).append_column("_bad", pc.if_else(bad, name, nothing))


def _time(bindings: Sequence[Binding]) -> Column:
    """The time that a message's offset is bound to."""
    if len(bindings) == 1:
        return F.lit(bindings[0].time).cast("bigint")
    partitions = sorted({p for binding in bindings for p in binding.offsets})
    result = F.lit(None).cast("bigint")
    for partition in partitions:
        time = F.lit(None).cast("bigint")
        for binding in reversed(bindings):
            offset = binding.offsets.get(partition, 0)
            time = F.when(column("offset") < offset, F.lit(binding.time)).otherwise(time)
        result = F.when(column("partition") == partition, time).otherwise(result)
    return result


def message_size() -> Column:
    return F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))


def _keys(source: KafkaSource) -> list[Column]:
    assert source.key is not None or not source.key_columns
    shape = source.key.shape if source.key is not None else ()
    return [
        _field("_k", own.name).alias(c.name)
        for own, c in zip(shape, source.key_columns, strict=False)  # None if not included.
    ]


def _field(struct: str, name: str) -> Column:
    return column(struct).getField(name)


def _included(include: Sequence[Include]) -> list[Column]:
    """The columns of the message itself, and (`_h0`, ...) what is wrong with its headers."""
    result = []
    for at, each in enumerate(include):
        match each.kind:
            case "partition" | "offset":
                result.append(column(each.kind).alias(each.name))
            case "timestamp":
                result.append(column("timestamp").cast("timestamp_ntz").alias(each.name))
            case "headers":
                result.append(_headers().alias(each.name))
            case "header":
                value = _header(each.header or "")
                text = value if each.as_bytes else F.call_function("try_validate_utf8", value)
                result += [text.alias(each.name), _header_error(each, value).alias(f"_h{at}")]
    return result


def _headers() -> Column:
    """All headers as JSON: a list of {key, value}, whose bytes are in hexadecimal."""
    return F.to_json(
        F.transform(
            F.coalesce(column("headers"), F.array().cast("array<struct<key:string,value:binary>>")),
            lambda h: F.struct(h["key"].alias("key"), F.lower(F.hex(h["value"])).alias("value")),
        ),
        {"ignoreNullFields": "false"},
    )


def _header(name: str) -> Column:
    """The value of the last header of that name."""
    found = F.filter(column("headers"), lambda h: h["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"]


def _header_error(each: Include, value: Column) -> Column:
    known = F.exists(column("headers"), lambda h: h["key"] == (each.header or ""))
    missing = ~F.coalesce(known, F.lit(False))
    error = F.when(missing, F.lit(f'a message without header "{each.header}"'))
    if each.as_bytes:
        return error
    invalid = ~F.call_function("is_valid_utf8", F.coalesce(value, F.lit(b"")))
    return error.when(invalid, F.lit(f'header "{each.header}" is not valid UTF-8'))


def _header_errors(include: Sequence[Include]) -> list[Column]:
    return [column(f"_h{at}") for at, each in enumerate(include) if each.kind == "header"]
