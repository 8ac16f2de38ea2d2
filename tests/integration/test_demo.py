"""The demo as a user runs it, checked by plain Spark: every view equals its query at one time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from serving import DEADLINE, Serving, eventually

import tidemark
from tidemark.demo import SETUP

VIEWS = {
    sql.split("IF NOT EXISTS ")[1].split()[0]: sql.split(" AS\n", 1)[1]
    for sql in SETUP
    if "MATERIALIZED" in sql
}
TABLES = ("users", "auctions", "bids")


class Demo(Serving):
    """`tidemark demo` instead of `tidemark serve`; what it prints is kept."""

    output = ""

    def start(self) -> Demo:
        command = [sys.executable, "-m", "tidemark.cli", "demo", "--data", str(self.data)]
        self.process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self.port}", "--spark-master", "local[2]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        self.output = ""
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        line = eventually("the psql line", lambda: self._line("psql -h"))
        self.port = int(line.split(" -p ")[1].split()[0])
        return self

    def interrupt(self) -> int:
        """Ctrl-C."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=DEADLINE)

    def _read(self, stream) -> None:
        for line in stream:
            self.output += line

    def _line(self, words: str) -> str | None:
        return next((line for line in self.output.splitlines() if words in line), None)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path / "demo.tidemark")
    try:
        yield running.start()
    finally:
        running.destroy()


def check_views(spark: SparkSession, data: Path) -> int:
    """Compare every view with plain Spark SQL over its inputs; returns the time it was done at."""
    with tidemark.open_region(data) as region, region.at(*TABLES, *VIEWS) as at:
        for table in TABLES:
            at.frame(spark, table).createOrReplaceTempView(table)
        for name, query in VIEWS.items():
            view = at.frame(spark, name)
            # avg has another scale in Spark; everything else must be the same to the last digit.
            wanted = spark.sql(query)
            columns = [c for c in view.columns if c != "mean"]
            found = sorted(map(tuple, view.select(columns).collect()))
            expected = sorted(map(tuple, wanted.select(columns).collect()))
            assert found == expected, f"{name} is wrong at {at.as_of}"
            assert found, f"{name} is empty at {at.as_of}"
        return at.as_of


def hydrated(demo: Demo) -> bool:
    with demo.connect() as connection:
        rows = connection.execute("SELECT hydrated FROM mz_internal.mz_hydration_statuses")
        known = [row[0] for row in rows.fetchall()]
        return len(known) == 1 + len(VIEWS) and all(known)


def bids(demo: Demo) -> int:
    with demo.connect() as connection:
        row = connection.execute("SELECT max(id) FROM bids").fetchone()
        assert row is not None
        return row[0]


def test_demo_is_right_at_every_look_and_continues(demo: Demo, spark: SparkSession) -> None:
    eventually("all views hydrated", lambda: hydrated(demo))
    seen = [check_views(spark, demo.data) for _ in range(3)]
    assert seen == sorted(seen)
    eventually("the live table", lambda: "bids_by_region" in demo.output)
    before = bids(demo)
    assert demo.interrupt() == 0
    eventually("nothing left running", lambda: not demo.running)
    assert "the next start continues" in demo.output

    demo.start()
    eventually("all views hydrated again", lambda: hydrated(demo))
    assert check_views(spark, demo.data) > seen[-1]
    assert bids(demo) >= before, "the generator started over"
    assert "resumed" in demo.clusterd_log
