"""The VM of one attempt or session: leased from the pool, or its own if the run uses no pool."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import VMAccess
from rollout_tasks.errors import FailureClass, boundary
from rollout_tasks.execution.heartbeat import VMUse
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import connect
from rollout_tasks.settings import settings
from vm_pool.errors import AcquireStopped
from vm_pool.lease import Lease
from vm_pool.pool import VMPool
from vm_pool.waiting import LONGEST_HOLDER

_AGE_MARGIN_SECONDS = 300.0
"""How much longer than setup, episode and evaluation a lease may last: for cleanup and killing a stuck process."""


class AttemptVM(VMAccess, Protocol):
    """A VM for one attempt, as the attempt sees it."""

    @property
    def fence(self) -> int:
        """The lease's number; 0 for a VM that nobody else can get."""

    @property
    def ended_early(self) -> bool:
        """Whether the right to use it had ended before it was given back; known after that."""


@per_process
def _pool_named(name: str) -> VMPool:
    return VMPool(connect(tries=0), name)


@contextmanager
def leased_vm(
    config: RunConfig, rollout_id: str, worker: str, pulse: VMUse, *, snapshot: str | None = None
) -> Iterator[AttemptVM]:
    """Waits for a VM and holds it; the heartbeat renews the lease.

    Args:
        config: The run's configuration.
        rollout_id: The rollout, or session, that needs the VM.
        worker: The worker it runs on.
        pulse: What the heartbeat keeps fresh; gets the lease.
        snapshot: Replaces the run's snapshot for an attempt's own VM; a pool's VMs are as their host resets them.

    Raises:
        RolloutFailure: ``env_setup`` when no VM came in time.
        EpisodeInterrupted: The rollout was told to stop while it waited for the pool. A VM of its own boots to its end.
    """
    if not config.vm.use_pool:
        from rollout_tasks.vm_options import open_provider, provider_options  # here, because a pool needs neither
        from vm_pool.unpooled import unpooled_vm

        with boundary(FailureClass.ENV_SETUP, "starting a VM"):
            owned = ExitStack()
            provider = open_provider(config.vm.provider_name, provider_options(config, snapshot=snapshot))
            vm = owned.enter_context(unpooled_vm(provider, f"own-{uuid.uuid4().hex[:12]}"))
        with owned:
            yield vm
        return
    pool = _pool_named(config.vm.pool)
    try:
        with boundary(FailureClass.ENV_SETUP, "waiting for a VM"):
            try:
                lease = _acquire(pool, config, f"{worker} {rollout_id}"[:LONGEST_HOLDER], pulse)
            except AcquireStopped:
                pulse.interruption.raise_if_requested()
                raise
        pulse.lease = lease
        yield lease
    finally:
        held, pulse.lease = pulse.lease, None
        if held is not None:
            held.release()


def _acquire(pool: VMPool, config: RunConfig, holder: str, pulse: VMUse) -> Lease:
    """Waits for a lease as long as the run allows: a pool without VMs may get some once its hosts are back."""
    return pool.acquire(
        holder,
        priority=config.priority,
        timeout=config.vm.wait_seconds,
        ttl=settings().lease_ttl,
        max_age=3 * config.limits.max_seconds + _AGE_MARGIN_SECONDS,
        heartbeat=False,
        should_stop=lambda: pulse.interruption.requested,
        wait_while_empty=True,
    )
