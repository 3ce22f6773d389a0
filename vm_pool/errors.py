"""The errors of a pool; each message is one sentence."""

from __future__ import annotations


class PoolError(Exception):
    """The base class of the pool's errors."""


class PoolUnreachable(PoolError):
    """Redis did not answer. The same call may succeed later, and is safe to repeat."""


class PoolRefused(PoolError):
    """Redis refused: a wrong password, a missing permission."""


class PoolRefusedForNow(PoolRefused):
    """Redis refuses for now: out of memory, or a replica that was not promoted. The same call may succeed later."""


PASSING = (PoolUnreachable, PoolRefusedForNow)
"""After these, the same call may succeed later."""


class AcquireTimeout(PoolError):
    """No VM became available within the caller's timeout."""

    place: int = 0
    """The caller's place in the queue, 1 being next; 0 when unknown."""


class PoolEmpty(AcquireTimeout):
    """The pool had no VM at all for longer than hosts need to register theirs."""


class AcquireStopped(PoolError):
    """The caller's own `should_stop` ended the wait."""


class LeaseLost(PoolError):
    """The right to use the VM is over: expired, taken back, released, or past its maximum age."""


class UnknownVM(PoolError):
    """The pool has no VM of this id."""


class TransitionRefused(PoolError):
    """The VM is in a state that does not allow the request."""


class HostSuperseded(PoolError):
    """Another process now runs this host."""


class HostTaken(HostSuperseded):
    """Another process runs this host, and seems to be alive."""

    def __init__(self, sentence: str, instance: str, alive_until: int) -> None:
        super().__init__(sentence)
        self.instance = instance
        self.alive_until = alive_until
        """When it counts as silent unless it is heard from before: microseconds of the server's clock."""


class VMsInUse(PoolError):
    """Another process on this machine uses VMs with the same names, most likely for another pool."""


class ProviderError(PoolError):
    """A provider could not be found, does not accept its options, or lacks something on this machine."""
