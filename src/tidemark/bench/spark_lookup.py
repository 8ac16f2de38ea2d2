"""Look-ups by key in an arrangement: their time and the private memory, at two sizes of the shard.

The rows are a random key (distinct), a customer, an amount, a double and one of eight kinds, about
60 bytes in a run. Each size is filled, built and looked up in processes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from tidemark.bench.memory import Sampled, memory
from tidemark.bench.persist_process import Fresh
from tidemark.bench.persist_volume import KINDS
from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import Appended, PersistClient, as_updates
from tidemark.persist.arrange import open_arrangement
from tidemark.persist.config import MIB

SHARD = "items"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.int64()),
        ("weight", pa.float64()),
        ("kind", pa.string()),
    ]
)
PIECE = 500_000
SEED = 42
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def measure(
    rows: int = 20_000_000,
    small: int = 1_000_000,
    *,
    repeats: int = 30,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Milliseconds of look-ups of 1,000 and 100,000 random keys, warm, and MiB of memory."""
    results = {}
    with TemporaryDirectory(dir=folder) as made:
        for name, count in (("small", small), ("large", rows)):
            place = str(Path(made) / name)
            for work in (fill, build, look):
                say(f"{work.__name__}: {count:,} rows")
                with Fresh(work, place, count, repeats) as process:
                    for key, value in (process.result() or {}).items():
                        results[f"{key}_{name}" if name == "small" else key] = value
    for keys in ("1k", "100k"):
        growth = results[f"lookup_{keys}_ms"] / results[f"lookup_{keys}_ms_small"]
        results["lookup_growth" if keys == "1k" else "lookup_100k_growth"] = growth
    return results


def fill(folder: str, rows: int, _repeats: int) -> None:
    with closing(_open(folder)) as client:
        writer = client.open_writer(SHARD, schema=SCHEMA, key=("id",))
        builder = writer.builder()
        rng = np.random.default_rng(SEED)
        for start in range(0, rows, PIECE):
            builder.add(as_updates(_rows(rng, start, min(PIECE, rows - start)), time=0))
        outcome = writer.compare_and_append(builder.finish(), lower=Frontier(0), upper=Frontier(1))
        assert isinstance(outcome, Appended), outcome
        client.open_critical_since(SHARD).downgrade(Frontier(0))


def build(folder: str, rows: int, _repeats: int) -> dict[str, float]:
    """The arrangement from nothing, by the shard's own key, and by another, ordered: a sort."""
    results = {}
    with closing(_open(folder)) as client:
        for name, key, order in (("", "id", None), ("_sorted", "customer", "amount")):
            pa.default_memory_pool().release_unused()
            before, peak = memory("RssAnon"), Sampled("RssAnon")
            start = SYSTEM_CLOCK.monotonic()
            with open_arrangement(
                client, SHARD, (key,), order=order, folder=_cache(folder), as_of=0
            ) as arrangement:
                results[f"build{name}_s"] = SYSTEM_CLOCK.monotonic() - start
                assert arrangement.rows == rows
                results[f"build{name}_peak_private_mib"] = peak.stop() / MIB
                pa.default_memory_pool().release_unused()
                results[f"build{name}_private_mib"] = (memory("RssAnon") - before) / MIB
    results["base_mib"] = sum(p.stat().st_size for p in _cache(folder).glob("*")) / 2 / MIB
    return results


def look(folder: str, rows: int, repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(SEED + 1)
    results = {}
    with closing(_open(folder)) as client:
        start = SYSTEM_CLOCK.monotonic()
        before = memory("RssAnon")
        with open_arrangement(
            client, SHARD, ("id",), folder=_cache(folder), as_of=0
        ) as arrangement:
            results["open_ms"] = 1e3 * (SYSTEM_CLOCK.monotonic() - start)
            for name, count in (("1k", 1_000), ("100k", 100_000)):
                asked = [_ids(rng.integers(0, rows, count)) for _ in range(repeats + 3)]
                seconds = []
                for ids in asked:
                    keys = pa.table({"id": ids})
                    start = SYSTEM_CLOCK.monotonic()
                    found = arrangement.lookup(keys, 0).num_rows
                    seconds.append(SYSTEM_CLOCK.monotonic() - start)
                    assert found == len(np.unique(ids))
                results[f"lookup_{name}_first_ms"] = 1e3 * seconds[0]
                results[f"lookup_{name}_ms"] = 1e3 * median(seconds[3:])
            del asked
            pa.default_memory_pool().release_unused()
            results["lookup_private_mib"] = (memory("RssAnon") - before) / MIB
    return results


def _rows(rng: np.random.Generator, start: int, count: int) -> pa.Table:
    return pa.table(
        [
            _ids(np.arange(start, start + count)),
            rng.integers(0, 1_000_000, count),
            rng.integers(100, 10_000_000, count),
            rng.gamma(2.0, 10.0, count),
            KINDS.take(pa.array(rng.integers(0, len(KINDS), count))),
        ],
        schema=SCHEMA,
    )


def _ids(numbers: np.ndarray) -> np.ndarray:
    """Distinct for distinct numbers, and in no order."""
    return (numbers.astype(np.uint64) * _SPREAD).view(np.int64)


def _cache(folder: str) -> Path:
    return Path(folder) / "cache"


def _open(folder: str) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db"
    )
