"""A backup that lacks the files of secrets says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from session_harness import Client, serving
from tidemark.cli import app
from tidemark.persist import PersistClient


def test_secrets_whose_files_are_not_found_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = tmp_path / "data"
    blob, consensus = f"file://{data / 'blob'}", f"sqlite://{data / 'consensus.db'}"
    (data / "blob").mkdir(parents=True)

    async def scenario() -> None:
        client = PersistClient.open(blob=blob, consensus=consensus)
        async with serving(data, client=client) as coordinator:
            session = Client(coordinator)
            await session("CREATE SECRET \"a.b\" AS 'x'")
            await session("CREATE SECRET c AS 'y'")
        client.close()

    asyncio.run(scenario())
    where = ["--blob", blob, "--consensus", consensus]
    elsewhere = ["--data", str(tmp_path / "elsewhere"), *where]
    warning = "warning: 2 secrets are not in this backup: run it with --data, on the server's"
    told = (["--data", str(data)], 0), (where, 2), (elsewhere, 2)
    for at, (given, missing) in enumerate(told):
        done = CliRunner().invoke(
            app, ["backup", *given, "--to", str(tmp_path / str(at)), "--json"]
        )
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["missing_secrets"] == missing
        assert (warning in done.stderr) == bool(missing)
