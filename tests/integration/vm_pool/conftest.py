"""Pools on a real Valkey, VMs whose host is the test itself, and a proxy that loses replies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from vm_pool import Endpoint, VMPool, VMState
from vm_pool.host_client import HostClient


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def pool(client: redis.Redis) -> Iterator[VMPool]:
    pool = VMPool(client, "test")
    yield pool
    pool.close()


class HandHost:
    """A host whose every report is the test's own doing. Its VMs begin free."""

    def __init__(self, pool: VMPool, num_vms: int, *, host_id: str = "hand", silent_after: float = 60.0) -> None:
        self.side = HostClient(pool, host_id, silent_after=silent_after)
        self.side.trust(self.side.beat(take_over=True).server)
        vm_ids = [f"{host_id}-{number}" for number in range(num_vms)]
        for vm_id in vm_ids:
            self.side.register(vm_id, VMState.INITIALIZING, needs_reset=True, known_fence=0)
        for vm in self.side.beat().vms:
            if vm.vm_id in vm_ids:
                self.side.ready(vm.vm_id, vm.fence, self.endpoint(vm.vm_id))

    def finish_resets(self) -> list[str]:
        """Reports every VM that is being reset as done; returns their ids."""
        done = []
        for vm in self.side.beat().vms:
            if vm.state is VMState.RESETTING and self.side.ready(vm.vm_id, vm.fence, self.endpoint(vm.vm_id)):
                done.append(vm.vm_id)
        return done

    @staticmethod
    def endpoint(vm_id: str) -> Endpoint:
        return Endpoint("127.0.0.1", {"control": 5000 + int(vm_id.rpartition("-")[2])})


@pytest.fixture
def hand_host(pool: VMPool) -> Callable[..., HandHost]:
    return lambda num_vms, **options: HandHost(pool, num_vms, **options)


class LossyProxy:
    """Forwards to a server; on demand swallows the next reply and cuts that connection, or cuts and refuses all.

    With `cuts_after_loss`, nobody gets through after a swallowed reply until `mend`.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.lose_reply_to: bytes | None = None
        self.lost = 0
        self.cuts_after_loss = False
        self.cut_off = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection and lets no new one through."""
        self.cut_off = True
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.cut_off = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _address = self._listener.accept()
                if self.cut_off:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                if self.cut_off:  # meanwhile: `cut` may not have seen these
                    near.close()
                    far.close()
                    continue
                doomed = threading.Event()
                threading.Thread(target=self._requests, args=(near, far, doomed), daemon=True).start()
                threading.Thread(target=self._replies, args=(near, far, doomed), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := near.recv(65536):
                if self.lose_reply_to is not None and self.lose_reply_to in data:
                    self.lose_reply_to = None
                    doomed.set()
                far.sendall(data)
            far.shutdown(socket.SHUT_RDWR)

    def _replies(self, near: socket.socket, far: socket.socket, doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := far.recv(65536):
                if doomed.is_set():
                    self.cut_off = self.cut_off or self.cuts_after_loss
                    self.lost += 1
                    break
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)
        far.close()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[LossyProxy]:
    proxy = LossyProxy(redis.Redis.from_url(redis_url).connection_pool.connection_kwargs["port"])
    yield proxy
    proxy.close()


@pytest.fixture
def pool_through_proxy(redis_url: str, proxy: LossyProxy) -> Iterator[VMPool]:
    kwargs = redis.Redis.from_url(redis_url).connection_pool.connection_kwargs
    pool = VMPool(redis.Redis(port=proxy.port, password=kwargs["password"]), "test")
    yield pool
    pool.close()
