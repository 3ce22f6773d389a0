"""One desktop service for the tests of its clients, and a user of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rollout_tasks.redis_client import connect
from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import PORTS, VMS, DesktopService, acquired, all_free
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint


@pytest.fixture(scope="package")
def valkey_of_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    made = ValkeyServer(tmp_path_factory.mktemp("valkey"), aof=False)
    made.start()
    yield made
    made.kill_at_once()


@pytest.fixture(scope="package")
def lent_pool(valkey_of_service: ValkeyServer) -> Iterator[VMPool]:
    with connect(tries=1, url=valkey_of_service.url) as client:
        pool = VMPool(client)
        for vm_id in VMS:
            pool.register(vm_id, Endpoint("127.0.0.1", PORTS))
        yield pool
        pool.close()


@pytest.fixture(scope="package")
def service(
    valkey_of_service: ValkeyServer, lent_pool: VMPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DesktopService]:
    made = DesktopService(valkey_of_service, tmp_path_factory.mktemp("service"))
    yield made
    made.stop()
    assert "Traceback" not in made.said()


@pytest.fixture(scope="package")
def token(service: DesktopService) -> str:
    return service.token("alice", 2)


@pytest.fixture(scope="module")
def kept_lease(service: DesktopService, token: str) -> Iterator[dict[str, Any]]:
    """One lease for all bad inputs, none of which may touch it."""
    with service.client(token) as client:
        lease = acquired(client, item="one")
        yield lease
        assert client.get(f"/leases/{lease['lease_id']}").json()["turns"] == 0
        client.delete(f"/leases/{lease['lease_id']}")


@pytest.fixture
def alice(service: DesktopService, token: str, lent_pool: VMPool) -> Iterator[httpx.Client]:
    """A user with a quota of two; nothing of hers is left."""
    with service.client(token) as client:
        yield client
        for one in client.get("/leases").json()["leases"]:
            client.delete(f"/leases/{one['lease_id']}")
    wait_until(lambda: all_free(lent_pool), seconds=10)
