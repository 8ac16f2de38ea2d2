"""SCRAM-SHA-256, message by message, with RFC 7677's own example."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.pgwire import scram
from tidemark.control.pgwire.codec import ProtocolViolation
from tidemark.control.pgwire.passwords import Passwords, read_passwords
from tidemark.control.role_ddl import verifier_of
from tidemark.errors import InvalidUsage

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = scram.make_verifier("pencil", salt=SALT)
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
FINAL = (
    f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
).encode()


def exchange(certificate: bytes | None = None) -> scram.Exchange:
    return scram.Exchange(PENCIL, nonce=SERVER_NONCE, certificate=certificate)


def test_the_example_of_the_rfc() -> None:
    server = exchange()
    assert server.mechanisms == ("SCRAM-SHA-256",)
    assert server.first("SCRAM-SHA-256", FIRST) == (
        f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    assert server.final(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_wrong_proof() -> None:
    server = exchange()
    server.first("SCRAM-SHA-256", FIRST)
    assert server.final(FINAL.replace(b"p=d", b"p=e")) is None


def proof(password: str, salt: bytes, iterations: int, signed: bytes) -> bytes:
    """As a client makes it."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


@pytest.mark.parametrize(("seen", "accepted"), [(b"certificate", True), (b"another", False)])
def test_channel_binding(seen: bytes, accepted: bool) -> None:
    server = exchange(certificate=b"certificate")
    assert server.mechanisms == ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256")
    header = b"p=tls-server-end-point,,"
    answer = server.first("SCRAM-SHA-256-PLUS", header + b"n=,r=abc")
    final = b"c=" + base64.b64encode(header + seen) + b",r=abc" + SERVER_NONCE.encode()
    signed = b"n=,r=abc," + answer + b"," + final
    final += b",p=" + proof("pencil", SALT, 4096, signed)
    if accepted:
        assert server.final(final) is not None
    else:
        with pytest.raises(ProtocolViolation, match="channel binding check failed"):
            server.final(final)


@pytest.mark.parametrize(
    ("mechanism", "message", "certificate"),
    [
        ("SCRAM-SHA-1", FIRST, None),
        ("SCRAM-SHA-256-PLUS", b"p=tls-server-end-point,,n=,r=a", None),
        ("SCRAM-SHA-256-PLUS", b"p=tls-unique,,n=,r=a", b"c"),
        ("SCRAM-SHA-256-PLUS", FIRST, b"c"),
        ("SCRAM-SHA-256", b"y,,n=,r=a", b"c"),
        ("SCRAM-SHA-256", b"p=tls-server-end-point,,n=,r=a", b"c"),
        ("SCRAM-SHA-256", b"n,a=other,n=,r=a", None),
        ("SCRAM-SHA-256", b"n,,m=ext,n=,r=a", None),
        ("SCRAM-SHA-256", b"n,,n=,r=", None),
        ("SCRAM-SHA-256", b"n,,n=", None),
        ("SCRAM-SHA-256", b"n", None),
        ("SCRAM-SHA-256", b"", None),
        ("SCRAM-SHA-256", b"\xff", None),
    ],
)
def test_bad_first_messages(mechanism: str, message: bytes, certificate: bytes | None) -> None:
    with pytest.raises(ProtocolViolation):
        exchange(certificate).first(mechanism, message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        FINAL.replace(b"biws", b"eSws"),
        FINAL.replace(b"biws", b"?"),
        FINAL.replace(b"r=r", b"r=s"),
        FINAL.partition(b",p=")[0] + b",p=AAAA",
        FINAL.partition(b",p=")[0] + b",p=*",
        b"\xff" + FINAL,
    ],
)
def test_bad_final_messages(message: bytes) -> None:
    server = exchange()
    server.first("SCRAM-SHA-256", FIRST)
    with pytest.raises(ProtocolViolation):
        server.final(message)


@given(first=st.binary(max_size=60), final=st.binary(max_size=60))
def test_garbage_is_a_violation_and_nothing_else(first: bytes, final: bytes) -> None:
    server = exchange()
    with pytest.raises(ProtocolViolation):
        server.first("SCRAM-SHA-256", first)
    server.first("SCRAM-SHA-256", FIRST)
    with pytest.raises(ProtocolViolation):
        server.final(final)


def test_verifiers_in_and_out() -> None:
    text = str(PENCIL)
    assert text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    assert scram.read_verifier(text) == PENCIL
    for bad in ("", "md5abc", text[:-1], text.replace("4096", "0"), text.replace("$", ":")):
        with pytest.raises(InvalidUsage):
            scram.read_verifier(bad)


def test_a_verifier_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    most, more = (str(PENCIL).replace("4096", str(1_000_000 + n)) for n in (0, 1))
    file = tmp_path / "passwords"
    file.write_text(f"alice:{most}\n")
    assert verifier_of(most) == str(read_passwords(file).verifiers["alice"]) == most
    file.write_text(f"alice:{more}\n")
    with pytest.raises(InvalidUsage, match="line 1: a verifier of 1,000,001 iterations"):
        read_passwords(file)
    with pytest.raises(InvalidUsage, match="1,000,001 iterations") as caught:
        verifier_of(more)
    assert caught.value.hint == "at most 1,000,000, usually 4,096"
    kept = scram.read_verifier(str(PENCIL).replace("4096", "999999999"))
    with pytest.raises(ProtocolViolation, match="authentication failed"):
        Passwords({"alice": kept}, b"secret").check("alice", "pencil")


def test_unknown_users_have_salts_that_stay() -> None:
    first = scram.mock_verifier("nobody", b"secret")
    assert first == scram.mock_verifier("nobody", b"secret")
    others = [scram.mock_verifier("nobody", b"other"), scram.mock_verifier("noone", b"secret")]
    assert all(other.salt != first.salt for other in others)
    assert len(first.salt) == scram.SALT_BYTES


@pytest.mark.parametrize(
    ("password", "prepared"),
    [  # RFC 4013's examples; those that it refuses are taken as they are
        ("I\u00adX", b"IX"),
        ("user", b"user"),
        ("\u00aa", b"a"),
        ("\u2168", b"IX"),
        ("a\u00a0b", b"a b"),
        ("\u0007", b"\x07"),
        ("\u06271", "\u06271".encode()),
        ("\u00ad", "\u00ad".encode()),
    ],
)
def test_saslprep(password: str, prepared: bytes) -> None:
    assert scram.prepared(password) == prepared
