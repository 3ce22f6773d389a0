"""A host whose VMs are lent by a service that is killed: none that is no longer lent is granted, and all are lent anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.redis_client import connect
from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import DesktopService
from tests.integration.vm_pool.emulator_service import Desktop, serving
from tests.virtual_machines import wait_until
from vm_pool.gate_client import connect as dial
from vm_pool.host import VMHost
from vm_pool.pool import VMPool
from vm_pool.providers import load_provider
from vm_pool.providers.guest_server import screenshot
from vm_pool.providers.remote.options import TOKEN_VARIABLE
from vm_pool.providers.remote.records import state_folder
from vm_pool.states import Endpoint, VMState

pytest.importorskip("websockets")
pytestmark = pytest.mark.slow
VMS = 4
HOURS = 3600.0


@pytest.fixture(name="lent")
def _lent(valkey_of_service: ValkeyServer) -> Iterator[VMPool]:
    with serving(Desktop) as control, connect(tries=1, url=valkey_of_service.url) as client:
        pool = VMPool(client, "lent")
        for number in range(VMS):
            pool.register(f"far-{number}", Endpoint("127.0.0.1", {"control": control}))
        yield pool
        pool.close()


@pytest.fixture(name="lender")
def _lender(valkey_of_service: ValkeyServer, lent: VMPool, tmp_path: Path) -> Iterator[DesktopService]:
    made = DesktopService(valkey_of_service, tmp_path, "--pool", lent.name)
    yield made
    made.stop()
    assert "Traceback" not in made.said()


def test_vms_of_a_killed_service_are_lent_anew(
    valkey_of_service: ValkeyServer,
    lent: VMPool,
    lender: DesktopService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TOKEN_VARIABLE, lender.token("laptop", VMS))
    provider = load_provider("remote", {"url": lender.url, "through_service": True})
    with connect(tries=1, url=valkey_of_service.url) as client:
        pool = VMPool(client, "borrowed")
        # Checks at their own times would come too late for this.
        host = VMHost(pool, provider, num_vms=VMS, host_id="laptop", retry_after=(0.1, 0.5), check_every=HOURS)
        running = threading.Thread(target=host.run)
        running.start()
        try:
            wait_until(lambda: states(pool) == [VMState.FREE] * VMS)
            lease = pool.acquire("a rollout", timeout=10)
            lender.kill()
            lease.release()
            wait_until(lambda: not {VMState.FREE, VMState.LEASED} & set(states(pool)), seconds=10)

            lender.start()

            wait_until(lambda: states(pool) == [VMState.FREE] * VMS)
            with pool.acquire("the same rollout", timeout=10) as again:
                screenshot(lambda: dial(again.endpoint, "control"), 10)
        finally:
            host.stop()
            running.join(60)
        wait_until(lambda: states(lent) == [VMState.FREE] * VMS, seconds=20)
        assert list(state_folder().iterdir()) == []
        pool.close()


def states(pool: VMPool) -> list[VMState]:
    return [vm.state for vm in pool.status().vms]
