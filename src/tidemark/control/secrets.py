"""Secrets: encrypted files that only their owner can read, outside the shards.

The catalog knows their names; what they say is read when a replica is told what to run. The key is
a file, too, outside the data folder: whoever gets hold of a copy of that folder has no passwords.
It is made when the first secret is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from cryptography.fernet import Fernet, InvalidToken

from tidemark.errors import InvalidUsage, SqlError, Unavailable
from tidemark.persist.blob import sync_folder

MOST_BYTES = 64 << 10


def key_file(given: Path | None, data: Path) -> Path:
    """Where the key is: as given, or in the user's own configuration."""
    if given is None:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(base, "tidemark", "secrets.key")
    if given.resolve().is_relative_to(data.resolve()):
        raise InvalidUsage(
            f"--secrets-key {given} is inside the data folder: who copies that would have both",
            hint="keep it somewhere else",
        )
    return given


FOLDER = "secrets"
"""Below the data folder."""


class Secrets:
    def __init__(self, folder: Path, key: Path):
        self._folder = folder
        self._key = key

    def write(self, name: str, value: str) -> None:
        """Atomically and durably: after a crash the old value is there, or the new one."""
        data = value.encode()
        if len(data) > MOST_BYTES:
            raise SqlError(f"a secret has at most {MOST_BYTES} bytes", sqlstate="22023")
        if not self._key.exists():
            self._key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(self._key, Fernet.generate_key())
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.chmod(0o700)
        _write(self._path(name), self._cipher().encrypt(data))

    def read(self, name: str) -> str:
        try:
            return self._cipher().decrypt(self._path(name).read_bytes()).decode()
        except OSError as error:
            why = error.strerror
        except (InvalidToken, UnicodeDecodeError):
            why = f"it was not encrypted with {self._key}"
        raise Unavailable(
            f'the value of secret "{name}" cannot be read ({why})',
            hint=f"say it again: ALTER SECRET {name} AS '...'; what waits for it goes on",
        )

    def _cipher(self) -> Fernet:
        try:
            return Fernet(self._key.read_bytes())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no key"
            raise Unavailable(
                f"the key of the secrets, {self._key}, cannot be read ({why})",
                hint="bring it back; or remove what is there and say all secrets again"
                " with ALTER SECRET",
            ) from None

    def delete(self, name: str) -> None:
        path = self._path(name)
        if path.exists():
            path.unlink()
            sync_folder(path.parent)

    def _path(self, name: str) -> Path:
        return self._folder / file_name(name)


def file_name(name: str) -> str:
    """Any name may be quoted in SQL, "../.." among them."""
    return quote(name, safe="").replace(".", "%2E")


def stored(folder: Path) -> dict[str, bytes]:
    """The files of all secrets, encrypted as they are, for a backup."""
    found = {}
    for path in sorted(folder.glob("[!.]*")):
        with suppress(FileNotFoundError):  # Dropped meanwhile.
            found[path.name] = path.read_bytes()
    return found


def put_back(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files that `stored` gave; they are of use to whoever has the key."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, data in files.items():
        _write(folder / name, data)


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)
