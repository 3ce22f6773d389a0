"""Changes of a pool's weights in Redis: what is asked for, what is told of it, and whose turn it is."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from rollout_tasks.cli.model import application
from rollout_tasks.models.pool.membership import Membership
from rollout_tasks.models.pool.reloads import Progress, Reloads, Stage
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState, StaleReplica


@pytest.fixture
def reloads(client: redis.Redis) -> Reloads:
    return Reloads(client, "p")


def test_the_last_one_that_was_asked_for_counts(reloads: Reloads) -> None:
    assert reloads.wanted() is None
    first = reloads.ask("/step-1", "1")
    second = reloads.ask("/step-2", "2", in_flight=True)

    assert reloads.wanted() == second
    assert second.asked > first.asked
    assert (second.checkpoint, second.weight_version, second.in_flight) == ("/step-2", "2", True)


def test_of_several_that_are_asked_for_at_once_the_one_that_counts_is_the_latest(reloads: Reloads) -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            asked = list(threads.map(lambda number: reloads.ask("/step", str(number)), range(8)))
            wanted = reloads.wanted()
            assert wanted is not None
            assert wanted.asked == max(one.asked for one in asked)


@pytest.mark.parametrize("command", ["drain", "undrain"])
def test_a_replica_that_is_given_weights_is_left_alone(
    reloads: Reloads, client: redis.Redis, redis_url: str, command: str
) -> None:
    replicas = Replicas(client, "p")
    membership = Membership(replicas, "http://127.0.0.1:1/v1", model="m", weight_version="1", checkpoint="/step-1")
    membership.beat()
    [one] = replicas.all()
    reload = reloads.ask("/step-2", "2")
    for stage in Stage:
        reloads.tell(reload, one.replica_id, stage)
        ran = CliRunner().invoke(application, [command, "p", one.replica_id, "--redis-url", redis_url])
        if stage in (Stage.DRAINING, Stage.LOADING):
            assert str(ran.exception) == (
                f"REPLICA: {one.replica_id} is given new weights just now ({stage}): wait until it has them"
            )
        else:
            assert ran.exit_code == 0, ran.output


def test_a_clock_that_was_set_back_makes_no_change_look_old(reloads: Reloads, client: redis.Redis) -> None:
    reloads.ask("/step-1", "1")
    (key,) = client.keys("*:reload")
    stored: Any = json.loads(str(client.get(key)))
    stored["asked"] = time.time() + 3600
    client.set(key, json.dumps(stored))

    assert reloads.ask("/step-2", "2").asked > stored["asked"]


@pytest.mark.parametrize("document", ["", "[]", "3", "{", '{"reload_id": "a"}', '{"reload_id": {}}', "null"])
def test_what_cannot_be_read_is_no_wish(reloads: Reloads, client: redis.Redis, document: str) -> None:
    reloads.ask("/step-1", "1")
    (key,) = client.keys("*:reload")
    client.set(key, document)

    assert reloads.wanted() is None


@pytest.mark.parametrize(
    ("checkpoint", "version", "what"),
    [
        ("", "1", "CHECKPOINT"),
        ("/a\nb", "1", "CHECKPOINT"),
        ("/" * 5000, "1", "CHECKPOINT"),
        ("/a", "", "--weight-version"),
    ],
)
def test_what_cannot_be_stored_is_said(reloads: Reloads, checkpoint: str, version: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"{what} must be 1 to"):
        reloads.ask(checkpoint, version)


def test_what_was_told_is_of_one_change(reloads: Reloads, client: redis.Redis) -> None:
    first = reloads.ask("/step-1", "1")
    reloads.tell(first, "a:1", Stage.FAILED, "it did not work")
    assert reloads.progress(first) == {"a:1": Progress(Stage.FAILED, "it did not work")}

    second = reloads.ask("/step-2", "2")
    reloads.tell(second, "a:1", Stage.DRAINING, "2 calls")
    (key,) = client.keys("*:reloaded")
    client.hset(key, f"{second.reload_id}/b:2", '["of a version to come", ""]')

    assert reloads.progress(first) == {}
    assert reloads.progress(second) == {"a:1": Progress(Stage.DRAINING, "2 calls")}
    assert client.ttl(key) > 0


def test_one_replica_at_a_time_has_its_turn(reloads: Reloads) -> None:
    first, second = reloads.turn(), reloads.turn()

    assert first.take()
    assert not second.take()
    first.keep()
    first.give_back()
    assert second.take()
    first.keep()  # it has it no more, and says so in the log
    second.give_back()


def test_a_server_with_other_weights_than_the_first_is_noticed(reloads: Reloads) -> None:
    one, other = reloads.ask("/step-1", "1"), reloads.ask("/step-1", "1")

    assert reloads.known_checksum(one, "options", "abc") == "abc"
    assert reloads.known_checksum(one, "options", "def") == "abc"
    assert reloads.known_checksum(one, "other options", "def") == "def"
    assert reloads.known_checksum(other, "options", "def") == "def"


def test_a_replica_is_changed_whatever_others_made_of_it(replicas: Replicas) -> None:
    membership = Membership(replicas, "http://h:1/v1", model="policy", weight_version="1", checkpoint="/step-1")
    with pytest.raises(StaleReplica, match="is not registered"):
        membership.change(state=ReplicaState.DRAINING)
    membership.beat()
    (seen,) = replicas.all()
    replicas.change(seen, weight_version="by hand")

    membership.change(state=ReplicaState.DRAINING, checkpoint="/step-2")

    (now,) = replicas.all()
    assert (now.state, now.weight_version) == (ReplicaState.DRAINING, "by hand")
    assert (now.checkpoint, now.last_checkpoint) == ("/step-2", "/step-1")
    replicas.change(now, state=ReplicaState.DEAD)
    with pytest.raises(StaleReplica, match="is dead"):
        membership.change(state=ReplicaState.READY)


def test_a_registration_whose_answer_was_lost_is_said_again(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server would take its own registration for another process that has its place."""
    membership = Membership(replicas, "http://h:1/v1", model="policy", weight_version="1")
    membership.beat()
    (before,) = replicas.all()
    replicas.remove(before)
    register = replicas.register

    def lost(*args: Any, **options: Any) -> Any:
        register(*args, **options)
        raise redis.ConnectionError("the answer is lost")

    with monkeypatch.context() as patched:
        patched.setattr(replicas, "register", lost)
        membership.beat()
    membership.beat()
    membership.beat()

    assert not membership.taken_over
    (now,) = replicas.all()
    assert now.state is ReplicaState.READY
