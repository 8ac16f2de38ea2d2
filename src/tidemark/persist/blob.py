"""Blob: where parts live. A linearizable map from keys to immutable bytes.

`set` is all-or-nothing and durable when it returns; `delete` may be repeated. Keys look like
`<shard>/<part>.parquet`; a part is written under a fresh name and never changed.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tidemark.errors import Determinate, InvalidUsage


class Blob(Protocol):
    def get(self, key: str) -> bytes | None: ...

    def set(self, key: str, value: bytes) -> None: ...

    def delete(self, key: str) -> int | None:
        """Size of what was deleted, or None if there was nothing."""
        ...

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Keys and sizes of everything below `prefix`."""
        ...

    def uri(self, key: str) -> str:
        """An address under which Spark reads the same bytes."""
        ...


_NOTHING_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class MemBlob:
    """The in-memory twin, for unit tests."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def set(self, key: str, value: bytes) -> None:
        with self._lock:
            self._values[key] = bytes(value)

    def delete(self, key: str) -> int | None:
        with self._lock:
            value = self._values.pop(key, None)
        return None if value is None else len(value)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        with self._lock:
            found = [(k, len(v)) for k, v in self._values.items() if k.startswith(prefix)]
        yield from sorted(found)

    def uri(self, key: str) -> str:
        raise InvalidUsage(f"blob {key} lives in memory, where Spark cannot read it")


class FileBlob:
    """Blobs as files below one folder: written aside, fsynced, then renamed into place."""

    def __init__(self, root: str | Path):
        self.root = Path(root).resolve()
        self._durable: set[Path] = set()
        self._make_folder(self.root)

    def path(self, key: str) -> Path:
        names = key.split("/")
        if any(not name or name.startswith(".") for name in names):
            raise InvalidUsage(
                f"not a blob key: {key!r}",
                hint="names separated by single slashes, none empty or beginning with a dot",
            )
        return self.root.joinpath(*names)

    def get(self, key: str) -> bytes | None:
        path = self.path(key)
        try:
            return path.read_bytes()
        except _NOTHING_THERE:
            return None
        except OSError as error:
            raise _explained(error, path, "read") from error

    def set(self, key: str, value: bytes) -> None:
        path = self.path(key)
        aside = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            self._make_folder(path.parent)
            with open(aside, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise _explained(error, path, "write") from error

    def delete(self, key: str) -> int | None:
        path = self.path(key)
        try:
            size = path.stat().st_size
            path.unlink()
        except _NOTHING_THERE:
            return None
        except OSError as error:
            raise _explained(error, path, "delete") from error
        return size

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        for folder, _, names in os.walk(self.root):
            for name in sorted(names):
                if name.startswith("."):
                    continue
                path = Path(folder, name)
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    with suppress(FileNotFoundError):  # Deleted since the folder was read.
                        yield key, path.stat().st_size

    def uri(self, key: str) -> str:
        return self.path(key).as_uri()

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
