"""A simulated fleet on a real pool: workers and VM hosts as coroutines of this process, episodes and resets as naps.

Every grant, hand-over, release, reset and sign of life is the pool's own, in its own Redis. Sets up no Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from scripts.bench.schedule import RESET, Item, Visit, start_of
from vm_pool import Endpoint, VMPool, VMState
from vm_pool.aio import AsyncVMPool
from vm_pool.host_client import HostClient
from vm_pool.waiting import Grant

VMS_PER_HOST = 10
SILENT_AFTER_SECONDS = 15.0
TTL_SECONDS = 60.0
LAG_EVERY_SECONDS = 0.05
CONNECT_AT_ONCE = 500
_ENDPOINT = Endpoint("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Plan:
    """One fleet and what it has to do."""

    vms: int
    workers: int
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Load:
    """What a bench asked of the machine, to tell how far its delays are the pool's own."""

    grants_per_second: float
    client_cores: float
    """Processor time of this process per second: the work of all workers and hosts."""
    redis_cores: float
    lag_p99: float
    """By how many seconds this process's naps ended late."""


Course = tuple[list[Visit], float]
"""How a plan went: its visits and its makespan, in units of the mean episode."""


async def run_fleets(url: str, plans: Sequence[Plan], unit: float) -> tuple[list[Course], Load]:
    """Carries out plans side by side, each on a pool of its own.

    Args:
        url: An empty Redis.
        plans: The fleets.
        unit: Seconds that a mean episode takes here.

    Raises:
        TimeoutError: Far more time has passed than the plans can take.
        RuntimeError: A lease was lost.
    """
    doorbells = redis.asyncio.Redis.from_url(url, socket_timeout=None)
    control = redis.Redis.from_url(url)
    fleets = [Fleet(f"fleet-{n}", plan, unit, control, doorbells) for n, plan in enumerate(plans)]
    hosts: list[asyncio.Task[None]] = []
    limit = 60 + 10 * unit * max(sum(i.total for i in p.items) / min(p.vms, p.workers) + 5 for p in plans)
    try:
        async with asyncio.timeout(limit):
            for fleet in fleets:
                hosts += await fleet.prepare()
            return await _measured(fleets, hosts, control)
    finally:
        for host in hosts:
            host.cancel()
        await asyncio.gather(*hosts, return_exceptions=True)
        for fleet in fleets:
            await fleet.close()
        control.close()
        await doorbells.aclose()


async def _measured(
    fleets: Sequence[Fleet], hosts: Sequence[asyncio.Task[None]], control: redis.Redis
) -> tuple[list[Course], Load]:
    naps: list[float] = []
    lag = asyncio.create_task(_watch_lag(naps))
    began, client, server = time.monotonic(), time.process_time(), _redis_cpu(control)
    runs = asyncio.gather(*(fleet.run() for fleet in fleets))
    try:
        ends: list[asyncio.Future[Any]] = [runs, *hosts]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for host in hosts:
            if host.done():
                host.result()  # a host never ends by itself: this raises
        courses = await runs
        seconds = time.monotonic() - began
        load = Load(
            grants_per_second=sum(len(visits) for visits, _ in courses) / seconds,
            client_cores=(time.process_time() - client) / seconds,
            redis_cores=(_redis_cpu(control) - server) / seconds,
            lag_p99=sorted(naps)[int(len(naps) * 0.99)] if naps else 0.0,
        )
    finally:
        runs.cancel()
        lag.cancel()
        await asyncio.gather(runs, lag, return_exceptions=True)
    return courses, load


