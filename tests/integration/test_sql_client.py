"""`tidemark sql` on a real server: what needs a cluster. The rest is in unit/shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
from serving import DEADLINE, Serving

from terminal import Terminal


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
    finally:
        terminal.child.close(force=True)
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
