"""The requests of one token that wait have a most, whichever address they are sent to; others are answered meanwhile."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import httpx
import pytest

from tests.integration.service.desktop_service import DesktopService, acquired
from tests.virtual_machines import wait_until

MOST = 64 + 2 * 8
"""Of a token with a quota of two."""


@pytest.mark.parametrize("path", ["/mcp", "/leases/LEASE/renew", "/leases/LEASE/view", "/emulators"])
def test_a_tokens_waiting_requests_have_a_most(
    service: DesktopService, alice: httpx.Client, token: str, path: str
) -> None:
    lease = acquired(alice, item="one")
    path = path.replace("LEASE", lease["lease_id"])
    method = "GET" if path == "/emulators" else "POST"
    unfinished = f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
    with ExitStack() as opened, service.client() as boss:
        for _ in range(MOST):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=20))
            one.sendall(unfinished.encode())
        wait_until(lambda: alice.get("/leases").status_code == 429, seconds=20)
        for refused in (alice.get("/leases"), alice.request(method, path, json={})):
            assert refused.status_code == 429
            assert f"{MOST} of your requests are being answered" in refused.text
        assert boss.get("/leases").status_code == 200
    wait_until(lambda: alice.get("/leases").status_code == 200, seconds=20)
