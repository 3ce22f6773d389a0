"""A lease's address is its own: whatever an earlier holder still has in its hands reaches no later holder's VM."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis

from tests.integration.vm_pool.test_pool_faults import all_free, states, until
from tests.integration.vm_pool.test_pool_host import RunningHost
from vm_pool import Endpoint, Lease, VMPool, VMState
from vm_pool.gate_client import connect
from vm_pool.host import VMHost
from vm_pool.unpooled import unpooled_vm


class CountingProvider:
    """Each VM is a TCP server that notes what it is told, and answers with the number of its boots and resets so far."""

    needs_reset = True

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = {}
        self.generation: dict[str, int] = {}
        self.may_reset = threading.Event()
        self.may_reset.set()
        self.resets_begun = 0
        self.fails = False
        self._servers: dict[str, socket.socket] = {}

    def boot(self, vm_id: str) -> Endpoint:
        return self._start(vm_id)

    def check(self, vm_id: str) -> None:  # noqa: ARG002
        if self.fails:
            raise RuntimeError("as told")

    def reset(self, vm_id: str) -> Endpoint:
        self.resets_begun += 1
        assert self.may_reset.wait(30)
        self.stop(vm_id)
        return self._start(vm_id)

    def stop(self, vm_id: str) -> None:
        if server := self._servers.pop(vm_id, None):
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    def reap_leftovers(self, host_id: str) -> Sequence[str]:  # noqa: ARG002
        return ()

    def note(self, vm_id: str, word: str) -> None:
        self.heard[vm_id].append(word)

    def _start(self, vm_id: str) -> Endpoint:
        server = socket.create_server(("127.0.0.1", 0))
        self._servers[vm_id] = server
        self.heard[vm_id] = []
        self.generation[vm_id] = self.generation.get(vm_id, 0) + 1
        threading.Thread(target=self._accept, args=(server, vm_id, self.generation[vm_id]), daemon=True).start()
        return Endpoint("127.0.0.1", {"control": server.getsockname()[1]})

    def _accept(self, server: socket.socket, vm_id: str, generation: int) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=self._serve, args=(connection, vm_id, generation), daemon=True).start()

    def _serve(self, connection: socket.socket, vm_id: str, generation: int) -> None:
        with suppress(OSError), connection:
            while said := connection.recv(1000):
                self.note(vm_id, said.decode())
                connection.sendall(str(generation).encode())


class Client:
    """Somebody who holds on to an address and a connection whatever becomes of the lease."""

    def __init__(self, lease: Any) -> None:
        self.endpoint = lease.endpoint
        self.connection = connect(self.endpoint, "control")

    def act(self, word: str) -> str:
        self.connection.sendall(word.encode())
        return self.connection.recv(100).decode()

    def is_cut_off(self) -> bool:
        """Neither the old connection nor a new one to the old address does anything."""
        with suppress(OSError):
            self.connection.settimeout(20)
            if self.act("stale") != "":
                return False
        try:
            again = connect(self.endpoint, "control")
        except OSError:
            return True
        with again, suppress(ConnectionError):
            again.sendall(b"stale")
            return again.recv(100) == b""
        return True


@pytest.fixture
def provider() -> CountingProvider:
    return CountingProvider()


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., RunningHost]]:
    with ExitStack() as ends:

        def start(provider: CountingProvider, url: str = redis_url, **options: Any) -> RunningHost:
            host = VMHost(
                VMPool(redis.Redis.from_url(url), "test"),
                provider,
                **{"num_vms": 1, "host_id": "box", "retry_after": (0.05, 0.2), **options},
            )
            running = RunningHost(host)
            ends.callback(running.end)
            return running

        yield start


def stale_actions(provider: CountingProvider) -> list[str]:
    return [word for words in provider.heard.values() for word in words if word == "stale"]


def release(pool: VMPool, lease: Lease) -> None:
    lease.release()


def expire(pool: VMPool, lease: Lease) -> None:
    until(lambda: pool.reap() > 0 or pool.status().vms[0].state is not VMState.LEASED)


def revoke(pool: VMPool, lease: Lease) -> None:
    pool.force_release(lease.vm_id)


def quarantine(pool: VMPool, lease: Lease) -> None:
    pool.quarantine(lease.vm_id, "test")
    pool.reset(lease.vm_id)


@pytest.mark.parametrize("end", [release, expire, revoke, quarantine], ids=lambda end: end.__name__)
def test_an_earlier_holder_cannot_reach_the_next_ones_vm(
    pool: VMPool, provider: CountingProvider, start: Callable, end: Callable
) -> None:
    start(provider, silent_after=1.0)
    until(all_free(pool, 1))
    first = pool.acquire("first", timeout=20, ttl=2.0 if end is expire else 60, heartbeat=False)
    stale = Client(first)
    assert stale.act("click") == "1"

    end(pool, first)
    second = pool.acquire("second", timeout=20)
    current = Client(second)

    assert current.endpoint.ports != stale.endpoint.ports
    assert stale.is_cut_off()
    assert current.act("click") == "2"
    assert stale_actions(provider) == []


def test_the_gate_is_closed_before_the_reset_begins(pool: VMPool, provider: CountingProvider, start: Callable) -> None:
    start(provider)
    until(all_free(pool, 1))
    stale = Client(pool.acquire("first", timeout=20, heartbeat=False))
    stale.act("click")
    provider.may_reset.clear()
    pool.force_release("box-0")
    until(lambda: provider.resets_begun == 1)
    assert stale.is_cut_off()
    assert stale_actions(provider) == []
    provider.may_reset.set()


def test_a_free_vm_that_fails_its_check_or_is_drained_cannot_be_reached(
    pool: VMPool, provider: CountingProvider, start: Callable
) -> None:
    start(provider, check_every=0.1)
    until(all_free(pool, 1))
    lease = pool.acquire("first", timeout=20)
    earlier = Client(lease)
    lease.release()
    until(all_free(pool, 1))
    provider.fails = True
    until(lambda: pool.status().vms[0].state is VMState.ERROR)
    assert earlier.is_cut_off()
    provider.fails = False
    until(all_free(pool, 1))
    later = pool.status().vms[0].endpoint
    pool.drain("box-0")
    until(lambda: _refuses(later))
    assert states(pool) == [VMState.STOPPED]


def test_a_stopped_host_leaves_no_way_to_its_vms(pool: VMPool, provider: CountingProvider, start: Callable) -> None:
    running = start(provider)
    until(all_free(pool, 1))
    client = Client(pool.acquire("me", timeout=20, heartbeat=False))
    client.act("click")
    running.end()
    assert client.is_cut_off()
    assert not [thread for thread in threading.enumerate() if thread.name == "gates"]


def test_a_host_stopped_in_the_middle_of_a_reset_leaves_no_vm(
    pool: VMPool, provider: CountingProvider, start: Callable
) -> None:
    running = start(provider)
    until(all_free(pool, 1))
    provider.may_reset.clear()
    pool.acquire("me", timeout=20).release()
    until(lambda: provider.resets_begun == 1)
    running.host.stop()
    until(lambda: not provider._servers)
    provider.may_reset.set()  # and now the reset starts the VM anew
    running.end()
    assert not provider._servers


def test_a_vm_of_ones_own_is_reached_through_a_gate_too(provider: CountingProvider) -> None:
    with unpooled_vm(provider, "mine-0") as vm:
        client = Client(vm)
        assert client.act("click") == "1"
        assert vm.endpoint.ports["control"] != provider._servers["mine-0"].getsockname()[1]
    assert client.is_cut_off()


def _refuses(endpoint: Endpoint) -> bool:
    try:
        socket.create_connection((endpoint.address, endpoint.ports["control"]), timeout=20).close()
    except OSError:
        return True
    return False
