"""Who may use which virtual machine, and the machines' own lives.

Knows nothing of benchmarks or Celery: any program with a Redis connection can lend and borrow VMs through it.
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
