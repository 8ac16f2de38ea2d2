"""Prepared plans find what the text finds, run after run; what may not be run twice is refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.spark.frames import local_frame
from tidemark.spark.prepared import NotPreparable, Prepared, preparable
from tidemark.spark.session import PREPARED, SMALL, session_for

EPOCH = datetime(1970, 1, 1)
EVERY_TYPE = {
    pa.bool_(): lambda r: r.random() < 0.5,
    pa.int16(): lambda r: r.randint(-(2**15), 2**15 - 1),
    pa.int32(): lambda r: r.randint(-(2**31), 2**31 - 1),
    pa.int64(): lambda r: r.randint(-(2**63), 2**63 - 1),
    pa.decimal128(12, 2): lambda r: Decimal(r.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-2),
    pa.decimal128(38, 0): lambda r: Decimal(r.randint(-(10**38) + 1, 10**38 - 1)),
    pa.decimal128(38, 10): lambda r: Decimal(f"{r.randint(-(10**28) + 1, 10**28 - 1)}.0000000001"),
    pa.float32(): lambda r: r.choice([0.0, -0.0, float("nan"), float("inf"), 1.5]),
    pa.float64(): lambda r: r.choice([0.0, -0.0, float("nan"), float("-inf"), r.random(), 5e-324]),
    pa.string(): lambda r: r.choice(["", "a", "\0", "żółw 🐢", "x" * r.randint(0, 2_000)]),
    pa.binary(): lambda r: r.randbytes(r.randint(0, 20)),
    pa.date32(): lambda r: date(1, 1, 1) + timedelta(r.randint(0, 3_000_000)),
    pa.timestamp("us"): lambda r: EPOCH + timedelta(microseconds=r.randint(-(10**16), 10**16)),
    pa.timestamp("us", "UTC"): lambda r: datetime.fromtimestamp(r.randint(0, 10**9), UTC),
    pa.list_(pa.int64()): lambda r: [r.choice([None, 1, -1]) for _ in range(r.randint(0, 5))],
    pa.list_(pa.string()): lambda r: [r.choice([None, "", "b"]) for _ in range(r.randint(0, 5))],
    pa.list_(pa.list_(pa.float64())): lambda r: [[r.random()], [], None],
}
ALL_COLUMNS = pa.schema([(f"c{i}", type_) for i, type_ in enumerate(EVERY_TYPE)])
SIZES = (0, 1, 3, 1_000, 2, 0, 0, 20_000, 1, 100)

ORDERS = pa.schema(
    {"c0": pa.int64(), "c1": pa.decimal128(12, 2), "_t": pa.int32(), "_d": pa.int64()}
)
CUSTOMERS = pa.schema({"c0": pa.int64(), "c1": pa.string(), "_t": pa.int32(), "_d": pa.int64()})
BLOCK = """
SELECT l1.c1 AS o0, l0.c1 AS o1, CAST(NULL AS STRING) AS _err,
       greatest(l0._t, l1._t) AS _t, l0._d * l1._d AS _d
FROM (SELECT /*+ COALESCE(1) */ * FROM leaf0) l0
     CROSS JOIN (SELECT /*+ COALESCE(1) */ * FROM leaf1) l1
WHERE l0.c0 = l1.c0 AND greatest(l0._t, l1._t) >= 0
"""
REDUCE = """
WITH changes AS (
  SELECT c1 AS k0, _t, sum(_d) AS n
  FROM (SELECT c1, _t, _d FROM (SELECT /*+ COALESCE(1) */ * FROM leaf1)
        UNION ALL SELECT c1, -1 AS _t, _d FROM (SELECT /*+ COALESCE(1) */ * FROM leaf1)
        UNION ALL SELECT /*+ COALESCE(1) */ 'always' AS c1, 0 AS _t, 0L AS _d)
  GROUP BY c1, _t),
running AS (
  SELECT k0, _t, sum(n) OVER (PARTITION BY k0 ORDER BY _t) AS n,
         lead(_t) OVER (PARTITION BY k0 ORDER BY _t) AS _next
  FROM changes),
