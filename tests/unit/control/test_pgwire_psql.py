"""Real psql against the scripted session."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from pgwire_harness import PATIENCE, Running, running_server, table

from services import program
from tidemark.types import DATE, DOUBLE, NUMERIC, TEXT, numeric


@pytest.fixture
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


def psql(server: Running, *commands: str, database: str = "db") -> subprocess.CompletedProcess[str]:
    arguments = [part for command in commands for part in ("-c", command)]
    return subprocess.run(
        [program("psql"), "-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(server.port), *arguments],
        env=os.environ | {"PGUSER": "alice", "PGDATABASE": database, "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_select(server: Running) -> None:
    assert psql(server, "select 1; range 2", "insert").stdout == "1\n0\n1\nINSERT 0 3\n"


def test_values_of_every_kind(server: Running) -> None:
    server.script.tables["t"] = table(
        a=(numeric(10, 2), [1]),
        b=(NUMERIC, [1]),
        c=(DOUBLE, [1e20]),
        d=(TEXT, ["ä|b"]),
        e=(DATE, [0]),
        f=(TEXT, [None]),
    )
    assert psql(server, "table t").stdout == "1.00|1|1e+20|ä|b|1970-01-01|\n"


def test_error_with_hint_then_more(server: Running) -> None:
    done = psql(server, "unknown", "select 2")
    assert done.stdout == "2\n"
    assert done.stderr == 'ERROR:  relation "unknown" does not exist\nHINT:  create it\n'


def test_error_after_rows(server: Running) -> None:
    done = psql(server, "half")
    assert (done.returncode, done.stderr) == (1, "ERROR:  division by zero\n")


def test_copy_to_stdout(server: Running) -> None:
    server.script.tables["t"] = table(a=(TEXT, ["a\tb\\", None]), b=(DOUBLE, [1.5, None]))
    assert psql(server, "copy table t").stdout == "a\\tb\\\\\t1.5\n\\N\t\\N\n"


def test_notice(server: Running) -> None:
    assert psql(server, "notice hello").stderr == "NOTICE:  hello\nHINT:  a hint\n"


def test_interrupt_cancels_an_endless_copy(server: Running) -> None:
    with subprocess.Popen(
        [program("psql"), "-X", server.dsn, "-c", "copy wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert server.script.started.wait(PATIENCE)
        child.send_signal(signal.SIGINT)
        _, complaint = child.communicate(timeout=PATIENCE)
    assert "canceling statement due to user request" in complaint


def test_unknown_database(server: Running) -> None:
    done = psql(server, "select 1", database="missing")
    assert done.returncode == 2
    assert 'FATAL:  database "missing" does not exist' in done.stderr


def test_server_version_is_understood(server: Running) -> None:
    assert psql(server, r"\echo :SERVER_VERSION_NUM").stdout == "160000\n"
