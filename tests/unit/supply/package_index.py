"""A package index of a test's own, reached as a proxy that is whatever host it is asked for.

pip-audit asks one host, which it has in its code, over TLS. It takes a proxy and a certificate authority from its environment.
"""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Answer = Callable[[str, str], tuple[int, bytes]]
"""Name and version of a package -> status and body."""


def knows(vulnerabilities: dict[str, list[dict[str, Any]]], *, unheard_of: tuple[str, ...] = ()) -> Answer:
    """An index with what is known of some packages: ``"name version"`` -> vulnerabilities. It has nothing else against any."""

    def answer(name: str, version: str) -> tuple[int, bytes]:
        if name in unheard_of:
            return 404, b""
        known = vulnerabilities.get(f"{name} {version}", [])
        return 200, json.dumps({"info": {"name": name}, "vulnerabilities": known}).encode()

    return answer


def vulnerability(identity: str, *aliases: str, fixed_in: tuple[str, ...] = ()) -> dict[str, Any]:
    """One as the index tells it."""
    details = "It can be\nmade to hang."
    return {"id": identity, "aliases": list(aliases), "fixed_in": list(fixed_in), "details": details, "summary": None}


class Authority:
    """Makes certificates for hosts; `file` holds its own."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "authority.pem"
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])
        self.file.write_bytes(self._certificate(self._name, self._key, None).public_bytes(serialization.Encoding.PEM))
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()

    def context(self, host: str) -> ssl.SSLContext:
        """What a server of that host presents itself with."""
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = self._make_context(host)
            return self._contexts[host]

    def _make_context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), key, host)
        file = self._folder / f"{len(self._contexts)}.pem"
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(private + certificate.public_bytes(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, host: str | None) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer = self._key.public_key()
        day = datetime.timedelta(days=1)
        builder = x509.CertificateBuilder().issuer_name(self._name).subject_name(name).public_key(key.public_key())
        builder = (
            builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        )
        builder = builder.add_extension(x509.BasicConstraints(host is None, None), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@contextmanager
def package_index(answer: Answer, folder: Path) -> Iterator[dict[str, str]]:
    """Serves an index on loopback; yields the environment in which it is the one that is asked."""
    authority = Authority(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.connection = authority.context(self.path.partition(":")[0]).wrap_socket(
                self.connection, server_side=True
            )
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)  # type: ignore[assignment]
            self.close_connection = False

        def do_GET(self) -> None:
            _, _, name, version, _ = self.path.split("/")
            status, body = answer(name, version)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield index_at(server.server_port, folder, authority.file)
    finally:
        server.shutdown()
        server.server_close()


def index_at(port: int, folder: Path, authority: Path | None = None) -> dict[str, str]:
    """The environment in which an index is looked for at a port of loopback, with a cache of its own."""
    proxy = f"http://127.0.0.1:{port}"
    environment = {"HTTPS_PROXY": proxy, "https_proxy": proxy, "NO_PROXY": "", "no_proxy": ""}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    if authority is not None:
        environment |= dict.fromkeys(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), str(authority))
    return environment


def closed_port() -> int:
    """A port of loopback at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
