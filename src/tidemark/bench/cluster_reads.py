"""Reads of a replica: one key looked up in an index of a million rows, in process.

Before the look-ups a few ticks change some rows, so that the index has a tail as it does at work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.expr import Call, Col, Lit
from tidemark.compute.index import Index, Indexes
from tidemark.compute.peek import Peeks
from tidemark.compute.plan import Filter, Get
from tidemark.compute.protocol import IndexSpec, Peek
from tidemark.frontier import Frontier
from tidemark.persist import PersistClient, as_updates
from tidemark.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Column, arrow_schema

ROWS = 1_000_000
LOOK_UPS = 1_000
TICKS = 5
CHANGED = 100
SEED = 42
SHARD = "u1"
COLUMNS = (
    Column("id", BIGINT),
    Column("customer", BIGINT),
    Column("amount", DOUBLE),
    Column("kind", TEXT),
)


def index_lookup(spark: SparkSession, folder: Path, quick: bool) -> dict[str, float]:
    """Milliseconds of a look-up, and of a whole peek that is one."""
    rows = ROWS // 10 if quick else ROWS
    blob, consensus = f"file://{folder / 'blob'}", f"sqlite://{folder / 'consensus.db'}"
    with closing(PersistClient.open(blob=blob, consensus=consensus)) as client:
        _fill(client, rows)
        arrangements = Arrangements(client, folder / "cache")
        indexes = Indexes(client, arrangements)
        indexes.configure([IndexSpec("u2", SHARD, ("id",))])
        try:
            (index,) = indexes.of_shard(SHARD)
            _until(lambda: index.hydrated)
            as_of = _change(client, index, rows)
            peeks = Peeks(spark, client, arrangements, indexes)
            keys = np.random.default_rng(SEED).integers(0, rows, LOOK_UPS).tolist()
            looked_up = _timed(keys, lambda key: _look(index, key, as_of))
            peeked = _timed(keys, lambda key: peeks.run(_peek(key, as_of)).num_rows)
        finally:
            indexes.stop()
    return {
        "index_lookup_ms": float(np.median(looked_up)),
        "index_lookup_p99_ms": float(np.percentile(looked_up, 99)),
        "index_peek_ms": float(np.median(peeked)),
    }


def _fill(client: PersistClient, rows: int) -> None:
    rng = np.random.default_rng(SEED)
    kinds = pa.array(["bid", "ask", "fill", "void"])
    table = pa.table(
        [
            pa.array(rng.permutation(rows)),
            pa.array(rng.integers(0, 1_000, rows)),
            pa.array(rng.random(rows)),
            kinds.take(pa.array(rng.integers(0, 4, rows))),
        ],
        schema=arrow_schema(COLUMNS),
    )
    writer = client.open_writer(SHARD, schema=arrow_schema(COLUMNS))
    writer.append(as_updates(table, time=0), lower=Frontier(0), upper=Frontier(1))


def _change(client: PersistClient, index: Index, rows: int) -> int:
    """Some new rows per tick; the time of the last, when the index has come there."""
    writer = client.open_writer(SHARD, schema=arrow_schema(COLUMNS))
    for time in range(1, TICKS + 1):
        ids = pa.array(range(rows + time * CHANGED, rows + (time + 1) * CHANGED), pa.int64())
        others = [pa.array([time] * CHANGED, pa.int64()), pa.array([0.5] * CHANGED)]
        columns = [ids, *others, pa.array(["bid"] * CHANGED)]
        table = pa.table(columns, schema=arrow_schema(COLUMNS))
        writer.append(as_updates(table, time=time), lower=Frontier(time), upper=Frontier(time + 1))
        _until(lambda upper=time + 1: _upper(index) == upper)
    return TICKS


def _upper(index: Index) -> int | None:
    size = index.status().index
    return size.upper if size is not None else None


def _look(index: Index, key: int, as_of: int) -> int:
    found = index.lookup(pa.table({"id": pa.array([key], pa.int64())}), as_of, lambda: False)
    assert found is not None
    return found.num_rows


def _peek(key: int, as_of: int) -> Peek:
    wanted = Call("=", (Col(0, BIGINT), Lit(str(key), BIGINT)), BOOLEAN)
    return Peek(f"peek-{key}", Filter(Get(SHARD, COLUMNS), wanted), as_of, {SHARD: SHARD}, {})


def _timed(keys: list[int], look: Callable[[int], int]) -> list[float]:
    taken = []
    for key in keys:
        start = SYSTEM_CLOCK.monotonic()
        assert look(key) == 1
        taken.append((SYSTEM_CLOCK.monotonic() - start) * 1000)
    return taken


def _until(reached: Callable[[], bool]) -> None:
    while not reached():
        SYSTEM_CLOCK.sleep(0.01)
