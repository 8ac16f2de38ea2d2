"""The dashboard, the alerts and the documentation against a real /metrics."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import Serving

from docs_blocks import tried_by
from tidemark.control.metrics import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
HISTOGRAM = "tidemark_statement_seconds"
EVERYWHERE = {"le", "instance", "job"}
"""Labels of buckets, and those that Prometheus adds."""


@pytest.fixture
def exported(server: Serving) -> set[str]:
    """Names as they are at the docs' target, a histogram's and counters' with their suffixes."""
    (block,) = tried_by("tests/integration/test_metrics.py")
    (target,) = re.findall(r'targets: \["(.*?)"\]', block.text)
    at = target.replace("6876", str(server.http_port))
    with urllib.request.urlopen(f"http://{at}/metrics") as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    found = set()
    for family in families:
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
        found |= {family.name + suffix for suffix in suffixes.get(family.type, [""])}
    return found


def panels() -> Iterator[dict[str, Any]]:
    board = json.loads((DOCS / "dashboards" / "tidemark.json").read_text())
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


def targets() -> Iterator[tuple[str, str]]:
    """Expressions, each with the text that has to do with labels only."""
    for panel in panels():
        yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])
    alerts = (DOCS / "dashboards" / "alerts.yml").read_text()
    for alert in alerts.split("- alert: ")[1:]:
        expr, _, rest = alert.partition("expr: ")[2].partition("labels:")
        yield expr, rest


def test_what_is_shown_is_exported_and_what_is_exported_is_shown_and_documented(
    exported: set[str],
):
    named = {
        name for expr, _ in targets() for name in re.findall(r"(?:tidemark|process)_\w+", expr)
    }
    assert named <= exported
    ours = {name for name in exported if name.startswith("tidemark_")}
    assert len(ours) > 25
    assert {name.removesuffix("_sum") for name in ours - named} == {HISTOGRAM}
    documented = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    assert {family.name for family in FAMILIES} | {HISTOGRAM} <= documented
    assert {name for name in documented if name not in exported} == {HISTOGRAM}


def test_labels_are_those_of_the_metrics():
    labels = {family.name: set(family.labels) for family in FAMILIES}
    labels |= {f"{HISTOGRAM}_{each}": {"kind", "outcome"} for each in ("bucket", "count")}
    for expr, legend in targets():
        known = set(EVERYWHERE).union(
            *(labels.get(name, set()) for name in re.findall(r"tidemark_\w+", expr))
        )
        used = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
        used |= set(re.findall(r"(\w+)(?:=~|!=|=)\"", expr))
        for by in re.findall(r"\bby \(([^)]*)\)", expr):
            used |= {each.strip() for each in by.split(",")}
        assert used <= known, expr


def test_panels_do_not_overlap_and_say_what_they_are():
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
        assert panel["title"]
        assert panel["description"]