extremes AS (
  SELECT r.k0, r.n, r._t, r._next, min(l.c1) AS lo, max(l.c1) AS hi
  FROM running r LEFT JOIN (SELECT /*+ COALESCE(1) */ * FROM leaf0) l
       ON r.k0 <=> CAST(l.c0 AS STRING) AND r._t >= l._t
  GROUP BY r.k0, r.n, r._t, r._next)
SELECT k0, n, lo, hi, s._t AS _t, s._d AS _d
FROM extremes LATERAL VIEW stack(2, _t, 1L, _next, -1L) s AS _t, _d
WHERE s._t >= 0
"""


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return session_for(spark, PREPARED)


@pytest.fixture(scope="module")
def text(spark: SparkSession) -> SparkSession:
    return session_for(spark, SMALL)


@pytest.fixture
def everything(session: SparkSession) -> Iterator[Prepared]:
    prepared = Prepared(session, one("t"), {"t": ALL_COLUMNS})
    yield prepared
    prepared.close()


def one(leaf: str) -> str:
    return f"SELECT /*+ COALESCE(1) */ * FROM {leaf}"


def by_text(session: SparkSession, sql: str, tables: dict[str, pa.Table]) -> pa.Table:
    for name, table in tables.items():
        local_frame(session, table).createOrReplaceTempView(name)
    return session.sql(sql).toArrow()


def rows(table: pa.Table) -> list[str]:
    # As text: NaN is not equal to itself, and -0.0 is equal to 0.0.
    return sorted(map(repr, table.to_pylist()))


def random_table(rng: random.Random, size: int) -> pa.Table:
    def column(type_: pa.DataType) -> pa.Array:
        return pa.array(
            [None if rng.random() < 0.2 else EVERY_TYPE[type_](rng) for _ in range(size)], type_
        )

    arrays = [column(field.type) for field in ALL_COLUMNS]
    return pa.table(arrays, schema=ALL_COLUMNS)


def random_leaves(rng: random.Random, size: int) -> dict[str, pa.Table]:
    def leaf(schema: pa.Schema, second) -> pa.Table:
        columns = [
            [rng.choice([None, *range(20)]) for _ in range(size)],
            [second() for _ in range(size)],
            [rng.randint(-1, 4) for _ in range(size)],
            [rng.choice([1, -1, 2]) for _ in range(size)],
        ]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)

    return {
        "leaf0": leaf(ORDERS, lambda: Decimal(rng.randint(1, 10**6)).scaleb(-2)),
        "leaf1": leaf(CUSTOMERS, lambda: rng.choice([None, "", "1", "2", "19", "żółw"])),
    }


def test_every_type_comes_back_as_it_was_whatever_the_size(everything: Prepared):
    rng = random.Random(7)
    for size in SIZES:
        table = random_table(rng, size)
        found = everything.run({"t": table})
        assert found.schema == ALL_COLUMNS
        assert list(map(repr, found.to_pylist())) == list(map(repr, table.to_pylist())), size


def test_a_result_has_the_types_that_the_text_gives_it(everything: Prepared, text: SparkSession):
    table = random_table(random.Random(8), 100)
    found, wanted = everything.run({"t": table}), by_text(text, one("t"), {"t": table})
    assert found.schema == wanted.schema
    assert rows(found) == rows(wanted)


@pytest.mark.parametrize("sql", [BLOCK, REDUCE], ids=["block", "reduce"])
def test_joins_aggregates_windows_and_stacks_find_what_the_text_finds(
    session: SparkSession, text: SparkSession, sql: str
):
    rng = random.Random(9)
    prepared = Prepared(session, sql, {"leaf0": ORDERS, "leaf1": CUSTOMERS})
    for size in (*SIZES[:7], 500, 0, 10):
        leaves = random_leaves(rng, size)
        found, wanted = prepared.run(leaves), by_text(text, sql, leaves)
        assert found.schema == wanted.schema
        assert rows(found) == rows(wanted), size
    prepared.close()


def test_tables_in_chunks_slices_and_other_orders_of_columns(everything: Prepared):
    table = random_table(random.Random(10), 300)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 250)])
    turned = chunked.select(ALL_COLUMNS.names[::-1])
    for given in (chunked, turned):
        assert rows(everything.run({"t": given})) == rows(table.slice(0, 251))


def test_a_run_is_one_job_of_the_callers_group(session: SparkSession, everything: Prepared):
    context = session.sparkContext
    context.setJobGroup("prepared", "prepared")
    for size in (0, 10):
        before = len(context.statusTracker().getJobIdsForGroup("prepared"))
        everything.run({"t": random_table(random.Random(11), size)})
        assert len(context.statusTracker().getJobIdsForGroup("prepared")) == before + 1


def test_a_run_that_fails_leaves_nothing_behind(session: SparkSession):
    sql = f"SELECT 10 DIV v AS v FROM ({one('t')})"
    schema = pa.schema({"v": pa.int64()})
    prepared = Prepared(session, sql, {"t": schema})
    for _ in range(3):
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            prepared.run({"t": pa.table({"v": [5, 0]})})
        assert prepared.run({"t": pa.table({"v": [5]})}).to_pylist() == [{"v": 2}]
        assert prepared.run({"t": schema.empty_table()}).num_rows == 0


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT k, count(*) FROM t GROUP BY k", "ShuffleExchangeExec"),
        (f"SELECT /*+ BROADCAST(b) */ * FROM ({one('t')}) a JOIN t b USING (k)", "Broadcast"),
        (f"SELECT * FROM ({one('t')}) WHERE k > (SELECT max(k) FROM ({one('t')}))", "subquery"),
        (f"SELECT * FROM ({one('t')}) WHERE k IN (SELECT k FROM t)", "Exec"),
        (f"SELECT current_timestamp() AS now FROM ({one('t')})", "CURRENT_LIKE"),
        (f"SELECT rand() AS r FROM ({one('t')})", "SEED"),
    ],
)
def test_what_may_not_be_run_twice_is_refused(session: SparkSession, sql: str, why: str):
    with pytest.raises(NotPreparable, match=why):
        Prepared(session, sql, {"t": pa.schema({"k": pa.int64()})})
    assert not session.catalog.tableExists("t")


def test_a_cached_table_is_refused(session: SparkSession):
    session.range(3).cache().createOrReplaceTempView("kept")
    with pytest.raises(NotPreparable, match="InMemoryTableScan"):
        Prepared(
            session,
            f"SELECT k FROM ({one('t')}) JOIN ({one('kept')}) ON k = id",
            {"t": pa.schema({"k": pa.int64()})},
        )
    session.catalog.dropTempView("kept")


def test_a_session_with_other_settings_is_refused(text: SparkSession):
    assert preparable(text)
    with pytest.raises(NotPreparable, match="LocalRelation"):
        Prepared(text, one("t"), {"t": pa.schema({"k": pa.int64()})})


def test_two_run_at_the_same_time(session: SparkSession, tmp_path: Path):
    schema = pa.schema({"k": pa.int64()})
    sql = f"SELECT sum(k) AS s, count(*) AS n FROM ({one('t')})"
    both = [Prepared(session, sql, {"t": schema}, folder=tmp_path) for _ in range(2)]
    failed = []

    def use(prepared: Prepared, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(50):
            values = [rng.randint(0, 10**6) for _ in range(rng.randint(1, 2_000))]
            found = prepared.run({"t": pa.table({"k": pa.array(values, pa.int64())})})
            if found.to_pylist() != [{"s": sum(values), "n": len(values)}]:
                failed.append((seed, found.to_pylist()))

    # Two threads on each: runs of the same one wait for each other.
    threads = [threading.Thread(target=use, args=(both[i % 2], i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for prepared in both:
        prepared.close()
    assert not list(tmp_path.iterdir())
