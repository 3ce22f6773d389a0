"""The VM of one attempt: borrowed from the pool under a lease, or its own where the run shares none."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, boundary
from rollout_tasks.execution.heartbeat import Pulse
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_client import connect
from rollout_tasks.settings import settings
from vm_pool.errors import AcquireStopped, PoolEmpty
from vm_pool.lease import Lease
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

logger = logging.getLogger(__name__)

_AGE_MARGIN_SECONDS = 300.0
"""A lease may be older than its attempt's wall time by this much: setting up, cleaning up and killing a stuck process."""


class AttemptVM(Protocol):
    """A VM for one attempt."""

    @property
    def vm_id(self) -> str:
        """Its name."""

    @property
    def fence(self) -> int:
        """The lease's number; 0 for a VM that nobody else can get."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it answers, and what its gate asks for."""

    @property
    def ended_early(self) -> bool:
        """Once it is given back: whether the right to use it had ended before."""

    def check(self) -> None:
        """Raises when it may not be used any more."""


@per_process
def _pool_named(name: str) -> VMPool:
    return VMPool(connect(tries=0), name)


@contextmanager
def leased_vm(
    config: RunConfig, rollout_id: str, worker: str, pulse: Pulse, *, snapshot: str | None = None
) -> Iterator[AttemptVM]:
    """Waits for a VM and holds it; the heartbeat renews the lease.

    Args:
        config: The run's.
        rollout_id: Who asks.
        worker: Where.
        pulse: What the heartbeat keeps fresh.
        snapshot: What a VM of one's own starts from in place of the run's snapshot; a pool's VMs are as their host resets them.

    Raises:
        RolloutFailure: ``env_setup`` when no VM came in time.
        EpisodeInterrupted: The rollout was told to stop while it waited.
    """
    if not config.vm.use_pool:
        from rollout_tasks.vm_options import provider_options
        from vm_pool.providers import load_provider
        from vm_pool.unpooled import unpooled_vm

        with boundary(FailureClass.ENV_SETUP, "starting a VM"):
            owned = ExitStack()
            provider = load_provider(config.vm.provider_name, provider_options(config, snapshot=snapshot))
            vm = owned.enter_context(unpooled_vm(provider, f"own-{uuid.uuid4().hex[:12]}"))
        with owned:
            yield vm
        return
    pool = _pool_named(config.vm.pool)
    try:
        with boundary(FailureClass.ENV_SETUP, "waiting for a VM"):
            try:
                lease = _acquire(pool, config, f"{worker} {rollout_id}", pulse)
            except AcquireStopped:
                pulse.interruption.raise_if_requested()
                raise
        pulse.lease = lease
        yield lease
    finally:
        held, pulse.lease = pulse.lease, None
        if held is not None:
            held.release()


def _acquire(pool: VMPool, config: RunConfig, holder: str, pulse: Pulse) -> Lease:
    """A lease, waited for as long as the run says: a pool that has no VM now may have some again once its hosts are back."""
    until = time.monotonic() + config.vm.wait_seconds
    while True:
        try:
            return pool.acquire(
                holder,
                priority=config.priority,
                timeout=max(0.0, until - time.monotonic()),
                ttl=settings().lease_ttl,
                max_age=config.limits.max_seconds + _AGE_MARGIN_SECONDS,
                heartbeat=False,
                should_stop=lambda: pulse.interruption.requested,
            )
        except PoolEmpty as error:
            if time.monotonic() >= until:
                raise
            logger.warning("%s: %s; waiting on", holder, error)
