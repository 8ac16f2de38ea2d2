"""Backups: of one moment whatever is written meanwhile, whole or none, and back in any store."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemark.errors import Corruption, Fenced, InvalidUsage, Unavailable
from tidemark.frontier import Frontier
from tidemark.persist import Config, FileBlob, MemBlob, MemConsensus, PersistClient, as_updates
from tidemark.persist.backup import MANIFEST, PARTS, Manifest, back_up
from tidemark.persist.blob import Blob
from tidemark.persist.consensus import Consensus, Logs, Versioned
from tidemark.persist.fsck import fsck, strays
from tidemark.persist.restore import check_parts, read_backup, restore
from tidemark.persist.sqlite import SqliteConsensus
from unreliable import UnreliableBlob

SCHEMA = pa.schema([("n", pa.int64())])
IN_BLOB = Config(inline_bytes=0)
"""Every part is a blob, so that there is something to copy."""


@pytest.fixture
def region(tmp_path: Path) -> Iterator[PersistClient]:
    client = PersistClient(
        FileBlob(tmp_path / "blob"), SqliteConsensus(tmp_path / "c.db"), config=IN_BLOB
    )
    yield client
    client.close()


@pytest.fixture
def target(tmp_path: Path) -> FileBlob:
    return FileBlob(tmp_path / "backup")


def append(client: PersistClient, shard_id: str, n: int, *, rendition: int = 0) -> None:
    writer = client.open_writer(shard_id, schema=SCHEMA, rendition=rendition)
    rows = as_updates(pa.table({"n": [n]}, SCHEMA), time=n, schema=writer.schema)
    writer.compare_and_append(rows, lower=writer.fetch_upper(), upper=Frontier(n + 1))


def contents(client: PersistClient, shard_id: str) -> list[int]:
    upper = client.state(shard_id).upper.time
    assert upper is not None
    return sorted(client.open_reader(shard_id).snapshot(upper - 1)["n"].to_pylist())


def brought_back(target: FileBlob) -> PersistClient:
    """A region of its own, of what the backup has."""
    blob, consensus = MemBlob(), MemConsensus()
    restore(read_backup(target), target, blob, consensus, first="a")
    client = PersistClient(blob, consensus, config=IN_BLOB)
    for shard_id in consensus.keys():  # noqa: SIM118
        assert fsck(client, shard_id).is_clean
    assert not list(strays(client))
    return client


def test_what_was_written_one_after_the_other_is_not_torn_apart(
    region: PersistClient, target: FileBlob
):
    """Each number goes to z and then to a: a backup that has it in a has it in z, too, whichever
    of the two it would look at first. Meanwhile parts are merged and garbage is collected."""
    copied, stop = threading.Event(), threading.Event()
    shards = ("z", "a", "m")
    for shard_id in shards:
        append(region, shard_id, 1)

    def write() -> None:
        n = 2
        while not stop.is_set():
            for shard_id in shards:
                append(region, shard_id, n)
            region.maintain("a")
            region.sweep("a")
            copied.set() if n == 20 else None
            n += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        assert copied.wait(60)
        made = [back_up(region, FileBlob(target.root / str(each))) for each in range(5)]
    finally:
        stop.set()
        writing.join()
    assert len({manifest.sha256 for manifest in made}) == len(made)
    for each in range(len(made)):
        found = brought_back(FileBlob(target.root / str(each)))
        z, a, m = (contents(found, shard_id) for shard_id in shards)
        assert len(m) >= 19
        assert (z, a, m) == tuple(list(range(1, len(x) + 1)) for x in (z, a, m))
        assert len(z) >= len(a) >= len(m) >= len(z) - 1


def test_parts_that_are_replaced_while_they_are_copied_stay_until_they_are(
    region: PersistClient, target: FileBlob
):
    for n in range(1, 41):
        append(region, "a", n)
    unleased = {key for key, _ in region.blob.list("a/")}

    def meanwhile(done: int, total: int, what: str) -> None:
        region.open_critical_since("a").downgrade(Frontier(40))
        region.maintain("a")
        region.sweep("a")

    back_up(region, target, progress=meanwhile)
    assert contents(brought_back(target), "a") == list(range(1, 41))
    region.sweep("a")
    left = {key for key, _ in region.blob.list("a/")}
    assert not left & unleased, "the backup has let go of what it pinned"
    assert region.state("a").holds.keys() == {"control"}


def test_a_shard_that_is_made_after_the_leases_were_taken_is_leased_too(tmp_path: Path):
    class Late(MemConsensus):
        def capture(self) -> Logs:
            if self.head("b") is None:
                append(region, "b", 2)
            return super().capture()

    region = PersistClient(MemBlob(), Late(), config=IN_BLOB)
    append(region, "a", 1)
    held: list[set[str]] = []

    def look(done: int, total: int, what: str) -> None:
        held.append({shard_id for shard_id in "ab" if region.state(shard_id).holds})

    target = FileBlob(tmp_path)
    back_up(region, target, progress=look)
    assert held[0] == {"a", "b"}
    assert contents(brought_back(target), "b") == [2]


def test_holds_renditions_and_names_of_writers_come_back_and_leases_do_not(
    region: PersistClient, target: FileBlob
):
    writer = region.open_writer("a", schema=SCHEMA, name="w", rendition=7)
    rows = as_updates(pa.table({"n": [1]}, SCHEMA), time=1, schema=writer.schema)
    writer.compare_and_append(rows, lower=Frontier(0), upper=Frontier(2))
    region.open_critical_since("a", "mine", epoch=3).downgrade(Frontier(1))
    append(region, "gone", 1)
    region.finalize("gone")
    with region.open_reader("a").lease():
        back_up(region, target)
    found = brought_back(target)
    before, after = region.state("a"), found.state("a")
    assert after.holds.keys() == {"mine"}
    assert after.holds["mine"].epoch == 3
    assert (after.rendition, after.writers, after.since, after.upper) == (
        *(before.rendition, before.writers, before.since, before.upper),
    )
    assert after.born != before.born
    assert found.state("gone").is_tombstone
    with pytest.raises(Fenced):
        append(found, "a", 2, rendition=6)
    append(found, "a", 2, rendition=7)
    assert contents(found, "a") == [1, 2]
    assert contents(region, "a") == [1]


def killed_half_way(call: str, folder: Path) -> bool:
    """Whether a process of its own was killed (-9) by its `half`, which is told of progress."""
    script = f"""
