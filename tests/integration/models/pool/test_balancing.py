"""Which replica a session's next call goes to, and what is counted, call by call."""

from __future__ import annotations

import time

import pytest
import redis

from rollout_tasks.models.pool.balancing import SESSION_SECONDS, Balancer, NoReplica, Pick
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState
from rollout_tasks.models.served import Served
from rollout_tasks.redis_client import server_time
from tests.integration.models.pool.balancing_model import MARGIN
from tests.integration.models.pool.conftest import Register


def picked(balancer: Balancer, session: str, **options: object) -> Pick:
    pick = balancer.pick(session, **options)
    assert isinstance(pick, Pick)
    return pick


def where(balancer: Balancer, session: str, **options: object) -> str:
    return picked(balancer, session, **options).replica.replica_id


def loads(replicas: Replicas) -> dict[str, int]:
    return {replica.replica_id: replica.in_flight for replica in replicas.all()}


@pytest.fixture
def three(register: Register) -> None:
    for replica_id in ("r1", "r2", "r3"):
        register(replica_id)


def test_a_pick_says_where_to_send_the_call(register: Register, balancer: Balancer) -> None:
    register()

    pick = picked(balancer, "s")

    assert (pick.replica.base_url, pick.replica.model) == ("http://r1:8000/v1", "policy")
    assert (pick.replica.weight_version, pick.replica.in_flight) == ("step-1", 1)


@pytest.mark.usefixtures("three")
def test_new_sessions_go_to_the_least_loaded(balancer: Balancer, replicas: Replicas) -> None:
    first = [picked(balancer, f"s{number}") for number in range(6)]
    assert loads(replicas) == {"r1": 2, "r2": 2, "r3": 2}
    for pick in first:
        if pick.replica.replica_id == "r2":
            balancer.release(pick)

    assert [where(balancer, "new-1"), where(balancer, "new-2")] == ["r2", "r2"]


@pytest.mark.usefixtures("three")
def test_ties_go_to_the_least_recently_picked(balancer: Balancer) -> None:
    def call(session: str) -> str:
        pick = picked(balancer, session)
        balancer.release(pick)
        return pick.replica.replica_id

    assert [call(f"s{number}") for number in range(4)] == ["r1", "r2", "r3", "r1"]
    assert call("s1") == "r2", "its own"
    assert [call(f"t{number}") for number in range(3)] == ["r3", "r1", "r2"]


def test_a_replica_that_comes_new_is_the_first_of_equals(register: Register, balancer: Balancer) -> None:
    register("r1")
    balancer.release(picked(balancer, "s"))
    register("r2")

    assert where(balancer, "t") == "r2"


@pytest.mark.parametrize("more", range(MARGIN + 3))
def test_a_session_moves_when_its_replica_has_more_than_the_margin_more(
    register: Register, balancer: Balancer, more: int
) -> None:
    register("r1")
    balancer.release(picked(balancer, "mine"))
    for number in range(more):
        where(balancer, f"other-{number}")
    register("r2")

    assert where(balancer, "mine") == ("r1" if more <= MARGIN else "r2")
    if more > MARGIN:
        for _ in range(2):
            assert where(balancer, "mine") == "r2", "its own from now on"


def test_a_session_keeps_its_replica_though_others_are_idle(register: Register, balancer: Balancer) -> None:
    register("r1")
    assert where(balancer, "s") == "r1"
    register("r2")

    assert [where(balancer, "s") for _ in range(2)] == ["r1", "r1"]


def test_a_session_that_has_not_asked_for_long_is_forgotten(
    register: Register, balancer: Balancer, client: redis.Redis
) -> None:
    register("r1")
    where(balancer, "s")
    register("r2")

    lives = client.pttl("{models:p}:session:s")
    assert SESSION_SECONDS * 1000 - 60_000 < lives <= SESSION_SECONDS * 1000
    client.pexpire("{models:p}:session:s", 1)
    time.sleep(0.01)

    assert where(balancer, "s") == "r2"


