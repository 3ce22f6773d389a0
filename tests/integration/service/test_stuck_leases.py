"""A lease that does not end keeps nobody else from being answered."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import httpx
import psutil

from tests.integration.service.desktop_service import OPERATOR, DesktopService, acquired


def children(service: DesktopService) -> set[int]:
    return {one.pid for one in psutil.Process(service.process.pid).children(recursive=True)}


def test_many_releases_of_a_stuck_lease_take_no_threads_of_others(service: DesktopService, alice: httpx.Client) -> None:
    kept = acquired(alice, item="one")
    before = children(service)
    stuck = acquired(alice, item="one")
    [pid] = children(service) - before
    # By an operator: a user may not have so many requests that wait.
    request = f"DELETE /leases/{stuck['lease_id']} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n"
    process = psutil.Process(pid)
    with ExitStack() as opened:
        process.suspend()
        try:
            address = ("127.0.0.1", service.port)
            releases = [opened.enter_context(socket.create_connection(address, timeout=20)) for _ in range(100)]
            for one in releases:
                one.sendall(request.encode())
            for _ in range(20):  # some time passes until all are waited for
                seen = alice.get(f"/leases/{kept['lease_id']}/observe", params={"fence": kept["fence"]}, timeout=5)
                assert seen.status_code == 200
                time.sleep(0.05)
        finally:
            process.resume()
        for one in releases:
            assert one.recv(100).startswith(b"HTTP/1.1 200 ")