import os, signal, sys
from tidemark.persist import Config, FileBlob, PersistClient, SqliteConsensus
from tidemark.persist.backup import back_up
from tidemark.persist.restore import read_backup, restore

def half(done, total, what):
    if done > total / 2:
        os.kill(os.getpid(), signal.SIGKILL)

blob, log, backup, again, again_log = sys.argv[1:]
{call}
"""
    places = [folder / name for name in ("blob", "c.db", "backup", "again", "again.db")]
    done = subprocess.run([sys.executable, "-c", script, *map(str, places)], check=False)
    return done.returncode == -signal.SIGKILL


def test_a_backup_that_is_broken_off_is_none_and_the_next_goes_on(
    region: PersistClient, target: FileBlob
):
    for n in range(1, 11):
        append(region, "a", n)

    assert killed_half_way(
        "back_up(PersistClient(FileBlob(blob), SqliteConsensus(log), config=Config(inline_bytes=0)),"
        " FileBlob(backup), progress=half)",
        target.root.parent,
    )
    there = {key for key, _ in target.list(PARTS)}
    assert there
    with pytest.raises(InvalidUsage, match="was never finished"):
        read_backup(target)
    # A part that the next one has no use for, and one that was damaged meanwhile.
    target.set(f"{PARTS}a/0000000000000-old.parquet", b"old")
    damaged = min(there)
    value = target.get(damaged)
    assert value is not None
    target.set(damaged, value[:-1] + bytes([value[-1] ^ 1]))
    back_up(region, target)
    assert contents(brought_back(target), "a") == list(range(1, 11))
    assert f"{PARTS}a/0000000000000-old.parquet" not in dict(target.list())
    with pytest.raises(InvalidUsage, match="there is a backup there already"):
        back_up(region, target)

    # And so with bringing it back.
    assert killed_half_way(
        "restore(read_backup(FileBlob(backup)), FileBlob(backup), FileBlob(again),"
        " SqliteConsensus(again_log), first='a', progress=half)",
        target.root.parent,
    )
    blob = FileBlob(target.root.parent / "again")
    consensus = SqliteConsensus(target.root.parent / "again.db")
    assert list(blob.list())
    assert is_shut(blob, consensus, "a")
    restore(read_backup(target), target, blob, consensus, first="a")
    found = PersistClient(blob, consensus)
    assert fsck(found, "a").is_clean
    assert contents(found, "a") == list(range(1, 11))
    found.close()


def test_nothing_is_mixed_with_what_is_there(region: PersistClient, target: FileBlob):
    append(region, "a", 1)
    target.set("somebody/elses", b"file")
    with pytest.raises(InvalidUsage, match="something else there: somebody/elses"):
        back_up(region, target)
    assert dict(target.list()) == {"somebody/elses": 4}


def damage(target: FileBlob, key: str) -> None:
    value = target.get(key)
    assert value is not None
    at = len(value) // 2
    target.set(key, value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :])


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (lambda t: damage(t, MANIFEST), "manifest"),
        (lambda t: damage(t, "states/a"), "states/a of the backup is not what was written"),
        (lambda t: damage(t, min(k for k, _ in t.list(PARTS))), "its checksum differs"),
        (lambda t: t.delete(min(k for k, _ in t.list(PARTS))), "is missing"),
        (lambda t: t.set(min(k for k, _ in t.list(PARTS)), b"short"), "has 5 bytes"),
    ],
)
def test_a_damaged_backup_is_told_by_name(
    region: PersistClient, target: FileBlob, hurt: Callable[[FileBlob], object], said: str
):
    append(region, "a", 1)
    back_up(region, target)
    hurt(target)
    with pytest.raises(Corruption, match=said):
        check_parts(read_backup(target), target, progress=lambda *_: None)
    blob, consensus = MemBlob(), MemConsensus()
    with pytest.raises(Corruption, match=said):
        restore(read_backup(target), target, blob, consensus, first="a")
    # Nobody can take what is there for the region.
    assert consensus.head("a") is None or is_shut(blob, consensus, "a")


def is_shut(blob: Blob, consensus: Consensus, shard_id: str) -> bool:
    with pytest.raises(Unavailable, match="being restored from a backup, or that was broken off"):
        contents(PersistClient(blob, consensus), shard_id)
    return True


class Life:
    """Of a process: it ends after so many writes, to whichever store."""

    def __init__(self, writes: int):
        self.writes = writes

    def spend(self) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise Unavailable("killed")


class MortalBlob(MemBlob):
    life = Life(1_000_000)

    def set(self, key: str, value: bytes | memoryview) -> None:
        self.life.spend()
        super().set(key, value)


class MortalConsensus(MemConsensus):
    life = Life(1_000_000)

    def compare_and_set(self, key: str, new: Versioned) -> bool:
        self.life.spend()
        return super().compare_and_set(key, new)

    def truncate(self, key: str, seqno: int) -> int:
        self.life.spend()
        return super().truncate(key, seqno)


def test_a_restore_that_is_broken_off_anywhere_keeps_everyone_out_and_goes_on(
    region: PersistClient, target: FileBlob
):
    for shard_id in ("a", "b", "c"):
        append(region, shard_id, 1)
    back_up(region, target)
    backup = read_backup(target)
    writes = 3 + 3 + 3 + 3  # Marks, parts, states and the marks' ends.
    for lived in range(writes + 1):
        blob, consensus = MortalBlob(), MortalConsensus()
        blob.life = consensus.life = Life(lived)
        if lived < writes:
            with pytest.raises(Unavailable, match="killed"):
                restore(backup, target, blob, consensus, first="a")
            assert not lived or is_shut(blob, consensus, "a")
            blob.life = consensus.life = Life(1_000_000)
        restore(backup, target, blob, consensus, first="a")
        found = PersistClient(blob, consensus)
        assert [contents(found, shard_id) for shard_id in ("a", "b", "c")] == [[1]] * 3
        with pytest.raises(InvalidUsage, match="there are 3 shards there already"):
            restore(backup, target, blob, consensus, first="a")


def test_a_place_that_is_in_use_is_left_alone(region: PersistClient, target: FileBlob):
    append(region, "a", 1)
    made: Manifest = back_up(region, target)
    assert [shard.id for shard in made.shards] == ["a"]
    backup = read_backup(target)
    with pytest.raises(InvalidUsage, match="there are 1 shards there already: a"):
        restore(backup, target, region.blob, region.consensus, first="a")
    blob = MemBlob()
    blob.set("x/y", b"")
    with pytest.raises(InvalidUsage, match="something in Blob already: x/y"):
        restore(backup, target, blob, MemConsensus(), first="a")
    assert contents(region, "a") == [1]


def test_a_store_that_fails_is_an_error_and_no_backup(region: PersistClient, target: FileBlob):
    append(region, "a", 1)
    failing = UnreliableBlob(target)
    failing.fail("refuse")
    with pytest.raises(Unavailable):
        back_up(region, failing)
    assert MANIFEST not in dict(target.list())
    assert not region.state("a").holds
