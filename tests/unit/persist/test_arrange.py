"""Arrangements against a dict: look-ups and heads at every holder's time, however runs are laid out.

Runs are tiny here, so that everything spans batches and is merged from files; `test_arrange_keys`
is about types and collisions, `test_arrange_cache` about files and processes.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemark.clock import SYSTEM_CLOCK, ManualClock
from tidemark.errors import AsOfBeforeSince, InvalidUsage
from tidemark.frontier import Frontier
from tidemark.persist import Config, MemBlob, MemConsensus, PersistClient, arrange, hot, keyhash
from tidemark.persist import order as run_order
from tidemark.persist.arrange import Arrangement
from tidemark.persist.cache import Cache
from tidemark.persist.compact import compact
from tidemark.persist.hot import Damaged
from tidemark.persist.updates import DIFF, ERR, TIME, as_updates

NAN = float("nan")
TINY = Config(hot_batch_bytes=300, hot_sort_bytes=500, heartbeat=False)
SMALL = Config(hot_batch_bytes=4_000, hot_sort_bytes=8_000, heartbeat=False)
KEYS = [(None, "x"), (0, None), (1, "日本"), (1, "")]
VALUES = [None, NAN, -1.5, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
NOTES = [None, "n", "m"]
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.string()), ("v", pa.float64()), ("note", pa.string())]
)

Row = tuple  # (a, b, v, note), NaN spelled "nan" so that it equals itself

rows = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from(NOTES)).map(
    lambda t: (*t[0], "nan" if t[1] is not None and t[1] != t[1] else t[1], t[2])
)


def rank(value) -> tuple:
    """Numbers, then NaN, then nulls: the order in which groups are laid out."""
    return (2, 0) if value is None else (1, 0) if value == "nan" else (0, value)


def tabled(updates: list[tuple[Row, int, int]], schema: pa.Schema) -> pa.Table:
    spelled = [
        (a, b, NAN if v == "nan" else v, note, time, diff, None)
        for (a, b, v, note), time, diff in updates
    ]
    columns = list(zip(*spelled, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def keyed(keys: list[tuple]) -> pa.Table:
    a, b = zip(*keys, strict=True)
    # The caller's names and integer width are its own business.
    return pa.table({"x": pa.array(a, pa.int32()), "y": pa.array(b, pa.string())})


def counted(table: pa.Table) -> dict[Row, int]:
    sums: Counter[Row] = Counter()
    for row in table.to_pylist():
        v = "nan" if row["v"] is not None and row["v"] != row["v"] else row["v"]
        sums[row["a"], row["b"], v, row["note"]] += row[DIFF]
    return {row: count for row, count in sums.items() if count}


class Model(RuleBasedStateMachine):
    """One shard, one arrangement without and one with an order, several holders."""

    collisions: int | None = None
    tail_runs, tail_rows = 2, 4
    aside_rows = arrange.ASIDE_ROWS
    config = TINY

    @initialize(batch=st.lists(rows, max_size=40))
    def begin(self, batch):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(arrange, "MAX_TAIL_RUNS", self.tail_runs)
        self.patch.setattr(arrange, "MIN_TAIL_ROWS", self.tail_rows)
        self.patch.setattr(arrange, "ASIDE_ROWS", self.aside_rows)
        if self.collisions is not None:
            combine, modulus = keyhash.combine, np.uint64(self.collisions)
            for module in (keyhash, run_order):
                self.patch.setattr(module, "combine", lambda *args: combine(*args) % modulus)
        self.folder = TemporaryDirectory(ignore_cleanup_errors=True)  # Merges may be under way.
        self.client = PersistClient(
            MemBlob(), MemConsensus(), clock=ManualClock(), config=self.config
        )
        self.writer = self.client.open_writer("s", schema=SCHEMA, key=("a", "b"))
        self.since = self.client.open_critical_since("s")
        self.history: list[tuple[Row, int, int]] = []
        self.upper = 0
        self.holders: dict[str, int] = {}
        cache = Cache(self.folder.name, self.config)
        self.arrangements = [
            Arrangement(self.client, "s", ("a", "b"), cache=cache, order=order)
            for order in (None, "v", ("note", "v"))
        ]
        self.append(batch=batch, delete=0, gap=0)
        self.hold(name="h0", at=0)

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            self.folder.cleanup()

    def live(self, as_of: int) -> Counter[Row]:
        sums: Counter[Row] = Counter()
        for row, time, diff in self.history:
            if time <= as_of:
                sums[row] += diff
        return sums

    @rule(batch=st.lists(rows, max_size=20), delete=st.integers(0, 6), gap=st.integers(0, 2))
    def append(self, batch, delete, gap):
        """Insert `batch`, delete some of the greatest rows, over several times."""
        now = self.live(self.upper)
        doomed = sorted(
            (row for row, count in now.items() if count > 0), key=lambda r: (rank(r[2]), str(r))
        )
        deletes = [(row, -1) for row in doomed[len(doomed) - delete :]] if delete else []
        changes = [*deletes, *((row, 1) for row in batch)]
        updates = [(row, self.upper + n % (gap + 1), diff) for n, (row, diff) in enumerate(changes)]
        upper = self.upper + gap + 1
        outcome = self.writer.compare_and_append(
            tabled(updates, self.writer.schema), lower=Frontier(self.upper), upper=Frontier(upper)
        )
        assert outcome == (Frontier(upper),)
        self.history += updates
        self.upper = upper

    @rule(name=st.sampled_from(["h0", "h1", "h2"]), at=st.integers(0, 100))
    def hold(self, name, at):
        since = self.client.state("s").since.time
        assert since is not None
        as_of = max(self.upper - 1 - at % 5, since, self.holders.get(name, 0), 0)
        for arrangement in self.arrangements:
            arrangement.hold(name, as_of)
        self.holders[name] = as_of

    @rule(name=st.sampled_from(["h1", "h2"]))
    def release(self, name):
        self.holders.pop(name, None)
        for arrangement in self.arrangements:
            assert not arrangement.release(name)

    @rule()
    def compact(self):
        """Since follows the least holder, and what lies before it is forgotten."""
        self.since.downgrade(Frontier(min(self.holders.values())))
        client = self.client
        state = client.state("s")
        if state.batches:
            compact(client.machine("s"), client.blob, state.batches)

    @precondition(lambda self: self.holders)
    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5, unique=True),
        name=st.sampled_from(["h0", "h1", "h2"]),
        later=st.integers(0, 3),
    )
    def lookup(self, keys, name, later):
        as_of = min(self.holders.get(name, self.holders["h0"]) + later, self.upper - 1)
        truth = {row: count for row, count in self.live(as_of).items() if count}
        for arrangement in self.arrangements:
            found = counted(arrangement.lookup(keyed(keys), as_of))
            assert found == {row: count for row, count in truth.items() if row[:2] in keys}

    @precondition(lambda self: self.holders)
    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5, unique=True),
        count=st.integers(1, 2),
        last=st.booleans(),
        name=st.sampled_from(["h0", "h1", "h2"]),
        later=st.integers(0, 3),
    )
    def heads(self, keys, count, last, name, later):
        as_of = min(self.holders.get(name, self.holders["h0"]) + later, self.upper - 1)
        truth = {row: n for row, n in self.live(as_of).items() if n}
        counts = np.full(len(keys), count, dtype=np.int64)
        by_value, by_both = self.arrangements[1:]
        for arrangement, rank_of in (
            (by_value, lambda row: rank(row[2])),
            (by_both, lambda row: (rank(row[3]), rank(row[2]))),
        ):
            found = counted(arrangement.heads(keyed(keys), counts, as_of, last=last))
            assert found.items() <= truth.items(), "each row that comes back is exact"
            assert {row[:2] for row in found} <= set(keys)
            for key in keys:
                group = sorted((rank_of(r) for r in truth if r[:2] == key), reverse=last)
                got = sorted((rank_of(r) for r in found if r[:2] == key), reverse=last)
                assert got == group[: len(got)], "no gap before the last one that came back"
                assert len(got) >= min(count, len(group))

    @invariant()
    def only_bases_stay(self):
        if hasattr(self, "folder") and self.aside_rows > 0:
            names = [path.name for path in Path(self.folder.name).iterdir()]
            assert all(name.endswith(".arrow") for name in names), names


class Colliding(Model):
    collisions = 2


class AllCollide(Model):
    collisions = 1


class MergingAside(Model):
    """Bases change while look-ups go on."""

    aside_rows = -1


class NeverAbsorbing(Model):
    tail_runs, tail_rows = 3, 10_000


class InMemory(Model):
    """Sizes at which nothing is divided."""

    config = Config(heartbeat=False)


def state_machine(machine: type[RuleBasedStateMachine], examples: int):
    case = machine.TestCase
    case.settings = settings(
        deadline=None, print_blob=True, max_examples=examples, stateful_step_count=25
    )
    return case


TestArrangement = state_machine(Model, 40)
TestCollidingHashes = state_machine(Colliding, 30)
TestAllHashesCollide = state_machine(AllCollide, 15)
TestMergingAside = state_machine(MergingAside, 30)
TestNeverAbsorbing = state_machine(NeverAbsorbing, 15)
TestInMemory = state_machine(InMemory, 10)


@pytest.fixture(params=[SMALL, Config(heartbeat=False)], ids=["small", "default"])
def client(request) -> PersistClient:
    return PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(), config=request.param)


@pytest.fixture
def cache(client, tmp_path) -> Cache:
    return Cache(tmp_path, client.config)


ORDERED = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def ordered(updates: list[tuple[int, int, int, int]]) -> pa.Table:
    k, v, time, diff = zip(*updates, strict=True)
    names = ["k", "v", TIME, DIFF, ERR]
    table = pa.table([k, v, time, diff, pa.nulls(len(k), pa.string())], names=names)
    return table


def test_the_greatest_is_deleted_again_and_again(client, cache, monkeypatch):
    """A group of many rows from which the maximum goes, each time: the next one is always found."""
    monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 50)
    writer = client.open_writer("s", schema=ORDERED, key=("k",))
    count, deletes = 1_000, 100
    rows = [(k, v, 0, 1) for k in (1, 2) for v in range(count)]
    writer.compare_and_append(ordered(rows), lower=Frontier(0), upper=Frontier(1))
    arrangement = Arrangement(client, "s", ("k",), cache=cache, order="v")
    arrangement.hold("h", 0)
    one = pa.table({"k": [1]})
    for time in range(1, deletes):
        top = count - time
        writer.compare_and_append(
            ordered([(1, top, time, -1)]), lower=Frontier(time), upper=Frontier(time + 1)
        )
        if time % 7 == 0:
            arrangement.hold("h", time)
        found = arrangement.heads(one, np.array([1]), time, last=True)
        assert max(row["v"] for row in found.to_pylist() if row[DIFF] > 0) == top - 1
        assert found.num_rows < 300, "the group is not read whole"


class TestABaseThatIsMadeAside:
    @pytest.fixture
    def merging(self, client, cache, monkeypatch):
        """An arrangement whose new base waits for `go`, with 10 keys that were written twice."""
        monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 5)
        monkeypatch.setattr(arrange, "ASIDE_ROWS", -1)
        self.go, new_base = Event(), Arrangement._new_base

        def waiting(arrangement, merging):
            self.go.wait(240)
            return new_base(arrangement, merging)

        monkeypatch.setattr(Arrangement, "_new_base", waiting)
        self.writer = client.open_writer("s", schema=ORDERED, key=("k",))
        self.write(0, [(k, 0, 1) for k in range(10)])
        arrangement = Arrangement(client, "s", ("k",), cache=cache)
        arrangement.hold("h", 0)
        self.write(1, [(k, v, d) for k in range(10) for v, d in ((0, -1), (1, 1))])
        arrangement.hold("h", 1)
        yield arrangement
        self.go.set()

    def write(self, time: int, changes: list[tuple[int, int, int]]) -> None:
        updates = ordered([(k, v, time, diff) for k, v, diff in changes])
        self.writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))

    def values(self, arrangement: Arrangement, as_of: int) -> list[int]:
        found = arrangement.lookup(pa.table({"k": list(range(10))}), as_of)
        assert set(found[DIFF].to_pylist()) == {1}
        return sorted(found["v"].to_pylist())

    def wait_until_merged(self, arrangement: Arrangement, as_of: int) -> None:
        self.go.set()
        while arrangement.base_as_of < as_of:
            SYSTEM_CLOCK.sleep(0.01)

    def test_look_ups_go_on_meanwhile(self, merging):
        for time in range(2, 30):
            self.write(time, [(3, time - 1, -1), (3, time, 1)])
            merging.hold("h", time)
            assert self.values(merging, time) == [1] * 9 + [time]
        assert merging.base_as_of == 0
        self.wait_until_merged(merging, 1)
        assert self.values(merging, 29) == [1] * 9 + [29]

    def test_an_early_holder_stays_right(self, merging):
        merging.hold("early", 0)
        self.go.set()
        while merging._merging is not None:
            assert self.values(merging, 0) == [0] * 10
        assert merging.base_as_of == 0
        assert self.values(merging, 0) == [0] * 10

    def test_nobody_waits_for_it(self, merging):
        assert merging.release("h")
        self.go.set()
        merging.hold("h", 1)
        assert self.values(merging, 1) == [1] * 10

    def test_a_failure_leaves_the_old_base_and_is_tried_again(self, merging, monkeypatch):
        monkeypatch.setattr(Cache, "publish", _full)
        self.go.set()
        while merging._merging is not None:
            SYSTEM_CLOCK.sleep(0.01)
        assert (merging.base_as_of, self.values(merging, 1)) == (0, [1] * 10)
        monkeypatch.undo()
        monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 5)
        time = 1
        while merging.base_as_of == 0:
            assert time < 20, "not tried again"
            time += 1
            self.write(time, [(1, time - 1, -1), (1, time, 1)])
            merging.hold("h", time)
        assert time > 2, "not put off"
        assert self.values(merging, time) == [1] * 9 + [time]

    def test_a_damaged_base_is_made_again(self, merging, monkeypatch):
        def damaged(*_: object, **__: object) -> None:
            raise Damaged("a bit has flipped")

        with monkeypatch.context() as patch:
            patch.setattr(arrange, "merge", damaged)
            self.wait_until_merged(merging, 1)
        assert self.values(merging, 1) == [1] * 10


def _full(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


@pytest.mark.parametrize("tops", [[NAN], [None], [NAN, None]], ids=str)
def test_nan_and_null_come_last(client, cache, tops):
    """A group larger than the reach, whose end is not a number."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    writer = client.open_writer("s", schema=schema)
    rows = pa.table({"k": [1] * (30 + len(tops)), "v": [*map(float, range(30)), *tops]}, schema)
    for time, piece in enumerate((rows.slice(0, 29), rows.slice(29))):
        updates = as_updates(piece, time=time)
        writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))
    for began in (0, 1):
        arrangement = Arrangement(client, "s", ("k",), cache=cache, order="v")
        arrangement.hold("h", began)
        one, count = pa.table({"k": [1]}), np.array([1])
        found = arrangement.heads(one, count, 1, last=True)["v"].to_pylist()
        assert str(tops[-1]) in map(str, found)
        assert len(found) < 30
        found = arrangement.heads(one, count, 1, last=False)["v"].to_pylist()
        assert 0.0 in found
        assert len(found) < 30


