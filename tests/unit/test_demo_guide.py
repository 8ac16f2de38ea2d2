"""What the demo says to try can be typed with what there is on the machine."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tidemark.control.server import Ready
from tidemark.demo import guide


@pytest.mark.parametrize("has_psql", [True, False])
def test_the_guide_names_a_client_that_is_there(
    has_psql: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    found = "/usr/bin/psql" if has_psql else None
    monkeypatch.setattr(shutil, "which", lambda name: found)
    monkeypatch.chdir(tmp_path)
    said = guide(
        Ready(cast(Any, None), "127.0.0.1", 7000, ("127.0.0.1", 7001)), Path("demo.tidemark")
    )
    ours = str(Path(sys.executable).with_name("tidemark"))
    if has_psql:
        assert "kill -9 $(psql -h 127.0.0.1 -p 7000 -U tidemark tidemark -Atc " in said
        assert f"{ours} sql" not in said
    else:
        assert f"kill -9 $({ours} sql -h 127.0.0.1 -p 7000 -tc " in said
        assert "psql" not in said


def test_what_is_tried_can_be_tried_again(tmp_path: Path):
    """The next start goes on with the rings joined: joining them again would change nothing."""
    said = guide(Ready(cast(Any, None), "127.0.0.1", 7000, ("127.0.0.1", 7001)), tmp_path)
    assert "DELETE FROM linked_accounts WHERE a = 2;" in said
