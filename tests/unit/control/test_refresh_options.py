"""REFRESH options: what is written, what it means, and how control lives with such views."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.compute.plan import Get
from tidemark.compute.refresh import Every, Refresh
from tidemark.control import statements as s
from tidemark.control.catalog import RETAIN_MS, Item
from tidemark.control.coordinator import Coordinator
from tidemark.control.envelope import Diffs
from tidemark.control.hierarchy import DATABASE
from tidemark.control.parse import parse
from tidemark.control.refresh import Schedule, schedule
from tidemark.control.subscribe import subscribe
from tidemark.control.system import RELATIONS
from tidemark.errors import SqlError, TidemarkError
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, MemBlob, MemConsensus, PersistClient, as_updates
from tidemark.types import BIGINT, Column, arrow_schema

NOW = 1_893_456_000_000
"""2030-01-01 00:00:00, in UTC."""

COLUMNS = (Column("n", BIGINT),)


def asked(options: str, *, now: int = NOW) -> Schedule:
    statement = parse(f"CREATE MATERIALIZED VIEW v IN CLUSTER c WITH ({options}) AS SELECT 1 AS n")
    assert isinstance(statement, s.CreateMaterializedView)
    assert (statement.cluster, statement.query.sql) == ("c", "SELECT 1 AS n")
    return schedule(statement.refresh, now=now)


MEANT = {
    "REFRESH ON COMMIT": None,
    "REFRESH = ON COMMIT": None,
    "REFRESH AT CREATION": Refresh(at=(NOW + 5,)),
    "REFRESH AT mz_now()": Refresh(at=(NOW + 5,)),
    "refresh at now()": Refresh(at=(NOW + 5,)),
    f"REFRESH AT {NOW + 9}": Refresh(at=(NOW + 9,)),
    f"REFRESH AT '{NOW}'": Refresh(at=(NOW + 5,)),
    "REFRESH AT '2030-01-01 00:01:00.5'": Refresh(at=(NOW + 60_500,)),
    "REFRESH AT TIMESTAMP '2030-01-01 02:00:00+01'": Refresh(at=(NOW + 3_600_000,)),
    "REFRESH EVERY '10 seconds'": Refresh((Every(10_000, NOW + 5),)),
    "REFRESH EVERY INTERVAL '1 day 00:30' ALIGNED TO '2020-01-01'": (
        Refresh((Every(88_200_000, 1_577_836_800_000),))
    ),
    "REFRESH EVERY '1 week' ALIGNED TO mz_now(), REFRESH AT CREATION, REFRESH EVERY '500 ms'": (
        Refresh((Every(604_800_000, NOW + 5), Every(500, NOW + 5)), (NOW + 5,))
    ),
}


@pytest.mark.parametrize("options", MEANT)
def test_what_options_mean(options: str):
    assert asked(options).created(NOW + 5) == MEANT[options]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("REFRESH ON COMMIT, REFRESH AT CREATION", "cannot be combined"),
        ("REFRESH EVERY '1 month'", "no fixed length"),
        ("REFRESH EVERY '0 seconds'", "positive"),
        ("REFRESH EVERY '-1 day'", "positive"),
        ("REFRESH EVERY '100 us'", "whole milliseconds"),
        ("REFRESH EVERY 'often'", "interval"),
        ("REFRESH AT 'then'", "timestamp"),
        ("REFRESH AT '2029-12-31'", "in the past"),
        ("REFRESH AT", "syntax error"),
        ("REFRESH", "syntax error"),
        ("REFRESH SOMETIMES", "syntax error"),
        ("RETAIN HISTORY FOR", "syntax error"),
        ("FILLFACTOR = 70", "other than REFRESH and RETAIN HISTORY"),
        ("", "other than REFRESH"),
    ],
)
def test_what_is_refused(options: str, says: str):
    with pytest.raises(TidemarkError, match=says):
        asked(options)


def test_rounding_down():
    refresh = Refresh((Every(10, 3),), (25,))
    assert [refresh.round_down(t) for t in (2, 3, 12, 13, 24, 25, 32, 33)] == [
        *(None, 3, 3, 13, 23, 25, 25, 33)
    ]


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    client = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(NOW))
    yield Coordinator(client, data=tmp_path, blob="mem://", consensus="mem://", spark_master="")
    client.close()


def view(coordinator: Coordinator, refresh: Refresh, upper: Frontier) -> Item:
    """A view as far as its dataflow would have brought it."""
    (id_,) = coordinator.catalog.next_ids()
    item = Item(
        id_,
        f"v{id_}",
        "materialized-view",
        "",
        columns=COLUMNS,
        shard=id_,
        plan=Get("u0", COLUMNS),
        as_of=NOW,
        refresh=refresh,
    )
    first = refresh.round_up(NOW)
    assert first is not None
    coordinator.storage.allow_compaction(id_, Frontier(first))
    writer = coordinator.client.open_writer(id_, schema=arrow_schema(COLUMNS))
    writer.advance_upper(upper)
    coordinator.catalog.add(item)
    return item


def relation(coordinator: Coordinator, name: str) -> list[tuple]:
    found = next(each for each in RELATIONS if each.name == name)
    return [
        tuple(row.values()) for row in found.table(coordinator.engine.seen(DATABASE)).to_pylist()
    ]


def test_views_that_are_complete_far_into_the_future_or_for_ever(coordinator: Coordinator):
    hour = 3_600_000
    hourly = view(coordinator, Refresh((Every(hour, NOW),)), Frontier(NOW + hour))
    once = view(coordinator, Refresh(at=(NOW,)), Frontier.EMPTY)
    later = view(coordinator, Refresh(at=(NOW + hour,)), Frontier(NOW + hour))
    read_ts = coordinator.timeline.read_ts
    # Not read in the future, though that could be; before the first refresh there is nothing.
    for behind in (0, 5, None):
        assert coordinator.timestamp(hourly.get, behind_ms=behind) <= max(read_ts, NOW)
        assert coordinator.timestamp(once.get, behind_ms=behind) == read_ts
        assert coordinator.timestamp(later.get, behind_ms=behind) == NOW + hour
    # A new view over them begins now.
    assert hourly.shard is not None
    assert once.shard is not None
    assert coordinator._claim("dataflow-x", [hourly.shard]) == read_ts
    assert coordinator._claim("dataflow-y", [once.shard]) == read_ts
    assert relation(coordinator, "mz_materialized_view_refreshes") == [
        (hourly.id, NOW, NOW + hour),
        (once.id, NOW, None),
        (later.id, None, NOW + hour),
    ]
    kinds = [row[1:3] for row in relation(coordinator, "mz_materialized_view_refresh_strategies")]
    assert kinds == [("every", "01:00:00"), ("at", None), ("at", None)]
    frontiers = relation(coordinator, "mz_frontiers")
    assert [row[2] for row in frontiers] == [NOW + hour, None, NOW + hour]
    # History goes as it does elsewhere.
    for id_ in ("dataflow-x", "dataflow-y"):
        for shard in (hourly.shard, once.shard):
            if id_ in coordinator.client.state(shard).holds:
                coordinator.client.open_critical_since(shard, id_).release()
    tables = coordinator.timeline.tables
    tables.commit([], not_before=NOW + 10_000)
    coordinator._allow_compaction(coordinator.timeline.read_ts)
    assert coordinator.client.state(hourly.shard).since == Frontier(NOW + 10_000 - RETAIN_MS)
    assert coordinator.client.state(once.shard).since == Frontier(NOW + 10_000 - RETAIN_MS)


def test_a_subscription_ends_with_the_last_change(coordinator: Coordinator):
    once = view(coordinator, Refresh(at=(NOW, NOW + 50)), Frontier(NOW))
    assert once.shard is not None
    writer = coordinator.client.open_writer(once.shard, schema=arrow_schema(COLUMNS))
    rows = pa.table({"n": [1, 2], DIFF: pa.array([1, 1], pa.int64())})
    for time, upper in ((NOW, Frontier(NOW + 50)), (NOW + 50, Frontier.EMPTY)):
        updates = as_updates(rows, time=time, schema=writer.schema)
        writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=upper)

    async def followed(up_to: int | None) -> list[tuple]:
        shown = Diffs(COLUMNS, (), progress=True)
        stream = subscribe(coordinator, once, as_of=NOW, up_to=up_to, snapshot=True, shown=shown)
        return [tuple(row.values()) async for batch in stream for row in batch.to_pylist()]

    first = [
        (NOW, True, None, None),
        *((NOW, False, 1, n) for n in (1, 2)),
    ]
    rest = [(NOW + 50, False, 1, n) for n in (1, 2)]
    assert asyncio.run(followed(None)) == [*first, *rest]
    assert asyncio.run(followed(NOW + 60)) == [*first, *rest, (NOW + 60, True, None, None)]
    coordinator.client.finalize(once.shard)
    with pytest.raises(SqlError, match="was dropped"):
        asyncio.run(followed(None))
