"""A whole request has one time limit, also where the resolver or a connection takes longer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from benchmark.deadline import Deadline, TooSlowError, keep_deadlines


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A resolver that does not answer until the event."""
    answers = threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(*arguments: Any, **options: Any) -> Any:
        answers.wait(30)
        return real("127.0.0.1", *arguments[1:], **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answers
    answers.set()


def _get(url: str, seconds: float) -> httpx.Response:
    transport = httpx.HTTPTransport()
    keep_deadlines(transport)
    with httpx.Client(transport=transport, timeout=httpx.Timeout(Deadline(seconds))) as client:
        return client.get(url)


@pytest.mark.usefixtures("stuck")
def test_a_resolver_that_does_not_answer_is_waited_for_until_the_deadline() -> None:
    began = time.monotonic()

    with pytest.raises(TooSlowError):
        _get("http://slow.example/", 0.3)

    assert time.monotonic() - began < 25


def test_a_connection_that_comes_too_late_is_closed(stuck: threading.Event) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        with pytest.raises(TooSlowError):
            _get(f"http://slow.example:{server.getsockname()[1]}/", 0.3)
        stuck.set()
        late, _ = server.accept()
        with late:
            late.settimeout(30)
            assert late.recv(1) == b""


def test_why_there_is_no_connection_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(httpx.ConnectError, match="refused"):
        _get(f"http://127.0.0.1:{port}/", 30)
