"""The Python client on a real server: maintained views, Spark, notebooks, the embedded server."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from pyspark.sql import SparkSession
from serving import Serving

import tidemark
from tidemark.errors import Unavailable

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def db(server: Serving) -> Iterator[tidemark.Database]:
    with tidemark.connect(port=server.port) as opened:
        yield opened
        opened.execute("DROP TABLE IF EXISTS pc_t CASCADE")


@pytest.fixture
def view(db: tidemark.Database) -> str:
    db.execute("CREATE TABLE pc_t (k int, g text, v numeric(10,2))")
    db.insert("pc_t", {"k": [1, 2, 3], "g": ["a", "b", "a"], "v": [1, 2, 3]})
    db.execute(
        "CREATE MATERIALIZED VIEW pc_v AS SELECT g, count(*) AS n, sum(v) AS s FROM pc_t GROUP BY g"
    )
    return "pc_v"


def test_what_was_written_is_counted_also_if_it_is_returned(db: tidemark.Database, view: str):
    assert db.execute("INSERT INTO pc_t (k) VALUES (8), (9) RETURNING k") == 2
    written = db.sql("DELETE FROM pc_t WHERE k > 7 RETURNING k")
    assert (written.affected, sorted(written.rows())) == (2, [(8,), (9,)])
    assert db.sql("SELECT 1").affected == 0


def test_batches_add_up_to_the_view_at_their_time(db: tidemark.Database, view: str):
    rows: Counter[tuple] = Counter()
    with db.subscribe(f"SELECT g, n FROM {view} WHERE n > $1", [0]) as subscription:
        for k in range(4, 7):
            batch = next(subscription)
            for _, diff, *values in batch.rows():
                rows[tuple(values)] += diff
            then = db.sql(f"SELECT g, n FROM {view} AS OF {batch.time}").rows()
            assert sorted((+rows).elements()) == sorted(then)
            db.execute("INSERT INTO pc_t VALUES ($1, $2, 1)", [k, "ab"[k % 2]])
    assert set(rows.values()) <= {0, 1}


def test_a_result_as_a_spark_frame(db: tidemark.Database, view: str, spark: SparkSession):
    result = db.sql(
        "SELECT g, n, s, timestamp '2024-02-29 12:00:00' AS at, ARRAY[n, 0] AS l, '{}'::jsonb AS j "
        f"FROM {view} ORDER BY g"
    )
    frame = result.spark(spark)
    assert [tuple(row) for row in frame.orderBy("g").collect()] == [
        (*row[:-1], "{}") for row in result.rows()
    ]
    assert dict(frame.dtypes)["s"].startswith("decimal(38")
    assert dict(frame.dtypes)["l"] == "array<bigint>"
    assert db.insert("pc_t", frame.selectExpr("int(n) AS k", "g")) == 2
    assert db.sql(f"SELECT sum(n) FROM {view}").scalar() == 5


def test_examples(server: Serving, db: tidemark.Database, view: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "first_steps.py"), str(server.port)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3 orders inserted" in done.stdout
    follow = runpy.run_path(str(EXAMPLES / "follow.py"))["follow"]
    state = tmp_path / "state.json"
    with server.history_kept():
        assert follow(db, view, state, 1).total() == 2
        db.execute("INSERT INTO pc_t VALUES (9, 'c', 1)")  # while nobody follows
        assert follow(db, view, state, 1).total() == 3


def test_the_page(server: Serving):
    """The blocks of docs/python.md, one after the other; `local` has a test of its own."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    blocks = [block for block in blocks if "tidemark.local" not in block]
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    try:
        for block in blocks:
            exec(block.replace("connect()", f"connect(port={server.port})"), names)
        assert names["result"].rows() == [("north", Decimal("10.00"), None)]
        assert {names["region"], names["total"]} <= {"north", "south", Decimal("10.00"), None}
    finally:
        names["db"].execute("DROP TABLE IF EXISTS sales CASCADE")
        names["db"].close()


def test_a_notebook(server: Serving, db: tidemark.Database, view: str):
    cells = [
        f"import tidemark\ndb = tidemark.connect(port={server.port})",
        f"db.sql('SELECT g, n FROM {view} ORDER BY g')",
        "import threading\n"
        "seen = threading.Event()\n"
        "def write():\n"
        f"    with tidemark.connect(port={server.port}) as writer:\n"
        "        while not seen.wait(0.2):\n"
        "            writer.execute(\"INSERT INTO pc_t VALUES (7, 'from the notebook', 1)\")\n"
        "threading.Thread(target=write).start()\n"
        f"db.live('SELECT g, n FROM {view}', order_by='g', updates=2)\n"
        "seen.set()",
        # As the notebook's stop button does it, once the subscription is under way: not the one
        # before, which may be listed still.
        "import os, signal\n"
        "def listed(asked):\n"
        "    return set(asked.sql('SELECT id FROM mz_internal.mz_subscriptions').rows())\n"
        "before = listed(db)\n"
        "def stop():\n"
        f"    with tidemark.connect(port={server.port}) as other:\n"
        "        while not listed(other) - before:\n"
        "            pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=stop).start()\n"
        f"db.live('{view}')\n"
        "print('it went on')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    table = notebook.cells[1].outputs[0]["data"]["text/html"]
    assert ">a</td>" in table
    assert "(2 rows)" in table
    (live,) = notebook.cells[2].outputs
    shown = live["data"]["text/html"]
    assert "from the notebook" in shown, "the cell's one output is the table as it is now"
    assert shown.index(">a<") < shown.index(">b<"), "in order"
    assert notebook.cells[3].outputs[-1]["text"] == "it went on\n"


def test_an_embedded_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "shop"
    script = (
        "import sys, tidemark\n"
        "db = tidemark.local(sys.argv[1])\n"
        "db.execute('CREATE TABLE visits (day date, visitors int)')\n"
        "db.execute('INSERT INTO visits (visitors) VALUES (10)')\n"
        "print('done', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "done\n"
        with tidemark.local(folder) as joined:
            assert joined.execute("INSERT INTO visits (visitors) VALUES (100)") == 1
        assert owner.poll() is None
        os.kill(owner.pid, signal.SIGKILL)

    # Its server stops by itself, and the next one, the example's, waits for that.
    runpy.run_path(str(EXAMPLES / "embedded.py"))["main"](str(folder))
    assert capsys.readouterr().out == "113 visitors so far\n"
    assert not (folder / "local.json").exists()


def test_two_programs_that_begin_at_once_share_one_server(tmp_path: Path):
    folder = tmp_path / "shop"
    script = (
        "import sys, tidemark\n"
        "with tidemark.local(sys.argv[1]) as db:\n"
        "    db.execute('CREATE TABLE IF NOT EXISTS seen (who text)')\n"
        "    print(db.insert('seen', [{'who': 'me'}]), flush=True)\n"
        "    sys.stdin.read()\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        assert [program.stdout and program.stdout.readline() for program in both] == 2 * ["1\n"]
        for program in both:
            assert program.stdin is not None
            program.stdin.close()
        assert [program.wait() for program in both] == [0, 0]
        with tidemark.local(folder) as db:
            assert db.sql("SELECT count(*) FROM seen").scalar() == 2
    finally:
        for program in both:
            program.kill()


def test_a_folder_that_is_served(server: Serving):
    with pytest.raises(Unavailable, match="another tidemark server") as failed:
        tidemark.local(server.data)
    assert "tidemark.connect" in (failed.value.hint or "")
