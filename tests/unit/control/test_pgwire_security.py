"""TLS and passwords, with real clients against the scripted session."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pgwire_harness as client
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgwire_harness import PATIENCE, RawClient, Running, fields, running_server

from services import program
from tidemark.control.pgwire import scram
from tidemark.control.pgwire.passwords import Passwords, password_line, read_passwords
from tidemark.control.pgwire.tls import load_tls
from tidemark.errors import InvalidUsage

SSL_REQUEST = struct.pack("!iI", 8, 80877103)
KEYS = {
    "rsa": ("-newkey", "rsa:2048", "-sha256"),
    "rsa-sha512": ("-newkey", "rsa:2048", "-sha512"),
    "ecdsa": ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-sha384"),
    "ed25519": ("-newkey", "ed25519"),
}


def make_certificate(folder: Path, kind: str = "rsa") -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(certificate))
    command = [program("openssl"), "req", "-x509", "-nodes", *KEYS[kind], *subject, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def passwords(**users: str) -> Passwords:
    verifiers = {
        user: scram.make_verifier(password, salt=user.encode().ljust(scram.SALT_BYTES))
        for user, password in users.items()
    }
    return Passwords(verifiers, b"secret")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running_server(passwords=passwords(alice="pässword", bob="hunter2")) as running:
        yield running


@pytest.fixture(scope="module")
def secure(certificate: tuple[Path, Path]) -> Iterator[Running]:
    tls = load_tls(*certificate, required=True)
    with running_server(tls=tls, passwords=passwords(alice="pässword")) as running:
        yield running


# TLS ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_certificate(tmp_path: Path, kind: str) -> None:
    """libpq binds its password to the certificate where that can be done (not for Ed25519)."""
    certificate, key = make_certificate(tmp_path, kind)
    tls = load_tls(certificate, key, required=True)
    binding = "disable" if tls.certificate_hash is None else "require"
    assert (binding == "disable") == (kind == "ed25519")
    with running_server(tls=tls, passwords=passwords(alice="secret")) as server:
        verified = f"sslmode=verify-full sslrootcert={certificate} channel_binding={binding}"
        with psycopg.connect(f"{server.dsn} password=secret {verified}") as connection:
            assert connection.execute("select 1").fetchone() == (1,)
            assert connection.execute("range 20000").fetchall()[-1] == (19_999,)


def test_tls_that_is_required(secure: Running) -> None:
    with pytest.raises(psycopg.OperationalError, match="takes encrypted connections only"):
        psycopg.connect(f"{secure.dsn} password=pässword sslmode=disable")
    with psycopg.connect(f"{secure.dsn} password=pässword sslmode=prefer") as connection:
        assert connection.pgconn.ssl_in_use
        connection.cancel_safe()


def test_tls_that_is_not_required(certificate: tuple[Path, Path]) -> None:
    with running_server(tls=load_tls(*certificate, required=False)) as server:
        for mode, encrypted in (("disable", False), ("prefer", True), ("require", True)):
            with psycopg.connect(f"{server.dsn} sslmode={mode}") as connection:
                assert connection.pgconn.ssl_in_use == encrypted


def test_no_tls_at_all(guarded: Running) -> None:
    with pytest.raises(psycopg.OperationalError, match="server does not support SSL"):
        psycopg.connect(f"{guarded.dsn} password=pässword sslmode=require")


def test_plaintext_ahead_of_the_handshake_is_refused(secure: Running) -> None:
    """What is sent along with the SSLRequest must not be taken for what comes encrypted."""
    with RawClient(secure.port) as raw:
        raw.send(SSL_REQUEST + client.startup(3 << 16, {"user": "alice"}))
        rest = raw.rest()
        assert rest.startswith(b"E")
        assert fields(rest[5:])["M"] == "received unencrypted data after SSL request"


def test_a_second_request_for_tls(secure: Running) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", secure.port), timeout=PATIENCE) as plain:
        plain.sendall(SSL_REQUEST)
        assert plain.recv(1) == b"S"
        with context.wrap_socket(plain) as encrypted:
            encrypted.sendall(SSL_REQUEST)
            assert encrypted.recv(1) == b"N"


def test_a_handshake_that_fails_disturbs_nobody(secure: Running) -> None:
    with RawClient(secure.port) as raw:
        raw.send(SSL_REQUEST)
        assert raw.socket.recv(1) == b"S"
        raw.send(b"this is no handshake, though it is long enough to be taken for one")
        raw.rest()
    psycopg.connect(f"{secure.dsn} password=pässword").close()


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    path = tmp_path / "nonsense.pem"
    with pytest.raises(InvalidUsage, match="no such file"):
        load_tls(path, path, required=False)
    path.write_text("nonsense")
    with pytest.raises(InvalidUsage, match="cannot be used"):
        load_tls(path, path, required=False)


# Passwords ---------------------------------------------------------------------------------------


def test_the_right_password(guarded: Running) -> None:
    with psycopg.connect(f"{guarded.dsn} password=pässword") as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert guarded.script.opened[-1]["user"] == "alice"


@pytest.mark.parametrize(("user", "password"), [("alice", "hunter2"), ("mallory", "hunter2")])
def test_wrong_passwords_and_unknown_users_look_the_same(
    guarded: Running, user: str, password: str
) -> None:
    opened = len(guarded.script.opened)
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(f"host=127.0.0.1 port={guarded.port} user={user} password={password}")
    assert f'FATAL:  password authentication failed for user "{user}"' in str(caught.value)
    assert len(guarded.script.opened) == opened
    with RawClient(guarded.port) as raw:
        raw.startup(user=user)
        tag, payload = raw.receive()
        assert (tag, payload) == ("R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0")
        first = b"n,,n=,r=abc"
        raw.send(client.message("p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
        tag, payload = raw.receive()
        assert (tag, payload[:4]) == ("R", struct.pack("!i", 11))
        nonce, salt, iterations = payload[4:].decode().split(",")
        assert (len(salt), iterations) == (len("s=") + 24, "i=4096")
        proof = "A" * 43 + "="
        raw.send(client.message("p", f"c=biws,{nonce},p={proof}".encode()))
        tag, payload = raw.receive()
        assert (tag, fields(payload)["S"], fields(payload)["C"]) == ("E", "FATAL", "28P01")
        assert raw.rest() == b""


@pytest.mark.parametrize("mode", ["disable", "require"])
def test_psql(secure: Running, mode: str) -> None:
    done = subprocess.run(
        [program("psql"), "-X", "-A", "-t", "-c", "select 7", f"{secure.dsn} sslmode={mode}"],
        env=os.environ | {"PGPASSWORD": "pässword"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if mode == "require":
        assert done.stdout == "7\n"
    else:
        assert "this server takes encrypted connections only" in done.stderr
        assert "HINT:  connect with sslmode=require, or stricter" in done.stderr


def test_asyncpg(secure: Running) -> None:
    async def scenario() -> None:
        connect = {"host": "127.0.0.1", "port": secure.port, "user": "alice", "database": "db"}
        connection = await asyncpg.connect(**connect, password="pässword", ssl="require")
        await connection.execute("select 1")
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(**connect, password="wrong", ssl="require")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(**connect, password="pässword", ssl=False)

    asyncio.run(scenario())


answers = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.builds(client.message, st.sampled_from("pQSXd"), st.binary(max_size=60)),
        st.just(client.message("p", b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abc")),
        st.just(client.message("p", b"c=biws,r=abc,p=AAAA")),
    ),
    max_size=4,
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(pieces=answers)
def test_nothing_but_the_password_opens_a_session(guarded: Running, pieces: list[bytes]) -> None:
    opened = len(guarded.script.opened)
    with RawClient(guarded.port) as raw:
        raw.startup(user="alice")
        raw.receive()
        raw.send(b"".join(pieces))
        raw.socket.shutdown(socket.SHUT_WR)
        raw.rest()
    assert len(guarded.script.opened) == opened


def test_password_files(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    lines = ["# comment", "", password_line("alice", "a"), password_line("with: colon", "b")]
    path.write_text("\n".join(lines))
    read = read_passwords(path)
    assert set(read.verifiers) == {"alice", "with: colon"}
    assert read_passwords(path) == read
    assert not read.verifier("nobody")[1]
    for bad in ("alice", "alice:secret", ":SCRAM-SHA-256$", lines[2]):
        path.write_text("\n".join([*lines, bad]))
        with pytest.raises(InvalidUsage, match="line 5"):
            read_passwords(path)
    with pytest.raises(InvalidUsage, match="cannot be read"):
        read_passwords(tmp_path / "missing")
    for user, password in (("", "a"), ("a", ""), ("a\nb", "a"), ("#a", "a")):
        with pytest.raises(InvalidUsage):
            password_line(user, password)
