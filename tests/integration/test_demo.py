"""The demo as a user runs it: views checked by plain Spark and by VERIFY, and what it says to try."""

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
from services import program
from tidemark.demo.auction import TABLES, VIEWS

NOT_SPARKS = ("winning_bids", "account_rings", "suspicious_bidders")
"""DISTINCT ON, recursion and mz_now(): plain Spark cannot say it, so VERIFY does."""


class Demo(Serving):
    """`tidemark demo` instead of `tidemark serve`; what it prints is kept."""

    output = ""
    kafka = False

    def start(self) -> Demo:
        command = [sys.executable, "-m", "tidemark.cli", "demo", "--data", str(self.data)]
        if self.kafka:
            command.append("--kafka")
        self.process = subprocess.Popen(
            [
                *command,
                "--listen",
                f"127.0.0.1:{self.port}",
                "--http",
                "127.0.0.1:0",
                "--spark-master",
                "local[2]",
            ],
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


def check_views(spark: SparkSession, data: Path) -> int | None:
    """Compare every view with plain Spark SQL over its inputs at the newest time that all have.

    Returns that time, or None if some view had no rows then."""
    empty = False
    with tidemark.open_region(data) as region, region.at(*TABLES, *VIEWS) as at:
        at.views(spark)
        for name, query in VIEWS.items():
            if name in NOT_SPARKS:
                continue
            view = at.frame(spark, name)
            # avg has another scale in Spark; everything else must be the same to the last digit.
            wanted = spark.sql(query)
            columns = [c for c in view.columns if c != "mean"]
            found = sorted(map(tuple, view.select(columns).collect()))
            expected = sorted(map(tuple, wanted.select(columns).collect()))
            assert found == expected, f"{name} is wrong at {at.as_of}"
            empty = empty or not found
        return None if empty else at.as_of


def verify_views(demo: Demo) -> None:
    with demo.connect() as connection:
        for name in NOT_SPARKS:
            differences = connection.execute(f"VERIFY MATERIALIZED VIEW {name}".encode()).fetchall()
            assert differences == [], f"{name} is wrong"


def hydrated(demo: Demo) -> bool:
    with demo.connect() as connection:
        rows = connection.execute(
            "SELECT o.name FROM mz_internal.mz_hydration_statuses h JOIN mz_objects o"
            " ON o.id = h.object_id WHERE h.hydrated"
        )
        return set(VIEWS) <= {row[0] for row in rows.fetchall()}


def number(demo: Demo, sql: str) -> int:
    with demo.connect() as connection:
        row = connection.execute(sql.encode()).fetchone()
        assert row is not None
        return row[0]


def to_try(demo: Demo, beginning: str) -> str:
    """A command of the guide, to the line that does not end in a backslash."""
    lines = demo.output[demo.output.index(beginning) :].splitlines()
    end = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: end + 1])


def test_demo_is_right_at_every_look_and_continues(demo: Demo, spark: SparkSession) -> None:
    # The guide names them, so they are there when it is printed, though no replica is yet.
    assert number(demo, "SELECT count(*) FROM mz_materialized_views") == len(VIEWS)
    eventually("all views hydrated", lambda: hydrated(demo))
    assert "│ materialized view │" in demo.output
    # The newest time that all views have may lie before the first sale.
    first = eventually("a sale", lambda: check_views(spark, demo.data), deadline=2 * DEADLINE)
    second, third = check_views(spark, demo.data), check_views(spark, demo.data)
    assert second, "rows went away"
    assert third, "rows went away"
    assert first <= second <= third
    eventually("the live table", lambda: "bids_by_region" in demo.output)

    # What it says to try: a table is changed, and the rings are one; a replica is killed.
    with demo.connect() as connection:
        connection.execute("INSERT INTO linked_accounts VALUES (2, 3)")
    assert number(demo, "SELECT count(DISTINCT ring) FROM account_rings") == 1
    suspicious = "SELECT count(*) FROM suspicious_bidders"
    eventually("a suspicious bidder", lambda: number(demo, suspicious) > 0)
    killed = demo.clusterd_pid
    assert program("psql")
    subprocess.run(["sh", "-euc", to_try(demo, "kill -9 ")], check=True)
    eventually("another replica", lambda: demo.clusterd_pid != killed)
    verify_views(demo)

    before = number(demo, "SELECT max(id) FROM bids")
    assert demo.interrupt() == 0
    eventually("nothing left running", lambda: not demo.running)
    assert "the next start continues" in demo.output

    demo.start()
    eventually("all views hydrated again", lambda: hydrated(demo))
    assert (check_views(spark, demo.data) or 0) > third
    assert number(demo, "SELECT max(id) FROM bids") >= before, "the generator started over"
    assert number(demo, "SELECT count(*) FROM clock") == 1
    assert "resumed" in demo.clusterd_log


@pytest.mark.soak
def test_demo_through_kafka(tmp_path: Path, kafka_folder: Path, spark: SparkSession) -> None:
    demo = Demo(tmp_path / "demo-kafka.tidemark")
    demo.kafka = True
    try:
        demo.start()
        eventually("all views hydrated", lambda: hydrated(demo))
        eventually("a sale", lambda: number(demo, "SELECT count(*) FROM top_sellers") > 0)
        verify_views(demo)
        eventually("sales at one time", lambda: check_views(spark, demo.data))
        assert demo.interrupt() == 0
        eventually("nothing left running", lambda: not demo.running)
        demo.start()
        before = number(demo, "SELECT max(id) FROM bids")
        eventually("more bids", lambda: number(demo, "SELECT max(id) FROM bids") > before)
        verify_views(demo)
    finally:
        demo.destroy()
