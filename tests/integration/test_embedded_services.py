"""The services of an embedded run, where another process takes a port between its choice and its use."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rollout_tasks import embedded
from rollout_tasks.embedded import EmbeddedStack
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
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedStack]:
    monkeypatch.chdir(Path(__file__).parents[2])
    opened = EmbeddedStack(tmp_path / "logs")
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


@pytest.fixture
def open_redis(tmp_path: Path) -> Iterator[int]:
    """The port of another program's Redis, which takes whatever password it is given."""
    port = free_port()
    command = [embedded.valkey_binary(), "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server, redis.Redis(port=port) as client:
        deadline = time.monotonic() + 30
        while not client.config_get("dir"):
            assert time.monotonic() < deadline
        yield port
        server.terminate()


@pytest.mark.parametrize("other", ["taken", "open_redis"])
def test_valkey_takes_another_port(
    stack: EmbeddedStack, other: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = request.getfixturevalue(other)
    chosen(monkeypatch, port)
    stack.start_valkey()
    assert f":{port}/" not in os.environ["REDIS_URL"]
    stack.check()


def test_valkey_does_not_try_for_ever(stack: EmbeddedStack, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen(monkeypatch, *[taken] * 10)
    with pytest.raises(UserError, match=r"^valkey ended by itself"):
        stack.start_valkey()


def test_flower_takes_another_port(stack: EmbeddedStack, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.start_valkey()
    chosen(monkeypatch, taken)
    stack.start_flower()
    deadline = time.monotonic() + 60
    while not (str(taken) not in stack.flower_url and answers(stack.flower_url)):
        assert time.monotonic() < deadline
        stack.check()
        time.sleep(0.1)


def test_a_run_goes_on_without_flower(stack: EmbeddedStack, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.start_valkey()
    chosen(monkeypatch, *[taken] * 10)
    stack.start_flower()
    deadline = time.monotonic() + 60
    while not stack.flower_lost:
        assert time.monotonic() < deadline
        stack.check()
        time.sleep(0.1)
    assert stack.flower_lost.startswith("flower ended by itself (exit code 1); see ")
    stack.check()
