"""A region that works is backed up, brought back in stores of another kind, and works on there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import psycopg
from serving import Serving

from services import PostgresServer, S3Server


def tidemark(*arguments: str | Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_from_files_to_s3_and_postgresql_and_back(
    server: Serving,
    connection: psycopg.Connection,
    tmp_path: Path,
    s3_server: S3Server,
    postgres_server: PostgresServer,
):
    for sql in (
        "CREATE TABLE numbers (n int, pad text)",
        "CREATE TABLE twice (n int)",
        "CREATE SECRET backed_up AS 'as it was'",
        "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS rows, sum(n) AS total FROM numbers",
    ):
        connection.execute(sql)
    stop, acknowledged = threading.Event(), [0]

    def insert() -> None:
        """Each number goes to both tables, in one transaction."""
        with server.connect() as writer:
            while not stop.is_set():
                n = acknowledged[0] + 1
                with writer.transaction():
                    writer.execute("INSERT INTO numbers VALUES (%s, repeat('x', 20000))", (n,))
                    writer.execute("INSERT INTO twice VALUES (%s)", (n,))
                acknowledged[0] = n

    writing = threading.Thread(target=insert)
    writing.start()
    try:
        while acknowledged[0] < 20 and writing.is_alive():
            connection.execute("SELECT * FROM sums")
        before = acknowledged[0]
        made = tidemark("backup", "--data", server.data, "--to", tmp_path / "backup")
        after = acknowledged[0] + 1
    finally:
        stop.set()
        writing.join()
        for sql in ("MATERIALIZED VIEW sums", "TABLE numbers", "TABLE twice", "SECRET backed_up"):
            connection.execute(f"DROP {sql}")
    assert made.pop("missing_secrets") == 0
    assert tidemark("restore", "--from", tmp_path / "backup", "--dry-run") == made

    name = f"t{uuid4().hex[:12]}"
    stores = ("--blob", s3_server.uri(name), "--consensus", postgres_server.uri(name))
    restored = Serving(tmp_path / "data", *stores)
    tidemark("restore", "--from", tmp_path / "backup", "--data", restored.data, *stores)
    assert all(report["clean"] and report["complete"] for report in fsck(*stores))
    # Whoever has the key has the secrets.
    Path(restored.environment["TIDEMARK_SECRETS_KEY"]).write_bytes(
        Path(server.environment["TIDEMARK_SECRETS_KEY"]).read_bytes()
    )
    try:
        restored.start()
        with restored.connect() as there:
            numbers = [n for (n,) in there.execute("SELECT n FROM numbers ORDER BY n").fetchall()]
            assert numbers == list(range(1, len(numbers) + 1))
            assert before <= len(numbers) <= after
            assert there.execute("SELECT n FROM twice ORDER BY n").fetchall() == [
                (n,) for n in numbers
            ]
            expected = [(len(numbers), sum(numbers))]
            assert there.execute("SELECT * FROM sums").fetchall() == expected
            assert there.execute("VERIFY MATERIALIZED VIEW sums").fetchall() == []
            there.execute("INSERT INTO numbers VALUES (1000, '')")
            assert there.execute("SELECT * FROM sums").fetchall() == [
                (len(numbers) + 1, sum(numbers) + 1000)
            ]
            there.execute("ALTER SECRET backed_up AS 'and is'")
        assert restored.stop() == 0
    finally:
        restored.destroy()

    without = tidemark("backup", *stores, "--to", tmp_path / "second")
    assert without["missing_secrets"] >= 1
    tidemark("restore", "--from", tmp_path / "second", "--data", tmp_path / "third")
    assert all(report["clean"] for report in fsck("--data", tmp_path / "third"))


def fsck(*where: str | Path) -> list[dict]:
    """Exits with another code than 0 if there is an error."""
    return tidemark("shard", "fsck", "--all", *where)["shards"]
