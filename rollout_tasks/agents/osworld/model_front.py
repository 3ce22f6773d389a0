"""Inside a cell: every host that its code connects to is the session gateway, with TLS or without.

Some agents have their model's endpoint in their code. A cell reaches no network but the worker's gateway, so names resolve to the
cell's loopback, and what is sent to any of them is passed on to the session. TLS is ended here, by certificates of an authority
that is made with the cell, is trusted in it alone, and is forgotten with it.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LOOPBACK = "127.0.0.1"
GATEWAY_PORT = 18765
"""Where the session gateway is, on the cell's loopback; no agent has this port in its code."""
_APIS = ("/chat/completions", "/responses", "/messages", "/models")
"""How the paths of the gateway's APIs end, whatever the hosts put before them."""
_PASSED_ON = frozenset({"content-type", "content-length", "transfer-encoding", "x-should-retry", "retry-after"})
"""Headers of the gateway's answers."""
_PIECE = 1 << 16
_DAYS = 30
_TLS_PORT = 443
_MAKERS = ("ANTHROPIC", "DASHSCOPE", "DOUBAO", "GENAI", "GROQ", "MANO", "OPENAI", "OPENCUA", "TOGETHER")
"""Whose keys agents want in their environment."""


class ModelFront:
    """The servers, from `start` to the end of the process."""

    def __init__(self, session_path: str, token: str, folder: Path) -> None:
        """Starts nothing yet.

        Args:
            session_path: The session's address there, before ``/v1``.
            token: The session's key.
            folder: For the authority's certificate.
        """
        self._gateway = (_LOOPBACK, GATEWAY_PORT)
        self._handler = type(
            "_Handler", (_Handler,), {"gateway": self._gateway, "session": session_path, "token": token}
        )
        self._authority = _Authority(folder)
        self._bundle = folder / "authority.pem"
        self._ports: dict[bool, int] = {}
        """By whether TLS is spoken there."""

    def start(self) -> None:
        """Begins to answer, and makes this process's connections lead here."""
        self._bundle.write_bytes(self._authority.certificate)
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            os.environ[name] = str(self._bundle)
        for tls in (False, True):
            server = ThreadingHTTPServer((_LOOPBACK, 0), self._handler)
            if tls:
                server.socket = self._authority.context().wrap_socket(
                    server.socket, server_side=True, do_handshake_on_connect=False
                )
            self._ports[tls] = server.server_address[1]
            threading.Thread(target=server.serve_forever, name="model-front", daemon=True).start()
        self._take_over()

    def _take_over(self) -> None:
        socket_class: Any = socket.socket
        connect, connect_ex = socket_class.connect, socket_class.connect_ex

        def resolve(
            _host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
        ) -> list[tuple[Any, ...]]:
            del family, flags
            kind = type or socket.SOCK_STREAM
            return [(socket.AF_INET, kind, proto, "", (_LOOPBACK, int(port or 0)))]

        def led(one: socket.socket, address: Any) -> Any:
            if one.family not in (socket.AF_INET, socket.AF_INET6) or address == self._gateway:
                return address
            return _LOOPBACK, self._ports[address[1] == _TLS_PORT]

        module: Any = socket
        module.getaddrinfo, module.gethostbyname = resolve, lambda _host: _LOOPBACK
        socket_class.connect = lambda one, address: connect(one, led(one, address))
        socket_class.connect_ex = lambda one, address: connect_ex(one, led(one, address))


class _Handler(BaseHTTPRequestHandler):
    """Passes one connection's requests on to the gateway."""

    protocol_version = "HTTP/1.1"
    gateway: ClassVar[tuple[str, int]]
    session: ClassVar[str]
    token: ClassVar[str]

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the gateway records the calls."""

    def _pass_on(self) -> None:
        body = self._body()
        path = urlsplit(self.path).path.rstrip("/")
        api = next((one for one in _APIS if path.endswith(one)), None)
        if api is None:
            where = f"{self.headers.get('Host', '')}{path}"
            sys.stderr.write(f"{self.command} {where}: an agent reaches its model only, not this address\n")
            self._answer_error(404, f"{where} is no address of a model's API")
            return
        connection = http.client.HTTPConnection(*self.gateway)
        try:
            headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            headers["Authorization"] = f"Bearer {self.token}"
            connection.request(self.command, f"{self.session}/v1{api}", body or None, headers)
            self._answer(connection.getresponse())
        except OSError as error:
            self._answer_error(502, f"the session gateway cannot be reached: {error}")
        finally:
            connection.close()

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        chunked = response.chunked
        for name, value in response.getheaders():
            if name.lower() in _PASSED_ON:
                self.send_header(name, value)
        self.end_headers()
        while piece := response.read1(_PIECE) if chunked else response.read(_PIECE):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _answer_error(self, status: int, sentence: str) -> None:
        body = json.dumps({"error": {"message": sentence, "type": "invalid_request_error"}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Authority:
    """A certificate authority, and its certificates for the hosts that are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "model front")])
        made = _begun(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), True
        )
        self.certificate = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self._secret = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(self) -> ssl.SSLContext:
        """Returns the server's context, which has a certificate for each host that a client names."""
        context = self._context_for("localhost")
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, host: str | None, _context: ssl.SSLContext) -> None:
        if host:
            connection.context = self._context_for(host)

    def _context_for(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model's host")])
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            made = _begun(subject, self._name, self._key).add_extension(names, False).sign(self._key, hashes.SHA256())
            file = self._folder / f".certificate-{threading.get_ident()}.pem"
            file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + self._secret)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            file.unlink()
            self._contexts[host] = context
        return self._contexts[host]


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_DAYS))
        .not_valid_after(now + timedelta(days=_DAYS))
    )


def environment_of_agents() -> Mapping[str, str]:
    """Returns the variables that agents read: keys, which are no secrets here, and addresses, which all lead to the gateway."""
    keys = dict.fromkeys((f"{maker}_API_KEY" for maker in _MAKERS), "none") | {"OPENAI_API_KEY_CUA": "none"}
    # Some agents post to this address as it is, others add the path of Chat Completions to it.
    address = "http://model/v1/chat/completions"
    return keys | {"DOUBAO_API_URL": address, "MANO_API_URL": address, "OPENAI_BASE_URL": "http://model/v1"}
