"""What every Blob must do: the same tests run on each implementation, S3 on a real server."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services import S3Server
from tidemark.clock import ManualClock
from tidemark.errors import Determinate, Indeterminate, InvalidUsage, Unavailable
from tidemark.persist import s3
from tidemark.persist.blob import Blob, FileBlob, MemBlob
from tidemark.persist.s3 import S3Blob
from unreliable import FLAKY, UnreliableBlob

Open = Callable[[], Blob]


@pytest.fixture(params=["file", "memory", "s3"])
def open_blob(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens another handle on one and the same location."""
    if request.param == "file":
        return lambda: FileBlob(tmp_path / "deep" / "blob")
    if request.param == "s3":
        uri = request.getfixturevalue("s3_server").uri(f"{uuid4().hex}/deep")
        return lambda: S3Blob.from_uri(uri)
    shared = MemBlob()
    return lambda: shared


def test_contract(open_blob: Open):
    one, two = open_blob(), open_blob()
    assert one.get("s/a") is None
    assert one.open("s/a") is None
    assert one.delete("s/a") is None
    assert list(one.list()) == []

    one.set("s/a", b"first")
    assert two.get("s/a") == b"first"
    two.set("s/a", b"second, and longer")
    assert one.get("s/a") == b"second, and longer"
    one.set("s/empty", b"")
    assert two.get("s/empty") == b""
    one.set("s/deep/er", b"x" * 100_000)
    one.set("sibling", b"12")
    assert two.get("s") is None, "a key is more than the beginning of another one"
    assert two.open("s") is None
    assert two.delete("s") is None

    def listed(prefix: str) -> dict[str, int]:
        return dict(two.list(prefix))

    assert listed("") == {"s/a": 18, "s/empty": 0, "s/deep/er": 100_000, "sibling": 2}
    assert listed("s/") == {"s/a": 18, "s/empty": 0, "s/deep/er": 100_000}
    assert listed("s/d") == {"s/deep/er": 100_000}, "a prefix need not end at a slash"
    assert listed("s/deep/er") == {"s/deep/er": 100_000}
    assert listed("s/deep/er/") == {}
    assert listed("nothing") == {}
    assert listed("nothing/") == {}

    assert two.delete("s/a") == 18
    assert one.get("s/a") is None
    assert one.delete("s/a") is None, "deleting again is harmless"
    assert one.delete("s/empty") == 0, "an empty value was there, too"
    one.set("s/a", b"again")
    assert open_blob().get("s/a") == b"again", "a handle opened later sees it"


def test_a_listing_is_in_the_order_of_the_keys(open_blob: Open):
    blob = open_blob()
    keys = ["a-b/x", "a/b/c", "a.b", "a0/x", "b"]
    for key in keys:
        blob.set(key, b"1")
    assert [key for key, _ in blob.list()] == sorted(keys)
    assert [key for key, _ in blob.list("a")] == sorted(keys)[:-1]


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../up", "a/../../b", "a//b", "a/", ".a"])
def test_keys_that_leave_the_folder_or_hide_in_it_are_refused(open_blob: Open, key: str):
    blob = open_blob()
    for call in (blob.get, blob.open, blob.delete, lambda k: blob.set(k, b"x")):
        with pytest.raises(InvalidUsage, match="not a blob key"):
            call(key)


def test_a_prefix_cannot_leave_the_folder(open_blob: Open):
    with pytest.raises(InvalidUsage, match="not a blob key"):
        list(open_blob().list("../"))


def test_keys_may_hold_what_file_names_may(open_blob: Open):
    blob = open_blob()
    for key in ("s p/a+b", "s p/ü", "s p/100%", "s p/x=1&y"):
        blob.set(key, key.encode())
        assert blob.get(key) == key.encode()
    assert dict(blob.list("s p/")).keys() == {"s p/a+b", "s p/ü", "s p/100%", "s p/x=1&y"}


