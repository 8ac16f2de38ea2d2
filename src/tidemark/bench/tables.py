"""`tidemark bench tables`: what a commit costs with few tables, and with many.

    row       a commit of one row to one table
    beat      a commit of nothing, as comes every second
    commits   how many durable commits each of them takes

On local files and SQLite with full durability. Few and many take turns, commit by commit.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tidemark.clock import SYSTEM_CLOCK
from tidemark.persist import DIFF, FileBlob, PersistClient, SqliteConsensus
from tidemark.persist.consensus import Versioned
from tidemark.storage.tables import Tables, Write

ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROW = pa.table({"k": [1], "v": ["one"], DIFF: pa.array([1], pa.int64())})
COUNTS = (2, 200)


class Counted(SqliteConsensus):
    commits = 0

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        self.commits += 1
        return super().compare_and_set(key, new)


class Subject:
    """A timeline of `count` tables, and what its commits took."""

    def __init__(self, folder: Path, count: int):
        self.consensus = Counted(folder / "consensus.db")
        self.client = PersistClient(FileBlob(folder / "blob"), self.consensus)
        self.tables = Tables(self.client, "txns", epoch=1)
        self.tables.open({})
        for n in range(count):
            self.tables.create(f"t{n}", ROWS)
        self.took: dict[str, list[tuple[float, int]]] = {"row": [], "beat": []}

    def commit(self, kind: str) -> None:
        before, begun = self.consensus.commits, SYSTEM_CLOCK.monotonic()
        self.tables.commit([Write("t0", ROW)] if kind == "row" else [])
        took = SYSTEM_CLOCK.monotonic() - begun
        self.took[kind].append((1000 * took, self.consensus.commits - before))

    def result(self, kind: str) -> tuple[float, float]:
        warm = self.took[kind][len(self.took[kind]) // 10 :]
        return statistics.median(ms for ms, _ in warm), statistics.median(n for _, n in warm)


def run(*, quick: bool = False) -> None:
    rounds = 50 if quick else 300
    metrics: dict[str, float] = {}
    table = Table("tables", "row, ms", "durable commits", "beat, ms", "durable commits")
    with tempfile.TemporaryDirectory() as folder:
        subjects = {count: Subject(Path(folder) / str(count), count) for count in COUNTS}
        for _ in range(rounds):
            for kind in ("row", "beat"):
                for subject in subjects.values():
                    subject.commit(kind)
        for count, subject in subjects.items():
            cells = [str(count)]
            for kind in ("row", "beat"):
                ms, commits = subject.result(kind)
                metrics |= {f"{kind}_ms_{count}": ms, f"{kind}_commits_{count}": commits}
                cells += [f"{ms:.2f}", f"{commits:.0f}"]
            table.add_row(*cells)
            subject.client.close()
    few, many = COUNTS
    growth = {
        f"{kind}_growth": metrics[f"{kind}_ms_{many}"] / metrics[f"{kind}_ms_{few}"]
        for kind in ("row", "beat")
    }
    Console().print(table)
    print(json.dumps(metrics | growth))
