"""A certificate authority that one cell trusts, and its certificates for the hosts that the cell's code connects to."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAYS = 30


class CellAuthority:
    """The authority; its key is in memory, but for the moments in which a certificate is loaded."""

    def __init__(self, folder: Path) -> None:
        """Makes it, and writes its certificate.

        Args:
            folder: Where to.
        """
        self.file = folder / "authority.pem"
        """Its certificate."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a cell")])
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
        )
        signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, decipher_only=False, **usage)
        made = (
            self._begun(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(signs, critical=True)
        )
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self._secret = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self) -> ssl.SSLContext:
        """Returns a server's context, which has a certificate for each host that a client names."""
        context = self._context_for("localhost")
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, host: str | None, _context: ssl.SSLContext) -> None:
        if host:
            connection.context = self._context_for(host)

    def _context_for(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "host of a model")])
            made = (
                self._begun(name)
                .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .sign(self._key, hashes.SHA256())
            )
            file = self._folder / f".certificate-{threading.get_ident()}.pem"
            file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + self._secret)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            file.unlink()
            self._contexts[host] = context
        return self._contexts[host]

    def _begun(self, subject: x509.Name) -> x509.CertificateBuilder:
        """Returns the beginning of a certificate; all have the authority's key."""
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        return (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=_DAYS))
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(self._identifier, critical=False)
            .add_extension(issuer, critical=False)
        )
