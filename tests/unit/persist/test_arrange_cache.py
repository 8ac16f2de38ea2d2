"""The files of arrangements: shared, reused, evicted, damaged, and made again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark.clock import ManualClock
from tidemark.errors import AsOfBeforeSince
from tidemark.frontier import Frontier
from tidemark.persist import Config, MemBlob, MemConsensus, PersistClient, arrange, as_updates
from tidemark.persist import cache as cache_module
from tidemark.persist import layout as layout_module
from tidemark.persist.arrange import Arrangement, open_arrangement
from tidemark.persist.cache import Cache, identity_of
from tidemark.persist.hot import Run
from tidemark.persist.layout import Layout, Sizes, merge, slices, sort_stream
from tidemark.persist.updates import DIFF, TIME

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
SMALL = Config(hot_batch_bytes=4_000, hot_sort_bytes=4_000, heartbeat=False)
ROWS = 1_000


def rows(numbers) -> pa.Table:
    numbers = np.asarray(numbers)
    texts = [f"text {n}" for n in numbers.tolist()]
    return pa.table([numbers % 100, numbers, pa.array(texts)], schema=SCHEMA)


def open_region(folder: Path, config: Config = SMALL) -> PersistClient:
    return PersistClient.open(
        blob=f"file://{folder}/blob", consensus=f"sqlite://{folder}/consensus.db", config=config
    )


def append(client: PersistClient, table: pa.Table, time: int, diff: int = 1) -> None:
    writer = client.open_writer("s", schema=SCHEMA, key=("k",))
    updates = as_updates(table, time=time, diff=diff)
    writer.compare_and_append(updates, lower=Frontier(time), upper=Frontier(time + 1))


@pytest.fixture
def region(tmp_path) -> Path:
    client = open_region(tmp_path)
    append(client, rows(range(ROWS)), 0)
    append(client, rows(range(ROWS, ROWS + 10)), 1)
    client.close()
    return tmp_path


@pytest.fixture
def client(region):
    client = open_region(region)
    yield client
    client.close()


def folder_of(region: Path) -> Path:
    return region / "cache"


def bases(region: Path) -> list[Path]:
    return sorted(folder_of(region).glob("*.arrow"))


def leftovers(region: Path) -> list[Path]:
    return [path for path in folder_of(region).iterdir() if path.suffix != ".arrow"]


def look(client: PersistClient, region: Path, as_of: int = 1, key: str = "k", **options) -> int:
    """How many rows the keys 0 to 49 have; each must be right."""
    with open_arrangement(
        client, "s", (key,), folder=folder_of(region), as_of=as_of, **options
    ) as arrangement:
        found = arrangement.lookup(pa.table({key: range(50)}), as_of)
        assert all(0 <= value < 50 for value in found[key].to_pylist())
        assert found["s"].to_pylist() == [f"text {v}" for v in found["v"].to_pylist()]
        return found.num_rows


ALL = 50 * 10 + 10


class TestSharing:
    def test_a_base_is_used_again(self, client, region):
        assert look(client, region, as_of=0) == 500
        (base,) = bases(region)
        inode = base.stat().st_ino
        assert look(client, region, as_of=1) == ALL, "the base of 0, and what came after"
        assert [path.stat().st_ino for path in bases(region)] == [inode]
        assert leftovers(region) == []

    def test_by_another_process(self, client, region):
        look(client, region)
        inode = bases(region)[0].stat().st_ino
        assert run_child(region, "print(look(client, region))") == str(ALL)
        assert [path.stat().st_ino for path in bases(region)] == [inode]

    def test_processes_that_begin_at_once(self, client, region):
        children = [start_child(region, "print(look(client, region))") for _ in range(3)]
        assert look(client, region) == ALL
        assert [finish(child) for child in children] == [str(ALL)] * 3
        assert len(bases(region)) == 1
        assert leftovers(region) == []

    def test_not_by_another_region(self, client, region, tmp_path):
        other = open_region(tmp_path / "other")
        append(other, rows(range(7)), 0)
        append(other, rows([]), 1)
        assert look(other, region) == 7
        assert look(client, region) == ALL
        assert len(bases(region)) == 2

    def test_not_by_another_region_in_memory(self, tmp_path):
        for count in (3, 5):
            client = PersistClient(MemBlob(), MemConsensus(), clock=ManualClock(), config=SMALL)
            append(client, rows(range(count)), 0)
            assert look(client, tmp_path, as_of=0) == count

    def test_not_by_another_key_or_order(self, client, region):
        look(client, region)
        look(client, region, order="v")
        assert look(client, region, key="v") == 50
        assert len(bases(region)) == 3

    def test_not_of_a_shard_that_began_anew(self, client, region):
        for time in range(2, 9):
            append(client, rows([time]), time)
        look(client, region, as_of=8)
        client.close()
        (region / "consensus.db").unlink()
        anew = open_region(region)
        append(anew, rows([0]), 0)
        # It comes to the time of the base in fewer commits than that has seen.
        anew.open_writer("s", schema=SCHEMA, key=("k",)).compare_and_append(
            as_updates(rows([1, 2]), time=8), lower=Frontier(1), upper=Frontier(9)
        )
        assert look(anew, region, as_of=8) == 3
        anew.close()

    def test_compaction_may_have_passed_it(self, client, region):
        look(client, region, as_of=0)
        client.open_critical_since("s").downgrade(Frontier(1))
        client.maintain("s")
        assert look(client, region) == ALL
        with pytest.raises(AsOfBeforeSince):
            look(client, region, as_of=0)

    def test_an_earlier_time_has_its_own(self, client, region):
        assert look(client, region, as_of=1) == ALL
        assert look(client, region, as_of=0) == 500


class TestDamage:
    @pytest.mark.parametrize("order", [None, "v"])
    def test_any_byte(self, client, region, order):
        """Whatever is flipped, the rows are right; the header's and padding's bits may not matter."""
        look(client, region, order=order)
        (base,) = bases(region)
        data = base.read_bytes()
        rng = random.Random(3)
        places = [*rng.sample(range(len(data)), 25), 0, len(data) - 1, len(data) - 12]
        for place in places:
            wrong = bytearray(data)
            wrong[place] ^= 1 << rng.randrange(8)
            base.unlink()  # A new file: the one before may still be mapped.
            base.write_bytes(wrong)
            assert look(client, region, order=order) == ALL, place
            assert len(bases(region)) == 1

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
    def test_a_short_file(self, client, region, share):
        look(client, region)
        (base,) = bases(region)
        os.truncate(base, int(base.stat().st_size * share))
        assert look(client, region) == ALL
        assert bases(region)[0].stat().st_size > 0

    def test_found_late(self, client, region):
        """A batch is checked when it is first touched; by then since may have moved on."""
        look(client, region, as_of=0)
        (base,) = bases(region)
        data = bytearray(base.read_bytes())
        data[len(data) // 2] ^= 1
        base.unlink()
        base.write_bytes(data)
        cache = Cache(folder_of(region), client.config)
        arrangement = Arrangement(client, "s", ("k",), cache=cache)
        arrangement.hold("h", 1)
        client.open_critical_since("s").downgrade(Frontier(1))
        client.maintain("s")
        assert arrangement.lookup(pa.table({"k": range(100)}), 1).num_rows == ROWS + 10
        assert [path.name.split("@")[1] for path in bases(region)] == ["1.arrow"]

    def test_of_another_name(self, client, region):
        look(client, region, as_of=0)
        (base,) = bases(region)
        base.rename(base.with_name(base.name.replace("@0", "@1")))
        assert look(client, region) == ALL

    def test_a_missing_file(self, client, region):
        look(client, region)
        bases(region)[0].unlink()
        assert look(client, region) == ALL

    def test_a_missing_folder_in_the_middle(self, client, region, monkeypatch):
        monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 5)
        monkeypatch.setattr(arrange, "TAIL_SHARE", 0.001)
        with open_arrangement(client, "s", ("k",), folder=folder_of(region), as_of=1) as found:
            bases(region)[0].unlink()
            folder_of(region).rmdir()
            for time in range(2, 6):
                append(client, rows(range(time * 1_000, time * 1_000 + 20)), time)
                found.hold("opened", time)
                got = found.lookup(pa.table({"k": range(100)}), time)
                assert got.num_rows == ROWS + 10 + 20 * (time - 1)


class TestEviction:
    def test_the_oldest_go_and_those_in_use_stay(self, client, region):
        look(client, region)
        size = bases(region)[0].stat().st_size
        config = Config(
            hot_batch_bytes=4_000, hot_sort_bytes=4_000, hot_cache_bytes=int(2.5 * size)
        )
        cache = Cache(folder_of(region), config)
        used = Arrangement(client, "s", ("k",), cache=cache)
        used.hold("h", 1)
        for name, order in (("a", "v"), ("b", "k"), ("c", "s")):
            other = Arrangement(client, "s", ("k",), cache=cache, order=order)
            other.hold(name, 1)
            other.release(name)
        kept = {path.name.split("@")[0] for path in bases(region)}
        region_name = arrange.region_of(client)
        assert kept == {
            identity_of(region_name, "s", ("k",), ()),
            identity_of(region_name, "s", ("k",), ("s",)),
        }
        used.release("h")
        assert sum(path.stat().st_size for path in bases(region)) <= 2.5 * size

    def test_a_base_in_use_may_go_all_the_same(self, client, region):
        with open_arrangement(client, "s", ("k",), folder=folder_of(region), as_of=1) as found:
            for path in bases(region):
                path.unlink()
            assert found.lookup(pa.table({"k": range(50)}), 1).num_rows == ALL

    def test_a_process_that_died_does_not_block_it(self, client, region):
        body = """
            arrangement = Arrangement(client, "s", ("k",), cache=Cache(folder_of(region), SMALL))
            arrangement.hold("h", 1)
            os.kill(os.getpid(), signal.SIGKILL)
        """
        child = start_child(region, body)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        (base,) = bases(region)
        assert Cache(folder_of(region), SMALL).retire(base)
        assert bases(region) == []

    def test_a_builder_that_was_killed_leaves_nothing(self, client, region):
        body = """
            written = RunWriter.write
            def write(self, table):
                if len(self._blocks) >= 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                written(self, table)
            RunWriter.write = write
            look(client, region, order="v")
        """
        child = start_child(region, body)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        assert {path.suffix for path in leftovers(region)} == {".tmp", ".lock"}
        assert look(client, region, order="v") == ALL
        assert leftovers(region) == []


class TestAbsorbing:
    def test_a_new_base_replaces_the_old_one(self, client, region, monkeypatch):
        monkeypatch.setattr(arrange, "MIN_TAIL_ROWS", 50)
        monkeypatch.setattr(arrange, "TAIL_SHARE", 0.01)
        model = Counter(range(ROWS + 10))
        cache = Cache(folder_of(region), client.config)
        made = [Arrangement(client, "s", ("k",), cache=cache, order=o) for o in (None, "v")]
        for time in range(2, 12):
            for arrangement in made:
                arrangement.hold("h", time - 1)
            gone, came = range(time * 7, time * 7 + 40), range(time * 2_000, time * 2_000 + 40)
            table = pa.concat_tables(
                [as_updates(rows(came), time=time), as_updates(rows(gone), time=time, diff=-1)]
            )
            client.open_writer("s", schema=SCHEMA, key=("k",)).compare_and_append(
                table, lower=Frontier(time), upper=Frontier(time + 1)
            )
            model.update(came)
            model.subtract(gone)
            expected = {n: count for n, count in model.items() if count}
            for arrangement in made:
                found = arrangement.lookup(pa.table({"k": range(100)}), time)
                pairs = zip(found["v"].to_pylist(), found[DIFF].to_pylist(), strict=True)
                assert dict(pairs) == expected
        assert len(bases(region)) == 2, "what was replaced is gone"
        assert all(int(path.stem.split("@")[1]) > 5 for path in bases(region))

    def test_a_long_way_to_catch_up(self, client, region):
        """More updates than are sorted at once come from the parts, through files."""
        cache = Cache(folder_of(region), client.config)
        made = [Arrangement(client, "s", ("k",), cache=cache, order=o) for o in (None, "v")]
        for arrangement in made:
            arrangement.hold("h", 1)
        append(client, rows(range(5_000, 8_000)), 2)
        append(client, rows(range(6_000, 7_000)), 3, diff=-1)
        for arrangement in made:
            assert arrangement.lookup(pa.table({"k": range(100)}), 2).num_rows == 3_000 + ROWS + 10
            assert arrangement.lookup(pa.table({"k": range(100)}), 3).num_rows == 2_000 + ROWS + 10
            assert any(run.is_mapped for run in arrangement._tail)
        assert leftovers(region) == []


class TestSorting:
    """External sorting and merging of runs, in sizes at which everything happens."""

    @pytest.mark.parametrize("order", [(), ("v",), ("s", "v")], ids=str)
    @pytest.mark.parametrize("keys", [1, 3, 1_000])
    @pytest.mark.parametrize("fan_in", [2, 64])
    def test_sort(self, tmp_path, monkeypatch, order, keys, fan_in):
        monkeypatch.setattr(layout_module, "FAN_IN", fan_in)
        rng = np.random.default_rng(keys)
        layout = Layout(("k",), order)
        numbers = rng.permutation(2_000)
        table = pa.table(
            [numbers % keys, numbers // 3, pa.array([f"s{n % 7}" for n in numbers])], schema=SCHEMA
        )
        table = layout.prepare(as_updates(table, time=0), timed=False)
        pieces = [table.slice(at, 130) for at in range(0, 2_000, 130)]
        config = Config(hot_batch_bytes=3_000)
        with Cache(tmp_path, config).drafts() as drafts:
            sizes = Sizes(3_000, 8_000)
            run = sort_stream(pieces, layout, table.schema, drafts.writer, sizes).finish()
        assert list(tmp_path.iterdir()) == []
        found = pa.concat_tables(run.slices(1_000))
        expected = layout.sort(table)
        assert found.equals(expected.combine_chunks()) or found.to_pylist() == expected.to_pylist()

    def test_one_row_many_times(self):
        """More updates of one row than the buffers of a merge hold."""
        layout, sizes = Layout(("k",), ("v",)), Sizes(500, 500)
        runs = []
        for seed in range(3):
            numbers = np.sort(np.random.default_rng(seed).choice([1, 2, 2, 2, 3], 400))
            table = as_updates(rows(numbers), time=seed)
            runs.append(Run.of(layout.sort(layout.prepare(table, timed=True))))
        merged = pa.concat_tables(merge(slices(runs, sizes), layout, sizes, sums=True))
        assert merged.num_rows == 9
        assert sum(merged[DIFF].to_pylist()) == 1_200
        assert Counter(merged[TIME].to_pylist()) == {0: 3, 1: 3, 2: 3}


def test_a_region_that_was_made_anew_is_another(region: Path):
    """At the same address, under the same names, with more versions than the old one had."""
    client = open_region(region)
    look(client, region, as_of=1)
    client.close()
    for name in ("blob", "consensus.db", "consensus.db-wal", "consensus.db-shm"):
        path = region / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    client = open_region(region)
    for time in range(9):
        append(client, rows([1_000_000 + time]), time)
    with open_arrangement(client, "s", ("k",), folder=folder_of(region), as_of=8) as found:
        assert found.rows == 9
        asked = rows(range(50)).select(["k"])
        assert min(found.lookup(asked, 8)["v"].to_pylist()) >= 1_000_000
    client.close()


def test_the_folder_may_be_deleted_at_any_time(client: PersistClient, region: Path):
    arrangement = Arrangement(client, "s", ("k",), cache=Cache(folder_of(region), client.config))
    arrangement.hold("me", 1)
    shutil.rmtree(folder_of(region))
    arrangement.release("me")
    arrangement.hold("me", 1)
    assert arrangement.rows == ROWS + 10


def test_a_drafts_name_may_be_taken_away_at_once(tmp_path, monkeypatch):
    """Between its creation and its lock, a file looks like one that a dead process left."""
    cache = Cache(tmp_path, SMALL)
    flock, stolen = cache_module.fcntl.flock, []

    def steal(file: int, how: int) -> None:
        if not stolen and how == cache_module.fcntl.LOCK_EX:
            stolen.append(file)
            cache.evict()
        flock(file, how)

    monkeypatch.setattr(cache_module.fcntl, "flock", steal)
    with cache.drafts() as drafts:
        drafts.writer(SCHEMA)
        assert len(list(tmp_path.glob("*.tmp"))) == 1
    assert stolen


# A child runs some lines in this module's scope, with a client of its own.

_CHILD = """
import os, signal, sys, textwrap
sys.path.insert(0, {here!r})
from test_arrange_cache import *
from tidemark.persist.hot import RunWriter
region = Path({region!r})
client = open_region(region)
exec(textwrap.dedent({body!r}))
"""


def start_child(region: Path, body: str) -> subprocess.Popen:
    code = _CHILD.format(here=str(Path(__file__).parent), region=str(region), body=body)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen) -> str:
    printed, _ = child.communicate()
    assert child.returncode == 0
    return printed.strip().splitlines()[-1]


def run_child(region: Path, body: str) -> str:
    return finish(start_child(region, body))
