"""Views that several keep, that somebody damages, that only follow, or that refresh now and then."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import dataflow
from tidemark.compute.arrangements import Arrangements
from tidemark.compute.plan import Get, Plan
from tidemark.compute.refresh import Every, Refresh
from tidemark.compute.sql import parse_query, plan_query
from tidemark.compute.view import Flows, View
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, PersistClient, as_updates
from tidemark.types import INTEGER, TEXT, Column, arrow_schema

COLUMNS = (Column("k", TEXT), Column("v", INTEGER))
GROUPED = "SELECT k, count(*) AS n, max(v) AS most FROM t GROUP BY k"
PLAIN = "SELECT k, v + 1 AS w FROM t WHERE v > 0"
CHAIN = "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n"
QUERIES = {"grouped": GROUPED, "plain": PLAIN, "chain": CHAIN}


class Tables:
    def resolve(self, parts: tuple[str, ...]) -> Get:
        return Get(parts[-1], COLUMNS)


def plan(sql: str) -> Plan:
    return plan_query(parse_query(sql), Tables(), view=True)


def wanted(sql: str, rows: Counter) -> Counter:
    """The query, in Python."""
    if sql == PLAIN:
        return Counter({(k, v + 1): n for (k, v), n in rows.items() if v > 0 and n})
    groups: dict[str, Counter] = {}
    for (k, v), n in rows.items():
        if n:
            groups.setdefault(k, Counter())[v] += n
    if sql == CHAIN:
        return Counter(Counter(sum(g.values()) for g in groups.values()).items())
    return Counter((k, sum(g.values()), max(g)) for k, g in groups.items())


class Input:
    """The table `t`, and what was in it when."""

    def __init__(self, client: PersistClient):
        self._writer = client.open_writer("t", schema=arrow_schema(COLUMNS))
        self._log: list[tuple[str, int, int, int]] = []
        self.upper = 0

    def append(self, *rows: tuple[str, int, int, int], upper: int | None) -> None:
        columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
        types = [pa.string(), pa.int32(), pa.int64(), pa.int64()]
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        updates = as_updates(pa.table(arrays, ["k", "v", TIME, DIFF]), schema=self._writer.schema)
        end = Frontier.EMPTY if upper is None else Frontier(upper)
        self._writer.compare_and_append(updates, lower=Frontier(self.upper), upper=end)
        self._log += rows
        self.upper = upper or self.upper

    def at(self, time: int) -> Counter:
        total: Counter = Counter()
        for k, v, when, diff in self._log:
            if when <= time:
                total[k, v] += diff
        return total


def view_of(
    client: PersistClient,
    spark: SparkSession,
    folder: Path,
    sql: str = GROUPED,
    *,
    read_only: bool = False,
    refresh: Refresh | None = None,
) -> tuple[View, Flows]:
    flows = Flows(client, spark, Arrangements(client, folder))
    flows.read_only = read_only
    view = View(
        "v", plan(sql), inputs={"t": "t"}, output="v", as_of=0, flows=flows, refresh=refresh
    )
    return view, flows


def contents(client: PersistClient, as_of: int, shard: str = "v") -> Counter:
    found = client.open_reader(shard).snapshot(as_of)
    names = [name for name in found.column_names if name not in (TIME, DIFF, ERR)]
    assert found[ERR].null_count == found.num_rows
    rows = zip(*(found[name].to_pylist() for name in names), strict=True)
    return Counter(dict(zip(rows, found[DIFF].to_pylist(), strict=True)))


def damage(client: PersistClient, shard: str) -> None:
    """A row that does not belong there, one too many of another, and one that is gone."""
    state = client.state(shard)
    assert state.upper.time
    there = client.open_reader(shard).snapshot(state.upper.time - 1)
    rows = pa.schema(list(there.schema)[:-3])
    writer = client.open_writer(shard, schema=rows, key=state.key, log=state.follows)
    several = pa.concat_tables([there.slice(0, 1)] * 2 + [there.slice(1, 1)])
    several = several.set_column(
        several.schema.get_field_index(DIFF), DIFF, pa.array([1, 1, -1][: len(several)])
    )
    now = client.machine(shard).refresh().upper
    assert now.time is not None
    times = pa.array([now.time] * len(several), pa.int64())
    several = several.set_column(several.schema.get_field_index(TIME), TIME, times)
    writer.compare_and_append(several, lower=now, upper=Frontier(now.time + 1))


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("name", QUERIES)
def test_damage_is_corrected(
    client: PersistClient, spark: SparkSession, tmp_path: Path, name: str, running: bool
):
    sql, table = QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), ("a", 2, 0, 1), ("b", 3, 0, 1), upper=3)
    view, _ = view_of(client, spark, tmp_path / "one", sql)
    view.start()
    view.tick(view.input_upper())
    assert contents(client, 2) == wanted(sql, table.at(2))
    if not running:
        view.stop()
    damage(client, "v")
    if not running:
        view, _ = view_of(client, spark, tmp_path / "two", sql)
        view.start()
    table.append(("b", 9, 5, 1), upper=7)
    view.tick(view.input_upper())
    assert contents(client, 6) == wanted(sql, table.at(6))
    assert view.corrected > 0
    before = view.corrected
    table.append(("a", 1, 7, -1), upper=9)
    view.tick(view.input_upper())
    assert contents(client, 8) == wanted(sql, table.at(8))
    assert view.corrected == before
    view.stop()


def test_damaged_state_is_corrected(client: PersistClient, spark: SparkSession, tmp_path: Path):
    table = Input(client)
    table.append(("a", 1, 0, 1), ("a", 2, 0, 1), ("b", 3, 0, 1), upper=3)
    view, _ = view_of(client, spark, tmp_path / "one")
    view.start()
    kept = [s for s in client.consensus.keys() if s.endswith(("-acc", "-head0"))]  # noqa: SIM118
    assert len(kept) == 2
    for shard in kept:
        damage(client, shard)
    table.append(("b", 3, 5, -1), ("c", 7, 5, 1), upper=7)
    view.tick(view.input_upper())
    table.append(("a", 2, 7, -1), ("c", 7, 8, -1), upper=9)
    view.tick(view.input_upper())
    for time in (6, 7, 8):
        assert contents(client, time) == wanted(GROUPED, table.at(time))
    assert view.corrected > 0
    view.stop()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", QUERIES)
def test_follower_is_promoted(
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    large: bool,
):
    if large:
        monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    sql, table = QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), ("b", 3, 0, 1), upper=3)
    leader, _ = view_of(client, spark, tmp_path / "one", sql)
    leader.start()
    leader.tick(leader.input_upper())
    follower, flows = view_of(client, spark, tmp_path / "two", sql, read_only=True)
    assert follower.start()
    table.append(("a", 2, 3, 1), upper=5)
    follower.tick(follower.input_upper())  # Ahead of its leader.
    assert client.state("v").upper == Frontier(3)
    leader.tick(leader.input_upper())
    follower.tick(follower.input_upper())
    leader.stop()
    table.append(("c", 4, 5, 2), upper=7)
    follower.tick(follower.input_upper())
    table.append(("c", 4, 7, -1), upper=9)
    follower.tick(follower.input_upper())
    assert client.state("v").upper == Frontier(5)
    assert not follower.wants(follower.input_upper())
    flows.read_only = False
    assert follower.wants(follower.input_upper())
    follower.tick(follower.input_upper())
    assert client.state("v").upper == Frontier(9)
    for time in range(9):
        assert contents(client, time) == wanted(sql, table.at(time))
    assert follower.corrected == 0
    follower.stop()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", QUERIES)
def test_first_of_all_is_read_only(
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    large: bool,
):
    """There is nobody to follow: it computes what it can, and writes it when it may."""
    if large:
        monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    sql, table = QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), ("b", 3, 0, 1), upper=3)
    view, flows = view_of(client, spark, tmp_path / "one", sql, read_only=True)
    assert view.start() == (name != "chain")
    view.start()
    written = [s for s in client.consensus.keys() if s != "t" and client.state(s).upper.time]  # noqa: SIM118
    assert written == []
    flows.read_only = False
    assert view.start()
    view.tick(view.input_upper())
    table.append(("b", 4, 3, 1), upper=6)
    view.tick(view.input_upper())
    for time in range(6):
        assert contents(client, time) == wanted(sql, table.at(time))
    view.stop()


@pytest.mark.parametrize("name", QUERIES)
def test_twins(client: PersistClient, spark: SparkSession, tmp_path: Path, name: str):
    """Two keep one view, each at its own pace; what they write is right at every time."""
    seed = random.randrange(2**32)
    print("seed", seed)
    dice, sql, table = random.Random(seed), QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), upper=1)
    twins = [view_of(client, spark, tmp_path / f"{i}", sql)[0] for i in range(2)]
    for twin in twins:
        twin.start()
    for _ in range(12):
        upper = table.upper + dice.randint(1, 3)
        rows = [
            (dice.choice("abc"), dice.randrange(4), dice.randrange(table.upper, upper), 1)
            for _ in range(dice.randrange(3))
        ]
        table.append(*rows, upper=upper)
        for at in dice.sample(range(2), dice.choice([1, 2])):
            try:
                twins[at].tick(twins[at].input_upper())
            except AsOfBeforeSince:  # The other one has vouched for more.
                twins[at].stop()
                twins[at] = view_of(client, spark, tmp_path / f"{at}", sql)[0]
                twins[at].start()
            if dice.random() < 0.2:
                twins[at].hold()
    for twin in twins:
        assert twin.corrected == 0
        twin.stop()
    last = view_of(client, spark, tmp_path / "last", sql)[0]
    last.start()
    last.tick(last.input_upper())
    last.stop()
    since = client.state("v").since.time or 0
    for time in range(since, table.upper):
        assert contents(client, time) == wanted(sql, table.at(time))


def test_slow_twin_goes_on_from_the_others_holds(
    client: PersistClient, spark: SparkSession, tmp_path: Path
):
    table = Input(client)
    table.append(("a", 1, 0, 1), upper=1)
    fast, _ = view_of(client, spark, tmp_path / "one")
    slow, _ = view_of(client, spark, tmp_path / "two")
    fast.start()
    slow.start()
    table.append(("a", 2, 1, 1), upper=2)
    fast.tick(fast.input_upper())
    fast.hold()
    table.append(("b", 5, 2, 1), upper=3)
    with pytest.raises(AsOfBeforeSince):
        slow.tick(slow.input_upper())
    slow.stop()
    slow, _ = view_of(client, spark, tmp_path / "two")
    slow.start()
    slow.tick(slow.input_upper())
    assert contents(client, 2) == wanted(GROUPED, table.at(2))
    slow.stop()
    fast.stop()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", QUERIES)
def test_refresh(
    client: PersistClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    large: bool,
):
    """Every 10, and once at 25; a restart in between forgets nothing."""
    if large:
        monkeypatch.setattr(dataflow, "LARGE_ROWS", 0)
    monkeypatch.setattr(dataflow, "MAX_TIMES", 2)
    refresh = Refresh((Every(10, 0),), (25,))
    sql, table = QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), ("b", 3, 0, 1), upper=2)
    view, _ = view_of(client, spark, tmp_path / "0", sql, refresh=refresh)
    view.start()
    dice = random.Random(f"{name} {large}")
    live = [("a", 1), ("b", 3)]
    for upper in (5, 9, 10, 11, 14, 25, 26, 28, 29, 31, 35, 62):
        rows = []
        for time in range(table.upper, upper):
            if live and dice.random() < 0.4:
                rows.append((*live.pop(dice.randrange(len(live))), time, -1))
            elif dice.random() < 0.7:
                live.append((dice.choice("abc"), dice.randrange(5)))
                rows.append((*live[-1], time, 1))
        table.append(*rows, upper=upper)
        while view.wants(view.input_upper()):
            view.tick(view.input_upper())
        expected = refresh.frontier(Frontier(upper))
        assert client.state("v").upper == expected
        if dice.random() < 0.4:
            view.stop()
            view, _ = view_of(client, spark, tmp_path / str(upper), sql, refresh=refresh)
            view.start()
    for time in range(client.state("v").since.time or 0, 70):
        last = max(r for r in (0, 10, 20, 25, 30, 40, 50, 60) if r <= time)
        assert contents(client, time) == wanted(sql, table.at(last)), time
    view.stop()


def test_refreshes_that_were_missed_are_caught_up_with_together(
    client: PersistClient, spark: SparkSession, tmp_path: Path
):
    table = Input(client)
    table.append(("a", 1, 0, 1), upper=3)
    view, _ = view_of(client, spark, tmp_path / "1", refresh=Refresh((Every(10, 0),)))
    view.start()
    table.append(("b", 2, 55, 1), ("a", 1, 71, -1), upper=100_006)
    view.tick(view.input_upper())
    assert client.state("v").upper == Frontier(100_010)
    assert not view.wants(view.input_upper())
    for time, last in ((59, 50), (60, 60), (79, 70), (80, 80), (100_009, 100_000)):
        assert contents(client, time) == wanted(GROUPED, table.at(last)), time
    view.stop()


def test_last_refresh_ends_the_view(client: PersistClient, spark: SparkSession, tmp_path: Path):
    refresh = Refresh((), (0, 7))
    table = Input(client)
    table.append(("a", 1, 0, 1), upper=3)
    view, _ = view_of(client, spark, tmp_path / "1", refresh=refresh)
    view.start()
    assert client.state("v").upper == Frontier(7)
    table.append(("b", 2, 5, 1), ("b", 3, 8, 1), upper=9)
    while view.wants(view.input_upper()):
        view.tick(view.input_upper())
    assert client.state("v").upper == Frontier.EMPTY
    assert view.lower == Frontier.EMPTY
    assert contents(client, 100) == wanted(GROUPED, table.at(7))
    view.stop()
    assert not any(hold.startswith("dataflow") for hold in client.state("t").holds)
    again, _ = view_of(client, spark, tmp_path / "2", refresh=refresh)
    again.start()
    assert not again.wants(again.input_upper())
    again.stop()


@pytest.mark.parametrize("name", QUERIES)
def test_ended_input_ends_the_view(
    client: PersistClient, spark: SparkSession, tmp_path: Path, name: str
):
    sql, table = QUERIES[name], Input(client)
    table.append(("a", 1, 0, 1), upper=3)
    view, _ = view_of(client, spark, tmp_path / "1", sql)
    view.start()
    table.append(("b", 2, 5, 1), upper=None)
    while view.wants(view.input_upper()):
        view.tick(view.input_upper())
    assert client.state("v").upper == Frontier.EMPTY
    assert contents(client, 1_000) == wanted(sql, table.at(1_000))
    view.stop()
