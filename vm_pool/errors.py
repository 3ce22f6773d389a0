"""What can go wrong with a pool, each as one sentence naming the pool and the VM."""

from __future__ import annotations


class PoolError(Exception):
    """Something about a pool went wrong."""


class PoolUnreachable(PoolError):
    """Redis did not answer. The same call may succeed later, and is safe to repeat."""


class PoolRefused(PoolError):
    """Redis answered that it will not: a wrong password, a missing right."""


class PoolRefusedForNow(PoolRefused):
    """Redis will not just now, as without memory or as a replica that nobody has promoted. The same call may succeed later."""


class AcquireTimeout(PoolError):
    """No VM came within the time the caller was ready to wait."""

    place: int = 0
    """The place it had in the queue, 1 being next; 0 when unknown."""


class PoolEmpty(AcquireTimeout):
    """The pool had no VM at all for longer than hosts need to register theirs."""


class AcquireStopped(PoolError):
    """The caller's own `should_stop` ended the wait."""


class LeaseLost(PoolError):
    """The right to use the VM is over: expired, taken back, released, or of its maximum age."""


class UnknownVM(PoolError):
    """The pool has no VM of this id."""


class TransitionRefused(PoolError):
    """The VM is in a state that does not allow what was asked."""


class HostSuperseded(PoolError):
    """Another process speaks for this host now."""


class HostTaken(HostSuperseded):
    """Another process speaks for this host, and does not look as if it had ended."""

    def __init__(self, sentence: str, instance: str, alive_until: int) -> None:
        super().__init__(sentence)
        self.instance = instance
        self.alive_until = alive_until
        """When it counts as silent unless it says something before: microseconds of the server's clock."""


class VMsInUse(PoolError):
    """Another process of this machine uses VMs of the same names, most likely for another pool."""


class ProviderError(PoolError):
    """A provider could not be found, or does not accept its options."""
