"""The provider `remote` over this project's service: its desktops are VMs of somebody else's pool, reached through one port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from rollout_tasks.redis_client import connect
from tests.conftest import ValkeyServer
from tests.integration.service.desktop_service import VMS, DesktopService, all_free
from tests.integration.vm_pool.emulator_service import Desktop, serving
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.providers import load_provider
from vm_pool.providers.base import check_available
from vm_pool.providers.remote import RemoteProvider
from vm_pool.providers.remote.options import TOKEN_VARIABLE
from vm_pool.states import Endpoint

pytest.importorskip("websockets")


@pytest.fixture(name="pool", scope="module")
def _pool(valkey_of_service: ValkeyServer) -> Iterator[VMPool]:
    with serving(Desktop) as control, connect(tries=1, url=valkey_of_service.url) as client:
        pool = VMPool(client, "remote")
        for vm_id in VMS:
            pool.register(vm_id, Endpoint("127.0.0.1", {"control": control}))
        yield pool
        pool.close()


@pytest.fixture(name="lender", scope="module")
def _lender(
    valkey_of_service: ValkeyServer, pool: VMPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DesktopService]:
    del pool  # it must be there first
    made = DesktopService(valkey_of_service, tmp_path_factory.mktemp("lender"), "--pool", "remote")
    yield made
    made.stop()
    assert "Traceback" not in made.said()


@pytest.fixture(name="provider")
def _provider(lender: DesktopService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteProvider]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TOKEN_VARIABLE, lender.token(f"laptop-{tmp_path.name}", 1))
    made = load_provider("remote", {"url": lender.url, "through_service": True, "start_seconds": 60})
    assert isinstance(made, RemoteProvider)
    yield made
    with suppress(RuntimeError):  # where its token was revoked
        made.stop("host-0")


def test_a_desktop_is_used_through_the_services_own_port(provider: RemoteProvider, pool: VMPool) -> None:
    check_available(provider)

    provider.boot("host-0")

    provider.check("host-0")  # a screenshot
    provider.reset("host-0")
    provider.check("host-0")
    provider.stop("host-0")
    wait_until(lambda: all_free(pool), seconds=20)


def test_several_connections_carry_what_each_asked_for(provider: RemoteProvider) -> None:
    provider.boot("host-0")
    opened = [provider.connect("host-0", "control") for _ in range(5)]
    for number, one in enumerate(opened):
        one.sendall(f"GET /screenshot?{number} HTTP/1.0\r\n\r\n".encode())
    for one in reversed(opened):
        with one:
            assert whole(one).startswith(b"HTTP/1.0 200")


def whole(connection: socket.socket) -> bytes:
    connection.settimeout(30)
    content = b""
    while piece := connection.recv(1 << 16):
        content += piece
    return content


def test_the_end_of_a_lease_ends_its_connections(provider: RemoteProvider, pool: VMPool) -> None:
    provider.boot("host-0")
    with provider.connect("host-0", "control") as connection:
        connection.sendall(b"GET / HT")
        provider.stop("host-0")
        assert whole(connection) == b""
    wait_until(lambda: all_free(pool), seconds=20)


def test_a_token_that_is_revoked_opens_nothing_more_and_ends_what_is_open(
    provider: RemoteProvider, lender: DesktopService, tmp_path: Path
) -> None:
    provider.boot("host-0")
    with provider.connect("host-0", "control") as connection:
        lender.tokens.revoke(f"laptop-{tmp_path.name}")
        assert whole(connection) == b""
    with pytest.raises(OSError, match="HTTP 403"):
        provider.connect("host-0", "control")
    with lender.client() as operator:
        for emulator in operator.get("/emulators").json():
            operator.delete(f"/emulators/{emulator['emulator_id']}")


@pytest.mark.parametrize(
    ("token", "port", "status"),
    [("", "server_port", 401), ("x" * 20, "server_port", 403), ("another", "server_port", 404), ("own", "ssh", 404)],
)
def test_nobody_else_reaches_it(
    provider: RemoteProvider, lender: DesktopService, token: str, port: str, status: int
) -> None:
    from websockets.exceptions import InvalidStatus  # here, because it may be missing
    from websockets.sync.client import connect as open_socket  # here, because it may be missing

    provider.boot("host-0")
    own = os.environ[TOKEN_VARIABLE]
    sent = {"own": own, "another": lender.token(f"stranger-{port}-{status}", 1)}.get(token, token)
    with lender.client(own) as client:
        (emulator,) = client.get("/emulators_by_token").json()
    headers = {"Authorization": f"Bearer {sent}"} if sent else {}

    with pytest.raises(InvalidStatus) as refused:
        open_socket(f"ws{lender.url[4:]}/emulators/{emulator}/ports/{port}", additional_headers=headers, proxy=None)

    assert refused.value.response.status_code == status
    assert httpx.get(f"{lender.url}/health").status_code == 200
