"""Views without a server: from SQL and shards to a shard, in this process."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import dataflow, maintain
from tidemark.compute.definition import all_defined, defined, drop
from tidemark.errors import (
    AsOfBeforeSince,
    Fenced,
    InvalidUsage,
    SqlError,
    Unsupported,
)
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, PersistClient, ReadHandle, WriteHandle, as_updates
from tidemark.persist.updates import row_names
from tidemark.spark.frames import delta
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
    array_of,
    numeric,
    type_of_arrow,
)

ORDERS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("amount", pa.int64())])
BY_REGION = "SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region"


def append(
    client: PersistClient,
    shard: str,
    rows: list[tuple],
    *,
    at: int,
    upper: int | None = None,
    diff: int = 1,
    schema: pa.Schema = ORDERS,
) -> WriteHandle:
    """Rows at one time; the shard is then complete to just past it, or to `upper`."""
    writer = client.open_writer(shard, schema=schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
    table = table.append_column(DIFF, pa.array([diff] * len(rows), pa.int64()))
    updates = as_updates(table, time=at, schema=writer.schema)
    writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=Frontier(upper or at + 1))
    return writer


def contents(client: PersistClient, shard: str, as_of: int) -> Counter:
    table = client.open_reader(shard).snapshot(as_of)
    rows = zip(*(table[name].to_pylist() for name in row_names(table.schema)), strict=True)
    found: Counter = Counter()
    for row, diff in zip(rows, table[DIFF].to_pylist(), strict=True):
        found[row] += diff
    return found


@pytest.fixture
def view(client: PersistClient, spark: SparkSession, tmp_path: Path):
    """`maintain` with what is the same in all tests."""

    def made(sql: str = BY_REGION, **given):
        given = {"inputs": {"orders": "o"}, "output": "by-region", **given}
        return maintain(sql, client=client, spark=spark, cache=tmp_path / "cache", **given)

    return made


@pytest.mark.parametrize(
    ("arrow", "sql"),
    [(t.arrow, t) for t in (BOOLEAN, SMALLINT, INTEGER, BIGINT, NUMERIC, DOUBLE, TEXT, BYTEA)]
    + [(t.arrow, t) for t in (DATE, TIMESTAMP, TIMESTAMPTZ, numeric(10, 2))]
    + [(JSONB.arrow, TEXT), (array_of(INTEGER).arrow, TEXT)],
)
def test_types(arrow: pa.DataType, sql: object):
    assert type_of_arrow(arrow) == sql


@pytest.mark.parametrize(
    "arrow",
    [
        *(pa.int8(), pa.uint32(), pa.float32(), pa.large_string(), pa.timestamp("ns")),
        *(pa.date64(), pa.timestamp("us", tz="Europe/Berlin"), pa.decimal256(50, 2)),
        *(pa.struct([("a", pa.int32())]), pa.list_(pa.int32())),
        pa.decimal128(5, -2),
    ],
)
def test_types_that_are_refused(arrow: pa.DataType):
    with pytest.raises(SqlError):
        type_of_arrow(arrow)


def test_catch_up_stop_and_resume(client: PersistClient, view):
    append(client, "o", [(1, "a", 10), (2, "b", 20)], at=5)
    with view() as first:
        assert [column.name for column in first.columns] == ["region", "n", "total"]
        assert not first.statistics.hydrated
        assert first.catch_up() == Frontier(6)
        assert first.statistics == (5, Frontier(6), Frontier(6), 0, True)
    assert contents(client, "by-region", 5) == {("a", 1, 10): 1, ("b", 1, 20): 1}
    # It holds what it needs while it does not run.
    assert client.state("o").since == Frontier(5)
    client.open_critical_since("by-region", "test").downgrade(Frontier(5))
    append(client, "o", [(3, "a", 1)], at=7)
    append(client, "o", [(2, "b", 20)], at=9, upper=12, diff=-1)
    seen = []
    with view(as_of="latest") as second:
        second.catch_up(on_tick=seen.append)
    assert (seen[0].hydrated, seen[0].lower, seen[-1].lower) == (True, Frontier(6), Frontier(12))
    assert contents(client, "by-region", 8) == {("a", 2, 11): 1, ("b", 1, 20): 1}
    assert contents(client, "by-region", 11) == {("a", 2, 11): 1}


def test_run_follows_until_it_is_told_to_stop(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    stop = threading.Event()

    def more(statistics) -> None:
        time = statistics.lower.time
        if time < 30:
            append(client, "o", [(time, "a", 1)], at=time + 10)
        else:
            stop.set()

    with view() as followed:
        lower = followed.run(stop=stop, on_tick=more)
        assert followed.run(timeout=0) == lower
        with pytest.raises(InvalidUsage, match="nothing to do before"):
            view(output="elsewhere").run(until=Frontier(0))
    assert lower.time >= 30
    ((_, n, _),) = contents(client, "by-region", lower.time - 1)
    assert n == client.state("o").rows


def test_finished_inputs_end_a_run(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5).advance_upper(Frontier.EMPTY)
    with view() as ended:
        assert ended.run() == Frontier(6)
    assert contents(client, "by-region", 5) == {("a", 1, 10): 1}


def test_as_of(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    append(client, "o", [(2, "a", 10)], at=15)
    client.open_critical_since("o", "owner").downgrade(Frontier(3))
    with view(output="first") as early, view(output="last", as_of="latest") as late:
        assert (early.definition.as_of, late.definition.as_of) == (5, 15)
    with view(output="named", as_of=7) as named:
        named.run(until=Frontier(8))
        assert contents(client, "named", 7) == {("a", 1, 10): 1}
    with pytest.raises(AsOfBeforeSince, match="from time 3 on, not at 2"):
        view(output="too-early", as_of=2)
    assert not client.state("too-early").exists
    assert defined(client, "too-early") is None
    with pytest.raises(InvalidUsage, match="have come to time 15: a view cannot begin at 100 yet"):
        view(output="later", as_of=100)
    assert defined(client, "later") is None


def test_outputs_that_are_refused(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    append(client, "mine", [(1, "a", 10)], at=5)
    append(client, "gone", [(1, "a", 10)], at=5)
    client.finalize("gone")
    for output, message in (
        ("mine", "no view has made"),
        ("gone", "used up"),
        ("o", "both input and output"),
        ("no/shard", "not a shard's name"),
    ):
        with pytest.raises(InvalidUsage, match=message):
            view(output=output)
    assert contents(client, "mine", 5) == {(1, "a", 10): 1}
    view().close()
    with pytest.raises(InvalidUsage, match="another query: SELECT region, count"):
        view("SELECT region FROM orders")
    # The text may differ, and so may its dialect.
    view(BY_REGION.replace("region", "`region`"), dialect="spark").close()
    view(BY_REGION.replace(" FROM", "\nFROM").lower() + ";").close()


def test_queries_that_are_refused(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    with pytest.raises(SqlError, match=r'"customers" does not exist \(inputs are: orders\)'):
        view("SELECT * FROM customers")
    with pytest.raises(SqlError, match="quoted in SQL"):
        view("SELECT * FROM Orders", inputs={"Orders": "o"})
    with pytest.raises(InvalidUsage, match="there is no shard nowhere"):
        view(inputs={"orders": "nowhere"})
    with pytest.raises(InvalidUsage, match="dialect 'oracle': it must be postgres or spark"):
        view(dialect="oracle")
    with pytest.raises(SqlError, match="reserved"):
        view("SELECT id AS _id FROM orders")
    frame = "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
    with pytest.raises(Unsupported, match="use a frame of ROWS"):
        view(f"SELECT first_value(id) OVER (ORDER BY id {frame}) AS x FROM orders")
    append(client, "odd", [(1, 2)], at=5, schema=pa.schema([("a", pa.int8()), ("b", pa.int64())]))
    with pytest.raises(Unsupported, match="column a of shard odd: Arrow type int8"):
        view("SELECT b FROM odd", inputs={"odd": "odd"})
    assert all_defined(client) == []


def test_dropped_and_made_again(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    with view() as first:
        first.catch_up()
        shards = client.consensus.keys()
        kept = [shard for shard in shards if shard.startswith("view-by-region-1-f-")]
        assert kept
        first.close(forget=True)
    assert not client.state("o").holds
    assert not client.state("by-region").holds
    assert all(client.state(shard).is_tombstone for shard in kept)
    assert contents(client, "by-region", 5) == {("a", 1, 10): 1}
    with pytest.raises(InvalidUsage, match="there is no view of shard by-region"):
        drop(client, "by-region")
    with pytest.raises(InvalidUsage, match="has other columns: region text, n bigint"):
        view("SELECT region FROM orders")
    # Another query with the same columns corrects what it finds, from where the output is.
    client.open_critical_since("by-region", "test").downgrade(Frontier(5))
    append(client, "o", [(2, "b", 10)], at=7)
    with view(BY_REGION + " HAVING count(*) < 0") as second:
        second.catch_up()
        assert contents(client, "by-region", 5) == {("a", 1, 10): 1}
        assert contents(client, "by-region", 7) == {}
        append(client, "o", [(3, "b", 10)], at=9)
        drop(client, "by-region", with_output=True)
        with pytest.raises(Fenced, match="was dropped"):
            second.catch_up()
    assert not client.state("o").holds
    assert client.state("by-region").is_tombstone


def test_a_column_that_comes_later_is_not_part_of_the_star(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    with view("SELECT * FROM orders WHERE amount > 1") as first:
        first.catch_up()
    wider = pa.schema([*ORDERS, pa.field("note", pa.string())])
    client.open_writer("o", schema=ORDERS).evolve_schema(wider)
    append(client, "o", [(2, "b", 20, "x")], at=6, schema=wider)
    with view("SELECT * FROM orders WHERE amount > 1") as second:
        second.catch_up()
    assert contents(client, "by-region", 6) == {(1, "a", 10): 1, (2, "b", 20): 1}


def test_a_join_of_fragments(client: PersistClient, view):
    """What only fragments read is held by them, under names of this view."""
    append(client, "o", [(1, "a", 10), (2, "a", 5), (3, "b", 1)], at=5)
    sql = "SELECT max(n) AS most FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) x"
    with view(sql) as deep:
        deep.catch_up()
        append(client, "o", [(4, "b", 1), (5, "b", 1)], at=6)
        deep.catch_up()
    assert contents(client, "by-region", 6) == {(3,): 1}
    assert all(hold.startswith("dataflow-view-by-region-1") for hold in client.state("o").holds)
    drop(client, "by-region")
    assert not client.state("o").holds


def test_dropping_leaves_views_with_longer_names_alone(client: PersistClient, view):
    append(client, "o", [(1, "a", 10)], at=5)
    deep = "SELECT max(n) AS most FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) x"
    with view(deep, output="report") as first, view(deep, output="report-1-daily") as second:
        first.catch_up()
        second.catch_up()
        drop(client, "report")
        assert [each.output for each in all_defined(client)] == ["report-1-daily"]
        append(client, "o", [(2, "a", 1)], at=6)
        second.catch_up()
    assert contents(client, "report-1-daily", 6) == {(2,): 1}
    assert not any(hold.startswith("dataflow-view-report-1-f") for hold in client.state("o").holds)
    assert any("report-1-daily" in hold for hold in client.state("o").holds)


def test_a_long_backlog_is_read_in_pieces(
    client: PersistClient, view, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dataflow, "MAX_TIMES", 4)
    append(client, "o", [(0, "a", 1)], at=5)
    with view() as following:
        following.catch_up()
        for at in range(6, 18):
            append(client, "o", [(at, "a", 1)], at=at)
        read: list[int] = []
        updates = ReadHandle.updates

        def watched(reader: ReadHandle, lower: Frontier, upper: Frontier) -> pa.Table:
            found = updates(reader, lower, upper)
            read.extend([found.num_rows] if reader.shard_id == "o" else [])
            return found

        monkeypatch.setattr(ReadHandle, "updates", watched)
        following.catch_up()
    assert max(read) == 4, read
    assert contents(client, "by-region", 17) == {("a", 13, 13): 1}


def test_time_may_pass_all_at_once(client: PersistClient, view):
    """A source that begins with the clock at zero and goes on today: decades of nothing."""
    schema = pa.schema([("id", pa.int64()), ("until", pa.int64())])
    today = 1_790_000_000_000
    append(client, "t", [(1, 10), (2, today - 5), (3, today + 5)], at=0, schema=schema)
    sql = "SELECT id FROM t WHERE mz_now() < until"
    with view(sql, inputs={"t": "t"}, as_of=0) as kept:
        kept.catch_up()
        append(client, "t", [], at=today, schema=schema)
        kept.catch_up()
        assert contents(client, "by-region", 9) == {(1,): 1, (2,): 1, (3,): 1}
        assert contents(client, "by-region", 10) == {(2,): 1, (3,): 1}
        assert contents(client, "by-region", today) == {(3,): 1}


def test_a_large_hydration_goes_on_where_it_was_cut_short(
    client: PersistClient, view, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    append(client, "o", [(n, "ab"[n % 2], n) for n in range(100)], at=5)
    query = "SELECT region, count(*) AS n, max(amount) AS most FROM orders GROUP BY region"

    class Cut(Exception):
        pass

    def cut(name: str) -> None:
        if name == "dataflow.large-acc-written":
            raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(dataflow, "reached", cut)
        with pytest.raises(Cut), view(query) as first:
            first.catch_up()
    (done,) = [s for s in client.consensus.keys() if s.endswith("-acc")]  # noqa: SIM118
    parts = [*client.state(done).parts]
    with view(query) as second, monkeypatch.context() as patched:
        patched.setattr(ReadHandle, "snapshot", None)  # Nothing comes through this process.
        second.catch_up()
    assert [*client.state(done).parts] == parts
    assert contents(client, "by-region", 5) == {("a", 50, 98): 1, ("b", 50, 99): 1}


def test_a_large_hydration_reads_the_values_that_it_has_written(
    client: PersistClient, view, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    read: list[str] = []

    def watched(spark: SparkSession, client: PersistClient, shard_id: str, *between: Frontier):
        read.append(shard_id)
        return delta(spark, client, shard_id, *between)

    monkeypatch.setattr(dataflow, "delta", watched)
    rows = [(1, "a", 3), (2, "a", 3), (3, "a", None), (4, "b", None), (5, "c", -1)]
    append(client, "o", rows, at=5)
    query = """SELECT region, count(*) AS n, count(amount) AS known, sum(amount) AS total,
        max(amount) AS most FROM orders GROUP BY region"""
    with view(query) as kept:
        kept.catch_up()
    assert [shard_id.rsplit("-")[-1] for shard_id in read] == ["head0"]
    wanted = [("a", 3, 2, 6, 3), ("b", 1, 0, None, None), ("c", 1, 1, -1, -1)]
    assert contents(client, "by-region", 5) == dict.fromkeys(wanted, 1)


def test_numbers_of_many_digits(client: PersistClient, view):
    """Bare numerics have sixteen decimals: with thirteen before them that is more than Python's
    own decimals have digits."""
    append(client, "o", [(1, "a", 10**12), (2, "b", 10**13)], at=5)
    big = "(SELECT region, amount::numeric AS n FROM orders) x"
    sql = f"SELECT region FROM {big} JOIN (VALUES (10000000000000::numeric)) v(m) ON n = m"
    with view(f"{sql} WHERE n > 1000000000001 AND n IN (10000000000000, 2)") as kept:
        kept.catch_up()
    assert contents(client, "by-region", 5) == {("b",): 1}


def test_what_never_ends(client: PersistClient, view):
    """The greatest number there is stands for never, and has no successor."""
    schema = pa.schema([("id", pa.int64()), ("until", pa.int64())])
    append(client, "t", [(1, 6), (2, 2**63 - 1)], at=5, schema=schema)
    sql = "SELECT id FROM t WHERE until >= mz_now()"
    with view(sql, inputs={"t": "t"}) as kept:
        kept.catch_up()
        append(client, "t", [], at=8, schema=schema)
        kept.catch_up()
        assert contents(client, "by-region", 6) == {(1,): 1, (2,): 1}
        assert contents(client, "by-region", 8) == {(2,): 1}


def test_the_session_given_may_have_settings_of_its_own(
    client: PersistClient, spark: SparkSession, tmp_path: Path
):
    own = spark.newSession()
    own.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    own.conf.set("spark.sql.optimizer.disableHints", "true")
    append(client, "o", [(1, "it's \\ a", 10)], at=5)
    sql = r"SELECT E'it''s \n' AS e, regexp_replace(region, 'a(.?)', '[\1]', 'g') AS r FROM orders"
    with maintain(
        sql, inputs={"orders": "o"}, output="v", client=client, spark=own, cache=tmp_path
    ) as kept:
        kept.catch_up()
    assert contents(client, "v", 5) == {("it's \n", "it's \\ []"): 1}
