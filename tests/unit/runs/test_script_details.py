"""What the scripts of the run store do to every part of a run, and of messages of more than one kind."""

# ruff: noqa: F811 (fixtures are imported)

from __future__ import annotations

import json

import pytest

from tests.unit.runs.test_run_scripts import (
    ACTIVE,
    DAY,
    KEY,
    PARTS,
    Recorder,
    cancel,
    commit,
    holder,
    message,
    running,  # noqa: F401
    start,
    store,  # noqa: F401
    submitting,  # noqa: F401
    verdict,
)


def fill(store: Recorder) -> None:
    """Every part of the run is there."""
    for part in PARTS:
        if not store.client.exists(f"{KEY}{part}"):
            kind = {":pending": "sadd", ":alive": "zadd"}.get(part, "hset")
            words = {"sadd": ("x#0",), "zadd": ({"x#0": 1},), "hset": ("x#0", "{}")}[kind]
            getattr(store.client, kind)(f"{KEY}{part}", *words)
    assert [part for part in PARTS if not store.client.exists(f"{KEY}{part}")] == []


def test_every_part_of_a_half_submitted_run_goes_with_its_cancelling(running: Recorder) -> None:
    running.client.hset(KEY, mapping={"state": "half_submitted", "total": 9})
    fill(running)
    running.client.delete(f"{KEY}:pending")
    running.client.sadd(ACTIVE, "another")

    changed = cancel(running)

    there = [part for part in PARTS if running.client.exists(f"{KEY}{part}")]
    assert there == [part for part in PARTS if part != ":pending"]
    assert [part for part in there if not DAY - 60 < running.client.ttl(f"{KEY}{part}") <= DAY] == []
    assert changed[ACTIVE] == "another"


def test_a_run_that_is_forgotten_leaves_none_of_its_parts_and_all_others(running: Recorder) -> None:
    fill(running)
    running.client.sadd(f"{KEY}:suspects", "x#0")
    running.client.sadd(ACTIVE, "another")
    running.client.set("{run:another}", "stays")

    running.run("forget", "r", "", "running", keys=(KEY, ACTIVE))

    assert sorted(running.client.keys("*")) == sorted([ACTIVE, "{run:another}"])
    assert running.client.smembers(ACTIVE) == {"another"}


def test_a_holder_of_a_cancelled_rollout_is_looked_at_alone(running: Recorder) -> None:
    """One rollout is held, one was begun and left, and one nobody has begun: each has its own end."""
    running.client.sadd(f"{KEY}:pending", "a#2")
    start(running)
    running.client.hset(f"{KEY}:attempts", "a#1", 1)
    running.client.zadd(f"{KEY}:alive", {"a#1": 1, "a#2": 1})
    running.client.hset(f"{KEY}:holders", "a#2", holder("gone"))

    changed = cancel(running)

    assert running.reply == ["running", 1, 2, "0", ["a#1"]]
    assert changed == {
        "run.state": "cancelling",
        "run.chord_spent": "1",
        "results.a#2": verdict(""),
        "pending": "a#0 a#1",
        "alive.a#2": "-",
        "holders.a#2": "-",
        "counts.cancelled": "1",
        "counts.class:cancelled": "1",
    }


def test_a_limit_is_reached_at_its_cost_and_asked_about_once(running: Recorder) -> None:
    running.client.hset(KEY, "max_cost", "1.5")
    running.client.sadd(f"{KEY}:pending", "a#2")
    running.client.hset(KEY, "total", 3)
    start(running)
    commit(running, cost="1.25")
    assert running.reply == ["ok", 2, 0, 0]
    running.run("claim", "a#1", "a", "t", holder("t"), 0, 60, "", 1)

    commit(running, rollout="a#1", cost="0.25")
    assert running.reply == ["ok", 1, 0, 1]

    running.client.hset(KEY, "state", "cancelling")
    commit(running, rollout="a#1", cost="0.25")
    assert running.reply == ["ok", 1, 0, 0], "it is being cancelled already"
    running.client.hset(KEY, mapping={"state": "running", "total": 2})
    commit(running, rollout="a#1", cost="0.25")
    assert running.reply == ["ok", 0, 0, 0], "there is nothing to cancel"


