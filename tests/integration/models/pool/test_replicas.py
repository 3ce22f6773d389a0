"""Replicas in a model pool: what registering, signs of life, changes and removal do, once and when said again."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import redis

from rollout_tasks.models.pool.balancing import Balancer, NoReplica, Pick
from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState, StaleReplica, TakenOver
from rollout_tasks.redis_client import server_time
from tests.integration.models.pool.conftest import Register

STARTING, READY, DRAINING, DEAD = ReplicaState


def test_what_was_registered_is_listed(replicas: Replicas, register: Register, client: redis.Redis) -> None:
    before = server_time(client)
    first = register("b", gpu="0,1", pid=41, state=STARTING, base_url="http://b:8000/v1/")
    second = register("a")

    assert replicas.all() == (second, first)
    assert (first.base_url, first.model, first.weight_version) == ("http://b:8000/v1", "policy", "step-1")
    assert (first.host, first.gpu, first.pid, first.state) == ("box", "0,1", 41, STARTING)
    assert (second.gpu, second.pid, second.state, second.in_flight) == (None, None, READY, 0)
    assert before <= first.started == first.heartbeat <= server_time(client)


def test_every_key_has_the_pools_hash_tag(register: Register, balancer: Balancer, client: redis.Redis) -> None:
    register()
    balancer.pick("s")

    assert len(client.keys("{models:p}:*")) == len(client.keys()) == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"base_url": "http://me:hunter2@r1:8000/v1"}, "must not carry a user, password or query"),
        ({"base_url": "http://r1:8000/v1?key=hunter2"}, "must not carry a user, password or query"),
        ({"base_url": "r1:8000"}, "the base URL of replica 'r1' must look like http://host:port/v1"),
        ({"model": ""}, "a replica's model must be 1 to 512 printable characters, got ''"),
        ({"weight_version": "a\nb"}, "a replica's weight version must be"),
        ({"host": "h" * 513}, "a replica's host must be"),
        ({"gpu": ""}, "a replica's GPU must be"),
        ({"state": DRAINING}, "a replica registers as starting or ready, not as draining"),
        ({"replica_id": "a b"}, "'a b' is not a replica's id"),
        ({"instance": "a}b"}, "'a}b' is not a replica's instance"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_a_sentence(
    register: Register, replicas: Replicas, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the sentence is compared)
        register(**options)

    assert sentence in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert replicas.all() == ()


def test_a_pools_name_is_checked(client: redis.Redis) -> None:
    for name in ("", "a b", "{a}", "n" * 65):
        with pytest.raises(ValueError, match="is not a model pool's name"):
            Replicas(client, name)


def test_registering_again_after_a_lost_reply_is_a_sign_of_life(
    register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    first = register(state=STARTING)
    ready = replicas.change(first, state=READY)
    balancer.pick("s")

    again = register(state=STARTING)

    assert again == replace(ready, heartbeat=again.heartbeat, in_flight=1)
    assert again.heartbeat > first.heartbeat


def test_another_process_takes_over_and_begins_with_nothing_in_flight(
    register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    first = register()
    balancer.pick("s")

    second = register(instance="second", state=STARTING)

    assert replicas.all() == (second,)
    assert (second.state, second.in_flight) == (STARTING, 0)
    assert second.fence > first.fence


def test_what_a_replaced_process_says_late_changes_nothing(register: Register, replicas: Replicas) -> None:
    first = register()
    second = register(instance="second")

    with pytest.raises(TakenOver, match=r"^replica r1 of model pool p was taken over by another process$"):
        replicas.beat(first)
    assert replicas.remove(first) is False
    with pytest.raises(StaleReplica, match=r"^replica r1 of model pool p was taken over by another process$"):
        replicas.change(first, state=READY)
    with pytest.raises(TakenOver, match=r"^replica r1 of model pool p was taken over by another process$"):
        register()

    assert replicas.all() == (second,)


def test_a_sign_of_life_renews(client: redis.Redis, register: Register, replicas: Replicas) -> None:
    replica = register()

    assert Replicas(client, "p", silent_seconds=40).beat(replica)

    (seen,) = replicas.all()
    assert seen == replace(replica, heartbeat=seen.heartbeat)
    assert replica.heartbeat < seen.heartbeat <= server_time(client)
    beat, until = map(int, client.hmget("{models:p}:replica:r1", "beat", "until"))
    assert until - beat == 40_000_000


def test_a_silent_replica_is_removed_by_whoever_looks(
    client: redis.Redis, register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    def change(replica: Replica) -> None:
        with pytest.raises(StaleReplica):
            replicas.change(replica, state=DRAINING)

    short = Replicas(client, "p", silent_seconds=0.02)
    looks = {
        "beat": replicas.beat,
        "change": change,
        "all": lambda _replica: replicas.all(),
        "pick": lambda _replica: balancer.pick("s"),
    }
    for look in looks.values():
        replica = register()
        assert isinstance(balancer.pick("s"), Pick)
        assert short.beat(replica)
        time.sleep(0.03)

        look(replica)

        left = {key.split(":")[2] for key in client.scan_iter()}
        assert left == {"pick", "session", "silent"}, "nothing of the replica itself"
        assert replicas.in_flight(replica) == 0


def test_silent_replicas_are_remembered_for_an_hour(
    client: redis.Redis, register: Register, replicas: Replicas
) -> None:
    old = server_time(client) - 3601
    client.zadd("{models:p}:silent", {"old": old * 1e6, "recent": (old + 60) * 1e6})
    Replicas(client, "p", silent_seconds=0.01).beat(register())
    time.sleep(0.02)

    assert replicas.all() == ()

    assert client.zrange("{models:p}:silent", 0, -1) == ["recent", "r1"]
    assert replicas.silent() == ("r1", "recent")
    assert 3_540_000 < client.pttl("{models:p}:silent") <= 3_600_000


def test_a_process_that_was_silent_registers_again_and_forgets_nothing_else(
    client: redis.Redis, register: Register, replicas: Replicas
) -> None:
    first = register()
    client.flushall()
    assert replicas.beat(first) is False

    again = register()

    assert again.instance == first.instance
    assert again.fence > first.fence, "fences grow also when the data was lost"
    with pytest.raises(StaleReplica, match="was changed by somebody else"):
        replicas.change(first, state=DRAINING)


def test_a_process_that_was_silent_begins_anew_even_if_nobody_looked(
    client: redis.Redis, register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    first = register(weight_version="step-1")
    balancer.pick("s")
    Replicas(client, "p", silent_seconds=0.01).beat(first)
    time.sleep(0.02)

    again = register(weight_version="step-2")

    assert (again.instance, again.weight_version, again.in_flight) == (first.instance, "step-2", 0)
    assert again.fence > first.fence


CHANGES = [
    (STARTING, {"state": READY}, READY, "step-1"),
    (READY, {"state": DRAINING}, DRAINING, "step-1"),
    (READY, {"weight_version": "step-2"}, READY, "step-2"),
    (STARTING, {"state": READY, "weight_version": "step-2"}, READY, "step-2"),
    (READY, {"state": DEAD}, DEAD, "step-1"),
]


@pytest.mark.parametrize(("begin", "wanted", "state", "version"), CHANGES)
def test_a_change_said_twice_is_one_change(
    register: Register,
    replicas: Replicas,
    begin: ReplicaState,
    wanted: dict[str, object],
    state: ReplicaState,
    version: str,
) -> None:
    seen = register(state=begin)

    changed = replicas.change(seen, **wanted)

    assert changed == replace(seen, state=state, weight_version=version, fence=changed.fence)
    assert changed.fence > seen.fence
    assert replicas.change(seen, **wanted) == changed
    assert replicas.all() == (changed,)


def test_a_change_from_what_is_no_longer_so_is_refused(register: Register, replicas: Replicas) -> None:
    seen = register()
    undrained = replicas.change(replicas.change(seen, state=DRAINING), state=READY)

    with pytest.raises(StaleReplica, match="was changed by somebody else"):
        replicas.change(seen, state=DRAINING)
    with pytest.raises(StaleReplica, match="was changed by somebody else"):
        replicas.change(seen, weight_version="step-9")

    assert replicas.all() == (undrained,)


def test_a_dead_replica_stays_dead_until_another_process_comes(register: Register, replicas: Replicas) -> None:
    dead = replicas.change(register(), state=DEAD)

    with pytest.raises(StaleReplica, match="is dead: only another process can take its place"):
        replicas.change(dead, state=READY)
    assert register().state is DEAD
    assert replicas.beat(dead)

    assert register(instance="second").state is READY


def test_removing_twice_removes_once(register: Register, replicas: Replicas, client: redis.Redis) -> None:
    replica = register()

    assert [replicas.remove(replica), replicas.remove(replica)] == [True, False]

    assert replicas.all() == ()
    assert client.keys() == []
    with pytest.raises(StaleReplica, match="is not registered any more"):
        replicas.change(replica, state=READY)


# Draining


def test_a_replica_that_is_drained_has_its_calls_until_they_end(
    register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    replica = register()
    picks = [balancer.pick(session) for session in ("s", "t")]
    draining = replicas.change(replica, state=DRAINING)

    assert replicas.in_flight(draining) == 2
    assert isinstance(balancer.pick("s"), NoReplica)
    for pick in picks:
        assert isinstance(pick, Pick)
        balancer.release(pick)
    assert replicas.in_flight(draining) == 0


def test_calls_of_dead_callers_end_at_their_deadlines(
    register: Register, replicas: Replicas, balancer: Balancer
) -> None:
    replica = register()
    balancer.pick("s", seconds=0.5)

    assert replicas.in_flight(replica) == 1
    time.sleep(0.6)
    assert replicas.in_flight(replica) == 0


def test_a_replica_that_is_gone_is_idle(register: Register, replicas: Replicas, balancer: Balancer) -> None:
    replica: Replica = register()
    balancer.pick("s")
    register(instance="second")
    balancer.pick("s")

    assert replicas.in_flight(replica) == 0
