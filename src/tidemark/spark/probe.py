"""Look-ups of many keys: the rows of a collection whose key is among those of a DataFrame.

    here     the keys come to the driver, which looks them up in its arrangement
    tasks    tasks look up the keys they have, in arrangements of their own hosts
    scan     the whole collection is read and joined with the keys

One rule chooses, by the number of keys n and of rows r (`choose`):

    n <= 100,000        here: no job has to start
    n <= r / 2          tasks
    otherwise           scan

It comes from the probes of `tidemark bench spark-io` (docs/benchmarks.md): at 10M rows on two
cores, tasks found a million keys in 1.5 s and 2.5 million in 2.1 s, so a key costs them less than
a microsecond; a scan with its join took 8 to 12 s whatever the number, about a microsecond a row.

A host's first look-up also makes its base, which costs more than a scan; the next ones share it,
those of other processes too. Who will look up once should scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.errors import InvalidUsage
from tidemark.persist import Config, PersistClient
from tidemark.persist.arrange import Arrangement, open_arrangement
from tidemark.persist.holds import check_as_of
from tidemark.persist.location import Address
from tidemark.persist.runs import schema_of
from tidemark.persist.updates import DIFF, row_names
from tidemark.spark.frames import check_sound, column, local_frame, snapshot, spark_schema

HERE_KEYS = 100_000
SCAN_SHARE = 0.5

Way = Literal["here", "tasks", "scan"]


def choose(keys: int, rows: int) -> Way:
    if keys <= HERE_KEYS:
        return "here"
    return "tasks" if keys <= SCAN_SHARE * rows else "scan"


@contextmanager
def probe(
    spark: SparkSession,
    client: PersistClient,
    shard_id: str,
    keys: DataFrame,
    on: Sequence[str],
    *,
    as_of: int,
    folder: Path | str,
    key: Sequence[str] | None = None,
    way: Way | None = None,
) -> Iterator[DataFrame]:
    """The rows at `as_of`, with `_diff`, whose `key` columns equal the columns `on` of `keys`.

    The columns have the same names unless `key` says otherwise; null equals null. Hosts keep
    their arrangements in `folder`. A collection in error fails with its error. Valid inside the
    `with` block: the lease on the parts ends with it.
    """
    wanted = Wanted(
        client.shared_address(), client.config, shard_id, tuple(key or on), as_of, str(folder)
    )
    if len(on) != len(wanted.key):
        raise InvalidUsage(f"{len(on)} columns cannot be compared with {len(wanted.key)}")
    if way not in (None, "here", "tasks", "scan"):
        raise InvalidUsage(f"no such way: {way!r}", hint="here, tasks or scan")
    asked = keys.select(
        *(column(a).alias(b) for a, b in zip(on, wanted.key, strict=True))
    ).distinct()
    reader = client.open_reader(shard_id)
    check_as_of(client.state(shard_id), as_of)
    reader.wait_for_upper_past(as_of)
    with ExitStack() as stack:
        lease = stack.enter_context(reader.lease(as_of))
        schema = schema_of(lease.state)
        unknown = [name for name in wanted.key if name not in row_names(schema)]
        if unknown:
            raise InvalidUsage(f"shard {shard_id} has no columns {', '.join(unknown)}")
        check_sound(client.blob, lease.state, as_of)
        few = asked.limit(HERE_KEYS + 1).toArrow() if way is None else None
        if few is not None:
            many = few.num_rows > HERE_KEYS
            way = choose(asked.count() if many else few.num_rows, lease.state.rows)
        if way == "here":
            table = asked.toArrow() if few is None else few
            yield local_frame(spark, opened(wanted).lookup(table, as_of))
        elif way == "tasks":
            names = [*row_names(schema), DIFF]
            shape = pa.schema([schema.field(name) for name in names])
            yield asked.mapInArrow(wanted.look_up, spark_schema(shape))
        else:
            found = stack.enter_context(snapshot(spark, client, shard_id, as_of))
            yield _joined(found.ok, asked, wanted.key)


class Wanted(NamedTuple):
    """An arrangement at a time, for any process of any host; picklable."""

    address: Address
    config: Config
    shard_id: str
    key: tuple[str, ...]
    as_of: int
    folder: str
    errors: bool = False

    def look_up(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task's keys, in a worker process."""
        arrangement = opened(self)
        for batch in batches:
            found = arrangement.lookup(pa.Table.from_batches([batch]), self.as_of)
            yield from found.combine_chunks().to_batches()


_open: dict[Wanted, tuple[Arrangement, ExitStack]] = {}
"""Of this process: the last one, as jobs come one after the other."""


def opened(wanted: Wanted) -> Arrangement:
    """The arrangement, in this process."""
    if wanted not in _open:
        while _open:
            _open.popitem()[1][1].close()
        stack = ExitStack()
        client = PersistClient.open(
            blob=wanted.address.blob, consensus=wanted.address.consensus, config=wanted.config
        )
        stack.callback(client.close)
        opening = open_arrangement(
            client,
            wanted.shard_id,
            wanted.key,
            folder=wanted.folder,
            as_of=wanted.as_of,
            errors=wanted.errors,
        )
        _open[wanted] = stack.enter_context(opening), stack
    return _open[wanted][0]


def _joined(rows: DataFrame, asked: DataFrame, key: tuple[str, ...]) -> DataFrame:
    marks = asked.toDF(*(f"_key_{at}" for at in range(len(key))))
    same = (column(name).eqNullSafe(column(f"_key_{at}")) for at, name in enumerate(key))
    return rows.join(marks, reduce(Column.__and__, same), "left_semi")
