"""Much data: how fast it can be appended without end, and how little memory its merge takes.

The events are about 1 MiB of Arrow data per batch, insert only and without repeated rows: a serial
number (the key), a random customer, a rising time stamp, an amount, a random double, one of eight
kinds and 24 random hex digits. Zstd leaves about half of it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.bench.memory import Sampled, memory
from tidemark.bench.persist_process import Fresh
from tidemark.clock import SYSTEM_CLOCK
from tidemark.frontier import Frontier
from tidemark.persist import Appended, Config, PersistClient, as_updates
from tidemark.persist.blob import sync_folder
from tidemark.persist.compact import compact as merge
from tidemark.persist.compact import due
from tidemark.persist.config import MIB

SHARD = "events"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("at", pa.timestamp("us")),
        ("amount", pa.decimal128(12, 2)),
        ("weight", pa.float64()),
        ("kind", pa.string()),
        ("trace", pa.string()),
    ]
)
KINDS = pa.array("view click cart order pay ship return review".split())
ROWS_PER_MIB = 9_000
SEED = 42
MEMORY_FACTOR = 20
"""The shard that is compacted is so many times larger than the memory for it."""


class Events:
    """Batches of events that never repeat; a few are made up and only renumbered after that."""

    def __init__(self, rows: int = ROWS_PER_MIB, distinct: int = 16):
        self._rows = rows
        self._numbers = count()
        rng = np.random.default_rng(SEED)
        self._made = [self._make(rng) for _ in range(distinct)]

    def batch(self, time: int) -> pa.Table:
        number = next(self._numbers)
        ids = pa.array(np.arange(number * self._rows, (number + 1) * self._rows))
        rows = self._made[number % len(self._made)].set_column(0, SCHEMA.field(0), ids)
        return as_updates(rows, time=time)

    def _make(self, rng: np.random.Generator) -> pa.Table:
        rows = self._rows
        cents = pa.array(rng.integers(100, 10_000_000, rows)).cast(pa.decimal128(19, 0))
        digits = rng.bytes(12 * rows).hex()
        return pa.table(
            [
                pa.nulls(rows, pa.int64()),
                pa.array(rng.integers(0, 1_000_000, rows)),
                pa.array(1_700_000_000_000_000 + rng.integers(0, 2_000, rows).cumsum()).cast(
                    pa.timestamp("us")
                ),
                # An integer number of cents is the decimal with two digits, bit for bit.
                pa.Array.from_buffers(pa.decimal128(12, 2), rows, cents.buffers()),
                pa.array(rng.gamma(2.0, 10.0, rows)),
                KINDS.take(pa.array(rng.integers(0, len(KINDS), rows))),
                pa.array([digits[at : at + 24] for at in range(0, 24 * rows, 24)]),
            ],
            schema=SCHEMA,
        )


class _Shard:
    """Appends batches of events, one time after the other."""

    def __init__(self, client: PersistClient, name: str):
        self._name = name
        self._client = client
        self._writer = client.open_writer(name, schema=SCHEMA, key=("id",))
        self._owner = client.open_critical_since(name)
        self._now = 0
        self.settling = 0.0

    def one_by_one(self, tables: list[pa.Table]) -> None:
        for table in tables:
            self._append(table)

    def pipelined(self, tables: list[pa.Table]) -> None:
        """The next batch is staged in a second thread while this one commits."""
        with ThreadPoolExecutor(1) as pool:
            staged = pool.submit(self._writer.stage, tables[0])
            for following in [*tables[1:], None]:
                batch = staged.result()
                if following is not None:
                    staged = pool.submit(self._writer.stage, following)
                self._append(batch)

    def settle(self) -> None:
        """Wait until the upkeep has done what is due, so that it is in nobody's way."""
        self._owner.downgrade(Frontier(self._now - 1))
        start = SYSTEM_CLOCK.monotonic()
        while due(self._client.state(self._name), self._client.config):
            SYSTEM_CLOCK.sleep(0.02)
        self.settling += SYSTEM_CLOCK.monotonic() - start

    def times(self, batches: int) -> range:
        return range(self._now, self._now + batches)

    def _append(self, updates) -> None:
        lower, self._now = Frontier(self._now), self._now + 1
        outcome = self._writer.compare_and_append(updates, lower=lower, upper=Frontier(self._now))
        assert isinstance(outcome, Appended), outcome