def test_the_same_token_finds_the_same_pick(register: Register, balancer: Balancer, replicas: Replicas) -> None:
    register("r1")
    first = picked(balancer, "s", token="t")
    register("r2")

    assert picked(balancer, "s", token="t") == first
    assert loads(replicas) == {"r1": 1, "r2": 0}


def test_a_release_counts_once_and_answers_the_same_again(
    register: Register, balancer: Balancer, replicas: Replicas
) -> None:
    replica = register()
    pick, _other = picked(balancer, "s"), picked(balancer, "t")

    stamps = [balancer.release(pick)]
    replicas.change(replica, weight_version="step-2")
    stamps.append(balancer.release(pick))

    assert stamps == [Served("r1", "step-1", "step-1")] * 2
    assert loads(replicas) == {"r1": 1}


def test_a_pick_that_arrives_after_its_release_counts_nothing(
    register: Register, balancer: Balancer, replicas: Replicas
) -> None:
    register()
    balancer.release(picked(balancer, "s", token="t"))

    with pytest.raises(ValueError, match=r"^pick t of model pool p was released before: a call needs a new one$"):
        balancer.pick("s", token="t")

    assert loads(replicas) == {"r1": 0}


def test_a_call_is_stamped_with_the_versions_at_its_start_and_end(
    register: Register, balancer: Balancer, replicas: Replicas
) -> None:
    replica = register()
    during, gone, again = picked(balancer, "s"), picked(balancer, "t"), picked(balancer, "u")
    replica = replicas.change(replica, weight_version="step-2")
    assert balancer.release(during) == Served("r1", "step-1", "step-2")

    replicas.remove(replica)
    assert balancer.release(gone) == Served("r1", "step-1", "")
    register(weight_version="step-2")
    assert balancer.release(again) == Served("r1", "step-1", "step-2"), "the same process is back"


def test_another_process_says_nothing_of_the_end_of_a_call(register: Register, balancer: Balancer) -> None:
    register()
    pick = picked(balancer, "s")
    register(instance="second", weight_version="step-2")

    assert balancer.release(pick) == Served("r1", "step-1", "")


def test_a_call_whose_caller_died_counts_until_its_deadline(
    register: Register, balancer: Balancer, replicas: Replicas, client: redis.Redis
) -> None:
    register()
    pick = picked(balancer, "s", seconds=50, token="t")
    assert loads(replicas) == {"r1": 1}
    assert 0 < client.zscore("{models:p}:in_flight:r1", "t") / 1e6 - server_time(client) <= 50
    client.zadd("{models:p}:in_flight:r1", {"t": server_time(client) * 1e6 - 1}, xx=True)
    assert loads(replicas) == {"r1": 0}

    assert balancer.release(pick) == Served("r1", "step-1", "step-1"), "a late answer is an answer"
    assert loads(replicas) == {"r1": 0}


def test_a_pick_whose_deadline_passed_can_be_made_again(
    register: Register, balancer: Balancer, replicas: Replicas
) -> None:
    register()
    picked(balancer, "s", seconds=0.02, token="t")
    time.sleep(0.03)

    picked(balancer, "s", token="t")

    assert loads(replicas) == {"r1": 1}


def test_picks_leave_nothing_behind_for_long(register: Register, balancer: Balancer, client: redis.Redis) -> None:
    register()
    picked(balancer, "s", seconds=0.02, token="dead")
    time.sleep(0.03)

    pick = picked(balancer, "s", seconds=500, token="t")

    assert client.zrange("{models:p}:in_flight:r1", 0, -1) == ["t"]
    assert 500_000 < client.pttl("{models:p}:pick:t") <= 560_000
    balancer.release(pick)
    assert 0 < client.pttl("{models:p}:pick:t") <= 60_000
    assert not client.exists("{models:p}:in_flight:r1")


