"""What must hold whatever borrowers, hosts and operators do in whatever order, checked on the event stream.

Time is real: some leases and waiters get a few milliseconds to live, and a rule lets those pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from vm_pool import Endpoint, Event, TransitionRefused, UnknownVM, VMPool, VMState
from vm_pool.host_client import HostClient
from vm_pool.lua_scripts import microseconds, run
from vm_pool.waiting import Request

SHORT = 0.01
LONG = 600.0
VMS = ("h-0", "h-1", "h-2")
ENDS = ("released", "expired", "revoked", "returned")
CLEAN = ("reset_done", "booted")


@dataclass
class Asked:
    """One request and what its caller knows."""

    request: Request
    patience: float
    ticket: int = 0

    def is_alive(self) -> bool:
        """Surely: of a waiter with little patience, nothing is."""
        return self.patience == LONG


class PoolMachine(RuleBasedStateMachine):
    """Borrowers, one host and an operator; `_read_events` holds the properties."""

    asked = Bundle("asked")
    leases = Bundle("leases")

    def __init__(self, url: str) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self.client.flushall()
        self.pool = VMPool(self.client, "p")
        self.side = HostClient(self.pool, "h", silent_after=LONG)
        self.side.trust(self.side.beat(take_over=True).server)
        self.side.beat()
        self.seen = "-"
        self.number = 0
        self.requests: dict[str, Request] = {}
        self.queue: dict[str, Asked] = {}
        self.held: dict[str, Event] = {}
        self.clean: dict[str, bool] = {}
        self.fences: dict[str, int] = {}
        for vm_id in VMS:
            self._register(vm_id)

    @initialize(count=st.integers(0, len(VMS)))
    def begin(self, count: int) -> None:
        self.finish_resets(count)

    # Borrowers

    @rule(
        target=asked,
        priorities=st.lists(st.integers(-2, 2), min_size=1, max_size=4),
        ttl=st.sampled_from([LONG, LONG, SHORT]),
        patience=st.sampled_from([LONG, LONG, SHORT]),
    )
    def ask(self, priorities: list[int], ttl: float, patience: float) -> MultipleResults[Asked]:
        return multiple(*(self._ask_anew(priority, ttl, patience) for priority in priorities))

    @rule(asked=asked)
    def ask_again(self, asked: Asked) -> None:
        self._ask(asked, again=True)

    @rule(asked=consumes(asked), give_back=st.booleans())
    def leave(self, asked: Asked, give_back: bool) -> None:
        run(self.pool.redis, self.pool.keys, "leave", asked.request.token, "1" if give_back else "0")
        assert not self.client.exists(self.pool.keys.inbox(asked.request.token))
        self.queue.pop(asked.request.holder, None)
        self._read_events()

    @rule(target=leases, vm_id=st.sampled_from(VMS))
    def remember(self, vm_id: str) -> tuple[str, int]:
        return vm_id, self.fences.get(vm_id, 0)

    @rule(lease=leases)
    def release(self, lease: tuple[str, int]) -> None:
        vm_id, fence = lease
        current = self._current(lease)
        if current:
            self._pick_up(self.held[vm_id])
        assert self.pool.release(vm_id, fence) == current
        assert self.pool.release(vm_id, fence) is False
        self._read_events()

    @rule(lease=leases)
    def renew(self, lease: tuple[str, int]) -> None:
        holder = self.held[lease[0]].holder if lease[0] in self.held else ""
        renewed = self.pool.renew([lease])[0] is not None
        self._read_events()
        if renewed:
            assert self._current(lease)
        elif self._current(lease):
            assert self._is_short(holder), "a lease that lives was not renewed"

    @rule()
    def let_short_ones_end(self) -> None:
        time.sleep(SHORT + 0.006)
        self.pool.reap()
        self._read_events()
        assert not any(self._is_short(event.holder) for event in self.held.values())

    # The host

    @rule(count=st.integers(1, len(VMS)))
    def finish_resets(self, count: int) -> None:
        for vm in self.side.beat().vms[:count]:
            if vm.state in (VMState.RESETTING, VMState.INITIALIZING):
                assert self.side.ready(vm.vm_id, vm.fence, Endpoint("127.0.0.1"))
                assert not self.side.ready(vm.vm_id, vm.fence, Endpoint("127.0.0.1"))
        self._read_events()

    @rule(vm_id=st.sampled_from(VMS))
    def fail(self, vm_id: str) -> None:
        for vm in self.side.beat().vms:
            if vm.vm_id == vm_id:
                self.side.failed(vm_id, vm.fence, "broken", first_delay=1, longest_delay=1)
        self._read_events()

    @rule(vm_id=st.sampled_from(VMS))
    def report_under_an_old_fence(self, vm_id: str) -> None:
        assert not self.side.ready(vm_id, self.fences.get(vm_id, 0) - 1, Endpoint("127.0.0.1"))

    @rule(vm_id=st.sampled_from(VMS))
    def register_anew(self, vm_id: str) -> None:
        self._register(vm_id)
        self._read_events()

    # The operator

    @rule(
        vm_id=st.sampled_from(VMS), what=st.sampled_from(["drain", "undrain", "force_release", "reset", "quarantine"])
    )
    def operate(self, vm_id: str, what: str) -> None:
        try:
            if what == "quarantine":
                self.pool.quarantine(vm_id, "why not")
            else:
                getattr(self.pool, what)(vm_id)
        except (TransitionRefused, UnknownVM):
            pass
        self._read_events()

    @rule(vm_id=st.sampled_from(VMS))
    def remove(self, vm_id: str) -> None:
        self.pool.remove([vm_id])
        self._read_events()
        self._register(vm_id)

    # What must hold

    @invariant()
    def nobody_waits_while_a_vm_is_free(self) -> None:
        status = self.pool.status()
        self._read_events()
        free = [vm for vm in status.vms if vm.state is VMState.FREE]
        waiting = {waiter.holder for waiter in status.waiters}
        if free:
            assert not [holder for holder in waiting if holder in self.queue and self.queue[holder].is_alive()]
        assert all(not vm.drained for vm in free)

    @invariant()
    def one_vm_at_most_for_a_token(self) -> None:
        holders = [vm.holder for vm in self.pool.status().vms if vm.state is VMState.LEASED]
        assert len(holders) == len(set(holders))

    def teardown(self) -> None:
        for asked in list(self.queue.values()):
            run(self.pool.redis, self.pool.keys, "leave", asked.request.token, "1")
        for vm_id, event in list(self.held.items()):
            self._pick_up(event)
            self.pool.release(vm_id, event.fence)
        assert not self.client.exists("{pool:p}:queue", "{pool:p}:waiters")
        self.pool.delete()
        assert self.client.keys("*") == []
        self.client.close()
        self.pool.close()

    def _ask_anew(self, priority: int, ttl: float, patience: float) -> Asked:
        self.number += 1
        asked = Asked(Request(f"w{self.number}", priority, 60, ttl, LONG), patience)
        self.requests[asked.request.holder] = asked.request
        self._ask(asked, again=False)
        return asked

    def _ask(self, asked: Asked, *, again: bool) -> None:
        words = list(asked.request.words(asked.ticket, again))
        words[4] = microseconds(asked.patience)
        # A first ask joins the model's queue after the events before it, which must not concern it.
        self._read_events()
        reply = run(self.pool.redis, self.pool.keys, "acquire", *words)
        self._read_events()
        if reply[0] == 1:
            assert self.held[reply[1]].holder == asked.request.holder
            assert self.held[reply[1]].fence == int(reply[2])
        else:
            asked.ticket = reply[1]
            self.queue[asked.request.holder] = asked

    def _register(self, vm_id: str) -> None:
        self.side.register(vm_id, VMState.RESETTING, needs_reset=True, known_fence=0)

    def _current(self, lease: tuple[str, int]) -> bool:
        vm_id, fence = lease
        return vm_id in self.held and self.held[vm_id].fence == fence

    def _pick_up(self, event: Event) -> None:
        """Whoever releases has heard of its grant."""
        self.client.delete(self.pool.keys.inbox(self.requests[event.holder].token))

    def _is_short(self, holder: str) -> bool:
        return self.requests[holder].ttl == SHORT

    def _read_events(self) -> None:
        """Follows the stream: one holder at a time, clean before each grant, fences that grow, the queue's order."""
        for event in self.pool.events(self.seen):
            self.seen = event.id
            if event.event == "granted":
                self._granted(event)
            elif event.event in ENDS:
                held = self.held.pop(event.vm_id)
                assert (held.fence, held.holder) == (event.fence, event.holder)
                self.clean[event.vm_id] = False
            elif event.event in CLEAN:
                assert event.vm_id not in self.held
                self.clean[event.vm_id] = True
            elif event.event in ("registered", "removed", "quarantined", "stopped"):
                assert event.vm_id not in self.held
                self.clean[event.vm_id] = False

    def _granted(self, event: Event) -> None:
        assert event.vm_id not in self.held, "two holders"
        assert self.clean[event.vm_id], "not reset"
        assert event.fence > self.fences.get(event.vm_id, 0), "the fence did not grow"
        self.fences[event.vm_id] = event.fence
        self.held[event.vm_id] = event
        own = self.queue.pop(event.holder, None)
        for other in self.queue.values():
            if not other.is_alive():
                continue
            assert own is not None, f"{event.holder} got a VM though {other.request.holder} waits"
            mine = (-own.request.priority, own.ticket)
            assert mine < (-other.request.priority, other.ticket), f"{event.holder} overtook {other.request.holder}"


def test_whatever_happens_in_whatever_order(redis_url: str) -> None:
    run_state_machine_as_test(
        lambda: PoolMachine(redis_url),
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
