"""What the pool's Lua scripts do, as plain Python on small values: one function for each script, and nothing else.

Time is not there. What ends by time (a lease, a place in the queue, a grant that lies untaken, a host's silence) is marked as due
by whoever plays the clock, and ended by the next script that looks. Every VM belongs to one host and needs a reset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Fence = tuple[int, int]
"""(n, k): the n-th number taken from the clock, plus k."""


class VM(NamedTuple):
    """One VM's entry."""

    state: str = ""
    """Empty: the pool does not know it."""
    fence: Fence = (0, 0)
    token: str = ""
    """The request that has it leased, else empty."""
    gate: int = 0
    """The address that the next holder gets."""
    over: bool = False
    """The lease's time has passed."""
    untaken: bool = False
    """The grant was handed over, and was not renewed since."""
    late: bool = False
    """The time has passed within which such a grant must be taken."""


class Data(NamedTuple):
    """What the server keeps, and loses some of when it is killed."""

    vms: tuple[VM, ...]
    free: tuple[int, ...] = ()
    queue: tuple[tuple[int, str], ...] = ()
    """(Ticket, token), in order."""
    silent_waiters: frozenset[str] = frozenset()
    """Those whose time has passed."""
    inboxes: tuple[tuple[str, tuple[int, Fence, int]], ...] = ()
    """(Token, (VM, fence, gate)) of grants that were handed over and not taken."""
    host: str = ""
    """The instance that speaks for it."""
    heard: str = "never"
    """yes, due (its time has passed, nobody noticed) or never (or too long ago)."""
    trusted: int = 0
    """The server process whose grants the host stands behind."""


