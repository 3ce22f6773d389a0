"""The Lua files do what the model of them does: random walks, each step's reply and all that the server then has compared.

Time does not pass by itself here: every lease and wait lasts for hours, and the walk puts a time into the past when the model's
clock says that it is over. The server is really killed, and comes back without what it wrote since an earlier step.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.conftest import ValkeyServer
from tests.unit.vm_pool.pool_model import Data, Fence, Pool, new_pool
from vm_pool import Endpoint, VMPool
from vm_pool.lease import endpoint_from_json, endpoint_to_json
from vm_pool.lua_scripts import microseconds
from vm_pool.waiting import Request

NUM_VMS = 2
HOURS = 3600.0
STEPS = 70
WALKS = 10
P = "{pool:test}"


class Server:
    """A real one, spoken to in the model's words."""

    def __init__(self, valkey: ValkeyServer) -> None:
        self.valkey = valkey
        self.requests: dict[str, Request] = {}
        self.bases: dict[int, int] = {}
        """The model's numbers from the clock -> the server's."""
        self.processes: dict[int, str] = {}
        self._connect(1)

    def _connect(self, process: int) -> None:
        self.client = redis.Redis.from_url(self.valkey.url, decode_responses=True)
        self.client.config_set("appendfsync", "always")
        self.pool = VMPool(redis.Redis.from_url(self.valkey.url), "test")
        self.processes[process] = str(self.client.info("server")["run_id"])

    @property
    def log(self) -> Path:
        (log,) = (self.valkey.directory / "appendonlydir").glob("*.incr.aof")
        return log

    def close(self) -> None:
        self.client.close()
        self.pool.close()

    def restart(self, process: int, size: int) -> None:
        self.close()
        self.valkey.kill()
        with self.log.open("r+b") as log:
            log.truncate(size)
        self.valkey.start()
        self._connect(process)

    def empty(self) -> None:
        """As if it were new, but for its process."""
        self.client.flushall()
        self.requests, self.bases = {}, {}

    # Words

    def fence(self, fence: Fence) -> int:
        return self.bases.get(fence[0], 0) + fence[1]

    def learn(self, fence: Fence, real: int) -> None:
        """Takes the server's number for the model's, or makes sure that it is the one known; keeps their order."""
        base = self.bases.setdefault(fence[0], real - fence[1])
        assert base + fence[1] == real
        order = [self.bases[number] for number in sorted(self.bases)]
        assert order == sorted(order), "numbers from the clock grow"

    def request(self, token: str) -> Request:
        return self.requests.setdefault(token, Request(token, 0, HOURS, HOURS, 2 * HOURS, token=token))

    def run(self, script: str, *words: str | int) -> Any:
        return self.pool._run(script, *words)

    # The scripts

    def acquire(self, token: str, again: bool, ticket: int) -> Any:
        words = list(self.request(token).words(self.bases.get(ticket, 0), again))
        words[4] = microseconds(HOURS)
        return self._grant(self.run("acquire", *words))

    def leave(self, token: str, give_back: bool) -> Any:
        return self._grant(self.run("leave", token, "1" if give_back else "0"))

    @staticmethod
    def _grant(reply: list[Any]) -> Any:
        if not reply[0]:
            return (0, reply[1])
        return (1, int(reply[1]), int(reply[2]), endpoint_from_json(reply[5]).ports["gate"])

    def pop(self, token: str) -> Any:
        message = self.client.lpop(f"{P}:inbox:{token}")
        if message is None:
            return None
        fence, _, vm, endpoint = str(message).split(" ", 3)
        return (int(vm), int(fence), endpoint_from_json(endpoint).ports["gate"])

    def beat(self, instance: str, replaces: str, trusts: int) -> Any:
        how = {"no": "0", "silent": "1"}.get(replaces, replaces)
        reply = self.run("beat", "box", instance, microseconds(HOURS), how, self.processes.get(trusts, ""))
        if not reply[0]:
            return None
        rows = {int(row[0]): (row[1], row[2]) for row in reply[4:]}
        return (reply[3], tuple(rows.get(vm, ("", 0)) for vm in range(NUM_VMS)))

    def register(self, vm: int, state: str, known: Fence) -> int:
        return int(self.run("register", str(vm), "box", endpoint_to_json(Endpoint("")), 1, state, self.fence(known)))

    def ready(self, vm: int, fence: Fence, gate: int) -> str:
        return str(self.run("ready", str(vm), self.fence(fence), endpoint_to_json(Endpoint("a", {"gate": gate}))))

    # Time

    def over(self, vm: int) -> None:
        past = self._now() - 1000
        self.client.hset(f"{P}:vm:{vm}", mapping={"deadline": past, "timer": past})
        self.client.zadd(f"{P}:timers", {f"lease:{vm}": past})

    def late(self, vm: int) -> None:
        begin, past = self._now() - microseconds(60), self._now() - 1000
        deadline = begin + microseconds(HOURS)
        self.client.hset(f"{P}:vm:{vm}", mapping={"since": begin, "deadline": deadline, "timer": past})
        self.client.zadd(f"{P}:timers", {f"lease:{vm}": past})

    def silent(self, timer: str) -> None:
        self.client.zadd(f"{P}:timers", {timer: self._now() - 1000}, xx=True)

    def _now(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    # What it has

    def compare(self, model: Pool) -> None:
        """Makes sure that it has what the model has."""
        data = model.data
        reply = self.run("status")
        rows = {int(row[0]): dict(zip(row[2::2], row[3::2], strict=True)) for row in reply[1]}
        for vm, is_ in enumerate(data.vms):
            if not is_.state:
                assert vm not in rows
                continue
            assert rows[vm]["state"] == is_.state
            self.learn(is_.fence, int(rows[vm]["fence"]))
            if is_.state == "leased":
                assert rows[vm]["token"] == is_.token
        assert self.client.zrange(f"{P}:free", 0, -1) == [str(vm) for vm in data.free]
        assert reply[2][::2] == [token for _, token in data.queue]
        inboxes = {token: (vm, self.fence(fence), gate) for token, (vm, fence, gate) in data.inboxes}
        found = {key.rpartition(":")[2]: key for key in self.client.scan_iter(f"{P}:inbox:*")}
        assert found.keys() == inboxes.keys()
        for token, key in found.items():
            fence, _, vm, endpoint = self.client.lrange(key, 0, -1)[0].split(" ", 3)
            assert (int(vm), int(fence), endpoint_from_json(endpoint).ports["gate"]) == inboxes[token]
        assert (self.client.hget(f"{P}:hosts", "box") or "") == data.host
        trusts = self.client.hget(f"{P}:servers", "box") == self.processes[model.process]
        assert trusts == (data.trusted == model.process)


class Walk:
    """The model and the server, taking the same steps."""

    def __init__(self, server: Server, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = server
        server.empty()
        self.model = new_pool(NUM_VMS)
        self.model.process = max(server.processes)
        self.tickets: dict[str, int] = {}
        self.fences: list[Fence] = [(0, 0)]
        self.gates = 0
        self.saved: tuple[Data, int] | None = None
        self.seen: Counter[str] = Counter()

    def go(self) -> None:
        self.step("beat")
        for vm in range(NUM_VMS):
            self._register(vm, "initializing")
        names = ["acquire"] * 6 + ["ready"] * 5 + ["release"] * 3 + ["beat"] * 3 + ["pop", "renew", "pass_time"] * 2
        names += ["leave"] * 3
        names += ["reap", "register", "failed", "retry", "ended_waiter", "ended_lease", "save"]
        for _ in range(STEPS):
            name = "crash" if self.chance.random() < 0.02 else self.chance.choice(names)
            self.step(name)

    def step(self, name: str) -> None:
        outcome = getattr(self, f"_{name}")()
        self.seen[f"{name}: {outcome}"] += 1
        self.server.compare(self.model)
        self.fences += [vm.fence for vm in self.model.data.vms if vm.fence not in self.fences]

    # Which one

    def _token(self) -> str:
        return f"t{self.chance.randrange(5)}"

    def _vm(self) -> int:
        return self.chance.randrange(NUM_VMS)

    def _fence(self, vm: int) -> Fence:
        """Mostly the current one."""
        return self.model.data.vms[vm].fence if self.chance.random() < 0.8 else self.chance.choice(self.fences)

    # The steps

    def _acquire(self) -> str:
        token = self._token()
        known = any(
            [
                token in self.tickets,
                token in dict(self.model.data.inboxes),
                any(vm.token == token for vm in self.model.data.vms),
            ]
        )
        again = known or self.chance.random() < 0.3
        ticket = self.tickets.get(token, 0)
        expected = self.model.acquire(token, again, ticket)
        found = self.server.acquire(token, again, ticket)
        if expected[0]:
            self._same_grant(expected, found)
            return "granted"
        self.server.learn((expected[1], 0), found[1])
        self.tickets[token] = expected[1]
        return "queued"

    def _same_grant(self, expected: tuple[Any, ...], found: tuple[Any, ...]) -> None:
        self.server.learn(expected[2], found[2])
        assert (found[0], found[1], found[3]) == (expected[0], expected[1], expected[3])

    def _pop(self) -> str:
        token = self._token()
        expected, found = self.model.pop(token), self.server.pop(token)
        if expected is None:
            assert found is None
            return "nothing"
        assert found == (expected[0], self.server.fence(expected[1]), expected[2])
        return "a grant"

    def _leave(self) -> str:
        holding = [vm.token for vm in self.model.data.vms if vm.token]
        token = self.chance.choice(holding) if holding and self.chance.random() < 0.5 else self._token()
        give_back = self.chance.random() < 0.5
        expected, found = self.model.leave(token, give_back), self.server.leave(token, give_back)
        self.tickets.pop(token, None)
        if expected[0]:
            self._same_grant(expected, found)
            return "granted"
        assert found == expected
        return "left" if expected[1] else "was not there"

    def _renew(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        expected = self.model.renew(vm, fence)
        reply = self.server.run("renew", str(vm), self.server.fence(fence))
        assert (reply[1] != 0) == expected
        return str(expected)

    def _release(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        expected = self.model.release(vm, fence)
        assert bool(self.server.run("release", str(vm), self.server.fence(fence))) == expected
        return str(expected)

    def _reap(self) -> str:
        expected = self.model.reap()
        assert self.server.run("reap") == expected
        return "something" if expected else "nothing"

    def _beat(self) -> str:
        instance = "first" if self.chance.random() < 0.8 else "second"
        replaces = self.chance.choice(["no", "no", "no", "silent", self.model.data.host or "no"])
        trusts = self.chance.choice([self.model.process, self.model.process, max(self.model.process - 1, 0)])
        expected = self.model.beat(instance, replaces, trusts)
        found = self.server.beat(instance, replaces, trusts)
        if expected is None:
            assert found is None
            return "refused"
        assert found is not None
        process, vms = expected
        assert found[0] == self.server.processes[process]
        for (state, fence), (real_state, real_fence) in zip(vms, found[1], strict=True):
            assert state == real_state
            if state:
                self.server.learn(fence, real_fence)
        return "heard"

    def _register(self, vm: int | None = None, state: str | None = None) -> str:
        vm = self._vm() if vm is None else vm
        state = state or self.chance.choice(["initializing", "resetting"])
        known = self.model.data.vms[vm].fence
        expected = self.model.register(vm, state, known)
        self.server.learn(expected, self.server.register(vm, state, known))
        return "registered"

    def _ready(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        self.gates += 1
        expected = self.model.ready(vm, fence, self.gates)
        assert self.server.ready(vm, fence, self.gates) == expected
        return expected or "refused"

    def _failed(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        expected = self.model.failed(vm, fence)
        assert bool(self.server.run("failed", str(vm), self.server.fence(fence), "broken", 10**9, 10**9)) == expected
        return str(expected)

    def _retry(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        expected = self.model.retry(vm, fence)
        reply = self.server.run("move", str(vm), " error ", "initializing", self.server.fence(fence), "")
        assert bool(reply[0]) == expected
        return str(expected)

    def _ended_waiter(self) -> str:
        token = self._token()
        expected = self.model.ended_waiter(token)
        assert bool(self.server.run("ended", token, "")) == expected
        return str(expected)

    def _ended_lease(self) -> str:
        vm = self._vm()
        fence = self._fence(vm)
        expected = self.model.ended_lease(vm, fence)
        assert bool(self.server.run("ended", str(vm), self.server.fence(fence))) == expected
        return str(expected)

    def _pass_time(self) -> str:
        data, vm = self.model.data, self._vm()
        what = self.chance.choice(["lease", "late", "waiter", "host"])
        untaken = [number for number in range(NUM_VMS) if data.vms[number].untaken]
        if untaken and self.chance.random() < 0.5:
            what, vm = "late", self.chance.choice(untaken)
        is_ = data.vms[vm]
        if what == "lease" and is_.state == "leased" and not is_.over:
            self.model._set_vm(vm, over=True)
            self.server.over(vm)
        elif what == "late" and is_.untaken and not is_.over and not is_.late:
            self.model._set_vm(vm, late=True)
            self.server.late(vm)
        elif what == "waiter" and data.queue:
            token = self.chance.choice(data.queue)[1]
            self.model._set(silent_waiters=data.silent_waiters | {token})
            self.server.silent(f"waiter:{token}")
        elif what == "host" and data.heard == "yes":
            self.model._set(heard="due")
            self.server.silent("host:box")
        else:
            return "nothing"
        return what

    def _save(self) -> str:
        self.saved = (self.model.data, self.server.log.stat().st_size)
        return "saved"

    def _crash(self) -> str:
        lossy = self.saved is not None and self.chance.random() < 0.7
        data, size = self.saved if lossy and self.saved else (self.model.data, self.server.log.stat().st_size)
        self.model.restart(data)
        self.server.restart(self.model.process, size)
        self.saved = None
        return "without its last writes" if lossy else "with all it wrote"


def test_the_scripts_do_what_the_model_does(valkey: ValkeyServer) -> None:
    server = Server(valkey)
    seen: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(WALKS):
        walk = Walk(server, seed)
        try:
            walk.go()
        except Exception as error:  # noqa: BLE001 (says which walk it was)
            pytest.fail(f"walk {seed}, {sum(walk.seen.values())} steps: {type(error).__name__}: {error}")
        seen += walk.seen
    server.close()
    assert set(seen) >= REQUIRED, f"never happened in {time.monotonic() - began:.0f} s: {sorted(REQUIRED - set(seen))}"


REQUIRED = {
    "acquire: granted",
    "acquire: queued",
    "pop: a grant",
    "leave: left",
    "leave: granted",
    "renew: True",
    "renew: False",
    "release: True",
    "release: False",
    "reap: something",
    "beat: heard",
    "beat: refused",
    "ready: free",
    "ready: leased",
    "ready: refused",
    "failed: True",
    "retry: True",
    "ended_waiter: True",
    "ended_lease: True",
    "pass_time: lease",
    "pass_time: late",
    "pass_time: waiter",
    "pass_time: host",
    "crash: without its last writes",
}
"""What the walks must have met, so that an agreement means something."""