def test_what_failed_the_caller_is_left_out(register: Register, balancer: Balancer, replicas: Replicas) -> None:
    register("r1")
    assert where(balancer, "s", token="t") == "r1"
    register("r2")

    assert where(balancer, "s", failed=["r1"]) == "r2"
    assert where(balancer, "s", token="t", failed=["r1"]) == "r2", "even if the caller repeats its own token"
    assert loads(replicas) == {"r1": 0, "r2": 2}
    refused = balancer.pick("s", failed=["r2", "r1"])
    assert str(refused) == "model pool p has no replica that takes calls: 2 just failed this call"


@pytest.mark.parametrize("out", ["draining", "starting", "dead", "silent", "removed"])
def test_a_session_leaves_a_replica_that_is_out_of_rotation(
    register: Register, balancer: Balancer, replicas: Replicas, client: redis.Redis, out: str
) -> None:
    replica = register("r1")
    assert where(balancer, "s") == "r1"
    register("r2")
    if out == "silent":
        Replicas(client, "p", silent_seconds=0.01).beat(replica)
        time.sleep(0.02)
    elif out == "removed":
        replicas.remove(replica)
    else:
        replicas.change(replica, state=ReplicaState(out))

    assert where(balancer, "s") == "r2"
    assert where(balancer, "new") == "r2"


def test_a_repeated_pick_stays_on_a_replica_that_drains(
    register: Register, balancer: Balancer, replicas: Replicas
) -> None:
    register("r2")
    replica = picked(balancer, "s", token="t").replica
    register("r1")
    replicas.change(replica, state=ReplicaState.DRAINING)

    assert where(balancer, "s", token="t") == "r2", "its call may be under way, and the drain must wait for it"


@pytest.mark.parametrize("how", ["dead", "restarted", "removed"])
def test_a_repeated_pick_leaves_a_replica_whose_process_ended(
    register: Register, balancer: Balancer, replicas: Replicas, how: str
) -> None:
    replica = register("r1")
    assert where(balancer, "s", token="t") == "r1"
    register("r2")
    if how == "dead":
        replicas.change(replica, state=ReplicaState.DEAD)
    elif how == "removed":
        replicas.remove(replica)
    else:
        register("r1", instance="second", state=ReplicaState.STARTING)

    assert where(balancer, "s", token="t") == "r2"


def test_why_there_is_no_replica_is_said_in_a_sentence(
    register: Register, balancer: Balancer, replicas: Replicas, client: redis.Redis
) -> None:
    assert str(balancer.pick("s")) == "model pool p has no replica: none is registered"

    for replica_id in ("a", "b"):
        replicas.change(register(replica_id), state=ReplicaState.DRAINING)
    register("c", state=ReplicaState.STARTING)
    replicas.change(register("d"), state=ReplicaState.DEAD)
    short = Replicas(client, "p", silent_seconds=0.01)
    for replica_id in ("e", "f"):
        short.beat(register(replica_id))
    register("g")
    time.sleep(0.02)
    refused = balancer.pick("s", failed=["g"])

    assert isinstance(refused, NoReplica)
    assert 0.02 <= refused.silent_seconds < 30
    assert str(refused) == (
        "model pool p has no replica that takes calls: 1 is starting, 2 are draining, 1 is dead, 1 just failed this call,"
        f" 2 fell silent, the last one {refused.silent_seconds:.0f} s ago"
    )


def test_a_replica_that_came_back_is_no_longer_among_the_silent(
    register: Register, balancer: Balancer, client: redis.Redis
) -> None:
    Replicas(client, "p", silent_seconds=0.01).beat(register("e"))
    time.sleep(0.02)
    refused = balancer.pick("s")
    assert str(refused).startswith("model pool p has no replica that takes calls: 1 fell silent, ")

    register("e")

    assert where(balancer, "s") == "e"


@pytest.mark.parametrize("session", ["", "a\nb", "s" * 1001])
def test_a_sessions_id_is_checked(balancer: Balancer, session: str) -> None:
    with pytest.raises(ValueError, match="a session's id must be 1 to 1000 printable characters"):
        balancer.pick(session)


def test_pools_know_nothing_of_each_other(register: Register, client: redis.Redis) -> None:
    register()

    assert isinstance(Balancer(client, "other").pick("s"), NoReplica)
