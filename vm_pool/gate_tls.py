"""Encryption between a gate and a client on another machine: TLS 1.3, with a certificate that is known by its hash.

The hash comes with the grant, so no authority is needed; any other certificate is refused before anything is sent.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_NAME = "computer-use rollouts"
_DAYS = 3650
"""Each host process makes a new one; clients check its hash, not its dates."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A host's certificate with its key."""

    context: ssl.SSLContext
    """For the gate's side."""
    sha256: str
    """Of the certificate, in hex."""


def new_certificate() -> Certificate:
    """Makes a new certificate with a new key."""
    from cryptography import x509  # here, because it is slow to import, and few gates need a certificate
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=_DAYS))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    with tempfile.TemporaryDirectory() as folder:  # ssl reads files only
        file = Path(folder, "certificate.pem")
        file.touch(0o600)
        file.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(file)
    return Certificate(context, hash_of(certificate.public_bytes(serialization.Encoding.DER)))


@lru_cache(maxsize=1)
def client_context() -> ssl.SSLContext:
    """Returns the client's TLS context; the client checks the certificate's hash itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def hash_of(certificate: bytes | None) -> str:
    """Returns the hash of a certificate in DER; empty without a certificate."""
    return hashlib.sha256(certificate).hexdigest() if certificate else ""


def is_this_machine(address: str) -> bool:
    """Whether an address is a loopback one, which other machines cannot eavesdrop on."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
