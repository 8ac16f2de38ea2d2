"""`tidemark view` as an operator types it: real processes on folders made by a client."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from serving import DEADLINE, eventually
from typer.testing import CliRunner, Result

from docs_blocks import tried_by
from tidemark.cli import app
from tidemark.compute.definition import planned
from tidemark.compute.peek import run_peek
from tidemark.compute.protocol import Peek
from tidemark.control.catalog import Catalog, Item
from tidemark.frontier import Frontier
from tidemark.persist import DIFF, PersistClient, as_updates
from tidemark.persist.updates import row_names

PROGRAM = [sys.executable, "-m", "tidemark.cli"]
ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())])
CUSTOMERS = pa.schema([("id", pa.int64()), ("region", pa.string())])
SQL = """
    SELECT region, count(*) AS n, max(amount) AS highest
    FROM orders JOIN customers ON customer = customers.id
    GROUP BY region
"""


class Inputs:
    """Two shards that change at random; ids of orders are never used twice."""

    def __init__(self, client: PersistClient):
        self.client = client
        self.time = 0
        self._rng = random.Random(7)
        self._orders: list[tuple[int, int, int]] = []
        self._next = 0
        self._write("customers", CUSTOMERS, [(i, f"r{i % 3}", 1) for i in range(10)])
        self.step(20)

    def step(self, orders: int = 5) -> None:
        """Some orders come and some go."""
        self.time += 1
        gone = [self._orders.pop(0) for _ in range(min(len(self._orders), orders // 2))]
        come = [
            (self._next + i, self._rng.randrange(10), self._rng.randrange(1000))
            for i in range(orders)
        ]
        self._next += orders
        self._orders += come
        rows = [(*row, 1) for row in come] + [(*row, -1) for row in gone]
        self._write("u7", ORDERS, rows)
        self._write("customers", CUSTOMERS, [])

    def _write(self, shard: str, schema: pa.Schema, rows: list[tuple]) -> None:
        writer = self.client.open_writer(shard, schema=schema)
        fields = [*schema, pa.field(DIFF, pa.int64())]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)],
            schema=pa.schema(fields),
        )
        updates = as_updates(table, time=self.time, schema=writer.schema)
        upper = Frontier(self.time + 1)
        writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=upper)


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[Inputs]:
    client = PersistClient.open(
        blob=f"file://{tmp_path / 'blob'}", consensus=f"sqlite://{tmp_path / 'consensus.db'}"
    )
    # The orders are a relation of a server's, too.
    Catalog(client).add(Item("u7", "bought", "table", "CREATE TABLE ...", shard="u7"))
    yield Inputs(client)
    client.close()


def words(folder: Path, *more: object, sql: str = SQL, output: str | None = "v") -> list[str]:
    given = ["--sql", sql, "--input", "orders=bought", "--input", "customers"]
    out = ["--output", output] if output else []
    return [*given, *out, "--data", str(folder), *map(str, more)]


def tidemark(*given: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, "view", *map(str, given)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def typed(*given: object) -> Result:
    """The same within this process: for what need not be a process of its own."""
    result = CliRunner().invoke(app, ["view", *map(str, given)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def check(inputs: Inputs, spark: SparkSession, times: Iterable[int]) -> None:
    """The output is what the query says of the inputs, at each of these times."""
    client = inputs.client
    query = planned(client, SQL, {"orders": "u7", "customers": "customers"})
    shards = {shard: shard for shard in query.inputs.values()}
    for time in times:
        table = client.open_reader("v").snapshot(time)
        names = row_names(table.schema)
        found: Counter = Counter()
        for row in table.to_pylist():
            found[tuple(row[name] for name in names)] += row[DIFF]
        batch = run_peek(spark, client, Peek(f"check-{time}", query.plan, time, shards, {}))
        expected = Counter(tuple(row.values()) for row in batch.to_pylist())
        assert found == expected, time


class Following:
    """A process that follows its inputs."""

    def __init__(self, folder: Path, output: Path):
        self._said = output
        self.process = subprocess.Popen(
            [*PROGRAM, "view", "run", *words(folder)],
            stdout=subprocess.PIPE,
            stderr=output.open("w"),
            text=True,
        )

    def wait_for(self, line: str) -> None:
        eventually(line, lambda: self._has_said(line))

    def _has_said(self, line: str) -> bool:
        assert self.process.poll() is None, self._said.read_text()
        return line in self._said.read_text()


def test_run_once_follow_kill_and_run_again(inputs: Inputs, spark: SparkSession, tmp_path: Path):
    client = inputs.client
    done = tidemark("run", *words(tmp_path, "--once", "--json"))
    assert json.loads(done.stdout)["lower"] == inputs.time + 1
    assert "v: hydrated, complete to [" in done.stderr
    # It is held for who comes next.
    held = {shard: client.state(shard).holds["dataflow-view-v-1"].since for shard in ("v", "u7")}
    assert held["v"] == Frontier(inputs.time)
    # Its base is of an earlier time, and is of use while history reaches back to it.
    assert held["u7"] < held["v"]
    first = inputs.time
    for shard in ("u7", "customers", "v"):
        client.open_critical_since(shard, "test").downgrade(Frontier(first))
    for _ in range(3):
        inputs.step()

    killed = Following(tmp_path, tmp_path / "killed")
    try:
        killed.wait_for(f"complete to [{inputs.time + 1}]")
        inputs.step()
        killed.wait_for(f"complete to [{inputs.time + 1}]")
        # In the middle of whatever the next change makes it do.
        inputs.step(500)
    finally:
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait()
    inputs.step()

    stopped = Following(tmp_path, tmp_path / "stopped")
    try:
        stopped.wait_for(f"complete to [{inputs.time + 1}]")
        stopped.process.send_signal(signal.SIGINT)
        shown, _ = stopped.process.communicate(timeout=DEADLINE)
    finally:
        stopped.process.kill()
    assert stopped.process.returncode == 0, stopped._said.read_text()
    assert f"v: complete to [{inputs.time + 1}]" in shown
    check(inputs, spark, range(first, inputs.time + 1))

    (listed,) = json.loads(typed("list", "--data", tmp_path, "--json").stdout)["views"]
    assert (listed["output"], listed["upper"]) == ("v", inputs.time + 1)
    assert listed["inputs"]["orders"] == {"shard": "u7", "upper": inputs.time + 1}
    assert "rows stay" in typed("drop", "v", "--data", tmp_path).stdout
    assert list(client.state("u7").holds) == ["test"]
    kept = [shard for shard in client.consensus.keys() if shard.startswith("view-v-1-")]  # noqa: SIM118
    assert kept
    assert all(client.state(shard).is_tombstone for shard in kept)
    check(inputs, spark, [inputs.time])
    assert "error: there is no view of shard v" in typed("drop", "v", "--data", tmp_path).stderr


def test_verify(inputs: Inputs, tmp_path: Path):
    tidemark("run", *words(tmp_path, "--once"))
    found = json.loads(tidemark("verify", "v", "--data", tmp_path, "--json").stdout)
    assert found == {
        "output": "v",
        "as_of": inputs.time,
        "verdict": "verified",
        "rows": 3,
        "missing": 0,
        "unexpected": 0,
        "differences": [],
    }
    inputs.step(0)
    rows = pa.table({"region": ["r9"], "n": [1], "highest": [7], DIFF: [1]})
    names = ["region", "n", "highest"]
    schema = pa.schema([rows.schema.field(name) for name in names])
    writer = inputs.client.open_writer("v", schema=schema)
    updates = as_updates(rows, time=inputs.time, schema=writer.schema)
    writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=Frontier(inputs.time + 1))
    done = subprocess.run(
        [*PROGRAM, "view", "verify", "v", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert "r9" in done.stdout
    assert f"v: different at {inputs.time}: the query has 3 rows" in done.stdout
    # What is asked in vain is said before Spark starts.
    assert "there is no view of shard w" in typed("verify", "w", "--data", tmp_path).stderr


def test_the_commands_of_the_docs(tmp_path: Path):
    """Of README and docs/views.md, each in a folder with inputs of either's name."""
    rows = pa.table({"region": ["Asia", "Europe", "Asia"]})
    (tmp_path / "query.sql").write_text("SELECT region FROM orders")
    shown = []
    for block in tried_by("tests/integration/test_view_cli.py"):
        data = tmp_path / block.page.stem
        client = PersistClient.open(
            blob=f"file://{data / 'blob'}", consensus=f"sqlite://{data / 'consensus.db'}"
        )
        for shard in ("orders", "shard-of-orders"):
            writer = client.open_writer(shard, schema=rows.schema)
            updates = as_updates(rows, time=1, schema=writer.schema)
            writer.compare_and_append(updates, lower=writer.fetch_upper(), upper=Frontier(2))
        client.close()
        done = subprocess.run(
            ["sh", "-euc", block.text.replace("DIR", str(data))],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert "by-region: complete to [2]" in shown[0]
    assert "by-region: verified at 1" in shown[1]
    assert " Asia     2       1" in shown[1], "its rows"


def test_explain(inputs: Inputs, tmp_path: Path):
    file = tmp_path / "query.sql"
    file.write_text(SQL)
    shown = typed("explain", *words(tmp_path, sql=str(file), output=None)).stdout
    for line in ("Get orders (id, customer, amount)", "customers by (id)", "-- body"):
        assert line in shown


def test_what_is_refused_says_what_to_do(inputs: Inputs, tmp_path: Path):
    def refused(*given: object, **other: str) -> str:
        done = typed("run", *words(tmp_path, "--once", *given, **other))
        assert done.exit_code == 1
        return done.stderr

    assert "hint: inputs are: customers, orders" in refused(sql="SELECT * FROM nowhere")
    assert "syntax error" in refused(sql="SELECT region FROM")
    assert "neither a query nor a file" in refused(sql="query.sql")
    assert "nearest are: customers" in refused("--input", "c=custommers")
    assert "use --input NAME=SHARD" in refused("--input", "c=")
    assert "is the server's" in refused(output="u8")
    assert "not a time" in refused("--as-of", "now")
    assert "hint: " in refused(sql="SELECT now() AS t FROM orders")
    assert inputs.client.state("v").exists is False


def test_help_does_not_load_spark():
    for given in (["--help"], ["view", "--help"], ["view", "run", "--help"]):
        command = [sys.executable, "-X", "importtime", "-m", "tidemark.cli", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert " pyspark\n" not in done.stderr