def test_open_reads_any_range(open_blob: Open):
    blob = open_blob()
    value = random.Random(1).randbytes(300_000)
    blob.set("s/a", value)
    blob.set("s/empty", b"")
    with blob.open("s/a") as file:
        assert file.size() == 300_000
        file.seek(123_456)
        assert file.read(1000) == value[123_456:124_456]
        assert file.tell() == 124_456
        file.seek(-10, os.SEEK_END)
        assert file.read() == value[-10:]
        assert file.read(5) == b""
        assert file.read_at(7, 99) == value[99:106]
    with blob.open("s/empty") as file:
        assert file.read() == b""


def test_open_reads_some_columns_of_a_part(open_blob: Open):
    blob = open_blob()
    table = pa.table({"k": range(10_000), "v": [str(n) for n in range(10_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    blob.set("s/part.parquet", sink.getvalue().to_pybytes())
    with blob.open("s/part.parquet") as file:
        part = pq.ParquetFile(file)
        assert part.metadata.num_rows == 10_000
        assert part.read_row_group(3, columns=["k"])["k"].to_pylist() == [*range(3000, 4000)]
        assert part.read(columns=["v"]) == table.select(["v"])


def test_what_is_open_stays_readable_or_fails_clearly_when_it_is_deleted(open_blob: Open):
    blob = open_blob()
    blob.set("s/a", b"x" * 50_000)
    with blob.open("s/a") as file:
        blob.delete("s/a")
        if isinstance(blob, S3Blob):
            with pytest.raises(Determinate, match="was deleted"):
                file.read()
        else:
            assert file.read() == b"x" * 50_000


def test_set_is_all_or_nothing_under_concurrent_writers(open_blob: Open):
    values = [bytes([n]) * 200_000 for n in range(4)]
    open_blob().set("k/v", values[0])
    done = threading.Event()

    def write(value: bytes) -> None:
        blob = open_blob()
        while not done.is_set():
            blob.set("k/v", value)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, value) for value in values]
        try:
            reader = open_blob()
            for _ in range(50):
                assert reader.get("k/v") in values
                # S3Proxy's listings show how it works inside, unlike S3's (docs/decisions/0005).
                if not isinstance(reader, S3Blob):
                    assert dict(reader.list("k/")) == {"k/v": 200_000}
        finally:
            done.set()
        for writer in writers:
            writer.result()


def test_listing_survives_concurrent_deletes(open_blob: Open):
    one, two = open_blob(), open_blob()
    for n in range(20):
        one.set(f"s/{n:02}", b"x")
    listing = one.list("s/")
    first = next(listing)
    for n in range(20):
        two.delete(f"s/{n:02}")
    assert {key for key, _ in [first, *listing]} <= {f"s/{n:02}" for n in range(20)}


def test_large_values(open_blob: Open):
    value = random.Random(2).randbytes(12_000_000)  # Above what S3 takes in one part.
    open_blob().set("s/large", value)
    assert open_blob().get("s/large") == value
    assert dict(open_blob().list("s/")) == {"s/large": 12_000_000}


@pytest.mark.parametrize("seed", range(3))
def test_laws_that_hold_under_faults(open_blob: Open, seed: int):
    """After an error that may hide a success, there is the old value or the new one."""
    truth = open_blob()
    flaky = UnreliableBlob(open_blob(), seed=seed, chances=FLAKY)
    chance = random.Random(seed)
    possible: dict[str, set[bytes | None]] = {f"s/{n}": {None} for n in range(3)}
    for step in range(60):
        key = chance.choice([*possible])
        new = None if chance.random() < 0.3 else b"%d of seed %d" % (step, seed)
        try:
            if new is None:
                flaky.delete(key)
            else:
                flaky.set(key, new)
            possible[key] = {new}
        except Determinate:
            pass
        except Indeterminate:
            possible[key].add(new)
        found = truth.get(key)
        assert found in possible[key], f"seed {seed}"
        possible[key] = {found}
        try:
            assert flaky.get(key) == found
            assert dict(flaky.list("s/")).get(key) == (None if found is None else len(found))
        except Determinate:
            pass


def test_planned_faults(open_blob: Open):
    blob = UnreliableBlob(open_blob())
    blob.fail("before")
    blob.fail("after", meanwhile=lambda: blob.set("s/b", b"2"))
    with pytest.raises(Indeterminate):
        blob.set("s/a", b"1")
    assert blob.get("s/a") is None
    with pytest.raises(Indeterminate):
        blob.set("s/a", b"1")
    assert (blob.get("s/a"), blob.get("s/b")) == (b"1", b"2")
    blob.fail("refuse", call="get")
    with pytest.raises(Determinate):
        blob.get("s/a")


class TestFileBlob:
    def test_another_process_sees_the_same_bytes(self, tmp_path: Path):
        program = (
            "import sys; from tidemark.persist.blob import FileBlob\n"
            "blob = FileBlob(sys.argv[1]); assert blob.get('s/a') == b'here'\n"
            "blob.set('s/b', b'there')"
        )
        FileBlob(tmp_path).set("s/a", b"here")
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
        assert FileBlob(tmp_path).get("s/b") == b"there"

    def test_a_write_that_fails_leaves_nothing_behind(self, tmp_path: Path):
        blob = FileBlob(tmp_path)
        blob.set("s/a", b"a")
        with pytest.raises(Determinate, match="cannot write"):
            blob.set("s/a/b", b"below a file")
        with pytest.raises(Determinate, match="cannot write"):
            blob.set("s", b"onto a folder")
        assert [path.name for path in tmp_path.rglob("*")] == ["s", "a"]

    def test_listing_a_shard_does_not_look_at_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        blob = FileBlob(tmp_path)
        for key in ("one/a", "one/b/c", "other/a"):
            blob.set(key, b"x")
        looked: list[str] = []
        scandir = os.scandir
        monkeypatch.setattr(os, "scandir", lambda path: looked.append(str(path)) or scandir(path))
        assert dict(blob.list("one/")) == {"one/a": 1, "one/b/c": 1}
        assert looked == [str(blob.root / "one"), str(blob.root / "one" / "b")]

    def test_what_a_killed_writer_left_aside_is_not_listed_and_goes_after_an_hour(
        self, tmp_path: Path
    ):
        clock = ManualClock(10 * 3_600_000)
        blob = FileBlob(tmp_path, clock=clock)
        blob.set("s/a", b"a")
        left = tmp_path / "s" / f".b.{uuid4().hex}"
        left.write_bytes(b"half")
        (tmp_path / "s" / ".keep").write_bytes(b"not ours")
        os.utime(left, (9.5 * 3600, 9.5 * 3600))
        assert dict(blob.list()) == {"s/a": 1}
        assert blob.remove_leftovers() == 0, "its writer may still be at it"
        clock.advance(3_600_000)
        assert blob.remove_leftovers() == 1
        assert {path.name for path in tmp_path.rglob("*")} == {"s", "a", ".keep"}

    def test_a_failed_sync_of_the_folder_leaves_it_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        blob = FileBlob(tmp_path)
        blob.set("s/a", b"old")

        def broken(folder: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("tidemark.persist.blob.sync_folder", broken)
        with pytest.raises(Indeterminate, match="cannot sync"):
            blob.set("s/a", b"new")
        assert blob.get("s/a") == b"new"

    def test_uri_is_an_address_of_the_file(self, tmp_path: Path):
        blob = FileBlob(tmp_path / "with space")
        blob.set("s/a", b"a")
        assert blob.uri("s/a") == (tmp_path / "with space" / "s" / "a").as_uri()

    def test_a_full_disk(self, tiny_disk: Path):
        blob = FileBlob(tiny_disk / "blob")
        blob.set("s/a", b"x" * 100_000)
        with pytest.raises(Determinate, match="disk full") as caught:
            blob.set("s/b", b"x" * 2_000_000)
        assert caught.value.sqlstate == "53100"
        with pytest.raises(Determinate, match="disk full"):
            blob.set("s/a", b"y" * 2_000_000)
        assert dict(blob.list()) == {"s/a": 100_000}
        assert blob.get("s/a") == b"x" * 100_000, "the old value is whole"
        assert [path.name for path in (tiny_disk / "blob" / "s").iterdir()] == ["a"]
        blob.set("s/b", b"y" * 100_000)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "FIRST_PAUSE", 0.001)


class TestS3:
    def test_uri_is_an_address_for_spark(self, s3_server: S3Server):
        assert S3Blob.from_uri(s3_server.uri("a/b")).uri("s/p") == (
            f"s3a://{s3_server.bucket}/a/b/s/p"
        )
        assert S3Blob.from_uri(s3_server.uri()).uri("s/p") == f"s3a://{s3_server.bucket}/s/p"

    def test_a_wrong_bucket(self, s3_server: S3Server):
        blob = S3Blob.from_uri(s3_server.uri(bucket="no-such-bucket"))
        for call in (
            lambda: blob.get("a"),
            lambda: blob.set("a", b"x"),
            lambda: list(blob.list()),
        ):
            with pytest.raises(Determinate, match="no such bucket") as caught:
                call()
            assert "no-such-bucket" in str(caught.value)

    def test_access_denied(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        blob = S3Blob.from_uri(s3_server.uri())
        for call in (lambda: blob.get("a"), lambda: blob.set("a", b"x"), lambda: [*blob.list()]):
            with pytest.raises(Determinate, match=r"access denied .*AWS_SECRET_ACCESS_KEY"):
                call()

    def test_the_endpoint_may_come_from_the_environment(
        self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ):
        prefix = uuid4().hex
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
        S3Blob(s3_server.bucket, prefix).set("a", b"1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        assert S3Blob.from_uri(s3_server.uri(prefix)).get("a") == b"1", "an explicit one wins"

    def test_nobody_there(self, s3_server: S3Server, no_pauses: None):
        with socket.socket() as taken:  # Bound but not listening: connections are refused.
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            blob = S3Blob("bucket", endpoint=f"http://127.0.0.1:{port}")
            for call in (lambda: blob.get("a"), lambda: blob.set("a", b"x")):
                with pytest.raises(Determinate, match="nothing answers there"):
                    call()

    def test_silence_leaves_a_write_open(
        self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(s3, "SILENCE_TIMEOUT", timedelta(seconds=0.2))
        monkeypatch.setattr(s3, "ATTEMPTS", 1)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            blob = S3Blob("bucket", endpoint=f"http://127.0.0.1:{mute.getsockname()[1]}")
            with pytest.raises(Indeterminate):
                blob.set("a", b"x")
            with pytest.raises(Determinate):
                blob.get("a")

    def test_sure_at_last_but_not_at_first_is_unsure(self, s3_server: S3Server, no_pauses: None):
        """Hung up on after the request was sent, then refused: it may have happened."""
        mute = socket.create_server(("127.0.0.1", 0))
        blob = S3Blob("bucket", endpoint=f"http://127.0.0.1:{mute.getsockname()[1]}")

        def hang_up() -> None:
            connection, _ = mute.accept()
            connection.recv(65_536)
            mute.close()
            connection.close()

        caller = threading.Thread(target=hang_up)
        caller.start()
        with pytest.raises(Indeterminate, match="nothing answers there"):
            blob.set("a", b"x")
        caller.join()

    def test_the_server_is_killed_and_comes_back(self, s3_server: S3Server):
        blob = S3Blob.from_uri(s3_server.uri(uuid4().hex))
        blob.set("s/a", b"before")
        s3_server.kill()
        try:
            with pytest.raises(Unavailable):
                blob.get("s/a")
            with pytest.raises(Unavailable):
                blob.set("s/b", b"meanwhile")
        finally:
            s3_server.start()
        assert blob.get("s/a") == b"before"
        blob.set("s/b", b"after")
        assert dict(blob.list("s/")) == {"s/a": 6, "s/b": 5}

    @pytest.mark.parametrize(
        "uri", ["s3://", "s3:///p", "s3://b/p?colour=red", "s3://b?endpoint=", "s3://b/../up"]
    )
    def test_bad_addresses(self, uri: str):
        with pytest.raises(InvalidUsage):
            S3Blob.from_uri(uri)

    def test_a_profile_needs_boto3(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("AWS_PROFILE", "work")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        monkeypatch.setitem(sys.modules, "boto3", None)
        monkeypatch.delitem(sys.modules, "obstore.auth.boto3", raising=False)
        with pytest.raises(InvalidUsage, match="boto3"):
            S3Blob("bucket")


def test_memory_has_no_address_for_spark():
    with pytest.raises(InvalidUsage, match="lives in memory"):
        MemBlob().uri("s/a")
