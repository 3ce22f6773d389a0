"""Borrowers, a host, its gates and a server that may be killed, around the model of the scripts: every order of what they do.

Every state is visited that can be reached within a budget of faults. In each it is judged who can reach a VM through its
gate, whether a VM was clean when it was granted, and whether fences grew. And from each, without more faults and without anybody
giving up, it must be possible that every live borrower has had its VM and every VM is free again.

Run as: python -m tests.unit.vm_pool.system_model [num_vms=1] [wants=1,1] [crashes=1] [losses=1] [...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.state_search import Violation, explore
from tests.unit.vm_pool.pool_model import Data, Fence, Pool, new_pool


class Budget(NamedTuple):
    """How often each fault may happen on one way through the states."""

    crashes: int = 0
    """The server is killed, and comes back without some of its last writes."""
    losses: int = 0
    """A call is carried out and its reply lost, or a call is never made."""
    deaths: int = 0
    """A borrower is killed."""
    pauses: int = 0
    """A live one is so slow that its time passes."""
    failures: int = 0
    """A boot or a reset fails."""
    host_deaths: int = 0
    """The host is killed; another one of its name follows."""
    stops: int = 0
    """The host is stopped for so long that another one takes its name; it goes on once that one was killed."""


class Borrower(NamedTuple):
    """One process that needs a VM a few times."""

    name: str
    left: int
    """How many VMs it still wants."""
    phase: str = "idle"
    """idle, asked (and heard nothing), waiting, holding."""
    dead: bool = False
    ticket: int = 0
    vm: int = 0
    fence: Fence = (0, 0)
    gate: int = 0

    @property
    def token(self) -> str:
        return f"{self.name}{self.left}"


class Machine(NamedTuple):
    """One VM as its host knows it, and what it is really like."""

    known: Fence = (0, 0)
    job: str = ""
    """Empty, running, done (to be reported) or failed (to be reported)."""
    job_fence: Fence = (0, 0)
    gate: int = 0
    """The address that leads to the VM; 0: none does."""
    gate_fence: Fence = (0, 0)
    dirty: bool = False
    """Somebody could use it since it was booted or reset."""
    highest: Fence = (0, 0)
    """Of all leases there ever were."""


class Host(NamedTuple):
    """The process that looks after the VMs."""

    number: int = 1
    alive: bool = True
    joined: bool = False
    trusted: int = 0
    pending: tuple[tuple[int, str], ...] = ()
    """VMs to be registered anew, and as what."""
    then_trusts: int = 0
    displaced: bool = False
    """Another one, which has ended, spoke for its name since it trusted a server last."""
    looked: bool = True
    """It has spoken to the pool since it went on."""
    latest: int = 1
    """The highest number that a host of the name has had."""


class State(NamedTuple):
    """Everything at one moment."""

    data: Data
    process: int
    clock: int
    saved: Data | None
    """What a killed server comes back with."""
    borrowers: tuple[Borrower, ...]
    host: Host
    machines: tuple[Machine, ...]
    gates: int
    budget: Budget
    stopped: Host | None = None
    """A host that may go on."""
    stopped_known: tuple[Fence, ...] = ()
    """The fences that it knows."""


@dataclass
class Step:
    """One step under way: a state taken apart, so that it can be changed."""

    pool: Pool
    state: State

    def borrower(self, number: int, **changes: object) -> None:
        borrowers = list(self.state.borrowers)
        borrowers[number] = borrowers[number]._replace(**changes)
        self.state = self.state._replace(borrowers=tuple(borrowers))

    def machine(self, vm: int, **changes: object) -> None:
        machines = list(self.state.machines)
        machines[vm] = machines[vm]._replace(**changes)
        self.state = self.state._replace(machines=tuple(machines))

    def host(self, **changes: object) -> None:
        self.state = self.state._replace(host=self.state.host._replace(**changes))

    def pay(self, what: str) -> None:
        self.state = self.state._replace(
            budget=self.state.budget._replace(**{what: getattr(self.state.budget, what) - 1})
        )

    def done(self) -> State:
        """The state after the step, judged."""
        for vm, is_ in enumerate(self.pool.data.vms):
            before, highest = self.state.data.vms[vm], self.state.machines[vm].highest
            granted = is_.state == "leased" and (before.state != "leased" or before.fence != is_.fence)
            if granted and self.pool.process == self.state.process:
                if is_.fence <= highest:
                    raise Violation(f"the fence of VM {vm} was {highest}, and {is_.fence} in a later lease")
                self.machine(vm, highest=is_.fence)
                if self.knows_its_vms() and is_.gate != self.state.machines[vm].gate:
                    raise Violation(f"VM {vm} was granted at a gate that leads nowhere")
        tokens = [is_.token for is_ in self.pool.data.vms if is_.state == "leased"]
        if len(tokens) != len(set(tokens)):
            raise Violation(f"one request has two VMs: {tokens}")
        for vm, machine in enumerate(self.state.machines):
            users = [b.name for b in self.state.borrowers if reaches(b, vm, machine)]
            if len(users) > 1:
                raise Violation(f"{' and '.join(users)} reach VM {vm} at once")
        return normal(self.state._replace(data=self.pool.data, process=self.pool.process, clock=self.pool.clock))

    def knows_its_vms(self) -> bool:
        """Whether the host has joined the pool, is there, and stands behind all that the pool may grant."""
        host = self.state.host
        return host.alive and host.looked and host.trusted == self.pool.process


def normal(state: State) -> State:
    """The same state with the smallest numbers: only the order of fences and tickets matters, and which gates are the same."""
    datas = [data for data in (state.data, state.saved) if data is not None]
    fences = [vm.fence for data in datas for vm in data.vms] + [b.fence for b in state.borrowers]
    fences += [fence for m in state.machines for fence in (m.known, m.job_fence, m.gate_fence, m.highest)]
    fences += state.stopped_known
    fences += [message[1] for data in datas for _, message in data.inboxes]
    tickets = [ticket for data in datas for ticket, _ in data.queue] + [b.ticket for b in state.borrowers]
    numbers = {0: 0} | {n: rank for rank, n in enumerate(sorted({*tickets, *(n for n, _ in fences)} - {0}), 1)}
    seen = (
        [m.gate for m in state.machines] + [b.gate for b in state.borrowers] + [vm.gate for d in datas for vm in d.vms]
    )
    seen += [message[2] for data in datas for _, message in data.inboxes]
    gates = {0: 0} | {gate: rank for rank, gate in enumerate(sorted(set(seen) - {0}), 1)}

    def fence(is_: Fence) -> Fence:
        return (numbers[is_[0]], is_[1])

    def renumbered(data: Data) -> Data:
        return data._replace(
            vms=tuple(vm._replace(fence=fence(vm.fence), gate=gates[vm.gate]) for vm in data.vms),
            queue=tuple((numbers[ticket], token) for ticket, token in data.queue),
            inboxes=tuple((token, (vm, fence(was), gates[gate])) for token, (vm, was, gate) in data.inboxes),
        )

    return state._replace(
        data=renumbered(state.data),
        saved=state.saved and renumbered(state.saved),
        clock=len(numbers) - 1,
        borrowers=tuple(
            b._replace(fence=fence(b.fence), ticket=numbers[b.ticket], gate=gates[b.gate]) for b in state.borrowers
        ),
        machines=tuple(
            m._replace(
                known=fence(m.known),
                job_fence=fence(m.job_fence),
                gate=gates[m.gate],
                gate_fence=fence(m.gate_fence),
                highest=fence(m.highest),
            )
            for m in state.machines
        ),
        gates=len(gates) - 1,
        stopped_known=tuple(map(fence, state.stopped_known)),
    )


def reaches(borrower: Borrower, vm: int, machine: Machine) -> bool:
    """Whether what the borrower does arrives at the VM."""
    holds = borrower.phase == "holding" and not borrower.dead and borrower.vm == vm
    return holds and machine.gate != 0 and borrower.gate == machine.gate


class System:
    """What may happen next.

    Args:
        num_vms: How many VMs the host has.
        wants: How many VMs each borrower wants, one after the other.
        flaws: Mistakes on purpose, for showing that they are found.
    """

    def __init__(self, num_vms: int, wants: tuple[int, ...], flaws: frozenset[str] = frozenset()) -> None:
        self.num_vms, self.flaws = num_vms, flaws
        self.wants = wants

    def start(self, budget: Budget) -> State:
        """Nobody has done anything."""
        pool = new_pool(self.num_vms, self.flaws)
        borrowers = tuple(Borrower(chr(ord("a") + number), wants) for number, wants in enumerate(self.wants))
        return State(
            pool.data, pool.process, pool.clock, None, borrowers, Host(), (Machine(),) * self.num_vms, 0, budget
        )

    def step(self, state: State) -> Step:
        return Step(Pool(state.data, state.process, state.clock, self.flaws), state)

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that may be next, by name."""
        for number, borrower in enumerate(state.borrowers):
            if not borrower.dead:
                yield from self._borrower(state, number, borrower)
        yield from self._host(state)
        yield from self._time(state)
        yield from self._server(state)

    # Borrowers

    def _borrower(self, state: State, number: int, me: Borrower) -> Iterator[tuple[str, State]]:
        if me.phase != "holding" and me.left:
            yield f"{me.name} asks", self.ask(state, number)
            if state.budget.losses:
                step = self.step(state)
                step.pool.acquire(me.token, me.phase != "idle", me.ticket)
                step.borrower(number, phase="asked")
                step.pay("losses")
                yield f"{me.name} asks and hears nothing", step.done()
        if me.phase == "waiting":
            if me.token in dict(state.data.inboxes):
                yield f"{me.name} takes what was handed over", self.take(state, number)
                if state.budget.losses:
                    step = self.step(state)
                    step.pool.pop(me.token)
                    step.pay("losses")
                    yield f"{me.name}'s grant is lost on its way", step.done()
            step = self.step(state)
            step.pool.leave(me.token, give_back=True)
            self._next(step, number)
            yield f"{me.name} leaves", step.done()
        if me.phase == "holding":
            yield f"{me.name} renews", self.renew(state, number)
            yield f"{me.name} releases", self.release(state, number)
            if state.budget.losses:
                step = self.step(state)
                self._next(step, number)
                step.pay("losses")
                yield f"{me.name} cannot say that it is done", step.done()
        if state.budget.deaths:
            step = self.step(state)
            step.borrower(number, dead=True)
            step.pay("deaths")
            yield f"{me.name} is killed", step.done()

    def ask(self, state: State, number: int) -> State:
        """Asks for the first time, or again."""
        step, me = self.step(state), state.borrowers[number]
        reply = step.pool.acquire(me.token, me.phase != "idle", me.ticket)
        if reply[0]:
            self._holds(step, number, *reply[1:])
        else:
            step.borrower(number, phase="waiting", ticket=reply[1])
        return step.done()

    def take(self, state: State, number: int) -> State:
        """Finds in its inbox what was handed over, if anything."""
        step = self.step(state)
        message = step.pool.pop(state.borrowers[number].token)
        if message is not None:
            self._holds(step, number, *message)
        return step.done()

    def renew(self, state: State, number: int) -> State:
        """Learns whether it still holds the VM."""
        step, me = self.step(state), state.borrowers[number]
        if not step.pool.renew(me.vm, me.fence):
            self._next(step, number)
        return step.done()

    def release(self, state: State, number: int) -> State:
        """Uses the VM no more and says so."""
        step, me = self.step(state), state.borrowers[number]
        step.pool.release(me.vm, me.fence)
        self._next(step, number)
        return step.done()

    def _holds(self, step: Step, number: int, vm: int, fence: Fence, gate: int) -> None:
        step.borrower(number, phase="holding", vm=vm, fence=fence, gate=gate)
        machine = step.state.machines[vm]
        if reaches(step.state.borrowers[number], vm, machine):
            if machine.dirty:
                raise Violation(f"{step.state.borrowers[number].name} got VM {vm}, which somebody used before")
            step.machine(vm, dirty=True)

    def _next(self, step: Step, number: int) -> None:
        left = step.state.borrowers[number].left - 1
        step.borrower(number, phase="idle", left=left, ticket=0, vm=0, fence=(0, 0), gate=0)

    # The host

    def _host(self, state: State) -> Iterator[tuple[str, State]]:
        host = state.host
        if not host.alive:
            yield "a new host starts", self.restart_host(state)
            if state.stopped is not None and state.data.host != f"host {state.stopped.number}":
                yield "the stopped host goes on", self.go_on(state, state.stopped)
            return
        yield "the host looks", self.look(state)
        for vm, machine in enumerate(state.machines):
            if machine.job == "running":
                yield f"VM {vm} is clean", self.finish(state, vm)
                if state.budget.failures:
                    step = self.step(state)
                    step.machine(vm, job="failed")
                    step.pay("failures")
                    yield f"VM {vm} is broken", step.done()
            elif machine.job:
                yield f"VM {vm} is reported", self.report(state, vm)
                if state.budget.losses:
                    step = self.step(state)
                    self._say(step, vm)
                    step.pay("losses")
                    yield f"VM {vm} is reported, and the reply lost", step.done()
        sees = "sees no dead" not in self.flaws and host.joined and not host.pending
        if sees and any(borrower.dead for borrower in state.borrowers):
            ended = self.end_the_dead(state)
            if ended != state:
                yield "the host sees who is dead", ended
        if state.budget.host_deaths:
            yield "the host is killed", self._ends(state, "host_deaths")
        if state.budget.stops and host.joined and not host.pending:
            known = tuple(machine.known for machine in state.machines)
            yield "the host is stopped", self._ends(state._replace(stopped=host, stopped_known=known), "stops")

    def _ends(self, state: State, how: str) -> State:
        """Nothing leads to the VMs any more; whoever starts under the name ends them."""
        step = self.step(state)
        step.host(alive=False)
        for vm in range(self.num_vms):
            step.machine(vm, gate=0, gate_fence=(0, 0), job="", job_fence=(0, 0), known=(0, 0))
        step.pay(how)
        return step.done()

    def restart_host(self, state: State) -> State:
        """A new process of the same name."""
        step, number = self.step(state), state.host.latest + 1
        step.state = step.state._replace(host=Host(number=number, latest=number))
        return step.done()

    def go_on(self, state: State, stopped: Host) -> State:
        """A process goes on that was stopped; it still believes what it knew."""
        step = self.step(state)
        step.state = step.state._replace(
            host=stopped._replace(looked=False, latest=state.host.latest), stopped=None, stopped_known=()
        )
        for vm, fence in enumerate(state.stopped_known):
            step.machine(vm, known=fence)
        return step.done()

    def look(self, state: State) -> State:
        """One call of the host, and what follows from its reply."""
        step, host = self.step(state), state.host
        me = f"host {host.number}"
        if not host.joined:
            predecessor = step.pool.data.host
            lives = state.stopped is not None and predecessor == f"host {state.stopped.number}"
            reply = step.pool.beat(me, "silent" if lives or not predecessor else predecessor, 0)
            if reply is None:
                return step.done()  # it waits until the other one has been silent for long enough
            pending = tuple((vm, "initializing") for vm in range(self.num_vms))
            step.host(joined=True, pending=pending, then_trusts=reply[0])
        elif host.pending:
            (vm, as_what), *rest = host.pending
            fence = step.pool.register(vm, as_what, step.state.machines[vm].known)
            step.machine(vm, known=fence)
            step.host(pending=tuple(rest))
            if not rest:
                step.host(trusted=host.then_trusts, displaced=False)
        else:
            reply = self._beat(step, me)
            process, vms = reply
            doubtful = self._doubtful(step.state, vms) if process != step.state.host.trusted else ()
            if doubtful:
                step.host(pending=doubtful, then_trusts=process)
            else:
                step.host(trusted=process, displaced=False)
                for vm, (is_, fence) in enumerate(vms):
                    self._attend(step, vm, is_, fence)
        step.host(looked=True)
        return step.done()

    def _beat(self, step: Step, me: str) -> tuple[Any, ...]:
        """A sign of life; a process that spoke for the name, and has ended, is replaced."""
        reply = step.pool.beat(me, "no", step.state.host.trusted)
        if reply is None:
            if "trusts what a successor left" not in self.flaws:
                step.host(trusted=0, displaced=True)
            reply = step.pool.beat(me, step.pool.data.host, step.state.host.trusted)
        assert reply is not None
        return reply

    def _doubtful(self, state: State, vms: tuple[tuple[str, Fence], ...]) -> tuple[tuple[int, str], ...]:
        if state.host.displaced:
            return tuple((vm, "initializing") for vm, (is_, _) in enumerate(vms) if is_ not in ("error", "stopped", ""))
        if "believes a new server" in self.flaws:
            return ()
        kept = ("leased", "error", "stopped", "")
        if "keeps what is being reset" in self.flaws:
            kept = (*kept, "initializing", "resetting")
        known = [machine.known for machine in state.machines]
        doubted = (vm for vm, (is_, fence) in enumerate(vms) if is_ not in kept or (is_ and fence < known[vm]))
        return tuple((vm, "resetting") for vm in doubted)

    def _attend(self, step: Step, vm: int, is_: str, fence: Fence) -> None:
        machine = step.state.machines[vm]
        if is_ not in ("free", "leased") and machine.gate_fence < fence and "keeps the gate open" not in self.flaws:
            step.machine(vm, gate=0)
        if machine.job:
            return
        if not is_:
            fence = step.pool.register(vm, "resetting", machine.known)
            step.machine(vm, known=fence)
            return
        step.machine(vm, known=max(machine.known, fence))
        if is_ == "error":
            step.pool.retry(vm, fence)
        elif is_ in ("initializing", "resetting"):
            gate = machine.gate if "keeps the gate open" in self.flaws else 0
            step.machine(vm, job="running", job_fence=fence, gate=gate)

    def finish(self, state: State, vm: int) -> State:
        """A boot or reset is done: the VM is clean, and has a gate of its own."""
        step, machine = self.step(state), state.machines[vm]
        if "keeps the gate open" in self.flaws and machine.gate:
            step.machine(vm, job="done", dirty=False, gate_fence=machine.job_fence)
        else:
            step.state = step.state._replace(gates=state.gates + 1)
            step.machine(vm, job="done", dirty=False, gate=state.gates + 1, gate_fence=machine.job_fence)
        return step.done()

    def report(self, state: State, vm: int) -> State:
        """The pool is told what came of a boot or reset."""
        step = self.step(state)
        self._say(step, vm)
        step.machine(vm, job="", job_fence=(0, 0))
        return step.done()

    def _say(self, step: Step, vm: int) -> None:
        machine = step.state.machines[vm]
        if machine.job == "done":
            step.pool.ready(vm, machine.job_fence, machine.gate)
        else:
            step.pool.failed(vm, machine.job_fence)

    def end_the_dead(self, state: State) -> State:
        """The host ends what processes that have ended held or waited for."""
        step = self.step(state)
        for borrower in state.borrowers:
            if borrower.dead:
                step.pool.ended_waiter(borrower.token)
                for vm, is_ in enumerate(step.pool.data.vms):
                    if is_.state == "leased" and is_.token == borrower.token:
                        step.pool.ended_lease(vm, is_.fence)
        return step.done()

    # Time, and the server

    def _time(self, state: State) -> Iterator[tuple[str, State]]:
        alive = {borrower.token: borrower for borrower in state.borrowers if not borrower.dead}
        for vm, is_ in enumerate(state.data.vms):
            if is_.state != "leased":
                continue
            owner = alive.get(is_.token)
            if not is_.over:
                cares = owner is not None and (owner.phase != "holding" or owner.fence == is_.fence)
                yield from self._passes(state, f"the lease of VM {vm} is over", cares, vm=vm, over=True)
            if is_.untaken and not is_.late:
                yield from self._passes(state, f"VM {vm} lies untaken", owner is not None, vm=vm, late=True)
        for _, token in state.data.queue:
            if token not in state.data.silent_waiters:
                yield from self._passes(state, f"{token} is silent", token in alive, waiter=token)
        if state.data.heard == "yes":
            speaks = state.host.alive and state.data.host == f"host {state.host.number}"
            yield from self._passes(state, "the host is silent", speaks, host=True)
        reaped = self.reap(state)
        if reaped != state:
            yield "somebody reaps", reaped

    def _passes(
        self, state: State, what: str, alive: bool, *, vm: int = -1, waiter: str = "", host: bool = False, **marks: bool
    ) -> Iterator[tuple[str, State]]:
        """Somebody's time passes: for the dead and forgetful sooner or later, for the living only when they are slow."""
        if alive and not state.budget.pauses:
            return
        data = state.data
        if vm >= 0:
            vms = list(data.vms)
            vms[vm] = vms[vm]._replace(**marks)
            data = data._replace(vms=tuple(vms))
        if waiter:
            data = data._replace(silent_waiters=data.silent_waiters | {waiter})
        if host:
            data = data._replace(heard="due")
        step = self.step(state._replace(data=data))
        if alive:
            step.pay("pauses")
        yield what, step.done()

    def reap(self, state: State) -> State:
        """What is due ends."""
        step = self.step(state)
        step.pool.reap()
        return step.done()

    def _server(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.budget.crashes:
            return
        if state.saved is None:
            yield "Redis writes down what it has", state._replace(saved=state.data)
        for what, data in (("forgets its last writes", state.saved), ("remembers all", state.data)):
            if data is not None:
                step = self.step(state._replace(saved=None))
                step.pool.restart(data)
                step.pay("crashes")
                yield f"Redis is killed and {what}", step.done()

    @staticmethod
    def helps(what: str, before: State, after: State) -> bool:
        """Faults are not counted on, nor that anybody gives up."""
        return before.budget == after.budget and not what.endswith(" leaves")

    @staticmethod
    def settled(state: State) -> bool:
        """Whether nothing is left to be done: nobody alive wants a VM, and each is free for the next."""
        free = all(vm in state.data.free for vm in range(len(state.machines)))
        return free and state.host.alive and all(borrower.dead or not borrower.left for borrower in state.borrowers)


def main(words: list[str]) -> None:
    """Explores the system with the given budget: num_vms=1 wants=1,1 crashes=1 losses=1 ..."""
    given = dict(word.split("=", 1) for word in words)
    num_vms = int(given.pop("num_vms", "1"))
    wants = tuple(int(number) for number in given.pop("wants", "1,1").split(","))
    budget = replace_all(Budget(), given)
    began = time.monotonic()
    system = System(num_vms, wants)
    found = explore(system, system.start(budget))
    sys.stdout.write(f"{found.states} states, {found.steps} steps, no violation, {time.monotonic() - began:.0f} s\n")


def replace_all(budget: Budget, given: dict[str, str]) -> Budget:
    """A budget with the named numbers."""
    return budget._replace(**{what: int(number) for what, number in given.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
