"""`tidemark serve` with TLS and passwords, as an operator starts it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from serving import DEADLINE, Serving

from docs_blocks import commands, tried_by
from services import program


def test_who_is_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the commands of docs/operations.md."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    command = [
        program("openssl"),
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        *subject,
        *files,
    ]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    (block,) = tried_by("tests/integration/test_guarded_server.py")
    (password, _), (serve, _) = commands(block)
    subprocess.run(
        ["sh", "-euc", password],
        input="open sesame\n",
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        timeout=DEADLINE,
    )
    shown = "tidemark serve --data shop --listen 0.0.0.0:6875".split()
    words = shlex.split(serve.replace("\\\n", ""))
    assert words[: len(shown)] == shown
    serving = Serving(tmp_path / "data", *words[len(shown) :])
    try:
        serving.start()
        assert " -U alice tidemark" in serving.ready, "tidemark has no password here"
        address = f"host=127.0.0.1 port={serving.port} dbname=tidemark"
        verified = f"sslmode=verify-full sslrootcert={certificate} channel_binding=require"
        known = f"{address} user=alice password='open sesame'"
        with psycopg.connect(f"{known} {verified}", autocommit=True) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("alice",)
            # Of the file, and no role: an operator's. Others get their passwords from SQL.
            connection.execute("CREATE USER carol PASSWORD 'also open'")
            connection.execute("CREATE TABLE mine (a int)")
        for refused, why in {
            f"{known} sslmode=disable": "takes encrypted connections only",
            f"{address} user=alice password=wrong": "password authentication failed",
            f"{address} user=bob password='open sesame'": "password authentication failed",
        }.items():
            with pytest.raises(psycopg.OperationalError, match=why):
                psycopg.connect(refused)
        told = [curl(serving, certificate, *user) for user in ((), ("-u", "alice:open sesame"))]
        assert "password authentication failed" in told[0]
        assert '"rows":[["alice"]]' in told[1]
        assert '"rows":[["carol"]]' in curl(serving, certificate, "-u", "carol:also open")
        assert serving.stop() == 0
        serving.start()
        carols = f"{address} user=carol password='also open' {verified}"
        with psycopg.connect(carols, autocommit=True) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("carol",)
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="for table mine"):
                connection.execute("SELECT * FROM mine")
            connection.execute("ALTER ROLE carol PASSWORD 'changed'")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(carols)
        assert "also open" not in serving.log
    finally:
        serving.destroy()


def curl(serving: Serving, authority: Path, *user: str) -> str:
    address = f"https://127.0.0.1:{serving.http_port}/api/sql"
    command = ["curl", "-s", "--cacert", str(authority), *user, address, "--json"]
    asked = [*command, '{"query": "SELECT current_user"}']
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def test_what_cannot_be_started(tmp_path: Path) -> None:
    def complaint(*options: str) -> str:
        command = [sys.executable, "-m", "tidemark.cli", "serve", "--data", str(tmp_path / "data")]
        done = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            env=os.environ,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 1
        return done.stderr

    assert "TLS takes both a certificate and its key" in complaint("--tls", "require")
    assert "cannot be read" in complaint("--passwords", str(tmp_path / "nowhere"))
    bad = tmp_path / "passwords"
    bad.write_text("alice:secret\n")
    assert f"--passwords {bad}, line 1" in complaint("--passwords", str(bad))
