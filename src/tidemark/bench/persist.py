"""`tidemark bench persist`: what durability costs, beside the same durability without a shard.

    append           100 updates, against one bare durable commit of as many bytes
    write to listen  until another process has the updates in hand, against the same commit
    growth           whether appends get dearer, and what piles up, after thousands of them
    goodput          appends of 1 MiB without end, against bare Parquet files with fsync
    compaction       the memory it takes to merge a shard 20 times larger than that

On local files and SQLite with full durability (WAL, synchronous = FULL). Appends and their latency
to a listener are also shown in memory and, if one is given, with consensus in PostgreSQL.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from tidemark.bench.persist_latency import (
    MARKS,
    Say,
    Stores,
    measure_append,
    measure_growth,
    measure_listen,
)
from tidemark.bench.persist_volume import measure_compaction, measure_goodput

Metrics = dict[str, float]


class Size(NamedTuple):
    appends: int
    listens: int
    growth: int
    growth_retained: int
    rounds: int
    batches: int
    memory_mib: int


QUICK = Size(300, 150, 1_200, 600, 2, 24, 32)
FULL = Size(1_000, 400, 10_000, 5_000, 5, 160, 64)


class Bar(NamedTuple):
    metric: str
    label: str
    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"


def bars(compaction_bound_mib: float) -> list[Bar]:
    return [
        Bar("append_vs_commit", "append / bare commit", most=3),
        Bar("write_to_listen_vs_commit", "write to listen / bare commit", most=4),
        Bar("append_growth", "last appends / first appends", most=1.5),
        Bar("goodput_mib_s", "appends of 1 MiB, MiB/s", least=64),
        Bar("goodput_vs_parquet", "appends / bare Parquet files", least=0.5),
        Bar("compaction_peak_mib", "memory of compaction, MiB", most=compaction_bound_mib),
    ]


def run(*, quick: bool, postgres: str | None = None) -> None:
    console = Console()
    size = QUICK if quick else FULL
    found: Metrics = {}
    with console.status("") as status:

        def say(what: str) -> Say:
            status.update(what)
            return lambda more: status.update(f"{what}: {more}")

        for prefix, consensus in (("", None), ("mem_", "mem://"), ("postgres_", postgres)):
            if consensus is not None or not prefix:
                say(f"latencies, consensus in {(consensus or 'sqlite:').partition(':')[0]}")
                latencies = _latencies(consensus, size)
                if consensus == "mem://":  # Nothing there is durable, nor to be compared so.
                    latencies = {n: v for n, v in latencies.items() if "commit" not in n}
                found |= {prefix + name: value for name, value in latencies.items()}
        console.print(_latency_table(found))
        for prefix, count in (("", size.growth), ("retained_", size.growth_retained)):
            follow = not prefix
            with _folder() as folder:
                growth = measure_growth(folder, count, follow=follow, say=say("many appends"))
            found |= {prefix + name: value for name, value in growth.items()}
        console.print(_growth_table(found, size))
        with _folder() as folder:
            found |= measure_goodput(
                folder, rounds=size.rounds, batches=size.batches, say=say("goodput")
            )
        with _folder() as folder:
            say(f"compaction in {size.memory_mib} MiB")
            found |= measure_compaction(folder, size.memory_mib)
    console.print(_volume_table(found))
    console.print(bar_table(found, bars(found["compaction_bound_mib"])))
    console.print(f"`tidemark bench persist{' --quick' if quick else ''}`")
    print(json.dumps({name: round(float(value), 3) for name, value in found.items()}))


def _latencies(consensus: str | None, size: Size) -> Metrics:
    """On this consensus, or on SQLite in a folder of its own."""
    found: Metrics = {}
    for measure, count in ((measure_append, size.appends), (measure_listen, size.listens)):
        with _folder() as folder:
            blob = consensus if consensus == "mem://" else f"file://{folder}/blob"
            # A database that is given may know the shards of an earlier run.
            shard = f"bench-{uuid4().hex}"
            stores = Stores(blob, consensus or f"sqlite://{folder}/consensus.db", shard)
            found |= measure(stores, folder, count)
    return found


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        yield Path(folder)


def _latency_table(found: Metrics) -> Table:
    names = {"": "file + SQLite", "mem_": "memory", "postgres_": "file + PostgreSQL"}
    stores = {prefix: name for prefix, name in names.items() if f"{prefix}append_ms" in found}
    table = _table("One append of 100 updates, ms", "", *stores.values())
    for metric, label in (
        ("commit_ms", "bare durable commit"),
        ("append_ms", "append, median"),
        ("append_p95_ms", "append, p95"),
        ("write_to_listen_ms", "write to listen, median"),
        ("write_to_listen_p95_ms", "write to listen, p95"),
    ):
        table.add_row(label, *(_shown(found.get(prefix + metric)) for prefix in stores))
    return table


def _growth_table(found: Metrics, size: Size) -> Table:
    table = _table("Many appends", "", "since follows", "history retained")
    table.add_row("appends", f"{size.growth:,}", f"{size.growth_retained:,}")
    for metric, label in (
        *((f"live_parts_{at}", f"live parts after {at:,}") for at in MARKS if at < size.growth),
        ("live_parts", "live parts at the end"),
        ("live_rows", "live updates at the end"),
        ("state_bytes", "bytes of the state"),
        ("log_versions", "versions in its log"),
        ("append_growth", "last 5% / first 5%, in bare commits"),
        ("append_growth_paired", "old shard / young shard, side by side"),
    ):
        table.add_row(label, *(_shown(found.get(p + metric)) for p in ("", "retained_")))
    return table


def _volume_table(found: Metrics) -> Table:
    table = _table("Much data", "", "")
    for metric, label in (
        ("goodput_mib_s", "appends, next batch staged meanwhile, MiB/s"),
        ("goodput_serial_mib_s", "appends one by one, MiB/s"),
        ("goodput_settled_mib_s", "until the upkeep is done, too, MiB/s"),
        ("parquet_mib_s", "bare Parquet files, MiB/s"),
        ("shard_mib", "shard that is compacted, MiB"),
        ("compaction_peak_mib", "memory that takes, MiB"),
        ("compaction_peak_anonymous_mib", "without pages of mapped files, MiB"),
        ("compaction_mib_s", "compaction, MiB/s"),
        ("compaction_rows_s", "compaction, updates/s"),
    ):
        table.add_row(label, _shown(found[metric]))
    return table


def bar_table(found: Metrics, bars: list[Bar]) -> Table:
    table = _table("Bars, on file + SQLite", "", "measured", "bar", "")
    for bar in bars:
        value = found[bar.metric]
        table.add_row(bar.label, _shown(value), str(bar), "holds" if bar.holds(value) else "MISSED")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at else "left")
    return table


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:,.2f}"
