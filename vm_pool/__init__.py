"""A pool of virtual machines: who may use which VM, and how the VMs are booted, reset and checked.

Independent of benchmarks and Celery: any program with a Redis connection can offer VMs and lease them.
"""

from vm_pool.errors import (
    AcquireStopped,
    AcquireTimeout,
    LeaseLost,
    PoolEmpty,
    PoolError,
    PoolRefused,
    PoolUnreachable,
    TransitionRefused,
    UnknownVM,
)
from vm_pool.lease import Lease
from vm_pool.pool import VMPool
from vm_pool.states import VM, Endpoint, Event, PoolStatus, VMState, Waiter

__all__ = [
    "VM",
    "AcquireStopped",
    "AcquireTimeout",
    "Endpoint",
    "Event",
    "Lease",
    "LeaseLost",
    "PoolEmpty",
    "PoolError",
    "PoolRefused",
    "PoolStatus",
    "PoolUnreachable",
    "TransitionRefused",
    "UnknownVM",
    "VMPool",
    "VMState",
    "Waiter",
]
