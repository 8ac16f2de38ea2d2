"""What the command line says of itself."""

from __future__ import annotations

from typer.testing import CliRunner

from tidemark.cli import app
from tidemark.control.pgwire.server import MZ_VERSION, SERVER_VERSION


def test_the_version_is_that_of_the_wire():
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    name, version = said.stdout.split()
    assert name == "tidemark"
    assert all(f"(Tidemark {version})" in each for each in (SERVER_VERSION, MZ_VERSION))
