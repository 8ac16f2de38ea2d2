"""The doorbell between processes, and what happens where none can be had."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tidemark.persist import bell as bells
from tidemark.persist.bell import Bell, bell_of
from tidemark.persist.consensus import Versioned
from tidemark.persist.sqlite import SqliteConsensus

LISTENER = """
import sys, threading
from pathlib import Path
from tidemark.persist.bell import bell_of
bell_of(Path(sys.argv[1])).watchers.add(lambda key: print(key, flush=True))
print("listening", flush=True)
threading.Event().wait()
"""


def listener(file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


@pytest.mark.parametrize("depth", [1, 12], ids=["short path", "path beyond the limit of sockets"])
def test_every_process_hears_and_the_dead_are_removed(tmp_path: Path, depth: int):
    file = tmp_path.joinpath(*["a-rather-long-name"] * depth) / "consensus"
    file.parent.mkdir(parents=True)
    listeners = [listener(file) for _ in range(2)]
    try:
        bell = bell_of(file)
        bell.ring(["k"])
        for process in listeners:
            assert process.stdout is not None
            assert process.stdout.readline() == "k\n"
        listeners[0].kill()
        listeners[0].wait()
        assert len(os.listdir(bell.folder)) == 2
        bell.ring(["k1", "k2"])
        assert len(os.listdir(bell.folder)) == 1
        assert listeners[1].stdout is not None
        assert [listeners[1].stdout.readline() for _ in range(2)] == ["k1\n", "k2\n"]
        late = listener(file)
        listeners.append(late)
        bell.ring(["k3"])
        assert late.stdout is not None
        assert late.stdout.readline() == "k3\n", "whoever comes later is noticed"
    finally:
        for process in listeners:
            process.kill()
            process.communicate()


def test_this_process_is_called_directly_and_leaves_nothing_behind(tmp_path: Path):
    file = tmp_path / "consensus"
    bell = bell_of(file)
    assert bell_of(tmp_path / "." / "consensus") is bell
    heard: list[str | None] = []
    stop = bell.watchers.add(heard.append)
    assert len(os.listdir(bell.folder)) == 1
    bell.ring(["k"])
    assert heard == ["k"]
    stop()
    assert not bell.folder.exists()
    bell.ring(["k"])
    assert heard == ["k"]


def test_a_full_socket_means_that_anything_may_have_changed(tmp_path: Path):
    folder = tmp_path / "bells"
    ears, mouth = Bell(folder), Bell(folder)  # Two processes would have one each.
    slow, heard, woken = threading.Event(), list[str | None](), threading.Condition()

    def wake(key: str | None) -> None:
        with woken:
            heard.append(key)
            woken.notify_all()
        slow.wait(120)

    stop = ears.watchers.add(wake)
    mouth.ring(["first"])
    with woken:
        assert woken.wait_for(lambda: "first" in heard, 120)
    for n in range(50):
        mouth.ring([f"k{n}"])
    slow.set()
    with woken:
        assert woken.wait_for(lambda: None in heard, 120)
    stop()


def test_long_messages(tmp_path: Path):
    folder = tmp_path / "bells"
    ears, mouth = Bell(folder), Bell(folder)
    came = threading.Event()
    stop = ears.watchers.add(lambda key: came.set() if key is None else None)
    mouth.ring([f"key {n}" for n in range(10_000)])
    assert came.wait(120)
    stop()


def test_without_sockets_the_file_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(folder: Path, name: str) -> socket.socket:
        raise OSError(errno.EPERM, "no sockets on this file system")

    monkeypatch.setattr(bells, "_bound", refuse)
    with (
        closing(SqliteConsensus(tmp_path / "consensus")) as watcher,
        closing(SqliteConsensus(tmp_path / "consensus")) as writer,
    ):
        came = threading.Event()
        stop = watcher.watch(lambda key: came.set())
        assert came.wait(120), "at first anything may have changed"
        came.clear()
        assert writer.compare_and_set("k", Versioned(0, b""))
        assert came.wait(120)
        stop()
