"""Spark SQL as the input language: a maintained view gives what Spark gives for the same text.

The text goes to `tidemark.compute.maintain` as it is, and to Spark over the rows of each time.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidemark.compute import maintain
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, TIME, PersistClient, as_updates
from tidemark.persist.updates import row_names
from tidemark.spark.session import SMALL, session_for

SCHEMAS = {
    "orders": pa.schema([("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.int64())]),
    "people": pa.schema([("id", pa.int32()), ("name", pa.string()), ("since", pa.date32())]),
}
QUERIES = {
    "backticks": "SELECT `Customer`, COUNT(*) AS `n` FROM `orders` GROUP BY `customer`",
    "fraction": "SELECT id, amount / 4 AS q, amount div 4 AS d, amount % 4 AS r FROM orders",
    "null_safe": "SELECT o.id FROM orders o JOIN people p ON o.customer <=> p.id",
    "semi": "SELECT id FROM orders LEFT SEMI JOIN people ON orders.customer = people.id",
    "anti": "SELECT id FROM orders LEFT ANTI JOIN people ON orders.customer = people.id",
    "if": "SELECT id, if(amount > 5, 'much', nvl(cast(amount AS string), 'none')) AS w FROM orders",
    "concat": "SELECT id, concat(name, '-', id) AS c, ifnull(name, '?') AS n FROM people",
    "minus": "SELECT customer FROM orders MINUS SELECT id FROM people",
    "rollup": "SELECT customer, amount, count(*) AS n FROM orders GROUP BY customer, amount WITH ROLLUP",
    "casts": """SELECT id, cast(amount / 4 - 1 AS int) AS i, cast(-amount * 0.7 AS bigint) AS b,
                int(amount / 3) AS f, cast(cast(amount AS string) AS int) AS s, 1e1 * amount AS e
                FROM orders""",
    "texts": """SELECT id, regexp_replace(name, '[an]', '_') AS r, substring(name, 0, 2) AS s,
                substr(name, 2) AS t, instr(name, 'n') AS i, isnull(name) AS n FROM people""",
    "days": """SELECT id, date_add(since, 3) AS a, date_sub(since, id) AS s,
               datediff(since, date '2020-01-01') AS d, to_date('2024-02-29') AS t FROM people""",
    "counted": """SELECT customer, count_if(amount > 4) AS n, mean(amount) AS m FROM orders
                  GROUP BY customer""",
    "first": "SELECT customer FROM orders ORDER BY customer, id LIMIT 2",
    "window": """SELECT id, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, id) AS r
                 FROM orders""",
    "dates": "SELECT id, year(since) AS y, dayofmonth(since) AS d FROM people",
    "every": "SELECT customer, every(amount > 2) AS e, any(amount > 6) AS a FROM orders GROUP BY customer",
    "nested": """WITH big AS (SELECT customer, sum(amount) AS s FROM orders GROUP BY customer)
                 SELECT name, s FROM people LEFT JOIN big ON people.id = big.customer
                 WHERE s IS NULL OR s > (SELECT avg(s) FROM big)""",
}
TIMES = 5


@pytest.mark.parametrize("name", QUERIES)
def test_the_view_is_what_spark_says(
    name: str, client: PersistClient, spark: SparkSession, tmp_path: Path
) -> None:
    print("seed", name)
    history = random_history(random.Random(name))
    for time in range(TIMES):
        append(client, history, time)
    for shard in SCHEMAS:
        client.open_critical_since(shard, "test").downgrade(Frontier.MIN)
    given = {"inputs": {each: each for each in SCHEMAS}, "output": "v", "dialect": "spark"}
    with maintain(
        QUERIES[name], client=client, spark=spark, cache=tmp_path / "cache", **given
    ) as view:
        client.open_critical_since("v", "test").downgrade(Frontier.MIN)
        view.catch_up()
        for time in range(TIMES, 2 * TIMES):
            append(client, history, time)
        view.catch_up()
    session = session_for(spark, {**SMALL, "spark.sql.caseSensitive": "false"})
    for time in range(2 * TIMES):
        for table, schema in SCHEMAS.items():
            there: Counter = Counter()
            for changes in history[: time + 1]:
                for row, n in changes[table].items():
                    there[row] += n
            left = list(there.elements())
            session.createDataFrame(rows_of(left, schema)).createOrReplaceTempView(table)
        wanted = counted(session.sql(QUERIES[name]).toArrow().to_pylist())
        found = client.open_reader("v").snapshot(time)
        held: Counter = Counter()
        for row in found.to_pylist():
            held[tuple(normal(row[each]) for each in row_names(found.schema))] += row[DIFF]
        assert +held == wanted, f"{name} at {time}"


def random_history(rng: random.Random) -> list[dict[str, Counter]]:
    """For each time, how often each row of each table comes (or goes)."""
    alive: dict[str, list[tuple]] = {table: [] for table in SCHEMAS}
    history = []
    for _ in range(2 * TIMES):
        changes: dict[str, Counter] = {table: Counter() for table in SCHEMAS}
        for table in SCHEMAS:
            for _ in range(rng.randrange(5)):
                if alive[table] and rng.random() < 0.4:
                    row = alive[table].pop(rng.randrange(len(alive[table])))
                    changes[table][row] -= 1
                else:
                    alive[table].append(random_row(rng, table))
                    changes[table][alive[table][-1]] += 1
        history.append(changes)
    return history


def random_row(rng: random.Random, table: str) -> tuple:
    if table == "orders":
        customer = rng.choice([None, 1, 2, 3])
        return rng.randrange(20), customer, rng.choice([None, *range(10)])
    return (
        rng.choice([None, 1, 2, 3]),
        rng.choice([None, "ann", "bob"]),
        date(2024, 2, rng.randint(1, 28)),
    )


def append(client: PersistClient, history: list[dict[str, Counter]], time: int) -> None:
    for table, schema in SCHEMAS.items():
        writer = client.open_writer(table, schema=schema)
        changes = {row: n for row, n in history[time][table].items() if n}
        rows = rows_of(list(changes), schema)
        rows = rows.append_column(TIME, pa.array([time] * len(changes), pa.int64()))
        rows = rows.append_column(DIFF, pa.array(list(changes.values()), pa.int64()))
        writer.compare_and_append(
            as_updates(rows, schema=writer.schema), lower=Frontier(time), upper=Frontier(time + 1)
        )


def rows_of(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def counted(rows: list[dict[str, Any]]) -> Counter:
    return Counter(tuple(map(normal, row.values())) for row in rows)


def normal(value: Any) -> Any:
    return (
        float(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else value
    )
