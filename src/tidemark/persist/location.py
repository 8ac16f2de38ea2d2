"""Blobs and consensus by URI.

    blob        file:///folder   s3://bucket/prefix?endpoint=...&region=...   mem://   mem://name
    consensus   sqlite:///file   postgres://user:password@host:port/db?schema=...   mem://   mem://name

`mem://` is a fresh one each time, `mem://name` the one of that name in this process.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from tidemark.errors import InvalidUsage
from tidemark.persist.blob import Blob, FileBlob, MemBlob
from tidemark.persist.consensus import Consensus, MemConsensus
from tidemark.persist.sqlite import SqliteConsensus

T = TypeVar("T")


class Address(NamedTuple):
    """Where a client's stores are, for opening them in another process."""

    blob: str
    consensus: str


_blobs: dict[str, MemBlob] = {}
_consensuses: dict[str, MemConsensus] = {}
_lock = threading.Lock()


def open_blob(uri: str) -> Blob:
    parts = _split(uri)
    hint = "use file:///some/folder or s3://bucket/prefix"
    if parts.scheme == "file":
        return FileBlob(_path(uri, parts, hint))
    if parts.scheme == "s3":
        from tidemark.persist.s3 import S3Blob

        return S3Blob.from_uri(uri)
    if parts.scheme == "mem":
        return _named(parts.netloc, _blobs, MemBlob)
    raise InvalidUsage(f"cannot open blob {uri!r}", hint=hint)


def open_consensus(uri: str) -> Consensus:
    parts = _split(uri)
    hint = "use sqlite:///some/file or postgres://user:password@host:port/database"
    if parts.scheme == "sqlite":
        return SqliteConsensus(_path(uri, parts, hint))
    if parts.scheme in ("postgres", "postgresql"):
        from tidemark.persist.postgres import PostgresConsensus

        return PostgresConsensus(uri)
    if parts.scheme == "mem":
        return _named(parts.netloc, _consensuses, MemConsensus)
    raise InvalidUsage(f"cannot open consensus {uri!r}", hint=hint)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri, allow_fragments=False)
    except ValueError as error:
        raise InvalidUsage(f"not an address: {error}", hint="use scheme://host/path") from error


def _path(uri: str, parts: SplitResult, hint: str) -> Path:
    if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
        raise InvalidUsage(f"no path in {uri!r}", hint=f"{hint}: three slashes")
    return Path(unquote(parts.path))


def _named(name: str, known: dict[str, T], make: type[T]) -> T:
    if not name:
        return make()
    with _lock:
        if name not in known:
            known[name] = make()
        return known[name]
