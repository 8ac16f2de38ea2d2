"""`tidemark sql` on a real server: what needs a cluster. The rest is in unit/shell."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
from serving import DEADLINE, Serving

from docs_blocks import commands, tried_by
from terminal import PASTING_OFF, PROGRAM, Terminal


def test_the_page(server: Serving, connection: psycopg.Connection, tmp_path: Path):
    """What docs/sql-client.md has one type, at a prompt and in scripts."""
    session, scripts = tried_by("tests/integration/test_sql_client.py")
    connection.execute("CREATE TABLE bids (region text, amount int)")
    connection.execute("INSERT INTO bids VALUES ('north', 3), ('south', 4)")
    total = "SELECT region, sum(amount) AS total FROM bids GROUP BY region"
    for view in ("bids_by_region", "totals"):
        connection.execute(f"CREATE MATERIALIZED VIEW {view} AS {total}".encode())
    terminal = Terminal(server.port, tmp_path, patience=DEADLINE)
    try:
        terminal.prompt()
        first, second, subscribe, watch = (
            re.sub(r"^(tidemark=|        -)> ", "", line) for line in session.text.splitlines()[1:]
        )
        terminal.child.sendline(first)
        assert re.search(r"south +\| +4\b.*north +\| +3\b", terminal.run(second), re.DOTALL)
        for endless in (subscribe, watch):
            terminal.child.sendline(endless)
            terminal.child.expect_exact(PASTING_OFF)
            terminal.expect(r"south|\(1 row\)")
            terminal.child.sendintr()
            terminal.prompt()
    finally:
        terminal.close()
    (tmp_path / "setup.sql").write_text("CREATE VIEW made AS SELECT * FROM bids;")
    try:
        for command, _ in commands(scripts):
            program = shlex.join([*PROGRAM, "-p", str(server.port)])
            typed = command.replace("tidemark sql", program)
            lines = 1 if "SUBSCRIBE" in command else None
            with subprocess.Popen(
                ["sh", "-euc", typed],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as done:
                assert done.stdout is not None
                if lines:
                    assert "north" in done.stdout.readline()
                    os.killpg(done.pid, signal.SIGINT)
                else:
                    assert done.wait(DEADLINE) == 0
        assert connection.execute("SELECT count(*) FROM made").fetchall() == [(2,)]
    finally:
        connection.execute("DROP TABLE bids CASCADE")


def test_a_query_is_a_table_that_changes(
    server: Serving, connection: psycopg.Connection, tmp_path: Path
):
    connection.execute("CREATE TABLE sc_t (k int, v text)")
    connection.execute("INSERT INTO sc_t VALUES (1, 'before')")
    terminal = Terminal(server.port, tmp_path, patience=DEADLINE)
    try:
        terminal.prompt()
        terminal.child.sendline("SUBSCRIBE (SELECT v, count(*) AS n FROM sc_t GROUP BY v);")
        terminal.expect("before")
        connection.execute("UPDATE sc_t SET v = 'after'")
        terminal.expect("after")
        terminal.child.sendintr()
        terminal.prompt()
        assert "ERROR:  division by zero" in terminal.run("SELECT 1 / 0;")
        assert "after" in terminal.run("SELECT * FROM sc_t;")
        assert "INSERT 0 1" in terminal.run("INSERT INTO sc_t VALUES (2, 'gone') RETURNING k;")
        assert "gone" in terminal.run("DELETE FROM sc_t WHERE k = 2 RETURNING v;")
    finally:
        terminal.close()
    script = "SELECT v, count(*) AS n FROM sc_t GROUP BY v; DROP TABLE sc_t;"
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", "sql", "-p", str(server.port), "--csv"],
        input=script,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "v,n\nafter,1\n"), done.stderr
