"""What a run waits for before anything can go on in it: an endpoint, a worker, a message of a dead one, a VM. Changes nothing.

Each look takes a few commands and bytes, however large the run, and none that another look has not shown to be worth it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import redis

from rollout_tasks.models.endpoint import endpoint_of
from rollout_tasks.models.outage import outage_of
from rollout_tasks.runs import presence
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import SCRIPTS, UnreadableRun, run_key
from rollout_tasks.settings import settings
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool
from vm_pool.states import VM, PoolStatus, VMState

_RESTORE_SECONDS = 5.0
"""How much later than the end of its time a message may be put back: `unacked_restore_interval` of celeryconfig.py."""
_WAITERS_LOOKED_AT = 100


def pool_status(client: redis.Redis, pool: str) -> PoolStatus | None:
    """Returns a pool's status; None when it cannot be read."""
    try:
        return VMPool(client, pool).status()
    except (PoolError, redis.RedisError):
        return None


def pool_state(status: PoolStatus | None) -> dict[str, int]:
    """Returns how many VMs are in each state and how many rollouts wait for one; empty when the pool cannot be read."""
    if status is None:
        return {}
    waiting = {"waited for": len(status.waiters)} if status.waiters else {}
    return status.counts() | waiting


def waits_for(
    store: RunStore,
    progress: Progress,
    status: PoolStatus | None = None,
    *,
    own_worker: bool = False,
    patient: bool = False,
) -> str:
    """Returns what a run waits for before anything can happen in it; empty when it waits for nothing.

    Args:
        store: The run's store.
        progress: The run's progress.
        status: Its pool's status; None when it uses no pool, or when that cannot be read.
        own_worker: Whether its worker was started for it.
        patient: Whether the absence of workers is not reported yet, as they may still be starting.
    """
    if away := out_of_reach(store, progress):
        return away
    absent = "" if patient else nobody_serves(store, progress)
    if absent and own_worker:
        return "its worker is starting"
    sentences = absent, held_by_the_silent(store, progress, served=not absent), _no_vm(store, progress, status)
    return "; ".join(filter(None, sentences))


def nobody_serves(store: RunStore, progress: Progress) -> str:
    """Returns a sentence if no worker serves a queue that the run waits in; else empty."""
    if progress.running or not progress.pending:
        return ""
    return presence.unserved(store.client, progress.queues)


def out_of_reach(store: RunStore, progress: Progress) -> str:
    """Returns why rollouts wait for the model's endpoint; empty when they do not."""
    if not progress.pending:
        return ""
    with suppress(KeyError, UnreadableRun):
        models = store.config(progress.run_id)[0].models
        called_models = [model for model in models if model.base_url or model.pool]  # none in a run that asks no model
        outages = (outage_of(store.client, endpoint_of(model)) for model in called_models)
        return str(next(filter(None, outages), ""))
    return ""


def held_by_the_silent(store: RunStore, progress: Progress, *, served: bool = True) -> str:
    """Returns a sentence if nothing of the run goes on, and a worker that has gone silent holds rollouts of it; else empty.

    Args:
        store: The run's store.
        progress: The run's progress.
        served: Whether another worker is there to get them.
    """
    if progress.running or not progress.pending or progress.state not in {"submitting", "running"}:
        return ""
    returned = settings().visibility_timeout + _RESTORE_SECONDS
    limits = [store.silent_seconds, returned]
    count, silent = SCRIPTS.run(store.client, "silent", [run_key(progress.run_id)], limits)
    if not count:
        return ""
    held, them = ("1 rollout is held", "it") if count == 1 else (f"{count} rollouts are held", "them")
    within = max(1.0, returned - float(silent))
    if not served:
        return f"{held} by a worker that has gone silent, for {within:.0f} s more at most"
    return f"{held} by a worker that has gone silent; another worker gets {them} in {within:.0f} s at the latest"


def _no_vm(store: RunStore, progress: Progress, status: PoolStatus | None) -> str:
    """Returns a sentence if rollouts of the run wait for a VM and none of the pool is in service; else empty."""
    if status is None or not progress.running:
        return ""
    waiters = [waiter.holder.partition(" ")[2] for waiter in status.waiters[:_WAITERS_LOOKED_AT]]  # "WORKER ROLLOUT"
    if not waiters or not (said := none_in_service(status)):
        return ""
    held: Any = store.client.zmscore(f"{run_key(progress.run_id)}:alive", waiters)
    return said if any(beat is not None for beat in held) else ""


def none_in_service(status: PoolStatus) -> str:
    """Returns a sentence with the remedies if a pool has VMs, but none that will be lent again by itself; else empty."""
    reasons = [_out_of_service(vm) for vm in status.vms]
    if not reasons or not all(reasons):
        return ""
    pool = "" if status.name == "default" else f" --pool {status.name}"
    remedies = {
        "drained": f"`rollouts pool undrain all{pool}` puts them back",
        "quarantined": f"`rollouts pool reset VM{pool}` boots one anew",
        "silent": "start their `rollouts vm-host` again",
    }
    found = [f"{reasons.count(reason)} {reason} ({remedy})" for reason, remedy in remedies.items() if reason in reasons]
    return f"no VM of the pool {status.name!r} is in service: {', '.join(found)}"


def _out_of_service(vm: VM) -> str:
    """Returns why a VM is not lent again without an operator; empty if it is."""
    if vm.drained or vm.state is VMState.STOPPED:  # also if it is quarantined, too: a reset alone does not help it
        return "drained"
    if vm.state is VMState.ERROR and vm.retry_at is None:
        return "quarantined"
    return "" if vm.host_heard else "silent"
