"""What becomes of desktops when clients or the service die: nothing is held by two, and everything comes back in time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import LEASE_TTL, DesktopService, acquired, act, all_free
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool

pytestmark = pytest.mark.slow
TTL = 2.0
GRACE = 5.0

CLIENT = """
import httpx, sys, time
client = httpx.Client(base_url=sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"}, timeout=60)
lease = client.post("/leases", json={"wait_seconds": 30}).json()
path = f"/leases/{lease['lease_id']}"
while lease["state"] != "ready":
    lease = client.get(path, params={"wait_seconds": 30}).json()
print(lease["lease_id"], flush=True)
for number in range(100_000):
    client.post(f"{path}/act", json={"fence": lease["fence"], "key": str(number), "name": "work"})
    time.sleep(0.05)
"""


@pytest.fixture
def own_service(valkey_of_service: ValkeyServer, lent_pool: VMPool, tmp_path: Path) -> Iterator[DesktopService]:
    made = DesktopService(valkey_of_service, tmp_path, ttl=TTL)
    yield made
    made.stop()
    assert all_free(lent_pool)
    assert "Traceback" not in made.said()


def test_a_killed_clients_desktop_comes_back(own_service: DesktopService, lent_pool: VMPool) -> None:
    token = own_service.token("killed", 1)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, own_service.url, token], stdout=subprocess.PIPE, env=own_service.environment()
    )
    assert client.stdout is not None
    lease_id = client.stdout.readline().decode().strip()
    assert not all_free(lent_pool)
    client.kill()
    client.wait()
    wait_until(lambda: all_free(lent_pool), seconds=TTL + GRACE)
    with own_service.client(token) as same:
        assert same.get(f"/leases/{lease_id}").json()["end"]["error"] == "its client was silent for 2 s"
        assert acquired(same)["state"] == "ready"  # its quota is free again
    own_service.tokens.revoke("killed")


def test_a_silent_client_loses_its_lease_and_one_that_renews_keeps_it(own_service: DesktopService) -> None:
    with own_service.client() as boss:
        silent, kept = acquired(boss), acquired(boss)
        until = time.monotonic() + TTL + 1.5
        while time.monotonic() < until:
            kept = boss.post(f"/leases/{kept['lease_id']}/renew", json={"fence": kept["fence"]}).json()
            time.sleep(0.2)
        assert kept["state"] == "ready"
        refused = act(boss, silent, "a")
        assert (refused.status_code, refused.json()["detail"]) == (
            410,
            "the lease is over: its client was silent for 2 s",
        )
        boss.delete(f"/leases/{kept['lease_id']}")


def test_a_client_that_waits_and_dies_leaves_the_queue(own_service: DesktopService, lent_pool: VMPool) -> None:
    with own_service.client() as boss:
        held = [acquired(boss) for _ in range(2)]
        silent = boss.post("/leases", json={}).json()
        until = time.monotonic() + TTL + GRACE
        while boss.get("/leases").json()["leases"][-1]["lease_id"] == silent["lease_id"]:
            assert time.monotonic() < until
            for one in held:
                boss.post(f"/leases/{one['lease_id']}/renew", json={"fence": one["fence"]})
            time.sleep(0.2)
        assert not lent_pool.status().waiters
        for one in held:
            boss.delete(f"/leases/{one['lease_id']}")


@pytest.mark.parametrize("everything", [False, True], ids=["the program", "all its processes"])
def test_a_killed_service_tells_its_clients_and_gives_the_desktops_back(
    own_service: DesktopService, lent_pool: VMPool, everything: bool
) -> None:
    own: dict[str, Any] = {"item": "one", "key": "mine"}
    with own_service.client() as boss:
        lease = acquired(boss, **own)
        assert act(boss, lease, "a").status_code == 200
        below = psutil.Process(own_service.process.pid).children(recursive=True)
        own_service.kill()
        for process in below if everything else ():
            process.kill()
        wait_until(lambda: lent_pool.reap() or all_free(lent_pool), seconds=LEASE_TTL + GRACE)
        own_service.start()
        path = f"/leases/{lease['lease_id']}"
        for reply in (
            boss.get(path),
            act(boss, lease, "a"),
            boss.post(f"{path}/renew", json={"fence": lease["fence"]}),
            boss.post(f"{path}/evaluate", json={"fence": lease["fence"]}),
            boss.delete(path),
            boss.post("/leases", json=own),
        ):
            assert reply.status_code == 410
            assert reply.json()["detail"] == "the lease ended when the service did; its desktop went back to the pool"
        files = [file["name"] for file in boss.get(f"{path}/record").json()["files"]]
        assert files == ["trajectory.jsonl"]
        fresh = acquired(boss)
        assert fresh["fence"] != lease["fence"]
        boss.delete(f"/leases/{fresh['lease_id']}")
        wait_until(lambda: not any(process.is_running() for process in below), seconds=20)