@dataclass
class Pool:
    """A server with its data. The scripts change it in place; `data` is what a snapshot of it is."""

    data: Data
    process: int = 1
    clock: int = 0
    """How many numbers were taken from it; never lost."""
    flaws: frozenset[str] = field(default_factory=frozenset)
    """Mistakes on purpose, for showing that they are found."""

    # The scripts

    def acquire(self, token: str, again: bool, ticket: int = 0) -> tuple[Any, ...]:
        """(1, VM, fence, gate) or (0, ticket)."""
        queued = False
        if again:
            self.reap()
            queued = any(waiting == token for _, waiting in self.data.queue)
            held = None if queued else self._leased_under(token)
            if held is not None:
                return self._grant_again(held, token)
        for look in (False, True):
            if look:
                self.reap()
            if self.data.free:
                vm, *rest = self.data.free
                self._set(free=tuple(rest))
                if self.lends:
                    self._lease_out(vm, token)
                    return self._granted(vm)
        if not ticket:
            ticket = self._from_clock()
        if not queued:
            self._set(queue=tuple(sorted((*self.data.queue, (ticket, token)))))
        self._set(silent_waiters=self.data.silent_waiters - {token})
        return (0, ticket)

    def pop(self, token: str) -> tuple[Any, ...] | None:
        """BLPOP of the inbox: (VM, fence, gate), or None."""
        inboxes = dict(self.data.inboxes)
        message = inboxes.pop(token, None)
        self._set(inboxes=tuple(sorted(inboxes.items())))
        return message

    def leave(self, token: str, give_back: bool) -> tuple[Any, ...]:
        """(1, VM, fence, gate), or (0, place)."""
        self.reap()
        waiting = [name for _, name in self.data.queue]
        if token in waiting:
            place = waiting.index(token) + 1
            self._forget_waiter(token)
            return (0, place)
        held = self._leased_under(token)
        if held is not None and not give_back:
            return self._grant_again(held, token)
        if held is not None:
            self._take_back(held)
        return (0, 0)

    def renew(self, vm: int, fence: Fence) -> bool:
        """Whether the lease goes on."""
        is_ = self.data.vms[vm]
        if is_.state != "leased" or is_.fence != fence or is_.over:
            return False
        self._set_vm(vm, untaken=False, late=False)
        return True

    def release(self, vm: int, fence: Fence) -> bool:
        """Whether the lease was held until now."""
        is_ = self.data.vms[vm]
        if is_.state != "leased" or is_.fence != fence:
            return False
        self._take_back(vm, by_holder=True)
        return True

    def reap(self) -> int:
        """How much was ended."""
        ended = 0
        if "forgets the due" in self.flaws:
            return 0
        for number, vm in enumerate(self.data.vms):
            lies = vm.untaken and vm.late and vm.token in dict(self.data.inboxes)
            if vm.state == "leased" and (vm.over or lies):
                self._take_back(number)
                ended += 1
        for token in sorted(self.data.silent_waiters):
            ended += any(waiting == token for _, waiting in self.data.queue)
            self._forget_waiter(token)
        if self.data.heard == "due":
            self._set(heard="never", free=())
            ended += 1
        return ended

    def beat(self, instance: str, replaces: str, trusts: int) -> tuple[Any, ...] | None:
        """None when another instance speaks for the host, else (this process, ((state, fence) of each VM, ...)).

        Args:
            instance: Who says it.
            replaces: `no`, `silent`, or the instance that has ended.
            trusts: The server process that the host has compared itself with.
        """
        before = self.data.host
        takes_over = before != instance
        if takes_over and before and replaces != before and not (replaces == "silent" and self.data.heard != "yes"):
            return None
        if takes_over or trusts == self.process:
            self._set(trusted=self.process if trusts == self.process else 0)
        self._set(host=instance, heard="yes")
        self.reap()
        for number, vm in enumerate(self.data.vms):
            if takes_over:
                self._set(free=tuple(other for other in self.data.free if other != number))
            elif self.lends and vm.state == "free" and number not in self.data.free:
                self._hand_on(number)
        return (self.process, tuple((vm.state, vm.fence) for vm in self.data.vms))

    def register(self, vm: int, state: str, known: Fence = (0, 0)) -> Fence:
        """The VM's fence."""
        is_ = self.data.vms[vm]
        if is_.state == "leased":
            self._take_back(vm)
        self._set(free=tuple(other for other in self.data.free if other != vm))
        fence = (self._from_clock(), 0)
        assert fence > known, "the clock is ahead of every fence"
        self._set_vm(vm, state=state, fence=fence, token="", gate=0)
        return fence

    def ready(self, vm: int, fence: Fence, gate: int) -> str:
        """The VM's state, or nothing when the report is about a state that it has left."""
        is_ = self.data.vms[vm]
        if is_.fence != fence or is_.state not in ("initializing", "resetting"):
            return ""
        self._set_vm(vm, state="free", gate=gate)
        if self.lends:
            self._hand_on(vm)
        return self.data.vms[vm].state

    def failed(self, vm: int, fence: Fence) -> bool:
        """Whether the VM is quarantined by this report."""
        is_ = self.data.vms[vm]
        if is_.fence != fence or is_.state not in ("initializing", "resetting"):
            return False
        self._set_vm(vm, state="error")
        return True

    def retry(self, vm: int, fence: Fence) -> bool:
        """move.lua as a host uses it: a quarantined VM is booted again."""
        is_ = self.data.vms[vm]
        if is_.state != "error" or is_.fence != fence:
            return False
        self._set_vm(vm, state="initializing", fence=(fence[0], fence[1] + 2))
        return True

    def ended_waiter(self, token: str) -> bool:
        """ended.lua: whether the waiter of a process that has ended was in the queue."""
        waits = any(waiting == token for _, waiting in self.data.queue)
        if waits:
            self._forget_waiter(token)
        return waits

    def ended_lease(self, vm: int, fence: Fence) -> bool:
        """ended.lua: whether the lease of a process that has ended was there."""
        is_ = self.data.vms[vm]
        if is_.state != "leased" or is_.fence != fence:
            return False
        self._take_back(vm)
        return True

    # What happens to the server

    def restart(self, data: Data) -> None:
        """Another process, with what was written down."""
        self.data = data
        self.process += 1

    @property
    def lends(self) -> bool:
        """Whether the host's VMs may be granted."""
        trusted = "trusts any server" in self.flaws or self.data.trusted == self.process
        return self.data.heard == "yes" and trusted

    # The moves that scripts share

    def _from_clock(self) -> int:
        self.clock += 1
        return self.clock

    def _set(self, **changes: Any) -> None:
        self.data = self.data._replace(**changes)

    def _set_vm(self, vm: int, **changes: Any) -> None:
        vms = list(self.data.vms)
        vms[vm] = vms[vm]._replace(**changes)
        self._set(vms=tuple(vms))

    def _granted(self, vm: int) -> tuple[Any, ...]:
        return (1, vm, self.data.vms[vm].fence, self.data.vms[vm].gate)

    def _lease_out(self, vm: int, token: str, untaken: bool = False) -> None:
        fence = (self._from_clock(), 0)
        self._set_vm(vm, state="leased", fence=fence, token=token, over=False, untaken=untaken, late=False)

    def _grant_again(self, vm: int, token: str) -> tuple[Any, ...]:
        self._set_vm(vm, over=False, untaken=False, late=False)
        self.pop(token)
        return self._granted(vm)

    def _leased_under(self, token: str) -> int | None:
        found = [number for number, vm in enumerate(self.data.vms) if vm.state == "leased" and vm.token == token]
        return found[0] if found else None

    def _forget_waiter(self, token: str) -> None:
        queue = tuple(entry for entry in self.data.queue if entry[1] != token)
        self._set(queue=queue, silent_waiters=self.data.silent_waiters - {token})

    def _hand_on(self, vm: int) -> None:
        while self.data.queue:
            token = self.data.queue[0][1]
            alive = token not in self.data.silent_waiters
            self._forget_waiter(token)
            if alive:
                self._lease_out(vm, token, untaken=True)
                is_ = self.data.vms[vm]
                inboxes = {**dict(self.data.inboxes), token: (vm, is_.fence, is_.gate)}
                self._set(inboxes=tuple(sorted(inboxes.items())))
                return
        self._set(free=(*self.data.free, vm))

    def _take_back(self, vm: int, *, by_holder: bool = False) -> None:
        is_ = self.data.vms[vm]
        if not by_holder:
            self.pop(is_.token)
        n, k = is_.fence
        self._set_vm(vm, state="resetting", fence=(n, k + 1), token="", over=False, untaken=False, late=False)


def new_pool(num_vms: int, flaws: frozenset[str] = frozenset()) -> Pool:
    """A server that knows of nothing."""
    return Pool(Data(vms=(VM(),) * num_vms), flaws=flaws)


def copy_of(pool: Pool) -> Pool:
    """One that changes by itself."""
    return replace(pool)
