"""docs/troubleshooting.md against the code: what the system can report has an entry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemark import errors
from tidemark.errors import TidemarkError

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tidemark"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()

_RAISED = re.compile(r"\b(sqlstate|state|code|BUSY|GONE|_fatal)\b|^    \(")
"""In such lines are the states that are given to errors; the last are rows of a table of them."""

_STATE = re.compile(r'"((?:[0-9]{2}|XX)[0-9A-Z]{3})"')


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def kinds() -> list[type[TidemarkError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, TidemarkError)]


def raised() -> set[str]:
    lines = (line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines())
    told = (line for line in lines if _RAISED.search(line))
    return {state for line in told for state in _STATE.findall(line)} - {"00000"}


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_of_error_has_an_entry(kind: type[TidemarkError]):
    row = next(
        line for line in section("Kinds of errors").splitlines() if f"`{kind.__name__}`" in line
    )
    assert kind.sqlstate in row


def test_every_sqlstate_has_an_entry():
    found = raised()
    assert {"40001", "57P05", "22014", "53400", "42P01", "XX001"} <= found
    entries = set(re.findall(r"\b[0-9X][0-9A-Z]{4}\b", section("By SQLSTATE")))
    assert found - entries == set()


def test_every_status_has_an_entry():
    status = (SOURCE / "control" / "system_status.py").read_text()
    words = set(re.findall(r'Doing\("(\w+)"', status))
    assert words >= {"running", "stalled"}
    told = section("A source or a sink is stalled")
    assert words == {word for word in words if f"| `{word}` |" in told}
    assert {"`online`", "`offline`"} <= set(re.findall(r"`\w+`", section("A replica is offline")))


def test_alerts_and_links_lead_to_an_entry():
    alerts = (ROOT / "docs" / "dashboards" / "alerts.yml").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    }
    wanted = set(re.findall(r"troubleshooting\.md#([\w-]+)", alerts))
    wanted |= set(re.findall(r"\]\(#([\w-]+)\)", PAGE))
    assert len(wanted) > 5
    assert wanted <= anchors