class Fleet:
    """Workers, hosts and VMs of one pool.

    Args:
        name: The pool's name.
        plan: What there is and what to do.
        unit: Seconds that a mean episode takes.
        control: For calls that are over at once.
        doorbells: For the hosts' waits.
    """

    def __init__(
        self, name: str, plan: Plan, unit: float, control: redis.Redis, doorbells: redis.asyncio.Redis
    ) -> None:
        self._plan = plan
        self._unit = unit
        self._pool = AsyncVMPool(doorbells, name)
        pool = VMPool(control, name)
        starts = range(0, plan.vms, VMS_PER_HOST)
        self._hosts = [
            SimulatedHost(pool, doorbells, f"host-{start}", min(VMS_PER_HOST, plan.vms - start), RESET * unit)
            for start in starts
        ]
        self._held: dict[str, Grant] = {}
        self._began = 0.0

    async def prepare(self) -> list[asyncio.Task[None]]:
        """Puts all VMs into the pool and opens the workers' connections; returns the hosts' tasks."""
        for host in self._hosts:
            host.join()
        hosts = [asyncio.create_task(host.serve()) for host in self._hosts]
        for at_once in range(CONNECT_AT_ONCE, self._plan.workers + CONNECT_AT_ONCE, CONNECT_AT_ONCE):
            await asyncio.gather(*(self._pool.renew([]) for _ in range(min(at_once, self._plan.workers))))
        return hosts

    async def run(self) -> Course:
        """Works through the plan."""
        left, visits = iter(self._plan.items), list[Visit]()
        self._began = time.monotonic()
        heartbeat = asyncio.create_task(self._renew())
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._plan.workers):
                    workers.create_task(self._work(number, left, visits))
            return visits, self._now()
        finally:
            heartbeat.cancel()

    async def close(self) -> None:
        """Closes the workers' connections."""
        await self._pool.close()

    async def _work(self, number: int, left: Iterator[Item], visits: list[Visit]) -> None:
        name, first = f"worker {number}", True
        await asyncio.sleep(start_of(number, self._plan.vms) * self._unit)
        for item in left:
            await asyncio.sleep(item.before * self._unit)
            requested_at = self._now()
            grant = await self._pool.acquire(name, ttl=TTL_SECONDS, timeout=3600)
            visits.append(Visit(item, first, requested_at, self._now()))
            self._held[name] = grant
            await asyncio.sleep(item.use * self._unit)
            del self._held[name]
            if not await self._pool.release(grant.vm_id, grant.fence):
                raise RuntimeError(f"{name} lost its lease of {grant.vm_id}")
            await asyncio.sleep(item.after * self._unit)
            first = False

    async def _renew(self) -> None:
        """One heartbeat for all workers; a lease that cannot be renewed shows when it is released."""
        while True:
            await asyncio.sleep(TTL_SECONDS / 3)
            held = [(grant.vm_id, grant.fence) for grant in self._held.values()]
            for start in range(0, len(held), 100):
                await self._pool.renew(held[start : start + 100])

    def _now(self) -> float:
        return (time.monotonic() - self._began) / self._unit


class SimulatedHost:
    """Does what `VMHost` does, as a coroutine, for VMs that are only in the pool and whose resets are naps.

    Args:
        pool: Its pool.
        doorbells: Where it waits for work.
        host_id: Its name.
        num_vms: How many VMs it has.
        reset_seconds: How long a reset takes.
    """

    def __init__(
        self, pool: VMPool, doorbells: redis.asyncio.Redis, host_id: str, num_vms: int, reset_seconds: float
    ) -> None:
        self._side = HostClient(pool, host_id, silent_after=SILENT_AFTER_SECONDS)
        self._vm_ids = [f"{host_id}-{n}" for n in range(num_vms)]
        self._work = pool.keys.work(host_id)
        self._doorbells = doorbells
        self._reset_seconds = reset_seconds
        self._resetting: set[str] = set()

    def join(self) -> None:
        """Boots its VMs, which takes no time."""
        self._side.trust(self._side.beat(take_over=True).server)
        for vm_id in self._vm_ids:
            fence = self._side.register(vm_id, VMState.INITIALIZING, needs_reset=True, known_fence=0)
            self._side.ready(vm_id, fence, _ENDPOINT)

    async def serve(self) -> None:
        """Resets what was released, until cancelled."""
        async with asyncio.TaskGroup() as resets:
            while True:
                if await self._doorbells.blpop([self._work], timeout=self._look(resets)):
                    self._side.pool.redis.call("DEL", self._work)

    def _look(self, resets: asyncio.TaskGroup) -> float:
        """Begins the resets that are due; returns in how many seconds to look again."""
        beat = self._side.beat()
        for vm in beat.vms:
            if vm.state is VMState.RESETTING and vm.vm_id not in self._resetting:
                self._resetting.add(vm.vm_id)
                resets.create_task(self._reset(vm.vm_id, vm.fence))
        return min(SILENT_AFTER_SECONDS / 3, max(beat.next_timer_in, 0.01))

    async def _reset(self, vm_id: str, fence: int) -> None:
        await asyncio.sleep(self._reset_seconds)
        self._resetting.discard(vm_id)
        self._side.ready(vm_id, fence, _ENDPOINT)


async def _watch_lag(naps: list[float]) -> None:
    while True:
        due = time.monotonic() + LAG_EVERY_SECONDS
        await asyncio.sleep(LAG_EVERY_SECONDS)
        naps.append(time.monotonic() - due)


def _redis_cpu(control: redis.Redis) -> float:
    info = control.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
