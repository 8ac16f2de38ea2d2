"""Blob: where parts live. A linearizable map from keys to immutable bytes.

`set` is all-or-nothing and durable when it returns; `delete` may be repeated. Keys look like
`<shard>/<part>.parquet`; a part is written under a fresh name and never changed. Reads that fail
are `Determinate`: there was nothing to happen. `s3.py` has the one for object stores.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.errors import Determinate, Indeterminate, InvalidUsage

AN_HOUR = 3_600_000


class Blob(Protocol):
    def get(self, key: str) -> bytes | None: ...

    def open(self, key: str) -> pa.NativeFile | None:
        """Random access to the value as it is now, for reading a few columns of a part."""
        ...

    def set(self, key: str, value: bytes | memoryview) -> None: ...

    def delete(self, key: str) -> int | None:
        """Size of what was deleted, or None if there was nothing."""
        ...

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Keys and sizes of everything that begins with `prefix`, in the order of the keys.

        Costs what the last folder named in `prefix` holds.
        """
        ...

    def uri(self, key: str) -> str:
        """An address under which Spark reads the same bytes."""
        ...


_NOTHING_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_ASIDE = re.compile(r"\..+\.[0-9a-f]{32}")


def check_key(key: str) -> list[str]:
    """The names that make up `key`."""
    names = key.split("/")
    if any(not name or name.startswith(".") or "\0" in name for name in names):
        raise InvalidUsage(
            f"not a blob key: {key!r}",
            hint="names separated by single slashes, none empty or beginning with a dot",
        )
    return names


def split_prefix(prefix: str) -> str:
    """The folder that holds all that begins with `prefix`, or "" for the topmost one."""
    folder, slash, _ = prefix.rpartition("/")
    if slash:
        check_key(folder)
    return folder


class MemBlob:
    """The in-memory twin, for unit tests."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        check_key(key)
        return self._values.get(key)

    def open(self, key: str) -> pa.NativeFile | None:
        value = self.get(key)
        return None if value is None else pa.BufferReader(value)

    def set(self, key: str, value: bytes | memoryview) -> None:
        check_key(key)
        with self._lock:
            self._values[key] = bytes(value)

    def delete(self, key: str) -> int | None:
        check_key(key)
        with self._lock:
            value = self._values.pop(key, None)
        return None if value is None else len(value)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        split_prefix(prefix)
        with self._lock:
            found = [(k, len(v)) for k, v in self._values.items() if k.startswith(prefix)]
        yield from sorted(found)

    def uri(self, key: str) -> str:
        raise InvalidUsage(f"blob {key} lives in memory, where Spark cannot read it")


class FileBlob:
    """Blobs as files below one folder: written aside, fsynced, then renamed into place."""

    def __init__(self, root: str | Path, *, clock: Clock = SYSTEM_CLOCK):
        self.root = Path(root).resolve()
        self._clock = clock
        self._durable: set[Path] = set()
        try:
            self._make_folder(self.root)
        except OSError as error:
            raise _explained(error, self.root, "make the folder") from error

    def path(self, key: str) -> Path:
        return self.root.joinpath(*check_key(key))

    def get(self, key: str) -> bytes | None:
        path = self.path(key)
        try:
            return path.read_bytes()
        except _NOTHING_THERE:
            return None
        except OSError as error:
            raise _explained(error, path, "read") from error

    def open(self, key: str) -> pa.NativeFile | None:
        path = self.path(key)
        try:
            # Not mapped: a merge reads each part once, and should not seem to hold them all.
            return pa.OSFile(str(path))
        except _NOTHING_THERE:
            return None
        except OSError as error:
            if path.is_dir():
                return None
            raise _explained(error, path, "read") from error

    def set(self, key: str, value: bytes | memoryview) -> None:
        path = self.path(key)
        aside = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            self._make_folder(path.parent)
            with open(aside, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise _explained(error, path, "write") from error
        try:
            sync_folder(path.parent)
        except OSError as error:  # It is there, and yet may be gone after a crash.
            raise Indeterminate(f"cannot sync {path.parent}: {error.strerror}") from error

    def delete(self, key: str) -> int | None:
        path = self.path(key)
        try:
            size = path.stat().st_size
            path.unlink()
        except _NOTHING_THERE:
            return None
        except OSError as error:
            if path.is_dir():
                return None
            raise _explained(error, path, "delete") from error
        return size

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        folder = split_prefix(prefix)
        for key, entry in self._walk(folder, prefix):
            with suppress(FileNotFoundError):  # Deleted since the folder was read.
                yield key, entry.stat(follow_symlinks=False).st_size

    def uri(self, key: str) -> str:
        return self.path(key).as_uri()

    def remove_leftovers(self, older_than_ms: int = AN_HOUR) -> int:
        """Delete what writers that died left aside, half written; returns how many there were.

        Nobody writes one value for an hour, so that old they have no owner any more.
        """
        before = (self._clock.now_ms() - older_than_ms) * 1_000_000
        removed = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                if not _ASIDE.fullmatch(name):
                    continue
                path = Path(folder, name)
                with suppress(OSError):  # Someone else was faster, or it is not ours to delete.
                    if path.stat().st_mtime_ns < before:
                        path.unlink()
                        removed += 1
        return removed

    def _walk(self, folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(self.root / folder) as entries:
                found = [entry for entry in entries if not entry.name.startswith(".")]
        except _NOTHING_THERE:
            return
        except OSError as error:
            raise _explained(error, self.root / folder, "list") from error
        within = f"{folder}/" if folder else ""
        # A folder sorts as its keys do: with the slash, after `name-2` and before `name2`.
        keyed = [
            (f"{within}{entry.name}/" if entry.is_dir() else within + entry.name, entry)
            for entry in found
        ]
        for key, entry in sorted(keyed, key=lambda each: each[0]):
            if key.endswith("/"):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(key[:-1], prefix)
            elif key.startswith(prefix):
                yield key, entry

    def _make_folder(self, folder: Path) -> None:
        """Make it and all the folders above it durable, once per process and folder."""
        if folder in self._durable and folder.is_dir():
            return
        stale = [folder.parent]
        while not stale[-1].is_dir():
            stale.append(stale[-1].parent)
        folder.mkdir(parents=True, exist_ok=True)
        for above in stale:
            with suppress(PermissionError):  # Then this folder is not one that was just made.
                sync_folder(above)
        self._durable.add(folder)


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable: a rename is not, until its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explained(error: OSError, path: Path, verb: str) -> Determinate:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space on that disk; the write is safe to try again"
        return Determinate(f"disk full while writing {path}", hint=hint, sqlstate="53100")
    return Determinate(f"cannot {verb} {path}: {error.strerror}")
