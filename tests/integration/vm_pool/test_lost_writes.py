"""Redis comes back without its last writes: whatever it forgot, a VM never has two users. Judged at the VM itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import groupby
from typing import Any

import pytest
import redis

from tests.conftest import ValkeyServer
from tests.integration.vm_pool.conftest import LossyProxy
from tests.integration.vm_pool.test_gated_host import Client, CountingProvider
from tests.integration.vm_pool.test_pool_faults import all_free, renews, until
from tests.integration.vm_pool.test_pool_host import RunningHost
from vm_pool import Endpoint, Lease, PoolError, VMPool
from vm_pool.host import VMHost
from vm_pool.lua_scripts import scripts


class LoggingProvider(CountingProvider):
    """Writes down the words that reach a VM, in the order in which they do."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.may_boot = threading.Event()
        self.may_boot.set()
        self.may_reset = threading.Event()
        self.may_reset.set()

    def reset(self, vm_id: str) -> Endpoint:
        assert self.may_reset.wait(30)
        return super().reset(vm_id)

    def boot(self, vm_id: str) -> Endpoint:
        endpoint = super().boot(vm_id)
        assert self.may_boot.wait(30)
        return endpoint

    def note(self, vm_id: str, word: str) -> None:
        super().note(vm_id, word)
        self.words.append(word)

    def users(self) -> list[str]:
        """Who used the VM, one after the other; somebody twice when somebody else was at the VM in between."""
        return [word for word, _ in groupby(self.words)]


class ForgetfulServer:
    """A Valkey that loses what it wrote since `remember`, and a host that comes back to it when it is told to."""

    def __init__(self, valkey: ValkeyServer, provider: CountingProvider, ends: ExitStack) -> None:
        self.valkey = valkey
        self.client = redis.Redis.from_url(valkey.url)
        self.client.config_set("appendfsync", "always")
        self.pool = VMPool(redis.Redis.from_url(valkey.url), "test")
        ends.callback(self.pool.close)
        self.proxy = LossyProxy(valkey.port)
        ends.callback(self.proxy.close)
        url = valkey.url.replace(f":{valkey.port}/", f":{self.proxy.port}/")
        hosting = VMPool(redis.Redis.from_url(url), "test")
        host = VMHost(hosting, provider, num_vms=1, host_id="box", silent_after=30, retry_after=(0.05, 0.2))
        ends.callback(RunningHost(host).end)
        self._size = 0

    @property
    def _log(self) -> Any:
        (log,) = (self.valkey.directory / "appendonlydir").glob("*.incr.aof")
        return log

    def remember(self) -> None:
        self._size = self._log.stat().st_size

    def restart(self) -> None:
        """Without what was written since `remember`, and out of the host's reach."""
        self.proxy.cut()
        self.valkey.kill_at_once()
        with self._log.open("r+b") as log:
            log.truncate(self._size)
        self.valkey.start()

    def num_waiters(self) -> int:
        """None while Redis is away."""
        try:
            return len(self.pool.status().waiters)
        except PoolError:
            return 0


@pytest.fixture
def provider() -> LoggingProvider:
    return LoggingProvider()


@pytest.fixture
def server(valkey: ValkeyServer, provider: LoggingProvider) -> Iterator[ForgetfulServer]:
    with ExitStack() as ends:
        yield ForgetfulServer(valkey, provider, ends)


def after_the_boot(server: ForgetfulServer, provider: LoggingProvider) -> None:
    """The grant is lost."""
    until(all_free(server.pool, 1))
    server.remember()


def before_the_boot_is_reported(server: ForgetfulServer, provider: LoggingProvider) -> None:
    """The news that the VM is up is lost, too."""
    until(all_free(server.pool, 1))
    provider.may_boot.clear()
    server.pool.quarantine("box-0", "so that it boots once more")
    server.pool.reset("box-0")
    until(lambda: provider.generation["box-0"] == 2)
    server.remember()
    provider.may_boot.set()


def before_the_reset_is_reported(server: ForgetfulServer, provider: LoggingProvider) -> None:
    """A release is known; the reset and the next grant are lost."""
    until(all_free(server.pool, 1))
    provider.may_reset.clear()  # the report must not be there before what is remembered is
    use(server.pool.acquire("earlier", timeout=20), "earlier").lease.release()
    server.remember()
    provider.may_reset.set()


def during_an_earlier_lease(server: ForgetfulServer, provider: LoggingProvider) -> None:
    """Redis still takes the earlier holder's for the current lease."""
    until(all_free(server.pool, 1))
    lease = use(server.pool.acquire("earlier", timeout=20, ttl=5), "earlier").lease
    server.remember()
    lease.release()


