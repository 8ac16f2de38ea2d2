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
from tidemark.storage.generators.auction import TABLES

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


def accumulated() -> dict[str, Counter]:
    """What the generator says its tables contain after all its steps."""
    found = {}
    for table, updates in generator("auction", dict(OPTIONS)).updates(0, STEPS).items():
        names = [column.name for column in TABLES[table]]
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
    expected = accumulated()
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
