"""A server whose answers may be anything: bytes and pauses, whether or not that is HTTP."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from tests.hostile.random_replies.mutations import Mutator

HEADS: tuple[bytes, ...] = (
    b"",
    b"\r\n\r\n",
    b"\x00\xff" * 50,
    b"HTTP/1.1",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 99999999999999999999 OK\r\n\r\n",
    b"HTTP/1.1 -5 OK\r\n\r\n",
    b"HTTP/1.1 200 " + b"x" * 200_000,
    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
    b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: no name\r\n\xff\xfe: \x00\r\n no colon\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 200,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n0123456789",
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
"""In the place of an answer."""
STATUSES = (*range(100, 104), 200, 201, 202, 204, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404)
STATUSES += (405, 408, 409, 410, 413, 418, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 511, 599, 600, 999)
HEADERS: tuple[tuple[str, str], ...] = (
    ("Content-Type", "text/html; charset=zlib_codec"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Type", "image/png"),
    ("Content-Type", "\xff\x00"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Content-Encoding", "gzip, gzip, gzip"),
    ("Content-Encoding", "identity"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Transfer-Encoding", "x" * 3000),
    ("Location", "http://169.254.169.254/latest/meta-data/"),
    ("Location", "http://[::1"),
    ("Location", "file:///etc/passwd"),
    ("Location", "\x1b[2J"),
    ("Retry-After", "0"),
    ("Retry-After", "-1"),
    ("Retry-After", "1e999"),
    ("Retry-After", "nan"),
    ("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ("Retry-After", "Mon, 00 Jan 0000 99:99:99 +9999"),
    ("Retry-After", "86400"),
    ("Set-Cookie", "a=b; Domain=.; Path=/"),
    ("Connection", "close"),
    ("Connection", "keep-alive, close, upgrade"),
    ("Keep-Alive", "timeout=-1, max=1e9"),
    ("Date", "\x00"),
    ("Refresh", "0; url=//x"),
    ("X" * 5000, "y"),
    ("Warning", "v" * 60_000),
)


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Answer:
    """An answer as it should be."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    retry_after: int | None = None

    def sent(self) -> bytes:
        """All of it, well formed."""
        lines = (
            f"HTTP/1.1 {self.status} Said",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            *([] if self.retry_after is None else [f"Retry-After: {self.retry_after}"]),
        )
        return "\r\n".join([*lines, "", ""]).encode() + self.body


Sent = Answer | Iterable[bytes | float]
"""What is sent. Of pieces a number is a pause in seconds, and the connection ends with them."""


class AnswerServer(ThreadingTCPServer):
    """Answers on a port of its own."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Callable[[Request], Sent]) -> None:
        """Begins to listen.

        Args:
            answer: What is sent for a request; called by the connections' threads.
        """
        super().__init__(("127.0.0.1", 0), _Connection)
        self.answer = answer
        self.mistakes: list[str] = []
        """The tests' own."""
        self.over = threading.Event()
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Ends it, whatever is being sent."""
        self.over.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Clients may go when they like."""
        if not isinstance(sys.exception(), OSError):
            self.mistakes.append(traceback.format_exc())


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AnswerServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent = self.server.answer(Request(self.path, self.headers, body))
        if isinstance(sent, Answer):
            self.wfile.write(sent.sent())
            return
        self.close_connection = True
        for piece in sent:
            if isinstance(piece, bytes):
                self.wfile.write(piece)
            elif self.server.over.wait(piece):
                return

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def spoiled(mutator: Mutator, answer: Answer, longest_pause: float) -> Iterator[bytes | float]:
    """An answer that is wrong in what it says, how it says it, or when.

    Args:
        answer: As it should be.
        longest_pause: Seconds that stand for never.
    """
    if mutator.chance(0.15):
        yield mutator.random.choice(HEADS)
        return
    body, headers = answer.body, [("Content-Type", answer.kind)]
    status, reason = answer.status, "OK"
    if mutator.chance(0.5):
        body = _body(mutator, body)
    if mutator.chance(0.3):
        status = mutator.random.choice(STATUSES)
    if mutator.chance(0.1):
        reason = mutator.random.choice(("", "x" * 5000, "\x1b[2J", "\xff"))
    for _ in range(mutator.random.choice((0, 0, 1, 2, 10))):
        headers.insert(mutator.random.randrange(len(headers) + 1), mutator.random.choice(HEADERS))
    if mutator.chance(0.15):
        body = _as_gzip(mutator, body, headers)
    framed = _framed(mutator, body, headers)
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    yield from _timed(mutator, head + framed, longest_pause)


def _body(mutator: Mutator, body: bytes) -> bytes:
    if mutator.chance(0.04):
        return mutator.huge()
    try:
        value = json.loads(body)
    except ValueError:
        return mutator.content(body)
    return mutator.json(value)


def _as_gzip(mutator: Mutator, body: bytes, headers: list[tuple[str, str]]) -> bytes:
    headers.append(("Content-Encoding", "gzip"))
    packed = mutator.of(
        lambda: gzip.compress(body),
        lambda: gzip.compress(body)[:-9],
        lambda: mutator.content(gzip.compress(body)),
        lambda: zlib.compress(body),
        lambda: gzip.compress(bytes(200 << 20), 1),
        lambda: gzip.compress(body) * 3,
    )
    return bytes(packed)


def _framed(mutator: Mutator, body: bytes, headers: list[tuple[str, str]]) -> bytes:
    """The body as it is sent, with a header that says how long it is, or says wrong."""
    way = mutator.random.randrange(12)
    if way < 5:
        headers.append(("Content-Length", str(len(body))))
    elif way == 5:
        wrong = (
            len(body) + 1,
            max(0, len(body) - 1),
            0,
            1 << 40,
            -1,
            "x",
            "1" * 500,
            f"{len(body)}, 3",
            "0x10",
            " +5 ",
        )
        headers.append(("Content-Length", str(mutator.random.choice(wrong))))
    elif way == 6:
        headers += [("Content-Length", str(len(body))), ("Content-Length", str(len(body) + 7))]
    elif way == 7:
        headers += [("Content-Length", "3"), ("Transfer-Encoding", "chunked")]
        return _chunked(body, 1000)
    elif way in {8, 9}:
        headers.append(("Transfer-Encoding", "chunked"))
        return _chunked(body, mutator.random.choice((1 if len(body) < 5000 else 500, 7000)))
    elif way == 10:
        headers.append(("Transfer-Encoding", "chunked"))
        return mutator.content(_chunked(body, 1000))
    return body  # the connection's end is the body's


def _timed(mutator: Mutator, sent: bytes, longest_pause: float) -> Iterator[bytes | float]:
    way = mutator.random.randrange(25)
    cut = mutator.place(sent)
    if way == 0:
        yield longest_pause
    elif way == 1:
        yield sent[:cut]
        yield longest_pause
    elif way == 2:
        for place in range(0, min(len(sent), 60)):
            yield sent[place : place + 1]
            yield longest_pause / 60
        return
    elif way == 3:
        yield sent[:cut]
        return
    elif way == 4:
        yield sent[:cut]
        yield 0.3
        yield sent[cut:]
        return
    yield sent


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
