"""Picks and releases on a real Valkey beside their model, whatever callers, replicas and operators do in whatever order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from rollout_tasks.models.pool.balancing import Balancer, NoReplica, Pick
from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState, StaleReplica, TakenOver
from tests.integration.models.pool.balancing_model import MARGIN, BalancingModel

P = "{models:p}"
REPLICAS = ("a", "b", "c", "d")
SESSIONS = ("s1", "s2", "s3", "s4", "s5")
replica_ids = st.sampled_from(REPLICAS)
failures = st.one_of(st.just(frozenset[str]()), st.frozensets(replica_ids, max_size=3))
seen: Counter[str] = Counter()
"""What happened in all examples, so that an agreement means something."""


class PoolMachine(RuleBasedStateMachine):
    """The model and the server, taking the same steps."""

    tokens = Bundle("tokens")
    instances = Bundle("instances")

    def __init__(self, url: str) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(url, decode_responses=True)
        self.client.flushall()
        self.replicas = Replicas(self.client, "p", silent_seconds=3600)
        self.balancer = Balancer(self.client, "p", margin=MARGIN)
        self.model = BalancingModel()
        self.known: dict[str, Replica] = {}
        """Id -> the replica as it was seen last."""
        self.handles: dict[str, Replica] = {}
        """Instance -> the replica as its process saw it last."""
        self.picks: dict[str, tuple[str, Pick]] = {}
        """Token -> session and pick."""
        self.number = 0

    # Replicas

    @initialize(target=instances)
    def begin(self) -> object:
        return multiple(*(self._register(one, ReplicaState.READY) for one in REPLICAS[:3]))

    @rule(target=instances, replica_id=replica_ids, state=st.sampled_from(["starting", "ready", "ready", "ready"]))
    def register_a_process(self, replica_id: str, state: str) -> tuple[str, str]:
        return self._register(replica_id, ReplicaState(state))

    @rule(of=instances)
    def register_again(self, of: tuple[str, str]) -> None:
        self._register(of[0], ReplicaState.READY, of[1])

    @rule(of=instances)
    def beat(self, of: tuple[str, str]) -> None:
        replica_id, instance = of
        serves = self.model.serves(replica_id, instance)
        seen["heard" if serves else "a late beat"] += 1
        try:
            heard = self.replicas.beat(self.handles[instance])
        except TakenOver:
            heard = False
        assert heard == serves

    @rule(of=instances)
    def remove(self, of: tuple[str, str]) -> None:
        replica_id, instance = of
        serves = self.model.serves(replica_id, instance)
        for expected in (serves, False):
            assert self.replicas.remove(self.handles[instance]) == expected
        if serves:
            self.model.forget(replica_id)

    @rule(replica_id=replica_ids)
    def fall_silent(self, replica_id: str) -> None:
        if replica_id in self.model.replicas:
            self.client.hset(f"{P}:replica:{replica_id}", "until", self._now() - 1000)
            self.model.forget(replica_id)
            self.model.silent.add(replica_id)
            seen["silent"] += 1

    @rule(
        replica_id=replica_ids,
        state=st.sampled_from(["ready", "ready", "draining", "draining", "starting", "dead"]),
        version=st.integers(1, 3),
    )
    def change(self, replica_id: str, state: str, version: int) -> None:
        if replica_id not in self.model.replicas:
            return
        before = self.known[replica_id]
        for _ in range(2):
            if self.model.change(replica_id, ReplicaState(state), version):
                self.known[replica_id] = self.replicas.change(
                    before, state=ReplicaState(state), weight_version=f"step-{version}"
                )
                seen[state] += 1
            else:
                self._refused(before, state)

    @rule(of=instances, state=st.sampled_from(["ready", "draining", "dead"]))
    def change_a_replaced_process(self, of: tuple[str, str], state: str) -> None:
        if not self.model.serves(*of):
            self._refused(self.handles[of[1]], state)

    # Calls

    @rule(target=tokens, session=st.sampled_from(SESSIONS), failed=failures, count=st.integers(1, 6))
    def pick(self, session: str, failed: frozenset[str], count: int) -> object:
        tokens = []
        for _ in range(count):
            self.number += 1
            tokens.append(f"t{self.number}")
            self._pick(tokens[-1], session, failed)
        return multiple(*tokens)

    @rule(token=tokens, failed=failures)
    def pick_again(self, token: str, failed: frozenset[str]) -> None:
        if token in self.picks:
            seen["picked again"] += 1
            self._pick(token, self.picks[token][0], failed)

    @rule(token=tokens, late_pick=st.booleans())
    def release(self, token: str, late_pick: bool) -> None:
        if token in self.picks:
            expected = self.model.release(token)
            pick = self.picks[token][1]
            for _ in range(2):
                stamp = self.balancer.release(pick)
                assert stamp.version_at_start == pick.replica.weight_version
                assert stamp.version_at_end == (f"step-{expected}" if expected else "")
                assert self.model.release(token) == expected
            seen["released" if expected else "released without a version"] += 1
            if late_pick:
                self._pick(token, self.picks[token][0], frozenset())

    # The clock

    @rule(token=tokens)
    def let_a_deadline_pass(self, token: str) -> None:
        if token in self.model.picks:
            replica_id = self.model.picks[token].replica_id
            replica = self.model.replicas.get(replica_id)
            if replica is not None and token in replica.in_flight:
                self.client.zadd(f"{P}:in_flight:{replica_id}", {token: self._now() - 1000}, xx=True)
                replica.in_flight.remove(token)
                seen["a deadline passed"] += 1

    @rule(session=st.sampled_from(SESSIONS))
    def forget_a_session(self, session: str) -> None:
        self.client.delete(f"{P}:session:{session}")
        self.model.sessions.pop(session, None)

    # What must hold

    @invariant()
    def the_server_has_what_the_model_has(self) -> None:
        found = {one.replica_id: one for one in self.replicas.all()}
        assert found.keys() == self.model.replicas.keys()
        for replica_id, is_ in self.model.replicas.items():
            one = found[replica_id]
            assert one == replace(self.known[replica_id], heartbeat=one.heartbeat, in_flight=len(is_.in_flight))
            assert (one.instance, one.state) == (is_.instance, is_.state)
            assert one.weight_version == f"step-{is_.version}"

    def teardown(self) -> None:
        self.client.close()

    def _register(self, replica_id: str, state: ReplicaState, instance: str = "") -> tuple[str, str]:
        if not instance:
            self.number += 1
            instance = f"i{self.number}"
        values = {"base_url": f"http://{replica_id}/v1", "model": "m", "weight_version": "step-1", "host": "h"}
        for _ in range(2):
            if self.model.register(replica_id, instance, state, 1):
                replica = self.replicas.register(replica_id, instance, state=state, **values)
                assert replica.fence >= self.known.get(replica_id, replica).fence
                self.known[replica_id] = self.handles[instance] = replica
            else:
                seen["a late registration"] += 1
                try:
                    self.replicas.register(replica_id, instance, state=state, **values)
                except StaleReplica:
                    continue
                raise AssertionError("a replaced process took its id back")
        return replica_id, instance

    def _refused(self, replica: Replica, state: str) -> None:
        seen["a change refused"] += 1
        try:
            self.replicas.change(replica, state=ReplicaState(state), weight_version="step-4")
        except StaleReplica:
            return
        raise AssertionError("it was changed")

    def _pick(self, token: str, session: str, failed: frozenset[str]) -> None:
        loads, own = self.model.rotation(failed), self.model.sessions.get(session)
        counted = self._counted(token)
        expected = self.model.pick(token, session, failed)
        if expected == "released":
            seen["picked after its release"] += 1
            try:
                self.balancer.pick(session, failed=failed, token=token)
            except ValueError:
                return
            raise AssertionError("a pick was made after its release")
        found = self.balancer.pick(session, failed=failed, token=token)
        if isinstance(found, NoReplica):
            assert not expected
            refusal = self.model.refusal(failed)
            assert {name: getattr(found, name) for name in refusal} == refusal
            seen["none"] += 1
            return
        chosen = found.replica.replica_id
        assert chosen == expected
        self.picks[token] = (session, found)
        if counted == chosen:
            return
        assert chosen in loads, "out of rotation"
        least = min(loads.values())
        if own in loads and loads[own] - least <= MARGIN:
            assert chosen == own
            seen["stays"] += 1
        else:
            assert loads[chosen] == least
            seen["moves" if own in loads else "leaves" if own else "new"] += 1

    def _counted(self, token: str) -> str | None:
        return next((one for one, is_ in self.model.replicas.items() if token in is_.in_flight), None)

    def _now(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)


def test_whatever_happens_in_whatever_order(redis_url: str) -> None:
    seen.clear()
    for _ in range(5):  # what is rare may not happen in the first eighty
        run_state_machine_as_test(
            lambda: PoolMachine(redis_url),
            settings=settings(
                max_examples=80, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
            ),
        )
        if set(seen) >= REQUIRED:
            return
    raise AssertionError(f"never happened: {sorted(REQUIRED - set(seen))}")


REQUIRED = {
    *("heard", "a late beat", "a late registration", "a change refused", "silent", "ready", "draining", "dead"),
    *("new", "stays", "moves", "leaves", "none", "picked again", "picked after its release"),
    *("released", "released without a version", "a deadline passed"),
}
