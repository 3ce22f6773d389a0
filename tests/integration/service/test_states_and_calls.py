"""The same call on a lease in the same state means the same over HTTP, the WebSocket and MCP, also at the lease's end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.service.desktop_service import DesktopService, acquired, act
from tests.virtual_machines import wait_until

client_of = pytest.importorskip("websockets.sync.client", reason="the package websockets is not installed")
pytest.importorskip("mcp_types", reason="the package mcp is not installed")

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
WORK = {"name": "work", "arguments": {}}
Answer = tuple[int, str]


def children(service: DesktopService) -> set[int]:
    return {one.pid for one in psutil.Process(service.process.pid).children(recursive=True)}


@contextmanager
def stuck(process: int) -> Iterator[None]:
    """A lease's process that does nothing for a while."""
    psutil.Process(process).suspend()
    try:
        yield
    finally:
        psutil.Process(process).resume()


def by_http(client: httpx.Client, lease: dict[str, Any], key: str) -> Answer:
    reply = act(client, lease, key)
    return reply.status_code, reply.json().get("detail") or reply.json()["response"]


def by_mcp(client: httpx.Client, lease: dict[str, Any], turn: int, name: str = "work") -> Answer:
    named = {"lease_id": lease["lease_id"], "fence": lease["fence"], "turn": turn, **WORK, "name": name}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "act", "arguments": named}}
    result = client.post("/mcp", json=call, headers=JSON).json()["result"]
    if result.get("isError"):
        return result["structuredContent"]["status"], result["content"][0]["text"]
    return 200, result["content"][1]["text"]


def by_socket(socket: Any, lease: dict[str, Any], key: str) -> Answer:
    socket.send(json.dumps({"call": "act", "fence": lease["fence"], "key": key, **WORK}))
    reply = json.loads(socket.recv(timeout=10))
    return reply["status"], reply["body"].get("detail") or reply["body"]["response"]


def test_while_it_is_evaluated_new_acts_are_refused_and_the_last_is_answered(
    service: DesktopService, alice: httpx.Client, token: str
) -> None:
    before = children(service)
    lease = acquired(alice, item="one")
    [process] = children(service) - before
    path = f"/leases/{lease['lease_id']}"
    said = by_mcp(alice, lease, 1)
    assert said == (200, "2 steps left")
    headers = {"Authorization": f"Bearer {token}"}
    address = f"ws{service.url.removeprefix('http')}{path}/ws"
    with client_of.connect(address, additional_headers=headers) as socket, stuck(process):
        evaluation = {"fence": lease["fence"], "wait_seconds": 0}
        reply = alice.post(f"{path}/evaluate", json=evaluation)
        assert (reply.status_code, reply.json()["state"]) == (202, "over")
        alice.timeout = httpx.Timeout(10)
        refused = (409, "the episode is over: it is being evaluated")
        assert by_http(alice, lease, "new") == refused
        assert by_socket(socket, lease, "new") == refused
        assert by_mcp(alice, lease, 2) == refused
        assert by_mcp(alice, lease, 1, "other") == refused
        assert by_mcp(alice, lease, 1) == said
        assert alice.get(path).json()["state"] == "over"
        view = alice.post(f"{path}/view", json={"fence": lease["fence"]})
        assert view.status_code in (410, 501), "501 without noVNC"
    wait_until(lambda: alice.get(path).json()["state"] == "ended", seconds=20)
    over = (410, "the lease is over: the session was evaluated and is over")
    assert by_http(alice, lease, "newer") == over
    for turn in (1, 2, 7):
        assert by_mcp(alice, lease, turn, "other") == over


def test_of_an_episode_that_is_over_that_is_said(alice: httpx.Client) -> None:
    lease = acquired(alice, item="one")
    for turn in (1, 2, 3):
        assert by_mcp(alice, lease, turn)[0] == 200
    over = (409, "the episode is over (done): evaluate it")
    assert by_http(alice, lease, "new") == over
    for turn, name in ((1, "work"), (3, "other"), (4, "work"), (9, "work")):
        assert by_mcp(alice, lease, turn, name)[0] == 409
        assert "go on with turn" not in by_mcp(alice, lease, turn, name)[1]
    assert by_mcp(alice, lease, 3) == (200, "0 steps left")  # the last one, sent again
