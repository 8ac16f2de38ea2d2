"""The performance page, from the results of benchmarks.

    scripts/performance.py record views tidemark bench views    # runs it, keeps its last line
    scripts/performance.py                                      # writes docs/performance.md anew

A result is `docs/results/<name>.json`: the command, the date, the machine, the metrics that the
command's last line has, and the bars that they are held to. Recording keeps the bars and the
order of metrics; what a run has not measured stays away. A test holds the page to the results.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
PAGE = DOCS / "performance.md"

HEAD = """# Performance

Written by `scripts/performance.py` from `docs/results/*.json`: not by hand. Each table is one run of the command above
it; the bar is what the metric is held to. What each metric is, and the story behind the numbers, is in
[benchmarks.md](benchmarks.md). `scripts/performance.py record views tidemark bench views` runs one anew on your machine.
Results that say *copied* were measured before this page was written from files; their dates are when they were written
down.
"""


def page() -> str:
    return "\n".join([HEAD, *(_section(path) for path in sorted(RESULTS.glob("*.json")))])


def _section(path: Path) -> str:
    found = json.loads(path.read_text())
    rows = [_row(name, value, found["bars"].get(name)) for name, value in found["metrics"].items()]
    note = f" ({found['note']})" if found.get("note") else ""
    return "\n".join(
        [
            f"## `{found['command']}`\n",
            f"{found['date']}, {found['machine']}{note}.\n",
            "| metric | measured | bar | |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _row(name: str, value: float | None, bar: str | None) -> str:
    shown = "–" if value is None else f"{value:,}"
    if bar is None or value is None:
        return f"| `{name}` | {shown} | | |"
    sign, limit = bar.split()
    holds = value <= float(limit) if sign == "<=" else value >= float(limit)
    said = "holds" if holds else "**missed**"
    return f"| `{name}` | {shown} | {'≤' if sign == '<=' else '≥'} {float(limit):,g} | {said} |"


def record(name: str, command: list[str]) -> None:
    """Only the metrics that are known by name; the last line of a run has many more."""
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text()) if path.exists() else {"metrics": {}, "bars": {}}
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured = json.loads(ran.stdout.strip().splitlines()[-1])
    names = known["metrics"] or measured
    result = {
        "command": " ".join(command),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "note": "",
        "metrics": {metric: measured[metric] for metric in names if metric in measured},
        "bars": known["bars"],
    }
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(sys.argv[2], sys.argv[3:])
    PAGE.write_text(page())
