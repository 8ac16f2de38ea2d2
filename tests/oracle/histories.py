"""Random histories: a few small tables, what happens to them, and when somebody looks.

A history is made from a seed alone and is kept as a Python model: `rows(table, time)` adds up
diffs in a dictionary and shares nothing with the shards that the engine reads.

    time      0 . . . as_of . . . | . . . . | . . . . . . | .
    load      ^^^^^^^^^^^^^        one step    the next      ...

Up to `as_of` the tables are loaded; from then on they change in *steps*, and after each step the
views are brought up to date. A step covers several timestamps, at most of which something
happens; in some steps a table is silent, in some all are, and in some a table's upper stays behind
the others'. Rows are few and their values fewer, so that duplicates, matches and empty groups are
common. Rows come in several copies, go one by one, change in place, and now and then all rows of a
key, or of a table, go at once.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from tidemark.persist import DIFF, ERR, TIME
from tidemark.persist.updates import updates_schema
from tidemark.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    INTEGER,
    TEXT,
    TIMESTAMP,
    Column,
    SqlType,
    arrow_schema,
    numeric,
)

Row = tuple[Any, ...]

MONEY = numeric(10, 2)

VALUES: dict[SqlType, tuple[Any, ...]] = {
    INTEGER: (0, 1, 2, 3, -1),
    BIGINT: (0, 1, 2, -3, 10_000_000_000),
    MONEY: tuple(map(Decimal, ("0.00", "1.50", "-2.25", "3.33", "100.00"))),
    TEXT: ("", "a", "b", "ab", "Ba", "é%"),
    DATE: tuple(datetime.date(2024, month, 28) for month in (1, 2, 3)),
    TIMESTAMP: tuple(datetime.datetime(2024, 2, 28, hour, 30, 15, 250) for hour in (0, 7, 23)),
    BOOLEAN: (True, False),
}
NULLS = 0.12


class Update(NamedTuple):
    row: Row
    time: int
    diff: int


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    updates: tuple[Update, ...]
    keys: tuple[tuple[int, ...], ...] = ()

    @property
    def row_schema(self) -> pa.Schema:
        return arrow_schema(self.columns)

    def rows(self, time: int) -> Counter[Row]:
        """The table at `time`: each row and how often it is there."""
        found: Counter[Row] = Counter()
        for update in self.updates:
            if update.time <= time:
                found[update.row] += update.diff
        return +found

    def between(self, lower: int, upper: int) -> pa.Table:
        """Its updates in [lower, upper), as a shard takes them."""
        return arrow_updates(
            self.columns, [update for update in self.updates if lower <= update.time < upper]
        )


@dataclass(frozen=True, slots=True)
class History:
    """`steps` says, per step, how far each table gets; all get as far as `end` in the last."""

    seed: int
    tables: dict[str, Table]
    as_of: int
    steps: tuple[dict[str, int], ...]

    @property
    def end(self) -> int:
        return max(self.steps[-1].values())


def arrow_updates(columns: tuple[Column, ...], updates: list[Update]) -> pa.Table:
    schema = updates_schema(arrow_schema(columns))
    arrays: dict[str, list[Any]] = {
        column.name: [update.row[at] for update in updates] for at, column in enumerate(columns)
    }
    arrays[TIME] = [update.time for update in updates]
    arrays[DIFF] = [update.diff for update in updates]
    arrays[ERR] = [None] * len(updates)
    return pa.table(arrays, schema=schema)


def random_history(seed: int, *, steps: int = 5) -> History:
    rng = random.Random(f"history {seed}")
    as_of = rng.randrange(0, 6)
    uppers = [as_of + 1]
    for _ in range(steps):
        uppers.append(uppers[-1] + rng.choice((1, 2, 3, 5)))
    tables = {}
    for at in range(rng.choice((2, 2, 3, 4))):
        columns = _columns(rng)
        tables[f"t{at}"] = Table(f"t{at}", columns, _updates(rng, columns, uppers))
    return History(seed, tables, as_of, _steps(rng, tuple(tables), uppers[1:]))


def _columns(rng: random.Random) -> tuple[Column, ...]:
    """Every table has a `k` and an `s`; the rest differs."""
    types = rng.sample((INTEGER, BIGINT, MONEY, TEXT, DATE, TIMESTAMP, BOOLEAN), rng.choice((2, 3)))
    more = (Column(f"x{at}", type_) for at, type_ in enumerate(types))
    return (Column("k", INTEGER), Column("s", TEXT), *more)


def _steps(
    rng: random.Random, names: tuple[str, ...], uppers: list[int]
) -> tuple[dict[str, int], ...]:
    steps = []
    reached = dict.fromkeys(names, 0)
    for upper in uppers:
        late = rng.choice(names) if upper != uppers[-1] and rng.random() < 0.2 else None
        reached = {name: reached[name] if name == late else upper for name in names}
        steps.append(reached)
    return tuple(steps)


def _updates(
    rng: random.Random, columns: tuple[Column, ...], uppers: list[int]
) -> tuple[Update, ...]:
    live: Counter[Row] = Counter()
    found: list[Update] = []
    empty_at_first = rng.random() < 0.15
    for lower, upper in zip([0, *uppers], uppers, strict=False):
        silent = rng.random() < (0.3 if lower else float(empty_at_first))
        for time in range(lower, upper):
            if silent or (lower and rng.random() < 0.35):
                continue
            for _ in range(rng.choice((1, 2, 4) if lower else (3, 5))):
                for row, diff in _happening(rng, columns, live):
                    live[row] += diff
                    found.append(Update(row, time, diff))
            live = +live
    return tuple(found)


def _happening(
    rng: random.Random, columns: tuple[Column, ...], live: Counter[Row]
) -> list[tuple[Row, int]]:
    """One thing that happens to a table, as updates."""
    row = tuple(_value(rng, column.type) for column in columns)
    some = rng.choice(sorted(live, key=repr)) if live else None
    kind = rng.random()
    if some is None or live[some] < 1 or kind < (0.8 if len(live) < 6 else 0.3):
        return [(row, 1)] * 2 if kind < 0.05 else [(row, rng.choice((1, 1, 1, 2, 3)))]
    if kind < 0.65:
        return [(some, -live[some] if rng.random() < 0.6 else -1)]
    if kind < 0.85:
        at = rng.randrange(len(columns))
        return [(some, -1), ((*some[:at], row[at], *some[at + 1 :]), 1)]
    if kind < 0.93:
        return [(row, 1), (row, -1)]
    whole = rng.random() < 0.05
    return [(other, -count) for other, count in live.items() if whole or other[0] == some[0]]


def _value(rng: random.Random, type_: SqlType) -> Any:
    return None if rng.random() < NULLS else rng.choice(VALUES[type_])
