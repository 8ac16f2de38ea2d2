"""The folder of runs: disposable files that the processes of a host share.

    <shard>-<digest>@<as_of>.arrow   a base: the digest is of the region, shard, key and order
    <shard>-<digest>.lock            held by who builds such a base; the next one waits, and shares
    *.tmp                            being written

Locks are flock's, which end with their process. Who maps a base holds it shared, and who wants to
evict it must have it alone. A file that is being written is locked by its writer: one that can be
locked was left by a process that died. Bases are put in place by renaming, all or nothing.

Above `hot_cache_bytes` the bases go that were opened longest ago and that nobody uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import structlog

from tidemark.errors import Unavailable
from tidemark.persist.config import Config
from tidemark.persist.hot import Damaged, Run, RunWriter

log = structlog.get_logger("persist")

FORMAT = 2
"""Of the files and the order within them: another one is another name."""

_BASE = re.compile(r"(.+)@(\d+)\.arrow")


class Base:
    """A base that this process uses: its run, when it is, and the lock that keeps it."""

    def __init__(self, path: Path, as_of: int, run: Run, file: int):
        self.path, self.as_of, self.run = path, as_of, run
        self._file = file

    def close(self) -> None:
        """Let others evict it. Whoever still reads the run can: it is mapped."""
        if self._file >= 0:
            # The mapping keeps the file open, and with it the lock.
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()


class Drafts:
    """Runs that are being written. At the end they have no names, and go with their last use."""

    def __init__(self, folder: Path, batch_bytes: int):
        self._folder = folder
        self._batch_bytes = batch_bytes
        self._open: dict[RunWriter, tuple[int, Path]] = {}

    def writer(self, schema: pa.Schema) -> RunWriter:
        file, path = self._create()
        writer = RunWriter(file, schema, batch_bytes=self._batch_bytes)
        self._open[writer] = file, path
        return writer

    def keep(self, writer: RunWriter, path: Path) -> int:
        """Give a finished run its name; the file, locked as it is by those who use it."""
        file, aside = self._open.pop(writer)
        fcntl.flock(file, fcntl.LOCK_SH)
        aside.rename(path)
        return file

    def _create(self) -> tuple[int, Path]:
        while True:
            path = self._folder / f"{uuid4().hex}.tmp"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                return file, path
            os.close(file)  # Taken for a dead process's before we had the lock.

    def close(self) -> None:
        for file, path in self._open.values():
            path.unlink(missing_ok=True)
            os.close(file)
        self._open.clear()


class Cache:
    def __init__(self, folder: Path | str, config: Config):
        self.folder = Path(folder)
        self._batch_bytes = config.hot_batch_bytes
        self._max_bytes = config.hot_cache_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    def bases(self, identity: str) -> list[tuple[int, Path]]:
        """When the bases are that are there, the latest first, and their files."""
        found = []
        for path in self.folder.glob(f"{identity}@*.arrow"):
            match = _BASE.fullmatch(path.name)
            if match:
                found.append((int(match[2]), path))
        return sorted(found, reverse=True)

    def open(self, path: Path, as_of: int) -> Base | None:
        """The base in this file; None if it is gone or damaged, and then it is gone."""
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            run = Run.map(file)
            if run.note.get("as_of") != as_of:
                raise Damaged("a base of another time")
        except Damaged as error:
            os.close(file)
            log.warning(
                "a base is damaged and will be made again", file=path.name, error=str(error)
            )
            path.unlink(missing_ok=True)
            return None
        with suppress(FileNotFoundError):
            os.utime(path)
        return Base(path, as_of, run, file)

    @contextmanager
    def drafts(self) -> Iterator[Drafts]:
        self.folder.mkdir(parents=True, exist_ok=True)
        drafts = Drafts(self.folder, self._batch_bytes)
        try:
            yield drafts
        except OSError as error:
            raise Unavailable(f"cannot write a run in {self.folder}: {error}") from error
        finally:
            drafts.close()

    def publish(
        self, drafts: Drafts, writer: RunWriter, identity: str, as_of: int, **note: int
    ) -> Base:
        """Put a written run in place as the base at `as_of`."""
        path = self.folder / f"{identity}@{as_of}.arrow"
        run = writer.finish(as_of=as_of, **note)
        file = drafts.keep(writer, path)
        self.evict()
        return Base(path, as_of, run, file)

    def discard(self, path: Path) -> None:
        """Remove a base that is wrong, whoever uses it: they have it mapped."""
        path.unlink(missing_ok=True)

    def retire(self, path: Path) -> bool:
        """Remove a base if nobody uses it."""
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(file)

    def evict(self) -> None:
        """Make the folder fit its size, and clear away what dead processes left."""
        for path in [*self.folder.glob("*.tmp"), *self.folder.glob("*.lock")]:
            self.retire(path)
        files = []
        for path in self.folder.glob("*.arrow"):
            with suppress(FileNotFoundError):
                about = path.stat()
                files.append((about.st_mtime_ns, about.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._max_bytes:
                return
            if self.retire(path):
                total -= size
                log.info("evicted", file=path.name, bytes=size)

    @contextmanager
    def building(self, identity: str) -> Iterator[None]:
        """Only one process of the host builds a base of this kind at a time."""
        path = self.folder / f"{identity}.lock"
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink:
                break
            os.close(file)  # The one before us removed it when it was done.
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(file)


def identity_of(region: str, shard_id: str, key: tuple[str, ...], order: tuple[str, ...]) -> str:
    named = repr((FORMAT, region, shard_id, key, order)).encode()
    return f"{shard_id[:80]}-{hashlib.blake2b(named, digest_size=12).hexdigest()}"
