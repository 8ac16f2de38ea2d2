"""A large merge, in process and on Spark: the same shard, the same result, how long each takes.

The history has updates and deletions: batches of equal size, each of new rows, of rows that replace
earlier ones, and of the retractions of those. All is merged into one run at the newest time, in as
many merges as the memory allowed makes necessary. Both sides merge a small shard first, as workers
have to start and import Arrow once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import Config, PersistClient, as_updates
from tidemark.persist.compact import compact
from tidemark.persist.config import MIB
from tidemark.persist.state import State
from tidemark.spark.compact import merge
from tidemark.spark.session import start_spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("amount", pa.float64()),
        ("kind", pa.string()),
        ("trace", pa.string()),
    ]
)
KINDS = pa.array("view click cart order pay ship return review".split())
SEED = 42
SAMPLE_EVERY = 0.1


def measure(
    folder: Path,
    *,
    rows: int = 5_000_000,
    batches: int = 12,
    master: str = "local[*]",
    config: Config | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Seconds and memory of both merges of a shard of so many updates in so many batches."""
    client = PersistClient.open(
        blob=f"file://{folder / 'blob'}",
        consensus=f"sqlite://{folder / 'consensus.db'}",
        config=config,
    )
    with closing(client):
        say(f"writing two shards of {rows:,} updates")
        _fill(client, ("here", "there"), rows, batches)
        _fill(client, ("small-here", "small-there"), rows // 50, batches)
        spark = start_spark(master=master, app="tidemark-bench-compact")
        try:
            return _measure(client, spark, say)
        finally:
            spark.stop()


def _measure(
    client: PersistClient, spark: SparkSession, say: Callable[[str], None]
) -> dict[str, float]:
    before = client.state("here")
    memory = sum(part.memory for part in before.parts)
    seconds, merges, peak = {}, {}, {}
    for small, large, where in (
        ("small-here", "here", None),
        ("small-there", "there", spark),
    ):
        say(f"merging {'in process' if where is None else 'on Spark'}")
        _merge_all(client, small, where)
        pa.default_memory_pool().release_unused()
        with _peak_memory(workers=where is not None) as found:
            start = SYSTEM_CLOCK.monotonic()
            merges[large] = _merge_all(client, large, where)
            seconds[large] = SYSTEM_CLOCK.monotonic() - start
        peak[large] = found[0]
    after = {name: client.state(name) for name in seconds}
    assert after["here"].rows == after["there"].rows
    assert _diffs(after["here"]) == _diffs(after["there"]) == _diffs(before)
    return {
        "merge_updates": before.rows,
        "merge_mib": memory / MIB,
        "merge_runs": sum(len(batch.runs) for batch in before.batches),
        "merge_in_process_s": seconds["here"],
        "merge_in_process_merges": merges["here"],
        "merge_in_process_rise_mib": peak["here"] / MIB,
        "merge_spark_s": seconds["there"],
        "merge_spark_slots": spark.sparkContext.defaultParallelism,
        "merge_spark_worker_peak_mib": peak["there"] / MIB,
        "merge_spark_speedup": seconds["here"] / seconds["there"],
    }


def _fill(client: PersistClient, shards: tuple[str, ...], rows: int, batches: int) -> None:
    rng = np.random.default_rng(SEED)
    writers = [client.open_writer(shard, schema=SCHEMA, key=("id",)) for shard in shards]
    live, following = SCHEMA.empty_table(), 0
    for time in range(batches):
        count = rows // batches
        replaced = rng.choice(live.num_rows, min(live.num_rows, count // 4), replace=False)
        old = live.take(pa.array(replaced))
        fresh = count - 2 * len(replaced)
        ids = np.concatenate([old["id"].to_numpy(), np.arange(following, following + fresh)])
        new = _rows(rng, ids)
        updates = pa.concat_tables(
            [as_updates(old, time=time, diff=-1), as_updates(new, time=time)]
        )
        for writer in writers:
            writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
        live, following = new, following + fresh
    for shard in shards:
        client.open_critical_since(shard).downgrade(Frontier(batches - 1))


def _rows(rng: np.random.Generator, ids: np.ndarray) -> pa.Table:
    count = len(ids)
    digits = rng.bytes(12 * count).hex()
    return pa.table(
        [
            pa.array(ids),
            pa.array(rng.integers(0, 1_000_000, count)),
            pa.array(rng.gamma(2.0, 10.0, count)),
            KINDS.take(pa.array(rng.integers(0, len(KINDS), count))),
            pa.array([digits[at : at + 24] for at in range(0, 24 * count, 24)]),
        ],
        schema=SCHEMA,
    )


def _merge_all(client: PersistClient, shard: str, spark: SparkSession | None) -> int:
    """Everything into one run; how many merges it took."""
    machine, merges = client.machine(shard), 0
    while len(machine.refresh().batches) > 1 or len(machine.cached.batches[0].runs) > 1:
        batches = machine.cached.batches
        if spark is None:
            assert compact(machine, client.blob, batches)
        else:
            assert merge(spark, client, shard, batches)
        merges += 1
    return merges


def _diffs(state: State) -> int:
    return sum(batch.diffs for batch in state.batches)


@contextmanager
def _peak_memory(*, workers: bool) -> Iterator[list[int]]:
    """The most anonymous memory of any one of Spark's Python workers, whatever they held before;
    or, of this process, what came on top. Filled in when the block ends."""
    found, done = [0], threading.Event()
    before = 0 if workers else _anonymous(Path("/proc/self"))

    def look() -> None:
        while not done.wait(SAMPLE_EVERY):
            processes = _workers() if workers else [Path("/proc/self")]
            most = max(map(_anonymous, processes), default=0)
            found[0] = max(found[0], most - before)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _workers() -> list[Path]:
    """Processes below this one that run PySpark's daemon, which forks the workers."""
    processes = [each for each in Path("/proc").iterdir() if each.name.isdigit()]
    parents = {each.name: _field(each, "PPid") for each in processes}
    return [each for each in processes if _is_below(each.name, parents) and _is_worker(each)]


def _is_below(process: str, parents: dict[str, int]) -> bool:
    own = Path("/proc/self").resolve().name
    while process in parents and process != own:
        process = str(parents[process])
    return process == own


def _is_worker(process: Path) -> bool:
    try:
        return b"pyspark.daemon" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def _anonymous(process: Path) -> int:
    return _field(process, "RssAnon") * 1024


def _field(process: Path, name: str) -> int:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
