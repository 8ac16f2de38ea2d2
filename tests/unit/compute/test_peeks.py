"""Every way of answering a query gives the same rows: look-ups, Arrow, Spark small and large."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import index as indexing
from tidemark.compute import peek as peeking
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.index import Indexes
from tidemark.compute.peek import Peeks, data_error, run_peek
from tidemark.compute.peek_plan import asked_of, chosen_key, simple
from tidemark.compute.plan import Get, Plan
from tidemark.compute.protocol import IndexSpec, Peek
from tidemark.compute.sql import plan_query
from tidemark.compute.sql.dialect import parse_query
from tidemark.errors import Cancelled, DataError, TooLarge
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DATE,
    DOUBLE,
    INTEGER,
    JSONB,
    NUMERIC,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Column,
    arrow_schema,
    numeric,
)

COLUMNS = (
    Column("k", INTEGER),
    Column("g", TEXT),
    Column("s", SMALLINT),
    Column("b", BIGINT),
    Column("n", NUMERIC),
    Column("p", numeric(10, 2)),
    Column("d", DOUBLE),
    Column("f", BOOLEAN),
    Column("day", DATE),
    Column("at", TIMESTAMP),
    Column("tz", TIMESTAMPTZ),
    Column("raw", BYTEA),
    Column("doc", JSONB),
)
GET = Get("u1", COLUMNS, ())
KEYS = (("k",), ("g", "f"), ("d",), ("p",), ("b",), ("day", "k"))
NAN = float("nan")
VALUES = {
    "k": [None, *range(6)],
    "g": [None, "", "a", "B", "ab", "é", "zz", "\U0001f600", "�"],
    "s": [None, -1, 0, 1],
    "b": [None, -(2**62), 0, 5, 2**62],
    "n": [None, Decimal("-1.5"), Decimal(0), Decimal("2.25"), Decimal(10) ** 20],
    "p": [None, Decimal("-0.01"), Decimal("0.00"), Decimal("3.00"), Decimal("3.50")],
    "d": [None, NAN, -0.0, 0.0, 1.5, float("inf"), float("-inf")],
    "f": [None, True, False],
    "day": [None, dt.date(1, 1, 1), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "at": [None, dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 1, 0, 0, 0, 1)],
    "tz": [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)],
    "raw": [None, b"", b"\x00\xff", b"\x7f", b"\x80"],
    "doc": [None, '{"a": 1}', "[1, 2]"],
}
LITERALS = {
    "k": ["0", "3", "5", "1.0", "1.5", "3000000000", "NULL"],
    "g": ["'a'", "'B'", "'é'", "''", "'zzz'", "NULL"],
    "s": ["0", "1", "70000"],
    "b": ["5", "0", "4611686018427387904", "5.0"],
    "n": ["0", "2.25", "-1.5", "1e3", "100000000000000000000"],
    "p": ["3", "3.5", "0", "3.505", "-0.01"],
    "d": ["0", "1.5", "'NaN'", "'Infinity'", "'-Infinity'"],
    "f": ["true", "false"],
    "day": ["'2024-02-29'", "'0001-01-01'", "'9999-12-31'"],
    "at": ["'2024-01-01 00:00:00.000001'", "'1970-01-01'"],
    "tz": ["'2024-01-01 00:00:00+00'", "'2024-06-01 00:00:00+02'"],
    "raw": [r"'\x7f'", r"'\x'"],
}


class Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return GET


def planned(sql: str) -> Plan:
    return plan_query(parse_query(sql), Tables())


def rows_of(rng: random.Random, count: int) -> pa.Table:
    columns = {n: [rng.choice(values) for _ in range(count)] for n, values in VALUES.items()}
    arrays = [pa.array(columns[f.name], f.type) for f in arrow_schema(COLUMNS)]
    return pa.table(arrays, schema=arrow_schema(COLUMNS))


def written(client: PersistClient, shard: str, rows: pa.Table, at: int, diffs: list[int]) -> None:
    writer = client.open_writer(shard, schema=arrow_schema(COLUMNS))
    table = rows.append_column(TIME, pa.array([at] * rows.num_rows, pa.int64()))
    table = table.append_column(DIFF, pa.array(diffs, pa.int64()))
    table = table.append_column(ERR, pa.nulls(rows.num_rows, pa.string()))
    writer.append(table, lower=writer.fetch_upper(), upper=Frontier(at + 1))


@pytest.fixture(scope="module")
def replica(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PersistClient, Peeks]]:
    folder: Path = tmp_path_factory.mktemp("peeks")
    client = PersistClient.open(
        blob=f"file://{folder / 'blob'}", consensus=f"sqlite://{folder / 'consensus.db'}"
    )
    rng = random.Random(7)
    first = rows_of(rng, 400)
    written(client, "u1", first, 0, [rng.choice([1, 1, 1, 3]) for _ in range(400)])
    written(client, "u1", first.slice(0, 50), 1, [-1] * 50)
    written(client, "u1", rows_of(rng, 40), 2, [1] * 40)
    arrangements = Arrangements(client, folder / "cache")
    indexes = Indexes(client, arrangements)
    indexes.configure([IndexSpec(f"i{i}", "u1", key) for i, key in enumerate(KEYS)])
    for index in indexes.of_shard("u1"):
        while not index.hydrated:
            client.clock.sleep(0.01)
    yield client, Peeks(spark, client, arrangements, indexes)
    indexes.stop()
    client.close()


def asked(sql: str, as_of: int, id_: str = "peek", **options) -> Peek:
    return Peek(id_, planned(sql), as_of, {"u1": "u1"}, {}, **options)


def counted(table: pa.Table) -> Counter:
    return Counter(map(repr, table.to_pylist()))


def random_predicate(rng: random.Random, depth: int = 0) -> str:
    column = rng.choice(list(LITERALS))
    literals = LITERALS[column]
    match rng.randrange(8 if depth < 2 else 5):
        case 0 | 1:
            return f"{column} = {rng.choice(literals)}"
        case 2:
            op = rng.choice(["<", "<=", ">", ">=", "<>"])
            return f"{column} {op} {rng.choice(literals)}"
        case 3:
            return f"{column} IN ({', '.join(rng.choices(literals, k=rng.randrange(1, 4)))})"
        case 4:
            return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
        case 5:
            return f"NOT ({random_predicate(rng, depth + 1)})"
        case 6:
            return f"({random_predicate(rng, depth + 1)} OR {random_predicate(rng, depth + 1)})"
        case _:
            return f"({random_predicate(rng, depth + 1)} AND {random_predicate(rng, depth + 1)})"


def random_query(rng: random.Random) -> str:
    names = rng.sample(list(VALUES), rng.randrange(1, 5))
    outputs = ", ".join(
        [*names, *rng.choices(["1 AS one", "k + 1 AS more", "'x' AS x"], k=rng.randrange(2))]
    )
    parts = [random_predicate(rng) for _ in range(rng.randrange(3))]
    if rng.random() < 0.5:
        key = rng.choice(KEYS)
        parts += [f"{name} = {rng.choice(LITERALS[name])}" for name in key]
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    order = ""
    if rng.random() < 0.6:
        ways = ["", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST"]
        plain = [name for name in names if name != "doc"]
        listed = [f"{name}{rng.choice(ways)}" for name in plain[: rng.randrange(1, 3)]]
        order = f" ORDER BY {', '.join(listed)}" if listed else ""
    return f"SELECT {outputs} FROM t{where}{order}"


@pytest.mark.parametrize("seed", range(6))
def test_all_ways_agree(
    spark: SparkSession,
    replica: tuple[PersistClient, Peeks],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
):
    client, peeks = replica
    rng = random.Random(seed)
    ways = Counter()
    for _ in range(8):
        sql, as_of = random_query(rng), rng.randrange(3)
        peek = asked(sql, as_of)
        expected = run_peek(spark, client, peek)
        quick = peeks.without_spark(peek)
        (first,) = asked_of(peek.plan)
        ways["look-up" if chosen_key(first, KEYS) else "read", quick is None] += 1
        found = {"run": peeks.run(peek), "with Spark": peeks.with_spark(peek)}
        if quick is not None:
            found["Arrow"] = quick
            found["read"] = Peeks(spark, client).without_spark(peek)
        with monkeypatch.context() as patched:
            patched.setattr(peeking, "SMALL_ROWS", 0)
            found["scanned"] = run_peek(spark, client, peek)
        for way, table in found.items():
            assert table is not None
            assert table.schema == expected.schema, (way, sql)
            assert counted(table) == counted(expected), (way, sql, as_of)
            by = peek.plan.order_by if hasattr(peek.plan, "order_by") else ()
            for order in by:
                if order.index < table.num_columns:
                    # Later keys only order within the earlier ones: compare the first.
                    column = table.column(order.index).to_pylist()
                    assert list(map(repr, map(zero, column))) == list(
                        map(repr, map(zero, expected.column(order.index).to_pylist()))
                    ), (way, sql)
                break
    assert sum(n for (_, slow), n in ways.items() if not slow) > 1, ways


def zero(value):
    return 0.0 if isinstance(value, float) and value == 0 else value


@pytest.mark.parametrize("seed", range(4))
def test_ways_agree_on_what_is_not_simple(
    spark: SparkSession, replica: tuple[PersistClient, Peeks], seed: int
):
    client, peeks = replica
    rng = random.Random(seed)
    key = rng.choice(KEYS)
    where = " AND ".join(f"t.{name} = {rng.choice(LITERALS[name][:3])}" for name in key)
    for sql in (
        f"SELECT count(*), max(b) FROM t WHERE {where}",
        f"SELECT t.k, count(*) FROM t JOIN t AS o ON t.k = o.k WHERE {where} GROUP BY t.k",
        f"SELECT DISTINCT g FROM t WHERE {where} AND {random_predicate(rng)}",
        f"SELECT k, lower(g) AS l FROM t WHERE {where} ORDER BY l LIMIT 1000",
    ):
        peek = asked(sql, 2)
        assert counted(peeks.run(peek)) == counted(run_peek(spark, client, peek)), sql


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("k = 3", [("k",)]),
        ("3 = k AND g = 'a'", [("k",)]),
        ("k = 1.0", [("k",)]),
        ("k IN (1, 2) OR k = 5", [("k",)]),
        ("g = 'a' AND f = true", [("g", "f")]),
        ("p = 3", [("p",)]),
        ("k > 3", []),
        ("g = 'a'", []),
        ("k = 1 OR g = 'a'", []),
        ("k + 1 = 2", []),
        ("k = s", []),
        ("NOT k = 3", []),
    ],
)
def test_which_key_is_looked_up(where: str, keys: list[tuple[str, ...]]):
    (first,) = asked_of(planned(f"SELECT g FROM t WHERE {where}"))
    chosen = chosen_key(first, KEYS)
    assert ([chosen[0]] if chosen else []) == keys


def test_keys_that_cannot_be_there():
    for where in ("k = 1.5", "k = 3000000000", "k = NULL", "k IN (NULL)"):
        (first,) = asked_of(planned(f"SELECT g FROM t WHERE {where}"))
        chosen = chosen_key(first, KEYS)
        assert chosen is not None
        assert chosen[1].num_rows == 0, where


def test_what_is_simple():
    for sql in ("SELECT * FROM t", "SELECT g FROM t WHERE k > 1 ORDER BY d DESC LIMIT 3"):
        assert simple(planned(sql)) is not None
    for sql in ("SELECT k + 1 FROM t", "SELECT count(*) FROM t", "SELECT 1 FROM t a, t b"):
        assert simple(planned(sql)) is None


def test_limit_and_offset(replica: tuple[PersistClient, Peeks]):
    _, peeks = replica
    everything = peeks.run(asked("SELECT k, g, b FROM t ORDER BY k, g, b", 2))
    for limit, offset in ((5, 0), (0, 0), (7, 3), (10_000, 420), (3, 10_000)):
        sql = f"SELECT k, g, b FROM t ORDER BY k, g, b LIMIT {limit} OFFSET {offset}"
        assert peeks.run(asked(sql, 2)).equals(everything.slice(offset, limit)), sql
        unordered = peeks.run(asked(f"SELECT k FROM t LIMIT {limit} OFFSET {offset}", 2))
        assert unordered.num_rows == everything.slice(offset, limit).num_rows


@pytest.mark.parametrize(
    "sql",
    ["SELECT k, g FROM t", "SELECT a.k FROM t a, t b", "SELECT g FROM t WHERE k IN (1, 2, 3, 4)"],
)
def test_results_are_bounded(replica: tuple[PersistClient, Peeks], sql: str):
    _, peeks = replica
    with pytest.raises(TooLarge, match="max_result_size"):
        peeks.run(asked(sql, 2, max_bytes=1_000))
    assert peeks.run(asked(f"{sql} LIMIT 3", 2, max_bytes=1_000)).num_rows == 3


def test_a_large_result_is_stopped_early(spark: SparkSession, replica: tuple[PersistClient, Peeks]):
    _, peeks = replica
    # 400^3 rows: all of them would be gigabytes.
    sql = "SELECT a.g, b.g, c.g FROM t a, t b, t c"
    for limit in (1 << 20, 1 << 30):
        with pytest.raises(TooLarge):
            peeks.run(asked(sql, 2, max_bytes=limit))
    found = peeks.run(asked("SELECT a.k, b.k FROM t a, t b", 2, max_bytes=1 << 30))
    assert found.num_rows == peeks.run(asked("SELECT k FROM t", 2)).num_rows ** 2 > 100_000


def test_cancelled_before_and_while_it_runs(replica: tuple[PersistClient, Peeks]):
    _, peeks = replica
    sql = "SELECT sum(a.b + b.k + c.k) FROM t a, t b, t c, t d"
    peeks.cancel("early")
    with pytest.raises(Cancelled):
        peeks.run(asked(sql, 2, id_="early"))
    raised: list[BaseException] = []

    def run(id_: str, as_of: int) -> None:
        try:
            peeks.run(asked(sql, as_of, id_=id_))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, args=("running", 2))
    thread.start()
    while thread.is_alive():
        peeks.cancel("running")
        thread.join(0.2)
    assert isinstance(raised[0], Cancelled)
    # At a time that has not come: it would wait for ever.
    raised.clear()
    sql = "TABLE t"
    waiting = threading.Thread(target=run, args=("waiting", 9))
    waiting.start()
    peeks.cancel("waiting")
    waiting.join(60)
    assert isinstance(raised[0], Cancelled)


def test_a_key_with_too_many_rows_is_scanned_for(
    spark: SparkSession, replica: tuple[PersistClient, Peeks], monkeypatch: pytest.MonkeyPatch
):
    client, peeks = replica
    monkeypatch.setattr(indexing, "MOST_BYTES", 100)
    monkeypatch.setattr(peeking, "MOST_BYTES", 100)
    monkeypatch.setattr(peeking, "SMALL_ROWS", 0)
    peek = asked("SELECT k, g, b FROM t WHERE k = 3", 2)
    assert peeks.without_spark(peek) is None
    assert counted(peeks.run(peek)) == counted(run_peek(spark, client, peek))


def test_an_arrangement_of_a_view_is_looked_up_in(
    spark: SparkSession, client: PersistClient, tmp_path: Path
):
    rng = random.Random(1)
    written(client, "u1", rows_of(rng, 100), 0, [1] * 100)
    arrangements = Arrangements(client, tmp_path / "cache")
    kept = arrangements.acquire("u1", ("k",), holder="view", as_of=0)
    peeks = Peeks(spark, client, arrangements, Indexes(client, arrangements))
    peek = asked("SELECT * FROM t WHERE k = 3", 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(peeking, "SMALL_ROWS", 0)
        quick = peeks.without_spark(peek)
    assert quick is not None
    assert counted(quick) == counted(run_peek(spark, client, peek))
    error = pa.table({ERR: ["division by zero"], TIME: [1], DIFF: [1]})
    columns = [pa.nulls(1, f.type) for f in arrow_schema(COLUMNS)]
    table = pa.table(columns, schema=arrow_schema(COLUMNS))
    for name in (TIME, DIFF, ERR):
        table = table.append_column(name, error[name])
    writer = client.open_writer("u1", schema=arrow_schema(COLUMNS))
    writer.append(table, lower=Frontier(1), upper=Frontier(2))
    for way in (peeks.without_spark, peeks.with_spark, peeks.run):
        with pytest.raises(DataError, match="division by zero") as raised:
            way(asked("SELECT * FROM t WHERE k = 3", 1))
        assert raised.value.sqlstate == "22012"
    arrangements.release(kept, "view")


@pytest.mark.parametrize(
    ("message", "sqlstate"),
    [
        ("negative substring length not allowed", "22011"),
        ("date field value out of range: 2024-02-30", "22008"),
        ('date/time field value out of range: "2024-02-30"', "22008"),
        ('value "40000" is out of range for type smallint', "22003"),
        ("cannot take square root of a negative number", "2201F"),
        ("zero raised to a negative power is undefined", "2201F"),
        ("cannot take logarithm of zero", "2201E"),
        ("field position must not be zero", "22023"),
        ("cannot cast jsonb string to type integer", "22023"),
        ("requested character too large for encoding: 99999999", "54000"),
        ('invalid input syntax for type integer: "division by zero"', "22P02"),
        ('invalid input syntax for type date: "a\n"out of range"', "22P02"),
    ],
)
def test_an_error_has_the_sqlstate_that_postgresql_gives_it(message: str, sqlstate: str):
    assert data_error(message).sqlstate == sqlstate


def test_an_error_that_came_from_a_source_says_where_to_look():
    hint = data_error("value: Failed to decode JSON: [1").hint or ""
    assert "mz_source_statuses" in hint
    assert "tidemark shard snapshot SOURCE --errors" in hint
    assert data_error("division by zero").hint is None