@pytest.mark.parametrize(("beat", "count"), [(59, 0), (61, 1), (119, 1), (121, 0)])
def test_silence_has_a_beginning_and_an_end(running: Recorder, beat: int, count: int) -> None:
    seconds, micros = running.client.time()
    running.client.zadd(f"{KEY}:alive", {"a#0": seconds + micros / 1e6 - beat})

    assert running.run("silent", 60, 120) == {}

    assert running.reply[0] == count
    assert (0 <= float(running.reply[1]) - beat < 1) if count else running.reply[1] == "0.000000"


def test_of_many_that_are_silent_the_last_that_was_heard_counts(running: Recorder) -> None:
    seconds = int(running.client.time()[0])
    running.client.zadd(
        f"{KEY}:alive", {"a#0": seconds - 100, "a#1": seconds - 70, "a#2": seconds - 90, "a#3": seconds}
    )

    running.run("silent", 60, 120)

    assert running.reply[0] == 3
    assert 70 <= float(running.reply[1]) < 75


def test_delivered_messages_are_noted_whatever_stands_between_them(store: Recorder) -> None:
    entries = [
        json.dumps([json.loads(message(task="rollout", run="r", rollout="a#0")), "exchange", "key"]),
        json.dumps([json.loads(message(task="rollout"))]),
        json.dumps([json.loads(message(task="finalize_run", run="r", rollout="x"))]),
        "no JSON",
        json.dumps([]),
        json.dumps([json.loads(message(task="rollout", run="r", rollout="a#1")), "exchange", "key"]),
    ]
    store.client.hset("unacked", mapping={str(number): entry for number, entry in enumerate(entries)})

    store.run("note_messages", "0", 100, 60, keys=("unacked", "notes"))

    assert store.reply == ["0", ["body of rollout"]]
    assert store.client.smembers("notes") == {"r a#0", "r a#1"}


def test_a_rollout_is_lost_only_after_it_was_silent_for_long(running: Recorder) -> None:
    seconds = int(running.client.time()[0])
    running.client.zadd(f"{KEY}:alive", {"a#0": seconds - 55, "a#1": seconds - 65})

    assert running.run("find_lost", "r", 60, "0", 1000, keys=(KEY, "notes", "found")) == {"found": "a#1"}


def test_a_submission_is_adopted_after_its_submitters_silence_and_not_before(submitting: Recorder) -> None:
    seconds = int(submitting.client.time()[0])
    submitting.client.hset(KEY, "submitter_beat", seconds - 55)
    assert submitting.run("adopt", 60) == {}
    submitting.client.hdel(KEY, "submitter_beat")
    submitting.client.hset(KEY, "created", seconds - 65)

    assert submitting.run("adopt", 60) == {"run.state": "running", "run.chord_spent": "1"}


def test_a_finaliser_that_never_beat_is_replaced_and_one_that_beat_just_now_is_not(running: Recorder) -> None:
    running.client.hset(KEY, mapping={"total": 0, "state": "finalizing", "finalizer": "f"})
    seconds = int(running.client.time()[0])
    running.client.hset(KEY, "finalizer_beat", seconds - 55)
    assert running.run("begin_finalize", "g", 60) == {}
    assert running.reply == "busy"
    running.client.hdel(KEY, "finalizer_beat")

    assert running.run("begin_finalize", "g", 60) == {"run.finalizer": "g", "run.finalizer_beat": "now"}
    assert running.client.hget(KEY, "state_before") is None


def test_a_holder_is_busy_until_it_was_silent_for_long(running: Recorder) -> None:
    start(running)
    seconds = int(running.client.time()[0])
    running.client.zadd(f"{KEY}:alive", {"a#0": seconds - 55})
    start(running, "u")
    assert running.reply[0] == "busy"
    assert 55 <= float(running.reply[3]) < 60
    running.client.zadd(f"{KEY}:alive", {"a#0": seconds - 65})

    start(running, "u")

    assert running.reply[:2] == ["claimed", 2]