def measure_goodput(
    folder: Path, *, rounds: int, batches: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Appends of 1 MiB with the upkeep running, and the same tables as bare Parquet files.

    They take turns in stretches of `batches`. After each stretch of appends the upkeep may finish,
    which is measured, too: bare files must not pay for it.
    """
    events = Events()
    bare = folder / "bare"
    bare.mkdir()
    with closing(_open(folder, Config())) as client:
        serial, pipelined = _Shard(client, "serial"), _Shard(client, "pipelined")
        for shard in (serial, pipelined):
            shard.one_by_one([events.batch(time) for time in shard.times(2)])
        client.start_maintenance()
        seconds = {"parquet": 0.0, "serial": 0.0, "pipelined": 0.0}
        amounts = dict.fromkeys(seconds, 0)
        for done in range(rounds):
            for name, shard, work in (
                ("parquet", pipelined, lambda tables: _write_bare(bare, tables)),
                ("serial", serial, serial.one_by_one),
                ("pipelined", pipelined, pipelined.pipelined),
            ):
                say(f"{name}, round {done + 1} of {rounds}")
                tables = [events.batch(time) for time in shard.times(batches)]
                start = SYSTEM_CLOCK.monotonic()
                work(tables)
                seconds[name] += SYSTEM_CLOCK.monotonic() - start
                amounts[name] += sum(table.nbytes for table in tables)
                if name != "parquet":
                    shard.settle()
            shutil.rmtree(bare)
            bare.mkdir()
        rates = {name: amounts[name] / MIB / seconds[name] for name in seconds}
        settled = seconds["pipelined"] + pipelined.settling
        return {
            "goodput_mib_s": rates["pipelined"],
            "goodput_serial_mib_s": rates["serial"],
            "goodput_settled_mib_s": amounts["pipelined"] / MIB / settled,
            "parquet_mib_s": rates["parquet"],
            "goodput_vs_parquet": rates["pipelined"] / rates["parquet"],
            "goodput_serial_vs_parquet": rates["serial"] / rates["parquet"],
            "goodput_appended_mib": amounts["pipelined"] / MIB,
        }


def _write_bare(folder: Path, tables: list[pa.Table]) -> None:
    first = len(os.listdir(folder))
    for number, table in enumerate(tables, first):
        with open(folder / f"{number}.parquet", "wb") as file:
            pq.write_table(table, file, compression="zstd", compression_level=1)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)


def measure_compaction(folder: Path, memory_mib: int) -> dict[str, float]:
    """Peak memory of the merge of a shard that is much larger than it."""
    with Fresh(build, str(folder), memory_mib) as process:
        process.result()
    with Fresh(compact, str(folder), memory_mib) as process:
        return process.result()


def build(folder: str, memory_mib: int) -> None:
    """Appends of six parts each, which nobody merges."""
    with closing(_client(folder, memory_mib)) as client:
        rows = 6 * client.config.part_bytes * ROWS_PER_MIB // MIB
        _fill(client, SHARD, Events(rows, distinct=2), MEMORY_FACTOR * memory_mib * MIB)
        # And a small one, by which a process can warm up.
        small = rows // 24
        _fill(client, "small", Events(small, distinct=2), 12 * small * MIB // ROWS_PER_MIB)


def _fill(client: PersistClient, name: str, events: Events, size: int) -> None:
    writer = client.open_writer(name, schema=SCHEMA, key=("id",))
    appended, now = 0, 0
    while appended < size:
        table = events.batch(now)
        writer.compare_and_append(table, lower=Frontier(now), upper=Frontier(now + 1))
        appended, now = appended + table.nbytes, now + 1
    client.open_critical_since(name).downgrade(Frontier(now - 1))


def compact(folder: str, memory_mib: int) -> dict[str, float]:
    with closing(_client(folder, memory_mib)) as client:
        _merge_all(client, "small")
        state = client.state(SHARD)
        size, rows = sum(part.memory for part in state.parts), state.rows
        runs = sum(len(batch.runs) for batch in state.batches)
        pa.default_memory_pool().release_unused()
        before = memory("VmRSS")
        anonymous = Sampled("RssAnon")
        Path("/proc/self/clear_refs").write_text("5")
        start = SYSTEM_CLOCK.monotonic()
        merges = _merge_all(client, SHARD)
        seconds = SYSTEM_CLOCK.monotonic() - start
        peak = memory("VmHWM") - before
        state = client.state(SHARD)
        assert [len(batch.runs) for batch in state.batches] == [1]
        assert state.rows == rows
        return {
            "compaction_peak_mib": peak / MIB,
            "compaction_peak_anonymous_mib": anonymous.stop() / MIB,
            "compaction_peak_arrow_mib": pa.default_memory_pool().maxmemory() / MIB,
            "compaction_bound_mib": memory_mib,
            "shard_mib": size / MIB,
            "compaction_runs": runs,
            "compaction_merges": merges,
            "compaction_rows_s": rows / seconds,
            "compaction_mib_s": size / MIB / seconds,
        }


def _merge_all(client: PersistClient, shard: str) -> int:
    """Everything into one run, in as many merges as memory makes necessary; how many."""
    machine, merges = client.machine(shard), 0
    while True:
        batches = machine.refresh().batches
        if sum(len(batch.runs) for batch in batches) == 1:
            return merges
        assert merge(machine, client.blob, batches)
        merges += 1


def _client(folder: str, memory_mib: int) -> PersistClient:
    """The default configuration, with everything that bounds a merge in the same proportion."""
    default = Config()
    scale = memory_mib * MIB / default.merge_memory
    config = Config(
        merge_memory=memory_mib * MIB,
        part_bytes=int(default.part_bytes * scale),
        row_group_bytes=int(default.row_group_bytes * scale),
        cache_bytes=int(default.cache_bytes * scale),
    )
    return _open(folder, config)


def _open(folder: str | Path, config: Config) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db", config=config
    )
