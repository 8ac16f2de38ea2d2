"""TLS for the listener: our certificate, and whether a client may do without."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import msgspec

from tidemark.errors import InvalidUsage


class Tls(msgspec.Struct, frozen=True):
    context: ssl.SSLContext
    required: bool
    certificate_hash: bytes | None
    """For binding a password to this connection (RFC 5929); None if the certificate's signature
    has no hash of its own, as Ed25519's."""


def load_tls(certificate: Path, key: Path, *, required: bool) -> Tls:
    """`certificate` may have the chain after it; both are PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        if not path.is_file():
            raise InvalidUsage(f"{option} {path}: there is no such file")
    try:
        # An empty password: a key that needs one must not ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
        der = ssl.PEM_cert_to_DER_cert(_first_certificate(certificate))
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidUsage(
            f"--tls-cert {certificate} and --tls-key {key} cannot be used: {error}",
            hint="a certificate and its key, both in PEM, the key without a passphrase",
        ) from error
    return Tls(context, required, _end_point(der))


def _first_certificate(path: Path) -> str:
    text = path.read_text()
    end = "-----END CERTIFICATE-----"
    return text[text.index("-----BEGIN CERTIFICATE-----") : text.index(end) + len(end)]


_HASHES = {
    bytes.fromhex("2a864886f70d01010" + digit): name
    for digit, name in zip("45bcd", "sha256 sha256 sha256 sha384 sha512".split(), strict=True)
} | {
    bytes.fromhex("2a8648ce3d04030" + digit): name
    for digit, name in zip("234", "sha256 sha384 sha512".split(), strict=True)
}
"""By what a certificate is signed with: RSA (where MD5 and SHA-1 count as SHA-256), ECDSA."""


def _end_point(der: bytes) -> bytes | None:
    """The certificate's hash, by the hash function of its signature."""
    whole, _ = _contents(der, 0)  # the certificate: what is signed, by which algorithm, signature
    _, signed_end = _contents(der, whole)
    algorithm, _ = _contents(der, signed_end)
    start, end = _contents(der, algorithm)
    name = _HASHES.get(der[start:end])
    return None if name is None else hashlib.new(name, der).digest()


def _contents(der: bytes, at: int) -> tuple[int, int]:
    """Where the contents of the DER value at `at` begin and end."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size]), start + size
    return start, start + length
