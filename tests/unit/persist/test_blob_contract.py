"""What every Blob must do; the same test runs on each implementation."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.errors import Determinate, InvalidUsage
from tidemark.persist.blob import Blob, FileBlob, MemBlob

Open = Callable[[], Blob]


@pytest.fixture(params=["file", "memory"])
def open_blob(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens another handle on one and the same location."""
    if request.param == "file":
        return lambda: FileBlob(tmp_path / "deep" / "blob")
    shared = MemBlob()
    return lambda: shared


def test_contract(open_blob: Open):
    one, two = open_blob(), open_blob()
    assert one.get("s/a") is None
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
    assert two.delete("s") is None

    def listed(prefix: str) -> dict[str, int]:
        return dict(two.list(prefix))

    assert listed("") == {"s/a": 18, "s/empty": 0, "s/deep/er": 100_000, "sibling": 2}
    assert listed("s/") == {"s/a": 18, "s/empty": 0, "s/deep/er": 100_000}
    assert listed("s/d") == {"s/deep/er": 100_000}, "a prefix need not end at a slash"
    assert listed("nothing") == {}

    assert two.delete("s/a") == 18
    assert one.get("s/a") is None
    assert one.delete("s/a") is None, "deleting again is harmless"
    assert one.delete("s/empty") == 0, "an empty value was there, too"
    one.set("s/a", b"again")
    assert open_blob().get("s/a") == b"again", "a handle opened later sees it"


def test_set_is_all_or_nothing_under_concurrent_writers(open_blob: Open):
    values = [bytes([n]) * 200_000 for n in range(4)]
    open_blob().set("k/v", values[0])
    done = threading.Event()

    def write(value: bytes) -> None:
        blob = open_blob()
        while not done.is_set():
            blob.set("k/v", value)

    writers = [threading.Thread(target=write, args=(value,)) for value in values]
    for writer in writers:
        writer.start()
    try:
        reader = open_blob()
        for _ in range(50):
            assert reader.get("k/v") in values
            assert dict(reader.list("k/")) == {"k/v": 200_000}
    finally:
        done.set()
        for writer in writers:
            writer.join()


def test_listing_survives_concurrent_deletes(open_blob: Open):
    one, two = open_blob(), open_blob()
    for n in range(20):
        one.set(f"s/{n:02}", b"x")
    listing = one.list("s/")
    first = next(listing)
    for n in range(20):
        two.delete(f"s/{n:02}")
    assert {key for key, _ in [first, *listing]} <= {f"s/{n:02}" for n in range(20)}


class TestFileBlob:
    @pytest.mark.parametrize("key", ["", "/etc/passwd", "../up", "a/../../b", "a//b", "a/", ".a"])
    def test_keys_that_leave_the_folder_or_hide_in_it_are_refused(self, tmp_path: Path, key: str):
        with pytest.raises(InvalidUsage, match="not a blob key"):
            FileBlob(tmp_path).set(key, b"x")

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

    def test_what_a_killed_writer_left_aside_is_not_listed(self, tmp_path: Path):
        blob = FileBlob(tmp_path)
        (tmp_path / ".half-written.0123").write_bytes(b"x")
        assert list(blob.list()) == []

    def test_uri_is_an_address_of_the_file(self, tmp_path: Path):
        blob = FileBlob(tmp_path / "with space")
        blob.set("s/a", b"a")
        assert blob.uri("s/a") == (tmp_path / "with space" / "s" / "a").as_uri()


def test_memory_has_no_address_for_spark():
    with pytest.raises(InvalidUsage, match="lives in memory"):
        MemBlob().uri("s/a")
