"""Inside a cell: whatever host its Python code connects to is the session gateway, with TLS or without.

Some agents have their model's endpoint in their code. A cell reaches no network but the worker's gateway, so names resolve to the
cell's loopback, and what is sent to any of them is passed on to the session. TLS is ended here, by certificates of an authority
that is made with the cell, is trusted in it alone, and is forgotten with it.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from rollout_tasks.agents.osworld.cell_authority import CellAuthority

GATEWAY_PORT = 18765
"""Where the session gateway is, on the cell's loopback; no agent has this port in its code."""
_LOOPBACK = "127.0.0.1"
_APIS = ("/chat/completions", "/responses", "/messages", "/models")
"""How the paths of the gateway's APIs end, whatever the hosts put before them."""
_SENT_ON = ("Content-Type", "Content-Encoding")
_SENT_BACK = frozenset({"content-type", "content-length", "transfer-encoding", "x-should-retry", "retry-after"})
_PIECE = 1 << 16
_PORTS = {"http": 80, "https": 443}
_HANDSHAKE = b"\x16"
"""The first byte of a connection with TLS."""
_MAKERS = ("ANTHROPIC", "DASHSCOPE", "DOUBAO", "GENAI", "GROQ", "MANO", "OPENAI", "OPENCUA", "TOGETHER")
"""Whose keys agents want in their environment."""


class ModelProxy:
    """The server, from `start` to the end of the process."""

    def __init__(self, session_path: str, token: str, folder: Path) -> None:
        """Starts nothing yet.

        Args:
            session_path: The session's address at the gateway, before ``/v1``.
            token: The session's key.
            folder: For the authority's certificate.
        """
        self.elsewhere = ""
        """The last address that was asked for and is not a model's."""
        self._session_path = session_path
        self._token = token
        self._authority = CellAuthority(folder)

    def start(self) -> None:
        """Begins to answer, and makes this process's connections lead here."""
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            os.environ[name] = str(self._authority.file)
        values = {"proxy": self, "session_path": self._session_path, "token": self._token}
        server = _Server((_LOOPBACK, 0), type("_Handler", (_Handler,), values))
        server.context = self._authority.context()
        threading.Thread(target=server.serve_forever, name="model-proxy", daemon=True).start()
        _lead_to(server.server_address[1])


def _lead_to(port: int) -> None:
    """Makes this process resolve every name to the loopback, and connect to this port there, but for the gateway's own."""
    sockets, module = socket.socket, socket
    connect, connect_ex = sockets.connect, sockets.connect_ex

    def resolve(
        host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        del host, family, flags
        number = _PORTS.get(port) or int(port or 0)
        return [(socket.AF_INET, type or socket.SOCK_STREAM, proto, "", (_LOOPBACK, number))]

    def led(one: socket.socket, address: Any) -> Any:
        if one.family != socket.AF_INET or address == (_LOOPBACK, GATEWAY_PORT):
            return address
        return _LOOPBACK, port

    patched: Mapping[Any, Mapping[str, Any]] = {
        module: {"getaddrinfo": resolve, "gethostbyname": lambda _host: _LOOPBACK, "has_ipv6": False},
        sockets: {
            "connect": lambda one, address: connect(one, led(one, address)),
            "connect_ex": lambda one, address: connect_ex(one, led(one, address)),
        },
    }
    for owner, values in patched.items():
        for name, value in values.items():
            setattr(owner, name, value)


class _Server(ThreadingHTTPServer):
    """Speaks TLS with those who begin with it."""

    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serves one connection, in a thread of its own."""
        try:
            if request.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
                request = self.context.wrap_socket(request, server_side=True)
        except OSError as error:
            sys.stderr.write(f"a connection for the model was not made: {error}\n")
            return
        super().finish_request(request, client_address)
        with suppress(OSError):  # a socket that was wrapped is no longer the one that the server closes
            request.close()


class _Handler(BaseHTTPRequestHandler):
    """Passes one connection's requests on to the gateway."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """A reply's head goes first: what follows would wait until the agent has confirmed it, which takes 40 ms."""
    proxy: ClassVar[ModelProxy]
    session_path: ClassVar[str]
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
            self.proxy.elsewhere = f"{self.headers.get('Host', '')}{path}"[:200]
            sys.stderr.write(f"{self.proxy.elsewhere} is not an address of a model's API: nothing else is reached\n")
            self._answer_error(404, f"{self.proxy.elsewhere} is not an address of a model's API")
            return
        connection = http.client.HTTPConnection(_LOOPBACK, GATEWAY_PORT)
        try:
            headers = {name: value for name in _SENT_ON if (value := self.headers.get(name))}
            headers["Authorization"] = f"Bearer {self.token}"
            connection.request(self.command, f"{self.session_path}/v1{api}", body or None, headers)
            if self._is_wanted(connection.sock):
                response = connection.getresponse()
            else:
                self.close_connection = True
                return
        except (OSError, http.client.HTTPException) as error:
            self._answer_error(502, f"the session gateway cannot be reached: {error}")
            return
        else:
            self._answer(response)
        finally:
            connection.close()

    def _is_wanted(self, upstream: socket.socket) -> bool:
        """Waits for the answer; returns whether the agent still does."""
        ready, _, _ = select.select([upstream, self.connection], [], [])
        return upstream in ready  # else it has closed its side: it sends nothing while it waits

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
        for name, value in response.getheaders():
            if name.lower() in _SENT_BACK:
                self.send_header(name, value)
        self.end_headers()
        chunked = response.chunked
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


def environment_of_agents() -> Mapping[str, str]:
    """Returns the variables that agents read: keys, which are no secrets here, and addresses, which all lead to the gateway."""
    keys = dict.fromkeys((f"{maker}_API_KEY" for maker in _MAKERS), "none") | {"OPENAI_API_KEY_CUA": "none"}
    # Some agents post to this address as it is, others add the path of Chat Completions to it.
    address = "http://model/v1/chat/completions"
    return keys | {"DOUBAO_API_URL": address, "MANO_API_URL": address, "OPENAI_BASE_URL": "http://model/v1"}
