"""Keys of every type that can be stored, alone and together, and hashes that collide.

Each case is a seeded random history against a dict, read at random times.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.errors import InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import Config, MemBlob, MemConsensus, PersistClient, arrange, keyhash
from tidemark.persist import order as run_order
from tidemark.persist.arrange import Arrangement
from tidemark.persist.cache import Cache
from tidemark.persist.updates import _STORABLE, DIFF

NAN = float("nan")
TINY = Config(hot_batch_bytes=500, hot_sort_bytes=1_000, heartbeat=False)

VALUES: dict[pa.DataType, list] = {
    pa.int8(): [0, -1, 127, -128],
    pa.int16(): [0, -1, 3],
    pa.int32(): [0, -1, 2**31 - 1],
    pa.int64(): [0, -1, 2**63 - 1, -(2**63)],
    pa.uint8(): [0, 255],
    pa.uint16(): [0, 65535],
    pa.uint32(): [0, 2**32 - 1],
    pa.uint64(): [0, 1, 2**64 - 1, 2**63],
    pa.float32(): [0.0, -0.0, 1.5, NAN, float("inf")],
    pa.float64(): [0.0, -0.0, 1.5, NAN, float("-inf")],
    pa.decimal128(12, 2): [Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99")],
    pa.bool_(): [True, False],
    pa.date32(): [date(1970, 1, 1), date(2024, 2, 29)],
    pa.time32("s"): [clock(0, 0, 1), clock(23, 59, 59)],
    pa.time64("us"): [clock(0, 0, 0, 1), clock(23, 59, 59)],
    pa.timestamp("us"): [datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)],
    pa.timestamp("ms", tz="UTC"): [datetime(2000, 1, 1), datetime(2024, 2, 29)],
    pa.string(): ["", "a", "日本", "a" * 50],
    pa.large_string(): ["", "a", "aa"],
    pa.binary(): [b"", b"\0", b"\xff\0"],
    pa.large_binary(): [b"", b"\0\0", b"x"],
}


def test_every_storable_type_is_here():
    assert all(any(accepts(kind) for kind in VALUES) for accepts in _STORABLE)
    assert all(any(accepts(kind) for accepts in _STORABLE) for kind in VALUES)


def spelled(value):
    """The value as SQL groups it: one NaN, one zero."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


