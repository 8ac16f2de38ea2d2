"""What is SQLite's own among the ways a consensus can meet trouble."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import deque
from contextlib import closing
from pathlib import Path

import pytest

from tidemark.errors import (
    Corruption,
    Determinate,
)
from tidemark.persist.consensus import Versioned
from tidemark.persist.sqlite import SqliteConsensus
from tidemark.tools.location import check_consensus


class TestSqlite:
    def test_garbage_is_told_as_damage(self, tmp_path: Path):
        path = tmp_path / "consensus"
        path.write_bytes(b"not a database at all" * 100)
        with pytest.raises(Corruption, match="damaged"):
            SqliteConsensus(path).head("k")
        assert path.read_bytes() == b"not a database at all" * 100, "and left for inspection"

    def test_a_damaged_page_is_told_as_damage(self, tmp_path: Path):
        path = tmp_path / "consensus"
        with closing(SqliteConsensus(path)) as consensus:
            for n in range(50):
                consensus.compare_and_set(f"k{n}", Versioned(0, b"x" * 1000))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (os.path.getsize(path) - 4096))
        with closing(SqliteConsensus(path)) as consensus, pytest.raises(Corruption):
            consensus.scan("k1")

    def test_a_read_only_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        path = tmp_path / "consensus"
        with closing(SqliteConsensus(path)) as consensus:
            assert consensus.compare_and_set("k", Versioned(0, b""))
            assert consensus._writer is not None
            consensus._writer.execute("PRAGMA query_only = ON")  # Root may write any file.
            with pytest.raises(Determinate, match="cannot write"):
                consensus.compare_and_set("k", Versioned(1, b""))
            assert consensus.head("k") == Versioned(0, b"")

    def test_a_folder_in_its_place(self, tmp_path: Path):
        (tmp_path / "consensus").mkdir()
        with pytest.raises(Determinate, match="cannot write"):
            SqliteConsensus(tmp_path / "consensus")
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(Determinate, match="cannot make"):
            SqliteConsensus(tmp_path / "file" / "below" / "consensus")

    def test_a_full_disk(self, tiny_disk: Path):
        with closing(SqliteConsensus(tiny_disk / "consensus")) as consensus:
            seqno = 0

            def commit_one() -> None:
                nonlocal seqno
                assert consensus.compare_and_set("k", Versioned(seqno, b"x" * 50_000))
                seqno += 1

            with pytest.raises(Determinate, match="disk full") as caught:
                deque(iter(commit_one, "never"), maxlen=0)
            assert caught.value.sqlstate == "53100"
            assert seqno > 3
            head = consensus.head("k")
            assert head is not None
            assert head.seqno == seqno - 1, "what was told done is there, the rest is not"
        with closing(SqliteConsensus(tiny_disk / "consensus")) as consensus:
            assert [version.seqno for version in consensus.scan("k")] == list(range(seqno))

    def test_durability_is_full(self, tmp_path: Path):
        with closing(SqliteConsensus(tmp_path / "consensus")) as consensus:
            assert consensus._writer is not None
            assert consensus._writer.execute("PRAGMA synchronous").fetchone() == (2,)
            assert consensus._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_a_file_of_the_first_version(self, tmp_path: Path):
        with closing(sqlite3.connect(tmp_path / "consensus")) as old:
            old.execute(
                "CREATE TABLE consensus (key TEXT NOT NULL, seqno INTEGER NOT NULL,"
                " data BLOB NOT NULL, PRIMARY KEY (key, seqno)) WITHOUT ROWID"
            )
        with closing(SqliteConsensus(tmp_path / "consensus")) as consensus:
            assert consensus.compare_and_set("k", Versioned(0, b"0"))
            assert consensus.head("k") == Versioned(0, b"0")

    def test_looking_at_the_file_keeps_its_locks(self, tmp_path: Path):
        """A process loses all locks on a file when it closes any descriptor of it. Without them,
        the next process to close its connection deletes the log that ours goes on writing to."""
        uri = f"sqlite://{tmp_path}/consensus"
        script = (
            "import sys; from pathlib import Path; from tidemark.persist.sqlite import *;"
            "from tidemark.persist.consensus import Versioned;"
            "c = SqliteConsensus(Path(sys.argv[1]));"
            "c.compare_and_set('k', Versioned(int(sys.argv[2]), b'theirs')); c.close()"
        )
        with closing(SqliteConsensus(tmp_path / "consensus")) as consensus:
            for seqno in range(0, 6, 2):
                assert consensus.compare_and_set("k", Versioned(seqno, b"ours"))
                check_consensus(uri)
                other = [sys.executable, "-c", script, str(tmp_path / "consensus"), str(seqno + 1)]
                subprocess.run(other, check=True)
            assert [version.seqno for version in consensus.scan("k")] == list(range(6))
        with closing(SqliteConsensus(tmp_path / "consensus")) as consensus:
            assert [version.seqno for version in consensus.scan("k")] == list(range(6))
