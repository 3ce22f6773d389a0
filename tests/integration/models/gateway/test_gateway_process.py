"""The gateway's process: it starts at once, ends without a trace, and a forked child has its own."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.engine import EngineCall, EngineReply, FunctionEngine, read_completion
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.served import Served
from tests.integration.models.gateway.upstream import ANSWER, CHAT, Recorder


async def answer(_call: EngineCall) -> EngineReply:
    return read_completion(json.dumps(ANSWER), Usage(), Served())


def descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the folder's own descriptor is among them
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")  # noqa: PTH115
        except OSError:
            continue
    return found


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(10)
    except ConnectionResetError:
        return b""


def ask(gateway: Gateway, name: str, **client: Any) -> int:
    with gateway.open(name, FunctionEngine("m", answer), Recorder()) as session, httpx.Client(**client) as http:
        headers = {"Authorization": f"Bearer {session.token}"}
        return http.post(f"{session.base_url}/chat/completions", json=CHAT, headers=headers).status_code


def test_it_starts_at_once_and_leaves_nothing() -> None:
    with Gateway() as first:  # imports what is imported late
        ask(first, "s")
    threads, files = threading.enumerate(), descriptors()
    used = time.process_time()

    gateway = Gateway()
    gateway.start()

    assert time.process_time() - used < 0.05
    port = httpx.URL(gateway.url).port or 0
    assert ask(gateway, "s") == 200
    left_open = socket.create_connection(("127.0.0.1", port))
    gateway.close()
    gateway.close()
    left_open.settimeout(5)
    assert received(left_open) == b""
    left_open.close()
    assert threading.enumerate() == threads
    assert descriptors() == files
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_replies_do_not_wait_for_acknowledgements() -> None:
    """A head and a body sent one after the other wait 40 ms for each other where Nagle's algorithm is on."""
    taken = []
    with Gateway() as gateway, httpx.Client() as http:
        session = gateway.open("s", FunctionEngine("m", answer), Recorder())
        headers = {"Authorization": f"Bearer {session.token}"}
        for _ in range(40):
            began = time.monotonic()
            http.post(f"{session.base_url}/chat/completions", json=CHAT, headers=headers)
            taken.append(time.monotonic() - began)

    assert min(taken[20:]) < 0.03


def test_a_unix_socket_is_for_this_user_only_and_goes_with_the_gateway(tmp_path: Path) -> None:
    path = tmp_path / "gateway"
    with Gateway(socket_path=path) as gateway:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ask(gateway, "s", transport=httpx.HTTPTransport(uds=str(path))) == 200
        with pytest.raises(UserError, match="the model gateway cannot listen: Address already in use"):
            Gateway(socket_path=path).start()
    assert not path.exists()


def test_a_forked_child_has_a_gateway_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "gateway"
    with Gateway(socket_path=path) as gateway:
        transport = {"transport": httpx.HTTPTransport(uds=str(path))}
        session = gateway.open("parent", FunctionEngine("m", answer), Recorder())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(UserError, match="does not run in this process"):
                    gateway.open("child", FunctionEngine("m", answer), Recorder())
                session.close()
                gateway.close()
                with Gateway() as own:
                    status = 0 if ask(own, "child") == 200 else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert not session._session.closed
        assert ask(gateway, "s", **transport) == 200


def test_it_cannot_be_used_before_it_starts_or_after_its_end() -> None:
    gateway = Gateway()
    for _ in range(2):
        with pytest.raises(UserError, match="does not run in this process"):
            gateway.open("s", FunctionEngine("m", answer), Recorder())
        with gateway:
            ask(gateway, f"s{_}")
