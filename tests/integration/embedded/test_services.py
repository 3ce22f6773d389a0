"""The services of an embedded run, where another process takes a port between its choice and its use."""

from __future__ import annotations

import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.embedded import services as embedded
from rollout_tasks.embedded.services import EmbeddedServices
from rollout_tasks.errors import UserError

free_port = embedded._free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServices]:
    monkeypatch.chdir(Path(__file__).parents[3])
    opened = EmbeddedServices(tmp_path / "logs")
    yield opened
    opened.stop(at_once=True)


def chosen(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """The next ports that are taken for free ones; after these, real ones."""
    left = list(ports)
    monkeypatch.setattr(embedded, "_free_port", lambda: left.pop(0) if left else free_port())


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/healthcheck", timeout=2)  # noqa: S310
    except urllib.error.URLError:
        return False
    return True


def test_valkey_takes_another_port(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, taken)
    stack.start_valkey()
    assert f":{taken}/" not in os.environ["REDIS_URL"]
    stack.check()


def test_valkey_does_not_try_for_ever(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, *[taken] * 10)
    with pytest.raises(UserError, match=r"^valkey ended by itself"):
        stack.start_valkey()


def test_flower_takes_another_port(stack: EmbeddedServices, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.start_valkey()
    chosen(monkeypatch, taken)
    stack.start_flower()
    deadline = time.monotonic() + 60
    while not (str(taken) not in stack.flower_url and answers(stack.flower_url)):
        assert time.monotonic() < deadline
        stack.check()
        time.sleep(0.1)
