"""What becomes of desktops when clients or the service die: nothing is held by two, and everything comes back in time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollout_tasks.service_client import AsyncDesktopClient, DesktopClient, LeaseOver, ServiceUnreachable
from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import LEASE_TTL, OPERATOR, DesktopService, acquired, act, all_free
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
        path = f"/leases/{lease_id}"
        wait_until(
            lambda: same.get(path).json()["end"], seconds=10
        )  # its process says so after it gave the desktop back
        assert same.get(path).json()["end"]["error"] == "its client was silent for 2 s"
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


def test_the_time_in_which_the_service_stood_still_is_no_silence_of_clients(own_service: DesktopService) -> None:
    with DesktopClient(own_service.url, OPERATOR) as client:
        lease = client.acquire()
        own_service.process.send_signal(signal.SIGSTOP)
        time.sleep(2 * TTL)
        own_service.process.send_signal(signal.SIGCONT)
        for turn in range(1, 4):
            assert lease.act("work").turn == turn
            time.sleep(TTL / 4)
        lease.release()


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
            with suppress(psutil.NoSuchProcess):  # they end by themselves
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


def test_a_score_that_was_written_down_is_told_by_the_next_service(own_service: DesktopService) -> None:
    with own_service.client() as boss:
        lease = acquired(boss, item="one")
        path = f"/leases/{lease['lease_id']}/evaluate"
        others = []
        for wanted in ({"item": "two"}, {}):  # released, and without a task
            others.append(acquired(boss, **wanted))
            boss.delete(f"/leases/{others[-1]['lease_id']}")
        told = boss.post(path, json={"fence": lease["fence"], "wait_seconds": 20})
        assert told.status_code == 200, told.text
        own_service.kill()
        own_service.start()
        again = boss.post(path, json={"fence": lease["fence"], "wait_seconds": 20})
        assert (again.status_code, again.json()) == (200, told.json())
        assert boss.post(path, json={"fence": lease["fence"] + 1}).status_code == 409
        assert boss.get(path.removesuffix("/evaluate")).status_code == 410
        for one in others:
            assert boss.post(f"/leases/{one['lease_id']}/evaluate", json={"fence": one["fence"]}).status_code == 410
    with own_service.client(own_service.token("another", 1)) as another:
        assert another.post(path, json={"fence": lease["fence"]}).status_code == 404
    own_service.tokens.revoke("another")


ENDED = "the lease ended when the service did"


def test_threads_live_through_the_end_of_the_service(own_service: DesktopService, lent_pool: VMPool) -> None:
    with DesktopClient(own_service.url, OPERATOR) as client, ThreadPoolExecutor(3) as threads:
        held = [client.acquire(item="one") for _ in range(2)]
        waits = threads.submit(client.acquire)
        wait_until(lambda: lent_pool.status().waiters, seconds=20)
        own_service.kill()
        acts, lists = threads.submit(held[0].act, "work"), threads.submit(client.items)
        with DesktopClient(own_service.url, OPERATOR, patience=1) as other, pytest.raises(ServiceUnreachable):
            other.items()
        own_service.start()
        with pytest.raises(LeaseOver, match=ENDED) as told:
            acts.result(60)
        assert told.value.status == 410
        assert set(lists.result(60)) == {"one", "two"}
        wait_until(lambda: all(isinstance(lease.lost, LeaseOver) for lease in held), seconds=20)
        for lease in held:
            lease.release()  # harmless
        fresh = waits.result(60)  # whoever has waited has waited on
        assert fresh.act("work").turn == 1
        fresh.release()


def test_coroutines_live_through_the_end_of_the_service(own_service: DesktopService, lent_pool: VMPool) -> None:
    async def run() -> None:
        async with AsyncDesktopClient(own_service.url, OPERATOR) as client:
            held = [await client.acquire(item="one") for _ in range(2)]
            waits = asyncio.create_task(client.acquire())
            await asyncio.to_thread(wait_until, lambda: lent_pool.status().waiters, seconds=20)
            own_service.kill()
            acts, lists = asyncio.create_task(held[0].act("work")), asyncio.create_task(client.items())
            async with AsyncDesktopClient(own_service.url, OPERATOR, patience=1) as other:
                with pytest.raises(ServiceUnreachable):
                    await other.items()
            await asyncio.to_thread(own_service.start)
            with pytest.raises(LeaseOver, match=ENDED) as told:
                await acts
            assert told.value.status == 410
            assert set(await lists) == {"one", "two"}
            for lease in held:
                await lease.release()  # harmless
            fresh = await waits  # whoever has waited has waited on
            assert (await fresh.act("work")).turn == 1
            await fresh.release()

    asyncio.run(run())
