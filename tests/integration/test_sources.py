"""A load generator through the server, and its tables read from outside by plain Spark."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from serving import DEADLINE, Serving, eventually

from tidemark.persist import DIFF
from tidemark.storage.generators import generator

STEPS = 120
OPTIONS = {"seed": "7", "users": "40", "auctions_per_step": "2", "bids_per_step": "15"}
OPTIONS |= {"history": "30"}
JOINT_READ = Path(__file__).parents[2] / "examples" / "joint_read.py"


@pytest.fixture
def source(connection: psycopg.Connection) -> Iterator[str]:
    given = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in OPTIONS.items())
    connection.execute(
        f"CREATE SOURCE so FROM LOAD GENERATOR AUCTION ({given}, TICK INTERVAL '1ms',"
        f" UP TO {STEPS}) FOR ALL TABLES WITH (TIMESTAMP INTERVAL '100ms')"
    )
    yield "so"
    connection.execute("DROP SOURCE so CASCADE")


def accumulated(kind: str, options: dict[str, str | int], steps: int) -> dict[str, Counter]:
    """What the generator says its tables contain after so many steps."""
    found = {}
    made = generator(kind, options)
    for table, updates in made.updates(0, steps).items():
        names = [column.name for column in made.tables[table].columns]
        rows = zip(*(updates[name].to_pylist() for name in names), strict=True)
        total: Counter = Counter()
        for row, diff in zip(rows, updates[DIFF].to_pylist(), strict=True):
            total[row] += diff
        found[table] = Counter({row: n for row, n in total.items() if n})
    return found


def test_tables_and_views_of_a_finished_source(connection: psycopg.Connection, source: str):
    """Exactly the rows that the generator's own updates add up to, and views of just those."""
    connection.execute(
        "CREATE MATERIALIZED VIEW so_regions AS SELECT u.region, count(*) AS bids,"
        " sum(b.amount) AS total, max(b.amount) AS top FROM bids b"
        " JOIN auctions a ON b.auction_id = a.id JOIN users u ON b.buyer = u.id"
        " GROUP BY u.region"
    )
    expected = accumulated("auction", dict(OPTIONS), STEPS)
    newest = max(row[0] for row in expected["bids"])
    eventually(
        "the last step",
        lambda: connection.execute("SELECT max(id) FROM bids").fetchone() == (newest,),
    )
    for table, rows in expected.items():
        assert Counter(connection.execute(f"SELECT * FROM {table}").fetchall()) == rows

    regions = {row[0]: row[2] for row in expected["users"]}
    amounts: dict[str, list] = {}
    for _, _, buyer, amount, _ in expected["bids"]:
        amounts.setdefault(regions[buyer], []).append(amount)
    found = connection.execute("SELECT region, bids, total, top FROM so_regions").fetchall()
    assert sorted(found) == sorted((r, len(a), sum(a), max(a)) for r, a in amounts.items())


@pytest.mark.parametrize(
    ("kind", "options", "last"),
    [
        ("counter", {"max_cardinality": "7"}, "SELECT max(counter) = 50 FROM counter"),
        ("key value", {"keys": "60", "batch_size": "9"}, "SELECT max(step) = 49 FROM key_value"),
        (
            "tpch",
            {"scale_factor": "0.001", "refresh": "4"},
            # Order 1,500 + 4 × 49 − 1 = 1,695 is the last: 8 keys of every 32 are used.
            "SELECT max(o_orderkey) = 1695 / 8 * 32 + 1695 % 8 + 1 FROM orders",
        ),
    ],
)
def test_generators_that_update_and_delete(
    connection: psycopg.Connection, kind: str, options: dict[str, str | int], last: str
):
    given = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())
    connection.execute(
        f"CREATE SOURCE so FROM LOAD GENERATOR {kind} ({given}, TICK INTERVAL '10ms', UP TO 50)"
        " FOR ALL TABLES WITH (TIMESTAMP INTERVAL '100ms')"
    )
    try:
        eventually("the last step", lambda: connection.execute(last).fetchone() == (True,))
        for table, rows in accumulated(kind, options, 50).items():
            assert Counter(connection.execute(f"SELECT * FROM {table}").fetchall()) == rows
    finally:
        connection.execute("DROP SOURCE so CASCADE")


def test_joint_read(server: Serving, connection: psycopg.Connection):
    """The example, beside a running server and a live source."""
    connection.execute("CREATE SOURCE so FROM LOAD GENERATOR AUCTION (HISTORY 30) FOR ALL TABLES")
    try:
        eventually(
            "bids", lambda: connection.execute("SELECT count(*) FROM bids").fetchone() != (0,)
        )
        done = subprocess.run(
            [sys.executable, str(JOINT_READ), str(server.data)],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        connection.execute("DROP SOURCE so CASCADE")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all(line.endswith(" 0 bids without an auction") for line in lines), done.stdout
    assert not any(" 0 bids," in line for line in lines), done.stdout
