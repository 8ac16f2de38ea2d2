"""A shard of many types with a random history, and the same history as plain Python has it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa

from tidemark.frontier import Frontier
from tidemark.persist import DIFF, ERR, TIME, Config, PersistClient
from tidemark.persist.compact import compact

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("x", pa.float64()),
        ("d", pa.decimal128(12, 2)),
        ("on", pa.date32()),
        ("at", pa.timestamp("us")),
        ("b", pa.binary()),
    ]
)
SMALL = Config(inline_bytes=600, part_bytes=6_000, row_group_bytes=1_500, small_batches=4)


def random_row(rng: random.Random, keys: int) -> tuple:
    def some(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return (
        some(rng.randrange(keys)),
        some(rng.choice(["", "a", "ü", "zz" * 9])),
        some(rng.choice([0.0, 1.5, float("nan"), -2.0])),
        some(Decimal(rng.randrange(-300, 300)) / 100),
        some(date(2026, 1, 1 + rng.randrange(3))),
        some(datetime(2026, 1, 1, rng.randrange(3), 30)),
        some(rng.choice([b"", b"\x00", b"q"])),
    )


class World:
    """A shard, and its history as plain Python has it."""

    def __init__(
        self,
        client: PersistClient,
        seed: int,
        key: tuple[str, ...] = ("k",),
        copies: tuple[int, ...] = (1, 1, 1, 3),
    ):
        self.copies = copies
        self.client, self.rng = client, random.Random(seed)
        self.writer = client.open_writer("s", schema=SCHEMA, key=key)
        self.hold = client.open_critical_since("s")
        self.history: list[tuple[tuple, int, int]] = []
        self.live: Counter[tuple] = Counter()
        self.time = 0

    def step(self, changes: int, *, keys: int = 400) -> None:
        updates: list[tuple[tuple, int, int]] = []
        for _ in range(changes):
            if self.live and self.rng.random() < 0.4:
                row = self.rng.choice(list(self.live))
                again = len(self.copies) > 1 and self.rng.random() < 0.1
                diff = self.rng.choice(self.copies) if again else -1
            else:
                row, diff = random_row(self.rng, keys), self.rng.choice(self.copies)
            row = tuple(NAN if value != value else value for value in row)
            self.live[row] += diff
            if not self.live[row]:
                del self.live[row]
            updates.append((row, self.time, diff))
        self.append(updates, [])

    def append(self, updates: list[tuple[tuple, int, int]], errors: list[tuple]) -> None:
        names = [*SCHEMA.names, TIME, DIFF, ERR]
        wide = [(*row, time, diff, None) for row, time, diff in updates]
        wide += [(*(None for _ in SCHEMA.names), time, diff, err) for err, time, diff in errors]
        records = [dict(zip(names, values, strict=True)) for values in wide]
        table = pa.Table.from_pylist(records, schema=self.writer.schema)
        lower, upper = self.writer.fetch_upper(), Frontier(self.time + 1)
        self.writer.compare_and_append(table, lower=lower, upper=upper)
        self.history += updates
        self.time += 1

    def compact(self, since: int, *, wholly: bool = False) -> None:
        self.hold.downgrade(Frontier(since))
        if wholly:
            machine = self.client.machine("s")
            compact(machine, self.client.blob, machine.refresh().batches)
        self.client.maintain("s")

    def at(self, as_of: int) -> Counter[tuple]:
        found: Counter[tuple] = Counter()
        for row, time, diff in self.history:
            if time <= as_of:
                found[row] += diff
        return Counter({row: count for row, count in found.items() if count})


NAN = float("nan")


def plain(values: tuple) -> tuple:
    """A row of Spark's as the model has it, where NaN is one object."""
    return tuple(bytes(v) if isinstance(v, bytearray) else NAN if v != v else v for v in values)
