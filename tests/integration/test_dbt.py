"""dbt, with the adapter for Materialize: seeds, views, sources, indexes, tests and documentation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from serving import Serving

from docs_blocks import Block, commands, tried_by
from services import missing

PROJECT = Path(__file__).parent / "dbt"


class Dbt:
    def __init__(self, folder: Path, server: Serving):
        self._folder = folder
        self._server = server
        self.typed: set[str] = set()
        self._program = Path(sys.prefix) / "dbt" / "bin" / "dbt"
        if not self._program.exists():
            missing("dbt (run scripts/dbt.sh .venv)")

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """The exit code and what was said."""
        self.typed.add(" ".join(("dbt", *arguments, "--profiles-dir .")))
        done = subprocess.run(
            [str(self._program), *arguments, "--profiles-dir", ".", "--no-use-colors"],
            cwd=self._folder,
            env={
                **os.environ,
                "TIDEMARK_PORT": str(self._server.port),
                "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            },
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    def keep_state(self, name: str) -> None:
        shutil.copytree(self._folder / "target", self._folder / name, dirs_exist_ok=True)


def page_files() -> dict[str, str]:
    """The files of the project that docs/dbt.md shows, as it shows them but for the port."""
    found = {}
    for block in tried_by("tests/integration/test_dbt.py"):
        if block.language == "sql":
            name, _, text = block.text.removeprefix("-- ").partition("\n")
            found[name] = text
        elif block.text.startswith("# models/"):
            name, _, text = block.text.removeprefix("# ").partition("\n")
            found[name] = text
        elif block.language == "yaml":
            name = "profiles.yml" if "outputs:" in block.text else "dbt_project.yml"
            port = "\"{{ env_var('TIDEMARK_PORT') | int }}\""
            found[name] = block.text.replace("6875", port)
    assert len(found) == 6, found.keys()
    return found


def typed_in(block: Block) -> list[str]:
    return [command for command, _ in commands(block)] if block.language == "console" else []


@pytest.fixture
def dbt(tmp_path: Path, server: Serving, connection: psycopg.Connection) -> Iterator[Dbt]:
    shutil.copytree(PROJECT, tmp_path / "project")
    for name, text in page_files().items():
        (tmp_path / "project" / name).write_text(text)
    # What the project takes as given: somebody else's.
    connection.execute("CREATE SCHEMA raw")
    connection.execute("CREATE TABLE raw.events (kind text)")
    connection.execute("INSERT INTO raw.events VALUES ('click'), ('click'), ('view')")
    yield Dbt(tmp_path / "project", server)
    connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
    connection.execute("DROP SCHEMA raw CASCADE")


def test_a_project_is_built_tested_and_kept_up_to_date(dbt: Dbt, connection: psycopg.Connection):
    code, said = dbt("build")
    assert code == 0, said
    assert "PASS=13 WARN=0 ERROR=0" in said, said
    by_region = "SELECT region, orders, total FROM shop.by_region ORDER BY region"
    assert connection.execute(by_region).fetchall() == [("north", 2, 12), ("south", 1, 11)]

    # Views are kept, dbt or no dbt; and its tests see what is there now.
    connection.execute("INSERT INTO shop.orders VALUES (14, 2, 100)")
    assert connection.execute(by_region).fetchall() == [("north", 2, 12), ("south", 2, 111)]
    connection.execute("INSERT INTO shop.orders VALUES (15, 3, -1000), (16, 9, 50)")
    code, said = dbt(
        "test", "--select", "relationships_large_orders_customer_id__id__ref_customers_"
    )
    assert code == 1, said
    assert "Got 1 result" in said, said

    # Only views again: sources and tables are as they were, and go on.
    by_kind = "SELECT kind, events FROM shop.events_by_kind ORDER BY kind"
    assert connection.execute(by_kind).fetchall() == [("click", 2), ("view", 1)]
    ids = "SELECT name, id FROM mz_objects WHERE name IN ('clicks', 'orders', 'clicks_seen')"
    before = dict(connection.execute(ids).fetchall())
    code, said = dbt("run", "--exclude", "config.materialized:source")
    assert code == 0, said
    after = dict(connection.execute(ids).fetchall())
    assert {name for name in before if before[name] != after[name]} == {"clicks_seen"}
    connection.execute("INSERT INTO raw.events VALUES ('view')")
    assert connection.execute(by_kind).fetchall() == [("click", 2), ("view", 2)]
    assert connection.execute("SELECT clicks > 0 FROM shop.clicks_seen").fetchall() == [(True,)]

    # All once more, over what is there.
    code, said = dbt("build")
    assert code == 0, said
    assert connection.execute(by_region).fetchall() == [("north", 2, 12), ("south", 1, 11)]
    for typed in ("test", "docs generate", "run --select state:modified+ --state last-run"):
        code, said = dbt(*typed.split())
        assert code == 0, said
        dbt.keep_state("last-run")
    assert "Nothing to do" in said, said
    shown = [
        line for block in tried_by("tests/integration/test_dbt.py") for line in typed_in(block)
    ]
    assert {line.partition("#")[0].strip() for line in shown} <= dbt.typed, "of the page"
