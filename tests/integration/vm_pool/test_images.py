"""Hosts say what their VMs are made from: who asks the pool hears it, for as long as it is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.conftest import ValkeyServer
from tests.integration.vm_pool.test_pool_host import RunningHost, until
from vm_pool import PoolError, VMPool, VMState
from vm_pool.host import VMHost
from vm_pool.images import PoolImage, image_name, images
from vm_pool.providers.local import LocalProvider
from vm_pool.providers.qemu import QemuProvider
from vm_pool.providers.simulated import SimulatedProvider

QUICK = {"boot_seconds": 0.02, "reset_seconds": 0.02}


class NamedProvider(SimulatedProvider):
    """The simulated provider, knowing what its VMs are made from."""

    def __init__(self, image: str) -> None:
        super().__init__(QUICK)
        self.image = image

    def image_name(self) -> str:
        return self.image


Start = Callable[..., RunningHost]


@pytest.fixture
def start(redis_url: str) -> Iterator[Start]:
    with ExitStack() as ends:

        def start(provider: SimulatedProvider, host_id: str, facts: str = "") -> RunningHost:
            pool = VMPool(redis.Redis.from_url(redis_url), "test")
            running = RunningHost(VMHost(pool, provider, num_vms=1, host_id=host_id, facts=facts))
            ends.callback(running.end)
            until(lambda: any(vm.host == host_id and vm.state is VMState.FREE for vm in pool.status().vms))
            return running

        yield start


def test_each_image_is_told_once_with_the_hosts_that_have_it(pool: VMPool, start: Start) -> None:
    start(NamedProvider("core-1"), "a", "what core has")
    start(NamedProvider("full-2"), "b")
    start(NamedProvider("core-1"), "c")
    start(SimulatedProvider(QUICK), "d")

    assert sorted(images(pool), key=lambda image: image.name) == [
        PoolImage("", "", ("d",)),
        PoolImage("core-1", "what core has", ("a", "c")),
        PoolImage("full-2", "", ("b",)),
    ]


def test_a_host_that_has_gone_or_is_another_one_says_nothing(pool: VMPool, start: Start) -> None:
    first = start(NamedProvider("core-1"), "a", "what core has")
    first.end()
    assert images(pool) == []
    assert pool.redis.call("HGETALL", pool.keys.images) == []

    start(SimulatedProvider(QUICK), "a")
    assert images(pool) == [PoolImage("", "", ("a",))]


def test_a_successor_does_not_inherit_its_predecessors_image(pool: VMPool, start: Start) -> None:
    pool.redis.call("HSET", pool.keys.images, "a", "core-1")  # of one that was killed

    start(SimulatedProvider(QUICK), "a")

    assert images(pool) == [PoolImage("", "", ("a",))]


def test_a_deleted_pool_leaves_nothing_of_it(pool: VMPool, start: Start) -> None:
    start(NamedProvider("core-1"), "a", "what core has").end()

    pool.delete()

    assert not [key for key in pool.redis.call("KEYS", "*") if "image" in key or "facts" in key]


def test_it_is_said_again_after_redis_lost_its_data(tmp_path: Path) -> None:
    valkey = ValkeyServer(tmp_path, aof=False)
    valkey.start()
    told = [PoolImage("core-1", "x", ("a",))]
    pool = VMPool(redis.Redis.from_url(valkey.url), "test")
    hosting = VMPool(redis.Redis.from_url(valkey.url), "test")
    running = RunningHost(VMHost(hosting, NamedProvider("core-1"), num_vms=1, host_id="a", facts="x"))

    def is_told() -> bool:
        try:
            return images(pool) == told
        except PoolError:
            return False

    try:
        until(is_told)
        valkey.kill()
        valkey.start()
        until(is_told)
    finally:
        running.end()
        valkey.kill()


def test_images_have_names() -> None:
    core, full = (image_name(LocalProvider({"profile": profile})) for profile in ("core", "full"))

    assert core.startswith("core-")
    assert full.startswith("full-")
    assert image_name(QemuProvider({"profile": "core"})) == core
    assert image_name(QemuProvider({"profile": "none"})) == ""
    assert image_name(QemuProvider({"path_to_vm": "/nowhere.qcow2"})) == ""
    assert image_name(SimulatedProvider({})) == ""
