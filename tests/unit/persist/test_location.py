"""Blobs and consensus by URI."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from services import PostgresServer, S3Server
from tidemark.errors import InvalidUsage
from tidemark.persist.blob import FileBlob
from tidemark.persist.consensus import Versioned
from tidemark.persist.location import open_blob, open_consensus
from tidemark.persist.postgres import PostgresConsensus
from tidemark.persist.s3 import S3Blob
from tidemark.persist.sqlite import SqliteConsensus


def test_paths_may_be_quoted(tmp_path: Path):
    blob = open_blob(f"file://{tmp_path}/with%20space")
    assert isinstance(blob, FileBlob)
    assert blob.root == tmp_path / "with space"
    consensus = open_consensus(f"sqlite://{tmp_path}/c%20c")
    assert isinstance(consensus, SqliteConsensus)
    assert consensus.path == tmp_path / "c c"


def test_servers(s3_server: S3Server, postgres_server: PostgresServer):
    assert isinstance(open_blob(s3_server.uri(uuid4().hex)), S3Blob)
    for scheme in ("postgres://", "postgresql://"):
        uri = postgres_server.uri().replace("postgres://", scheme)
        consensus = open_consensus(uri)
        assert isinstance(consensus, PostgresConsensus)
        consensus.close()


def test_memory_is_fresh_unless_it_is_named():
    name = uuid4().hex
    open_blob(f"mem://{name}").set("a", b"1")
    assert open_blob(f"mem://{name}").get("a") == b"1"
    assert open_blob("mem://").get("a") is None
    assert open_blob("mem://") is not open_blob("mem://")
    assert open_consensus(f"mem://{name}").compare_and_set("k", Versioned(0, b"1"))
    assert open_consensus(f"mem://{name}").keys() == ["k"]
    assert open_consensus("mem://").keys() == []


@pytest.mark.parametrize("uri", ["", "somewhere", "ftp://x/y", "file://folder", "file://", "s3://"])
def test_addresses_of_no_blob(uri: str):
    with pytest.raises(InvalidUsage, match="use "):
        open_blob(uri)


@pytest.mark.parametrize(
    "uri", ["", "file:///x", "sqlite://file", "sqlite:", "postgres://h:x/d", "x://[h"]
)
def test_addresses_of_no_consensus(uri: str):
    with pytest.raises(InvalidUsage, match="use "):
        open_consensus(uri)
