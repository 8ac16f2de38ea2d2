"""Nexmark's queries as maintained views over persons, auctions and bids that come, change and go.

At every time the view equals Spark SQL over the same rows, and at the last a peek does, too.
Prices are few, so that ties and duplicates are common; one auction in three is hot.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import History, Row, Table, Update
from maintained import Inputs, View
from pyspark.sql import SparkSession
from queries import Query

from tidemark.bench.nexmark_queries import KEYS, QUERIES, TABLES
from tidemark.persist import PersistClient
from tidemark.types import BIGINT, TEXT, TIMESTAMP, Column

TYPES = {"bigint": BIGINT, "text": TEXT, "timestamp": TIMESTAMP}
AS_OF, STEPS = 1, (4, 6, 7)
SEED = 5

LAST = "row_number() OVER (PARTITION BY {} ORDER BY {}) AS _place"
BETWEEN = "WHERE b.date_time BETWEEN a.date_time AND a.expires"

SPARK: dict[str, str] = {
    "q6": f"""
SELECT seller, id, avg(CAST(final AS DECIMAL(20, 6))) OVER (
         PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (SELECT a.id, a.seller, b.price AS final, b.date_time,
             {LAST.format("a.id", "b.price DESC, b.date_time")}
      FROM auction a JOIN bid b ON a.id = b.auction {BETWEEN})
WHERE _place = 1
""",
    "q9": f"""
SELECT id, item_name, seller, category, bidder, price, bid_time
FROM (SELECT a.id, a.item_name, a.seller, a.category, b.bidder, b.price, b.date_time AS bid_time,
             {LAST.format("a.id", "b.price DESC, b.date_time, b.bidder")}
      FROM auction a JOIN bid b ON a.id = b.auction {BETWEEN})
WHERE _place = 1
""",
    "q18": f"""
SELECT auction, bidder, price, channel, date_time
FROM (SELECT *, {LAST.format("bidder, auction", "date_time DESC, price DESC, channel")} FROM bid)
WHERE _place = 1
""",
}
"""Where Spark has no such text."""


@pytest.mark.parametrize("name", QUERIES)
def test_view_equals_batch_at_every_time(
    name: str, client: PersistClient, spark: SparkSession, tmp_path: Path
) -> None:
    history = nexmark(SEED)
    inputs = Inputs(client, history)
    inputs.load()
    query = Query(QUERIES[name], SPARK.get(name) or spark_text(QUERIES[name]))
    view = View(name, query, history, client=client, spark=spark, folder=tmp_path)
    view.ask_oracle()
    view.start()
    view.check()
    for step in history.steps:
        inputs.advance(step)
        view.tick()
        view.check()
    assert view.checked == history.end
    view.check_peek()
    assert all(view.expected.values()), "an answer without rows says little"
    assert len({frozenset(answer.items()) for answer in view.expected.values()}) > 1


def spark_text(sql: str) -> str:
    sql = sql.replace("avg(q.final)", "avg(CAST(q.final AS DECIMAL(20, 6)))")
    sql = sql.replace("avg(price)", "avg(CAST(price AS DECIMAL(20, 6)))")
    day = "date_trunc('day', date_time)"
    return sql.replace(day, f"CAST({day} AS TIMESTAMP_NTZ)")


def nexmark(seed: int) -> History:
    rng = random.Random(f"nexmark {seed}")
    makers = {"person": _person, "auction": _auction, "bid": _bid}
    tables = {}
    for name, maker in makers.items():
        columns = tuple(Column(column, TYPES[type_]) for column, type_ in TABLES[name].items())
        updates = _updates(rng, maker, keyed=bool(KEYS[name]), load=60 if name == "bid" else 12)
        key = tuple(list(TABLES[name]).index(column) for column in KEYS[name])
        tables[name] = Table(name, columns, tuple(updates), (key,) if key else ())
    return History(seed, tables, AS_OF, tuple(dict.fromkeys(tables, upper) for upper in STEPS))


def _updates(
    rng: random.Random, maker: Callable[[random.Random, int], Row], *, keyed: bool, load: int
) -> list[Update]:
    """Rows that are loaded; then at each time some come, some change and some go."""
    live = [maker(rng, id_) for id_ in range(load)]
    found = [Update(row, rng.randrange(AS_OF + 1), 1) for row in live]
    made = load
    for time in range(AS_OF + 1, STEPS[-1]):
        for _ in range(max(2, load // 12)):
            what = rng.choice(("comes", "changes", "goes"))
            id_ = made
            if what != "comes":
                old = live.pop(rng.randrange(len(live)))
                found.append(Update(old, time, -1))
                id_ = old[0] if keyed else made
            if what != "goes":
                made += 1
                live.append(maker(rng, id_))
                found.append(Update(live[-1], time, 1))
    return found


def _person(rng: random.Random, id_: int) -> Row:
    state = rng.choice(("OR", "ID", "CA", "WA"))
    return id_, rng.choice(("Ada", "Grace", "Tony")), rng.choice(("Bend", "Boise")), state


def _auction(rng: random.Random, id_: int) -> Row:
    opened = _moment(rng)
    expires = opened + datetime.timedelta(hours=rng.choice((6, 24, 60)))
    return id_, f"item {id_ % 4}", opened, expires, rng.randrange(5), rng.choice((10, 10, 11))


def _bid(rng: random.Random, id_: int) -> Row:
    channel = rng.choice(("Apple", "Google", "channel-7"))
    url = f"https://nexmark.com/a{id_ % 3}/c{id_ % 2}?channel_id={id_ % 5}"
    auction = 3 if rng.random() < 0.33 else rng.randrange(14)
    price = rng.choice((50, 99, 100, 500, 1_000, 20_000))
    return auction, rng.randrange(6), price, channel, url, _moment(rng)


def _moment(rng: random.Random) -> datetime.datetime:
    return datetime.datetime(2026, 3, rng.choice((1, 2)), rng.randrange(0, 24, 3), 30)