class User:
    """A holder who goes on using the VM whatever becomes of the lease."""

    def __init__(self, lease: Lease, name: str) -> None:
        self.lease, self.name = lease, name
        self._client = Client(lease)

    def act(self) -> None:
        with suppress(OSError):
            self._client.act(self.name)


def use(lease: Lease, name: str) -> User:
    user = User(lease, name)
    user.act()
    return user


@pytest.mark.parametrize(
    "remembered",
    [after_the_boot, before_the_boot_is_reported, before_the_reset_is_reported, during_an_earlier_lease],
    ids=lambda remembered: remembered.__name__,
)
def test_a_holder_that_redis_forgot_is_cut_off_before_the_vm_is_granted_again(
    server: ForgetfulServer, provider: LoggingProvider, remembered: Callable[[ForgetfulServer, LoggingProvider], None]
) -> None:
    remembered(server, provider)
    forgotten = use(server.pool.acquire("forgotten", timeout=20), "forgotten")

    server.restart()
    with ThreadPoolExecutor(1) as executor:
        asking = executor.submit(server.pool.acquire, "next", timeout=60)
        until(lambda: asking.done() or server.num_waiters() == 1)
        if asking.done():  # what must not be
            use(asking.result(), "next")
        forgotten.act()
        server.proxy.mend()
        following = use(asking.result(60), "next")
    forgotten.act()
    following.act()

    assert provider.users()[-2:] == ["forgotten", "next"]
    assert len(provider.users()) == len(set(provider.users()))
    assert following.lease.fence > forgotten.lease.fence
    following.lease.check()
    assert forgotten.lease.lost.wait(15)  # a third of its TTL is 20 s


def test_a_report_repeated_after_the_restart_frees_nothing(server: ForgetfulServer, provider: LoggingProvider) -> None:
    """The reply to "the VM is clean" was lost with the writes, and the VM granted in between: the host says it again."""
    until(all_free(server.pool, 1))
    provider.may_reset.clear()  # the report must not be there before the proxy waits for it
    use(server.pool.acquire("earlier", timeout=20), "earlier").lease.release()
    server.remember()
    server.proxy.cuts_after_loss = True
    server.proxy.lose_reply_to = scripts()["ready"].sha.encode()
    provider.may_reset.set()
    forgotten = use(server.pool.acquire("forgotten", timeout=20), "forgotten")
    until(lambda: server.proxy.cut_off)  # the grant may come before the proxy has seen the reply

    server.restart()
    with ThreadPoolExecutor(1) as executor:
        asking = executor.submit(server.pool.acquire, "next", timeout=60)
        until(lambda: server.num_waiters() == 1)
        server.proxy.mend()
        following = use(asking.result(60), "next")
    forgotten.act()
    following.act()

    assert provider.users() == ["earlier", "forgotten", "next"]


def test_a_lease_that_redis_remembers_goes_on(server: ForgetfulServer, provider: LoggingProvider) -> None:
    until(all_free(server.pool, 1))
    known = use(server.pool.acquire("known", timeout=20), "known")
    server.remember()

    before = server.client.hget("{pool:test}:servers", "box")
    server.restart()
    server.proxy.mend()

    until(lambda: server.client.hget("{pool:test}:servers", "box") != before)
    until(lambda: renews(known.lease))
    known.act()
    assert provider.words == ["known", "known"]
    assert known.lease.release() is True


def test_a_holder_asks_about_its_lease_as_soon_as_redis_was_away(valkey: ValkeyServer) -> None:
    """It does not wait until a third of its TTL is over."""
    valkey.aof = False
    valkey.kill()
    valkey.start()
    pool = VMPool(redis.Redis.from_url(valkey.url), "test")
    pool.register("vm", Endpoint("127.0.0.1"))
    lease = pool.acquire("me", timeout=20, ttl=3600)
    valkey.kill()
    valkey.start()
    assert lease.lost.wait(30)
    pool.close()


def test_a_holder_with_a_heartbeat_of_its_own_sees_that_redis_was_away(valkey: ValkeyServer) -> None:
    pool = VMPool(redis.Redis.from_url(valkey.url), "test")
    pool.register("vm", Endpoint("127.0.0.1"))
    lease = pool.acquire("me", timeout=20, heartbeat=False)
    lease.renew()
    assert not lease.doubtful
    valkey.kill()
    until(lambda: lease.doubtful)
    valkey.start()
    until(lambda: renews(lease))
    assert not lease.doubtful
    pool.close()