def test_a_large_tie_is_not_read_whole(client, cache):
    """Rows of one value have an order, too: a few of them are found without the others."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])
    writer = client.open_writer("s", schema=schema, key=("k",))
    count = 2_000
    rows = pa.table({"k": [1] * count, "v": [7] * count, "n": range(count)}, schema)
    writer.compare_and_append(as_updates(rows, time=0), lower=Frontier(0), upper=Frontier(1))
    arrangement = Arrangement(client, "s", ("k",), cache=cache, order="v")
    arrangement.hold("h", 0)
    gone: set[int] = set()
    for time in range(1, 20):
        found = arrangement.heads(pa.table({"k": [1]}), np.array([2]), time - 1, last=time % 2 == 0)
        assert 2 <= found.num_rows < 200
        assert not gone & set(found["n"].to_pylist())
        doomed = found.drop_columns([DIFF]).slice(0, 2)
        gone |= set(doomed["n"].to_pylist())
        writer.compare_and_append(
            as_updates(doomed, time=time, diff=-1),
            lower=Frontier(time),
            upper=Frontier(time + 1),
        )


@settings(deadline=None, print_blob=True, max_examples=50)
@given(starts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_positions(starts):
    start = np.array([s for s, _ in starts], dtype=np.int64)
    counts = np.array([n for _, n in starts], dtype=np.int64)
    expected = [at for s, n in starts for at in range(s, s + n)]
    assert hot.positions_of(start, counts).tolist() == expected


class TestHolds:
    @pytest.fixture
    def arrangement(self, client, cache) -> Arrangement:
        writer = client.open_writer("s", schema=ORDERED)
        for time in range(10):
            rows = ordered([(1, time, time, 1)])
            writer.compare_and_append(rows, lower=Frontier(time), upper=Frontier(time + 1))
        return Arrangement(client, "s", ("k",), cache=cache)

    def test_reading_without_a_hold_is_misuse(self, arrangement):
        with pytest.raises(InvalidUsage, match="nobody holds"):
            arrangement.lookup(pa.table({"k": [1]}), 5)

    def test_reading_before_where_it_begins_is_misuse(self, arrangement):
        arrangement.hold("h", 5)
        with pytest.raises(InvalidUsage, match="begins at 5"):
            arrangement.lookup(pa.table({"k": [1]}), 4)

    def test_a_later_holder_may_begin_earlier(self, arrangement):
        arrangement.hold("late", 8)
        arrangement.hold("early", 2)
        assert arrangement.lookup(pa.table({"k": [1]}), 2).num_rows == 3
        assert arrangement.lookup(pa.table({"k": [1]}), 8).num_rows == 9

    def test_a_hold_that_cannot_be_had_is_not_kept(self, arrangement, client):
        client.open_critical_since("s").downgrade(Frontier(6))
        with pytest.raises(AsOfBeforeSince):
            arrangement.hold("h", 3)
        arrangement.hold("other", 7)
        assert arrangement.release("other"), "nobody else holds it"

    def test_compaction_that_overtook_it_makes_it_load_again(self, arrangement, client):
        arrangement.hold("h", 2)
        # Another dataflow has already moved on; `h` follows, but since was quicker.
        client.open_critical_since("s").downgrade(Frontier(8))
        arrangement.hold("h", 8)
        assert arrangement.lookup(pa.table({"k": [1]}), 9).num_rows == 10

    def test_the_last_release_leaves_a_base_for_the_next(self, arrangement, tmp_path):
        arrangement.hold("a", 5)
        arrangement.hold("b", 6)
        assert not arrangement.release("a")
        assert arrangement.release("b")
        assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]
        arrangement.hold("c", 9)
        assert arrangement.lookup(pa.table({"k": [1]}), 9).num_rows == 10

    def test_threads_share_it(self, arrangement, client, monkeypatch):
        monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 3)
        arrangement.hold("h", 0)
        wrong: list[int] = []

        def look(seed: int) -> None:
            for n in range(100):
                as_of = (n * seed) % 10
                found = arrangement.lookup(pa.table({"k": [1]}), as_of).num_rows
                if found != as_of + 1:
                    wrong.append(as_of)

        threads = [threading.Thread(target=look, args=(seed,)) for seed in (1, 3, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_threads_may_share_a_run(tmp_path):
    """One reads all of it while another looks up: batches are read once, and found from then on."""
    count = 40_000
    hashes = np.arange(count, dtype=np.uint64) * np.uint64(7)
    table = pa.table({hot.HASH: hashes, "v": np.arange(count)})
    with open(tmp_path / "run", "w+b") as file:
        writer = hot.RunWriter(file.fileno(), table.schema, batch_bytes=4096)
        writer.write(table)
        writer.finish()
        for trial in range(40):
            run = hot.Run.map(file.fileno())
            aside = Thread(target=lambda run=run: list(run.slices(4096)))
            aside.start()
            for at in range(trial, count, count // 20):
                start, stop = run.ranges(hashes[at : at + 1])
                assert (start.tolist(), stop.tolist()) == ([at], [at + 1])
            aside.join()
            assert run._unread == 0
