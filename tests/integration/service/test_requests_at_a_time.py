"""Requests of one token that wait have a most, whichever surface they come by."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

import httpx
import pytest

from tests.integration.service.desktop_service import DesktopService, acquired
from tests.virtual_machines import wait_until

MOST = 64 + 2 * 8
"""For a quota of two."""
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def sent(service: DesktopService, request: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    connection.sendall(request.encode())
    return connection


def listing() -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_leases", "arguments": {}}}


@pytest.mark.parametrize("surface", ["HTTP", "MCP"])
def test_one_tokens_waiting_calls_have_a_most(
    service: DesktopService, token: str, alice: httpx.Client, surface: str
) -> None:
    if surface == "MCP":
        pytest.importorskip("mcp_types", reason="the package mcp is not installed")
    with service.client() as boss, ExitStack() as opened:
        held = [acquired(boss), acquired(boss)]
        waiting = alice.post("/leases", json={"item": "one"}).json()["lease_id"]
        head = f"Host: a\r\nAuthorization: Bearer {token}\r\n"
        if surface == "HTTP":
            request = f"GET /leases/{waiting}?wait_seconds=30 HTTP/1.1\r\n{head}\r\n"
        else:
            call = {"name": "show_lease", "arguments": {"lease_id": waiting}}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
            types = "".join(f"{name}: {value}\r\n" for name, value in JSON.items())
            request = f"POST /mcp HTTP/1.1\r\n{head}{types}Content-Length: {len(body)}\r\n\r\n{body}"
        for _ in range(MOST):
            opened.enter_context(sent(service, request))
        wait_until(lambda: alice.get("/leases").status_code == 429, seconds=10)
        assert alice.post("/leases/x/view", json={"fence": 1}).status_code == 429
        refused = alice.post("/mcp", json=listing(), headers=JSON)
        assert refused.status_code in (429, 501)
        if refused.status_code == 429:
            assert "of your requests are being answered" in refused.json()["error"]["message"]
        assert boss.get("/leases").status_code == 200
        opened.close()
        wait_until(lambda: alice.get("/leases").status_code == 200, seconds=10)
        alice.delete(f"/leases/{waiting}")
        for one in held:
            boss.delete(f"/leases/{one['lease_id']}")
