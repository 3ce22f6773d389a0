"""A small real endpoint that answers in the order told, and an agent's side of a session."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from rollout_tasks.models.gateway.gateway import SessionHandle
from rollout_tasks.models.gateway.session_summary import SessionSummary
from rollout_tasks.models.served_call import ServedCall

KEY = "sk-not-to-be-seen"
USER = {"role": "user", "content": "6 * 7?"}
CHAT = {"model": "asked", "messages": [USER]}
ANSWER = {
    "id": "x",
    "model": "policy-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}


def piece(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return {"id": "x", "model": "policy-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def sse(*pieces: Any) -> bytes:
    return b"".join(
        b"data: " + (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n\n" for one in pieces
    )


STREAM = (
    piece(role="assistant", content="4"),
    piece(content="2"),
    piece("stop"),
    {"choices": [], "usage": ANSWER["usage"]},
    b"[DONE]",
)

Write = Callable[[bytes], None]


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = json.dumps(ANSWER).encode()
    headers: dict[str, str] = field(default_factory=dict)
    write: Callable[[Write, Upstream], None] | None = None
    """Writes the body, of no known length, in place of `body`; the connection ends after it."""


def error(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def streamed(write: Callable[[Write, Upstream], None]) -> Answer:
    return Answer(headers={"content-type": "text/event-stream"}, write=write)


class Upstream(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.stopping = threading.Event()
        self.cut = threading.Event()
        """Set when a client went away while it was being written to."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def will(self, *answers: Answer) -> None:
        self.answers = list(answers)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/chat/completions"
        self.server.requests.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
        answer = self.server.answers.pop(0) if self.server.answers else Answer()
        self.send_response_only(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        if answer.write is None:
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            return
        self.send_header("connection", "close")
        self.end_headers()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            answer.write(self.wfile.write, self.server)
        except OSError:
            self.server.cut.set()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class Recorder:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[ServedCall] = []

    def record(self, call: ServedCall) -> None:
        call.check()
        self.calls.append(call)


@dataclass
class Agent:
    """A session as its agent sees it, over plain HTTP; and what the gateway recorded."""

    handle: SessionHandle
    recorder: Recorder
    client: httpx.Client

    def post(self, address: str, body: Any = None, *, token: str | None = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.handle.token if token is None else token}"}
        content = {} if "content" in options else {"json": body}
        return self.client.post(f"{self.handle.messages_url}{address}", headers=headers, **content, **options)

    def chat(self, **more: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", {**CHAT, **more})

    def trace(self) -> dict[str, Any]:
        headers = {"x-api-key": self.handle.token}
        trace: dict[str, Any] = self.client.get(f"{self.handle.messages_url}/trace", headers=headers).json()
        return trace

    @property
    def summary(self) -> SessionSummary:
        return self.handle.summary()

    def raw(self, text: bytes, *, token: bool = True) -> socket.socket:
        """A connection on which a chat request's head and the given text were sent."""
        url = httpx.URL(self.handle.base_url)
        connection = socket.create_connection((url.host, url.port or 0), timeout=20)
        if token:
            head = f"POST {url.raw_path.decode()}/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
            connection.sendall(f"{head}Authorization: Bearer {self.handle.token}\r\n".encode())
        with suppress(OSError):
            connection.sendall(text)
        return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = bytearray()
    with suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return bytes(found)
