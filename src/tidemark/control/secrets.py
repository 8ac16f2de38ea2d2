"""Secrets: files that only their owner can read, outside the shards.

The catalog knows their names; what they say is read when a replica is told what to run.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from tidemark.errors import SqlError, Unavailable

MOST_BYTES = 64 << 10


class Secrets:
    def __init__(self, folder: Path):
        self._folder = folder

    def write(self, name: str, value: str) -> None:
        """Atomically and durably: after a crash the old value is there, or the new one."""
        data = value.encode()
        if len(data) > MOST_BYTES:
            raise SqlError(f"a secret has at most {MOST_BYTES} bytes", sqlstate="22023")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.chmod(0o700)
        path = self._path(name)
        aside = path.with_name(f".{path.name}.new")
        aside.unlink(missing_ok=True)
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        self._sync()

    def read(self, name: str) -> str:
        path = self._path(name)
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise Unavailable(
                f'the value of secret "{name}" cannot be read ({why})',
                hint=f"put it into {path} again, and what waits for it goes on",
            ) from None

    def delete(self, name: str) -> None:
        path = self._path(name)
        if path.exists():
            path.unlink()
            self._sync()

    def _path(self, name: str) -> Path:
        # Any name may be quoted in SQL, "../.." among them.
        return self._folder / quote(name, safe="").replace(".", "%2E")

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