class Case:
    """A shard with a random history, its dict, and arrangements of it."""

    def __init__(self, folder, kinds: list[pa.DataType], seed: int, *, config: Config = TINY):
        self.rng = random.Random(seed)
        self.client = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(), config=config)
        self.names = tuple(f"k{n}" for n in range(len(kinds)))
        self.kinds = kinds
        fields = [*zip(self.names, kinds, strict=True), ("v", pa.int64()), ("s", pa.string())]
        self.schema = pa.schema(fields)
        self.writer = self.client.open_writer("s", schema=self.schema)
        self.since = self.client.open_critical_since("s")
        self.cache = Cache(folder, config)
        self.history: list[tuple[tuple, int, int]] = []
        self.upper = 0

    def key(self) -> tuple:
        return tuple(self.rng.choice([None, *VALUES[kind]]) for kind in self.kinds)

    def append(self, count: int) -> None:
        live = [row for row, n in self.live(self.upper - 1).items() if n > 0]
        changes = [((*self.key(), self.rng.randrange(9), None), 1) for _ in range(count)]
        changes += [(row, -1) for row in self.rng.sample(live, min(len(live), count // 2))]
        times = self.rng.randrange(1, 4)
        updates = [(row, self.upper + self.rng.randrange(times), diff) for row, diff in changes]
        self.write(updates, self.upper + times)

    def write(self, updates: list[tuple[tuple, int, int]], upper: int) -> None:
        rows = [(*self.unspelled(row), time, diff, None) for row, time, diff in updates]
        columns = zip(*rows, strict=True) if rows else [()] * len(self.writer.schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self.writer.schema, strict=True)]
        self.writer.compare_and_append(
            pa.table(arrays, schema=self.writer.schema),
            lower=Frontier(self.upper),
            upper=Frontier(upper),
        )
        self.history += [(tuple(map(spelled, row)), time, diff) for row, time, diff in updates]
        self.upper = upper

    def unspelled(self, row: tuple) -> tuple:
        return tuple(NAN if value == "nan" else value for value in row)

    def live(self, as_of: int) -> dict[tuple, int]:
        sums: Counter[tuple] = Counter()
        for row, time, diff in self.history:
            if time <= as_of:
                sums[row] += diff
        return {row: n for row, n in sums.items() if n}

    def arrange(self, **options) -> Arrangement:
        return Arrangement(self.client, "s", self.names, cache=self.cache, **options)

    def keys(self, keys: list[tuple]) -> pa.Table:
        columns = list(zip(*keys, strict=True))
        return pa.table(
            {
                f"x{n}": pa.array(column, kind)
                for n, (column, kind) in enumerate(zip(columns, self.kinds, strict=True))
            }
        )

    def check(self, arrangement: Arrangement, as_of: int) -> None:
        truth = self.live(as_of)
        asked = [self.key() for _ in range(self.rng.randrange(1, 6))]
        wanted = {tuple(map(spelled, key)) for key in asked}
        found = counted(arrangement.lookup(self.keys(asked), as_of))
        assert found == {r: n for r, n in truth.items() if r[: len(self.names)] in wanted}
        if not arrangement._layout.order:
            return
        distinct = list({tuple(map(spelled, key)): key for key in asked}.values())
        count, last = self.rng.randrange(1, 4), self.rng.random() < 0.5
        heads = arrangement.heads(
            self.keys(distinct), np.full(len(distinct), count), as_of, last=last
        )
        found = counted(heads)
        assert found.items() <= truth.items()
        for key in wanted:
            rows = sorted((r[-2] for r in truth if r[: len(key)] == key), reverse=last)
            got = sorted((r[-2] for r in found if r[: len(key)] == key), reverse=last)
            assert got == rows[: len(got)]
            assert len(got) >= min(count, len(rows))


def counted(table: pa.Table) -> dict[tuple, int]:
    result: dict[tuple, int] = {}
    for *row, diff in zip(*(column.to_pylist() for column in table.columns), strict=True):
        row = tuple(map(spelled, row))
        assert row not in result, "each row comes once"
        result[row] = diff
    return result


@pytest.fixture(autouse=True)
def short_tails(monkeypatch):
    monkeypatch.setattr(arrange, "MAX_TAIL_RUNS", 2)
    monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 20)


def live_through(case: Case, steps: int = 6) -> None:
    """Appends, holds that follow, compaction, and look-ups all the time."""
    case.append(40)
    plain, ordered = case.arrange(), case.arrange(order="v")
    for step in range(steps):
        held = max(case.upper - 1 - case.rng.randrange(3), case.client.state("s").since.time or 0)
        for arrangement in (plain, ordered):
            arrangement.hold("h", held)
            case.check(arrangement, case.rng.randrange(arrangement._holds["h"], case.upper))
        if step % 2:
            case.since.downgrade(Frontier(plain._holds["h"]))
            case.client.maintain("s")
        case.append(case.rng.randrange(30))
        for arrangement in (plain, ordered):
            case.check(arrangement, case.rng.randrange(arrangement._holds["h"], case.upper))


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_one_column(tmp_path, kind):
    live_through(Case(tmp_path, [kind], 1))


@pytest.mark.parametrize("seed", range(12))
def test_several_columns(tmp_path, seed):
    kinds = random.Random(seed).sample(list(VALUES), 2 + seed % 3)
    live_through(Case(tmp_path, kinds, seed))


@pytest.mark.parametrize("bits", [0, 1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_hashes_that_collide(tmp_path, monkeypatch, bits, seed):
    combine, mask = keyhash.combine, np.uint64(2**bits - 1)
    for module in (keyhash, run_order):
        monkeypatch.setattr(module, "combine", lambda *args: combine(*args) & mask)
    kinds = random.Random(seed).sample(list(VALUES), 1 + seed % 2)
    live_through(Case(tmp_path, kinds, seed))


def test_rows_whose_hashes_collide(tmp_path, monkeypatch):
    """Merges find equal rows by a hash, which is no proof either."""
    mix = run_order.mix
    monkeypatch.setattr(run_order, "mix", lambda values: mix(values) & np.uint64(1))
    live_through(Case(tmp_path, [pa.int8()], 0), steps=4)


def test_no_key_is_one_group(tmp_path):
    case = Case(tmp_path, [], 0)
    for step in range(6):
        case.append(60)
        arrangement = case.arrange(order="v")
        arrangement.hold("h", case.upper - 1 - step % 2)
        for as_of in range(case.upper - 1 - step % 2, case.upper):
            all_of_it = pa.table({"all": [0]})
            truth = case.live(as_of)
            assert counted(arrangement.lookup(all_of_it, as_of)) == truth
            found = arrangement.heads(all_of_it, np.array([2]), as_of, last=True)
            best = sorted((row[-2] for row in truth), reverse=True)
            assert sorted(found["v"].to_pylist(), reverse=True)[:2] == best[:2]
        assert arrangement.lookup(pa.table({"all": pa.array([], pa.int64())}), as_of).num_rows == 0


def test_a_column_named_twice(tmp_path):
    """As a join does whose conditions say two things about it."""
    case = Case(tmp_path, [pa.int8()], 0)
    case.append(50)
    for order in (None, "v", "k0"):
        arrangement = Arrangement(case.client, "s", ("k0", "k0"), cache=case.cache, order=order)
        arrangement.hold("h", case.upper - 1)
        asked = pa.table({"a": [0, 0, None, 1], "b": [0, -1, None, 1]})
        truth = {r: n for r, n in case.live(case.upper - 1).items() if r[0] in (0, None, 1)}
        assert counted(arrangement.lookup(asked, case.upper - 1)) == truth
        if order:
            heads = arrangement.heads(asked, np.full(4, 100), case.upper - 1, last=False)
            assert counted(heads) == truth


class TestCasts:
    """Keys that have another type than the column."""

    def rows(self, tmp_path, kind: pa.DataType, values: list, keys: pa.Array) -> list:
        case = Case(tmp_path, [kind], 0)
        case.write([((value, n, None), 0, 1) for n, value in enumerate(values)], 1)
        arrangement = case.arrange()
        arrangement.hold("h", 0)
        return sorted(arrangement.lookup(pa.table([keys], ["x"]), 0)["v"].to_pylist())

    def test_a_wider_integer(self, tmp_path):
        keys = pa.array([1, 2**40, None, 2**32 + 1], pa.int64())
        assert self.rows(tmp_path, pa.int32(), [1, 2, None], keys) == [0, 2]

    def test_an_unsigned_one_of_the_same_bits(self, tmp_path):
        keys = pa.array([2**63, 5], pa.uint64())
        assert self.rows(tmp_path, pa.int64(), [-(2**63), 5], keys) == [1]

    def test_a_double_that_is_no_float(self, tmp_path):
        keys = pa.array([0.1, 0.5, NAN], pa.float64())
        assert self.rows(tmp_path, pa.float32(), [0.1, 0.5, NAN], keys) == [1, 2]

    def test_a_decimal_of_another_scale(self, tmp_path):
        keys = pa.array([Decimal("1.5"), Decimal("2.0")], pa.decimal128(3, 1))
        values = [Decimal("1.50"), Decimal("2.01")]
        assert self.rows(tmp_path, pa.decimal128(12, 2), values, keys) == [0]

    def test_a_dictionary(self, tmp_path):
        keys = pa.array(["a", "b", "a"]).dictionary_encode()
        assert self.rows(tmp_path, pa.string(), ["a", "c", None], keys) == [0]

    def test_another_unit_of_time(self, tmp_path):
        at = datetime(2024, 1, 1)
        keys = pa.array([at, at + timedelta(microseconds=1)], pa.timestamp("us"))
        assert self.rows(tmp_path, pa.timestamp("ms"), [at], keys) == [0]

    def test_something_else_altogether(self, tmp_path):
        with pytest.raises(InvalidUsage, match='column "k0" is date32'):
            self.rows(tmp_path, pa.date32(), [None], pa.array([1.5]))

    def test_too_few_columns(self, tmp_path):
        case = Case(tmp_path, [pa.int64(), pa.int64()], 0)
        case.append(3)
        arrangement = case.arrange()
        arrangement.hold("h", 0)
        with pytest.raises(InvalidUsage, match="2 columns"):
            arrangement.lookup(pa.table({"x": [1]}), 0)


def test_a_column_is_added(tmp_path):
    """The base and the tail before it have nulls there; a restart reads the same."""
    case = Case(tmp_path, [pa.int8(), pa.string()], 1)
    case.append(60)
    arrangements = [case.arrange(), case.arrange(order="v"), case.arrange(order=("v", "s"))]
    for arrangement in arrangements:
        arrangement.hold("h", case.upper - 1)
    case.append(5)
    for arrangement in arrangements:
        case.check(arrangement, case.upper - 1)
    schema = case.schema.append(pa.field("new", pa.float64()))
    case.writer.evolve_schema(schema)
    case.writer = case.client.open_writer("s", schema=schema)
    case.history = [((*row, None), time, diff) for row, time, diff in case.history]
    row = next(row for row, n in case.live(case.upper - 1).items() if n > 0)
    added = [((*case.key(), 5, "n", 2.5), case.upper, 1) for _ in range(9)]
    case.write([*added, (row, case.upper, -1)], case.upper + 1)
    again = [case.arrange(), case.arrange(order="v")]
    for arrangement in again:
        arrangement.hold("h", case.upper - 1)
    everyone = [tuple(k) for k in {row[:2] for row, _, _ in case.history}]
    for arrangement in [*arrangements, *again]:
        found = arrangement.lookup(case.keys(everyone), case.upper - 1)
        assert found.column_names == [*schema.names, DIFF]
        assert counted(found) == case.live(case.upper - 1)
