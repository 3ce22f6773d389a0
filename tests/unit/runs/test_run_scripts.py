"""Every script of the run store, on a real Valkey: what it answers and exactly what it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rollout_tasks.runs.store_format import SCRIPTS

KEY = "{run:r}"
ACTIVE = "runs:active"
PARTS = ("", ":items", ":pending", ":attempts", ":alive", ":holders", ":results", ":counts", ":spent")
_TIME = re.compile(r"(?<![\d.])\d{10}(?:\.\d+)?")
DAY = 86_400


class Recorder:
    """Runs scripts on the run `r` and says what changed; `now` is the script's own time."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.reply: Any = None

    def run(self, script: str, *args: Any, keys: tuple[str, ...] = (KEY,)) -> dict[str, str]:
        before, asked = self.state(), self._time()
        reply = SCRIPTS.run(self.client, script, list(keys), list(args))
        answered, after = self._time(), self.state()

        def said(text: str) -> str:
            def name(found: re.Match[str]) -> str:
                return "now" if asked - 0.001 <= float(found.group()) <= answered + 0.001 else "then"

            return _TIME.sub(name, text)

        self.reply = (
            [said(part) if isinstance(part, str) else part for part in reply] if isinstance(reply, list) else reply
        )
        names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        return {name: said(after.get(name, "-")) for name in sorted(names)}

    def state(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for key in sorted(self.client.scan_iter("*", count=1000)):
            name = key.removeprefix(KEY).removeprefix(":") or "run"
            kind = self.client.type(key)
            if kind == "hash":
                found |= {f"{name}.{field}": value for field, value in self.client.hgetall(key).items()}
            elif kind == "zset":
                scores = self.client.zrange(key, 0, -1, withscores=True)
                found |= {f"{name}.{member}": f"{score:.6f}" for member, score in scores}
            elif kind == "set":
                found[name] = " ".join(sorted(self.client.smembers(key)))
        return found

    def _time(self) -> float:
        seconds, microseconds = self.client.time()
        return int(seconds) + int(microseconds) / 1e6


@pytest.fixture
def store(redis_url: str) -> Iterator[Recorder]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield Recorder(client)
    client.close()


@pytest.fixture
def submitting(store: Recorder) -> Recorder:
    """A run of two rollouts that is stored and not yet sent."""
    store.run("create", "r", "s", "total", 2, "max_attempts", 2, keys=(KEY, ACTIVE))
    store.run("add", "s", "items", "a", '{"id": "a"}')
    store.run("add", "s", "pending", "a#0", "a#1")
    return store


@pytest.fixture
def running(submitting: Recorder) -> Recorder:
    submitting.run("submitted", "s", "sent")
    return submitting


def holder(token: str) -> str:
    return json.dumps({"token": token})


def start(
    store: Recorder, by: str = "t", *, after: int = 0, dead: str = "", silent: float = 60, version: int = 1
) -> dict[str, str]:
    return store.run("claim", "a#0", "a", by, holder(by), after, silent, dead, version)


def verdict(by: str = "t") -> str:
    return json.dumps({"token": by})


def commit(
    store: Recorder,
    by: str = "t",
    rollout: str = "a#0",
    status: str = "completed",
    failure: str = "",
    score: str = "0.5",
    cost: str = "",
    earlier: str = "",
) -> dict[str, str]:
    return store.run("commit", rollout, by, verdict(by), status, failure, score, cost, earlier)


def silence(store: Recorder, rollout: str = "a#0") -> None:
    store.client.zadd(f"{KEY}:alive", {rollout: 1})


# -- submitting


def test_an_id_is_reserved_once_and_for_one_submission(store: Recorder) -> None:
    changed = store.run("create", "r", "s", "total", 2, keys=(KEY, ACTIVE))

    assert changed == {
        "run.state": "submitting",
        "run.submission": "s",
        "run.created": "now",
        "run.submitter_beat": "now",
        "run.total": "2",
        ACTIVE: "r",
    }
    assert store.reply == 1
    assert store.run("create", "r", "s", "total", 3, keys=(KEY, ACTIVE)) == {}
    assert store.reply == 1
    assert store.run("create", "r", "other", "total", 3, keys=(KEY, ACTIVE)) == {}
    assert store.reply == 0


def test_what_is_added_is_there_and_is_a_sign_of_life(submitting: Recorder) -> None:
    assert submitting.run("add", "s", "items", "b", "{}", "c", "{}") == {
        "items.b": "{}",
        "items.c": "{}",
        "run.submitter_beat": "now",
    }
    assert submitting.reply == "submitting"
    words = ("a#0", verdict(), "completed", "", "0.5", "0.25", "a#2", verdict("u"), "failed", "timeout", "", "")
    assert submitting.run("add", "s", "results", *words) == {
        "results.a#0": verdict(),
        "results.a#2": verdict("u"),
        "pending": "a#1",
        "counts.completed": "1",
        "counts.score": "0.5",
        "counts.cost": "0.25",
        "counts.failed": "1",
        "counts.class:timeout": "1",
        "run.submitter_beat": "now",
    }
    assert submitting.run("add", "s", "results", *words) == {"run.submitter_beat": "now"}
    assert submitting.run("add", "s", "pending", "a#2", "a#3") == {
        "pending": "a#1 a#3",
        "run.submitter_beat": "now",
    }
    assert submitting.run("add", "s", "spent", "a#1", "4.0", "a#0", "9.0") == {
        "spent.a#1": "4.0",
        "counts.cost": "4.25",
        "run.submitter_beat": "now",
    }
    assert submitting.run("add", "s", "spent", "a#1", "4.0") == {"run.submitter_beat": "now"}
    assert submitting.run("add", "s", "beat") == {"run.submitter_beat": "now"}


def test_nothing_is_added_to_a_run_that_is_not_being_submitted(submitting: Recorder) -> None:
    submitting.client.hset(KEY, "state", "cancelled")
    for what, *words in [
        ("items", "b", "{}"),
        ("pending", "b#0"),
        ("results", "b#0", "{}", "failed", "", ""),
        ("beat",),
    ]:
        assert submitting.run("add", "s", what, *words) == {}
        assert submitting.reply == "cancelled"


def test_only_the_runs_submission_adds_to_it(submitting: Recorder) -> None:
    assert submitting.run("add", "other", "pending", "x#0") == {}
    assert submitting.reply == "superseded"
    assert submitting.run("submitted", "other", "sent") == {}
    assert submitting.reply == "superseded"
    for script in ("add", "submitted"):
        assert submitting.run(script, "s", "pending", "x#0", keys=("{run:none}",)) == {}
        assert submitting.reply == "unknown"


def test_a_run_is_sent_only_when_it_is_whole(submitting: Recorder) -> None:
    submitting.client.srem(f"{KEY}:pending", "a#1")
    assert submitting.run("submitted", "s", "sent") == {}
    assert submitting.reply == "incomplete"
    submitting.client.hset(f"{KEY}:results", "a#1", verdict())

    assert submitting.run("submitted", "s", "stored") == {}
    assert submitting.reply == "submitting"
    assert submitting.run("submitted", "s", "sent") == {"run.state": "running"}
    assert submitting.reply == "running"
    assert submitting.run("submitted", "s", "stored") == {}
    assert submitting.reply == "running"


def test_a_submitter_that_was_taken_for_dead_goes_on(submitting: Recorder) -> None:
    submitting.client.hset(KEY, "state", "half_submitted")
    assert submitting.run("submitted", "s", "stored") == {"run.state": "submitting"}
    submitting.client.hset(KEY, "state", "half_submitted")
    assert submitting.run("add", "s", "beat") == {"run.state": "submitting", "run.submitter_beat": "now"}
    assert submitting.reply == "submitting"


def test_a_dead_submitters_run_goes_on_when_it_is_whole_and_only_then(submitting: Recorder) -> None:
    assert submitting.run("adopt", 60) == {}
    assert submitting.reply == "submitting"
    submitting.client.hset(KEY, "submitter_beat", 1)
    submitting.client.srem(f"{KEY}:pending", "a#1")
    assert submitting.run("adopt", 60) == {"run.state": "half_submitted"}
    assert submitting.reply == "half_submitted"
    assert submitting.run("adopt", 60) == {}
    submitting.run("add", "s", "pending", "a#1")
    submitting.client.hset(KEY, "submitter_beat", 1)

    assert submitting.run("adopt", 60) == {"run.state": "running", "run.chord_spent": "1"}
    assert submitting.reply == "running"


# -- rolling out


def test_a_claim_counts_an_attempt_and_says_who_has_it(running: Recorder) -> None:
    assert start(running) == {"attempts.a#0": "1", "holders.a#0": holder("t"), "alive.a#0": "now"}
    assert running.reply == ["claimed", 1, '{"id": "a"}', "0", "then"]
    assert start(running) == {"alive.a#0": "now"}
    assert running.reply[:2] == ["claimed", 1]
    assert start(running, after=1) == {"attempts.a#0": "2", "alive.a#0": "now"}
    assert running.reply[:2] == ["claimed", 2]
    assert set(start(running, after=2)) == {"alive.a#0", "holders.a#0"}
    assert running.reply[:2] == ["exhausted", 2]


def test_a_claim_that_finds_no_attempt_left_says_so_again_after_a_lost_reply(running: Recorder) -> None:
    start(running)
    start(running, after=1)
    silence(running)
    for _ in range(2):
        start(running, "next")
        assert running.reply[:2] == ["exhausted", 2]
    assert json.loads(running.client.hget(f"{KEY}:holders", "a#0") or "")["token"] == "next"


def test_a_rollout_that_somebody_holds_is_busy(running: Recorder) -> None:
    start(running)

    assert start(running, "u") == {}
    assert running.reply[:3] == ["busy", 1, holder("t")]
    assert 0 <= float(running.reply[3]) < 60
    assert start(running, "u", after=1) == {}
    assert running.reply[:3] == ["superseded", 1, holder("t")]


@pytest.mark.parametrize("how", ["silent", "dead"])
def test_a_silent_or_dead_holder_is_taken_over(running: Recorder, how: str) -> None:
    start(running)
    if how == "silent":
        silence(running)

    changed = start(running, "u", dead="t" if how == "dead" else "")

    assert changed == {"attempts.a#0": "2", "holders.a#0": holder("u"), "alive.a#0": "now"}
    assert running.reply[:2] == ["claimed", 2]
    assert commit(running, "t") == {}
    assert running.reply == ["superseded", 2, 0, 0]


def test_nobody_goes_on_with_a_claim_that_is_gone(running: Recorder) -> None:
    assert start(running, after=1) == {}
    assert running.reply[:3] == ["superseded", 0, ""]


def test_what_is_not_to_be_claimed_says_why(running: Recorder) -> None:
    assert running.run("claim", "x#0", "x", "t", holder("t"), 0, 60, "", 1) == {}
    assert running.reply == ["unknown", 0, "", "0", "then"]
    assert running.run("claim", "a#0", "a", "t", holder("t"), 0, 60, "", 1, keys=("{run:none}",)) == {}
    assert running.reply == ["unknown", 0, "", "0", "0"]
    running.client.hset(KEY, "min_version", 2)
    assert start(running) == {}
    assert running.reply[0] == "newer"
    assert start(running, version=2)["attempts.a#0"] == "1"
    commit(running)
    assert start(running, "u", version=2) == {}
    assert running.reply[:3] == ["committed", 0, ""]


@pytest.mark.parametrize("state", ["half_submitted", "draining"])
def test_a_run_that_is_not_whole_or_drains_admits_nobody_new(running: Recorder, state: str) -> None:
    running.client.hset(KEY, "state", state)

    assert start(running) == {}
    assert running.reply[:2] == [state, 0]


def test_a_draining_run_lets_those_go_on_that_have_begun(running: Recorder) -> None:
    start(running)
    assert running.run("change_state", "draining", "submitting", "running") == {"run.state": "draining"}
    assert running.reply == "draining"
    assert running.run("change_state", "draining", "submitting", "running") == {}
    assert running.reply == "draining"

    assert start(running, after=1)["attempts.a#0"] == "2"
    assert running.reply[0] == "claimed"


@pytest.mark.parametrize("state", ["cancelling", "cancelled"])
def test_a_cancelled_run_is_claimed_without_an_attempt(running: Recorder, state: str) -> None:
    running.client.hset(KEY, "state", state)

    assert start(running) == {"holders.a#0": holder("t"), "alive.a#0": "now"}
    assert running.reply[:2] == ["cancelled", 0]


def test_a_beat_keeps_the_claim_fresh_for_its_holder_alone(running: Recorder) -> None:
    start(running)
    silence(running)

    assert running.run("beat", "a#0", "u") == {}
    assert running.reply == "superseded"
    assert running.run("beat", "a#1", "t") == {}
    assert running.reply == "superseded"
    assert running.run("beat", "a#0", "t") == {"alive.a#0": "now"}
    assert running.reply == "running"
    running.run("beat", "a#0", "t", keys=("{run:none}",))
    assert running.reply == "unknown"


def test_a_claim_handed_back_costs_no_attempt(running: Recorder) -> None:
    start(running)
    assert running.run("hand_back", "a#0", "u", 1) == {}
    assert running.reply == 0
    start(running, after=1)

    assert running.run("hand_back", "a#0", "t", 1) == {"attempts.a#0": "1", "holders.a#0": "-", "alive.a#0": "-"}
    assert running.reply == 1
    assert running.run("hand_back", "a#0", "t", 1) == {}
    assert running.reply == 0
    start(running, "u")
    running.run("hand_back", "a#0", "u", 1)
    start(running, "v")
    running.client.hset(f"{KEY}:attempts", "a#0", 1)
    assert running.run("hand_back", "a#0", "v", 1)["attempts.a#0"] == "0", "a cancellation must know that it was begun"


def test_an_attempt_that_says_nothing_is_counted_again_when_it_starts_again(running: Recorder) -> None:
    start(running)
    start(running, after=1)

    assert running.run("uncount", "a#0", "u", 2) == {}
    assert running.reply == 0
    assert running.run("uncount", "a#0", "t", 2) == {"attempts.a#0": "1"}
    assert running.reply == 1
    assert running.run("uncount", "a#0", "t", 2) == {}
    assert running.reply == 1
    assert start(running, after=1)["attempts.a#0"] == "2"
    assert running.reply[:2] == ["claimed", 2]


def test_a_claim_that_is_handed_back_while_its_attempt_is_not_counted_costs_nothing_more(running: Recorder) -> None:
    start(running)
    running.run("uncount", "a#0", "t", 1)

    assert running.run("hand_back", "a#0", "t", 0) == {"holders.a#0": "-", "alive.a#0": "-"}


# -- verdicts


def test_a_verdict_is_recorded_once_with_what_it_counts(running: Recorder) -> None:
    start(running)

    assert commit(running) == {
        "results.a#0": verdict(),
        "pending": "a#1",
        "alive.a#0": "-",
        "holders.a#0": "-",
        "attempts.a#0": "-",
        "counts.completed": "1",
        "counts.score": "0.5",
    }
    assert running.reply == ["ok", 1, 0, 0]
    assert commit(running) == {}
    assert running.reply == ["ok", 1, 0, 0]
    assert commit(running, "u") == {}
    assert running.reply == ["committed", 1, 0, 0]
    running.run("commit", "a#0", "t", verdict(), "completed", "", "", "", "", keys=("{run:none}",))
    assert running.reply == ["unknown", 0, 0, 0]


@pytest.mark.parametrize(
    ("total", "earlier", "counted"),
    [
        ("4.5", "4.0", "9.5"),
        ("4.5", "3.9999999999999996", "9.5"),
        ("4.5", "4.25", "9.5"),
        ("", "", "9"),
        ("4.5", "", "13.5"),
        ("4.5", "3.75", "13.5"),
    ],
    ids=["the next attempt", "rounded", "a later one", "nothing known", "earlier ones not read", "some of them gone"],
)
def test_what_a_rollout_had_cost_before_a_resume_is_not_counted_again(
    running: Recorder, total: str, earlier: str, counted: str
) -> None:
    running.client.hset(f"{KEY}:spent", mapping={"a#0": "4.0", "a#1": "5.0"})
    running.client.hset(f"{KEY}:counts", "cost", "9")
    start(running)

    commit(running, cost=total, earlier=earlier)

    assert running.client.hget(f"{KEY}:counts", "cost") == counted
    assert commit(running, cost=total, earlier=earlier) == {}


@pytest.mark.parametrize("spent", [False, True])
def test_the_last_verdict_asks_for_the_report_when_no_chord_will(running: Recorder, spent: bool) -> None:
    if spent:
        running.client.hset(KEY, "chord_spent", "1")
    start(running)
    commit(running)
    running.run("claim", "a#1", "a", "t", holder("t"), 0, 60, "", 1)

    changed = commit(running, rollout="a#1", status="failed", failure="timeout", score="")

    assert (changed["counts.failed"], changed["counts.class:timeout"], changed["pending"]) == ("1", "1", "-")
    assert "counts.score" not in changed
    assert running.reply == ["ok", 0, int(spent), 0]


# -- cancelling


def cancel(store: Recorder) -> dict[str, str]:
    created = store.client.hget(KEY, "created") or ""
    return store.run("cancel", verdict(""), 60, "0", 1000, "r", DAY, "half", created, keys=(KEY, ACTIVE))


def test_what_is_being_cancelled_begins_nothing_more(running: Recorder) -> None:
    assert running.run("begin_cancel") == {"run.state": "cancelling", "run.chord_spent": "1"}
    assert running.reply[0] == "running"
    assert running.run("begin_cancel") == {}
    assert running.reply == ["cancelling", "then"]
    start(running)
    assert running.reply[0] == "cancelled"


@pytest.mark.parametrize("state", ["done", "cancelled", "finalizing"])
def test_what_is_over_is_not_cancelled(running: Recorder, state: str) -> None:
    running.client.hset(KEY, "state", state)
    assert running.run("begin_cancel") == {}
    assert running.reply[0] == state


def test_a_run_that_is_gone_or_was_resumed_meanwhile_is_not_cancelled(running: Recorder) -> None:
    running.client.hset(KEY, "created", "7.5")
    assert running.run("cancel", verdict(""), 60, "0", 1000, "r", DAY, "half", "6.5", keys=(KEY, ACTIVE)) == {}
    assert running.reply == ["unknown", 0, 0, "0", []]
    running.client.flushall()
    assert running.run("begin_cancel") == {}
    assert running.reply == ["unknown", ""]


def test_cancelling_leaves_running_rollouts_to_their_holders(running: Recorder) -> None:
    start(running)

    assert cancel(running) == {
        "run.state": "cancelling",
        "run.chord_spent": "1",
        "results.a#1": verdict(""),
        "pending": "a#0",
        "counts.cancelled": "1",
        "counts.class:cancelled": "1",
    }
    assert running.reply == ["running", 1, 1, "0", []]
    assert cancel(running) == {}
    assert running.reply == ["cancelling", 0, 1, "0", []]


def test_cancelling_names_what_was_begun_and_is_held_by_nobody_any_more(running: Recorder) -> None:
    start(running)
    silence(running)

    assert "results.a#0" not in cancel(running)

    assert running.reply == ["running", 1, 1, "0", ["a#0"]]


def test_a_claim_without_an_attempt_is_cancelled_with_its_holder(running: Recorder) -> None:
    """As of a worker that claimed a rollout to commit the cancellation, and died."""
    start(running)
    running.client.hdel(f"{KEY}:attempts", "a#0")
    silence(running)

    changed = cancel(running)

    assert {name: changed[name] for name in ("alive.a#0", "holders.a#0", "pending")} == {
        "alive.a#0": "-",
        "holders.a#0": "-",
        "pending": "-",
    }
    assert (running.reply, changed["counts.cancelled"]) == (["running", 2, 0, "0", []], "2")
    assert running.client.hget(KEY, "state") == "cancelling"  # to be finalised: every rollout has a verdict


@pytest.mark.parametrize("state", ["done", "cancelled", "finalizing"])
def test_a_run_that_is_over_is_not_cancelled(running: Recorder, state: str) -> None:
    running.client.hset(KEY, "state", state)

    assert cancel(running) == {}
    assert running.reply == [state, 0, 0, "0", []]


def test_a_half_submitted_run_ends_with_its_cancelling(running: Recorder) -> None:
    running.client.hset(KEY, mapping={"state": "half_submitted", "total": 5})

    changed = cancel(running)

    assert (changed["run.state"], changed["run.problem"], changed[ACTIVE]) == ("cancelled", "half", "-")
    for part in ("", ":items", ":results", ":counts"):
        assert 0 < running.client.ttl(f"{KEY}{part}") <= DAY
    cancel(running)
    assert running.reply[0] == "cancelled"


# -- finalising


@pytest.fixture
def complete(running: Recorder) -> Recorder:
    for rollout in ("a#0", "a#1"):
        running.run("claim", rollout, "a", "t", holder("t"), 0, 60, "", 1)
        commit(running, rollout=rollout)
    return running


def end(store: Recorder, by: str = "f", problem: str = "") -> dict[str, str]:
    return store.run("end_finalize", by, "r", DAY, "2026", problem, keys=(KEY, ACTIVE))


def test_an_incomplete_run_is_not_finalised_and_its_last_commit_will_ask(running: Recorder) -> None:
    assert running.run("begin_finalize", "f", 60) == {"run.chord_spent": "1"}
    assert running.reply == "incomplete"
    assert running.run("begin_finalize", "f", 60, keys=("{run:none}",)) == {}
    assert running.reply == "unknown"


def test_one_finaliser_at_a_time(complete: Recorder) -> None:
    assert complete.run("begin_finalize", "f", 60) == {
        "run.state": "finalizing",
        "run.state_before": "running",
        "run.finalizer": "f",
        "run.finalizer_beat": "now",
    }
    assert complete.reply == "go"
    assert complete.run("begin_finalize", "g", 60) == {}
    assert complete.reply == "busy"
    assert complete.run("begin_finalize", "f", 60) == {"run.finalizer_beat": "now"}
    complete.client.hset(KEY, "finalizer_beat", 1)

    assert complete.run("begin_finalize", "g", 60) == {"run.finalizer": "g", "run.finalizer_beat": "now"}
    assert complete.reply == "go"
    assert end(complete, "f") == {}
    assert complete.reply == "superseded"


def test_a_finalisers_beat_keeps_its_claim(complete: Recorder) -> None:
    assert complete.run("beat_finalize", "f") == {}
    assert complete.reply == "superseded"
    complete.run("begin_finalize", "f", 60)

    assert complete.run("beat_finalize", "f") == {"run.finalizer_beat": "now"}
    assert complete.reply == "finalizing"
    assert complete.run("beat_finalize", "g") == {}
    assert complete.reply == "superseded"
    complete.run("beat_finalize", "f", keys=("{run:none}",))
    assert complete.reply == "unknown"
    end(complete)
    assert complete.run("beat_finalize", "f") == {}
    assert complete.reply == "superseded"


@pytest.mark.parametrize(("before", "final"), [("running", "done"), ("cancelling", "cancelled")])
def test_a_finalised_run_is_over_once_and_kept_for_a_while(complete: Recorder, before: str, final: str) -> None:
    complete.client.hset(KEY, "state", before)
    complete.run("begin_finalize", "f", 60)

    assert end(complete, problem="none") == {
        "run.state": final,
        "run.finished": "2026",
        "run.problem": "none",
        "run.times_finalised": "1",
        ACTIVE: "-",
    }
    assert complete.reply == final
    assert end(complete) == {}
    assert complete.reply == final
    kept = {part for part in PARTS if complete.client.exists(f"{KEY}{part}")}
    assert kept == {part for part in kept if 0 < complete.client.ttl(f"{KEY}{part}") <= DAY} != set()
    assert complete.run("begin_finalize", "g", 60) == {}
    assert complete.reply == "over"


def test_every_part_of_a_run_that_is_over_goes_with_it(complete: Recorder) -> None:
    complete.run("begin_finalize", "f", 60)
    for part in PARTS:
        if not complete.client.exists(f"{KEY}{part}"):
            complete.client.set(f"{KEY}{part}", "left over")

    end(complete)

    assert [part for part in PARTS if complete.client.ttl(f"{KEY}{part}") < 0] == []


def test_a_finaliser_without_the_state_ends_nothing(complete: Recorder) -> None:
    complete.run("begin_finalize", "f", 60)
    complete.client.hset(KEY, "state", "running")

    assert end(complete) == {}
    assert complete.reply == "superseded"


# -- looking, finding, forgetting


def test_the_progress_counts_all_there_is(running: Recorder) -> None:
    running.client.hset(KEY, mapping={"queues": "q", "problem": "p"})
    start(running)

    assert running.run("progress", 60) == {}
    assert running.reply == ["running", "2", "then", "q", "p", 2, 0, 1, []]
    commit(running)
    running.run("progress", 60)
    assert running.reply[5:8] == [1, 1, 0]
    silence(running, "a#1")
    running.run("progress", 60)
    assert running.reply[7] == 0
    start(running, "u")
    running.client.zadd(f"{KEY}:alive", {"a#1": 1e11})  # of before the server's clock was set back
    running.run("progress", 60)
    assert running.reply[7] == 0, "nobody would look for it"
    running.run("progress", 60, keys=("{run:none}",))
    assert running.reply == []


def test_what_has_no_message_and_no_holder_is_found(running: Recorder) -> None:
    running.client.sadd("notes", "r a#1")

    assert running.run("find_lost", "r", 60, "0", 1000, keys=(KEY, "notes", "found")) == {"found": "a#0"}
    assert running.reply == "0"
    assert 3500 < running.client.ttl("found") <= 3600
    running.client.delete("found")
    start(running)
    assert running.run("find_lost", "r", 60, "0", 1000, keys=(KEY, "notes", "found")) == {}
    silence(running)
    assert running.run("find_lost", "r", 60, "0", 1000, keys=(KEY, "notes", "found")) == {"found": "a#0"}
    running.client.delete("found")
    assert running.run("find_lost", "other", 60, "0", 1000, keys=(KEY, "notes", "found")) == {"found": "a#0 a#1"}


def message(**headers: str) -> str:
    return json.dumps({"headers": headers, "body": f"body of {headers.get('task')}"})


def test_messages_are_noted_part_by_part(store: Recorder) -> None:
    store.client.rpush(
        "q",
        message(task="rollout", run="r", rollout="a#0"),
        message(task="rollout"),
        message(task="finalize_run", run="r", rollout="x"),
        json.dumps({"body": "without headers"}),
        message(task="rollout", run="r", rollout="a#1"),
    )

    store.run("note_messages", "0", 2, 60, keys=("q", "notes"))
    assert store.reply == ["2", ["body of rollout"]]
    assert store.client.smembers("notes") == {"r a#0"}
    store.run("note_messages", "2", 2, 60, keys=("q", "notes"))
    assert store.reply == ["4", []]
    store.run("note_messages", "4", 2, 60, keys=("q", "notes"))
    assert store.reply == ["0", []]
    assert store.client.smembers("notes") == {"r a#0", "r a#1"}
    assert 0 < store.client.ttl("notes") <= 60


def test_delivered_messages_are_noted_too(store: Recorder) -> None:
    delivered = [json.loads(message(task="rollout", run="r", rollout=name)) for name in ("a#0", "a#1")]
    for number, document in enumerate(delivered):
        store.client.hset("unacked", str(number), json.dumps([document, "exchange", "key"]))

    store.run("note_messages", "0", 100, 60, keys=("unacked", "notes"))

    assert store.reply == ["0", []]
    assert store.client.smembers("notes") == {"r a#0", "r a#1"}


def test_a_run_is_forgotten_only_in_the_states_that_are_said(running: Recorder) -> None:
    assert running.run("forget", "r", "", "done", "submitting", keys=(KEY, ACTIVE)) == {}
    assert running.reply == 0
    start(running)
    running.client.hset(f"{KEY}:results", "x", "y")
    running.client.hset(f"{KEY}:counts", "x", "1")
    running.client.sadd(f"{KEY}:suspects", "x")

    running.run("forget", "r", "", "submitting", "running", keys=(KEY, ACTIVE))

    assert running.reply == 1
    assert running.state() == {}
    running.client.sadd(ACTIVE, "r")
    assert running.run("forget", "r", "", keys=(KEY, ACTIVE)) == {ACTIVE: "-"}
    assert running.reply == 1


def test_a_submission_forgets_its_own_run_alone(submitting: Recorder) -> None:
    assert submitting.run("forget", "r", "other", "submitting", keys=(KEY, ACTIVE)) == {}
    assert submitting.reply == 0

    submitting.run("forget", "r", "s", "submitting", keys=(KEY, ACTIVE))

    assert submitting.reply == 1
    assert submitting.state() == {}


# -- a server whose clock was set back


@pytest.fixture
def later(running: Recorder) -> float:
    """An hour from now: when things happened, by the clock as it was before."""
    return float(running.client.time()[0]) + 3600  # type: ignore[index]


@pytest.mark.parametrize("by", ["claim", "find_lost", "cancel"])
def test_a_holder_from_before_the_clock_was_set_back_is_silent_from_the_next_look_on(
    running: Recorder, later: float, by: str
) -> None:
    start(running)
    running.client.zadd(f"{KEY}:alive", {"a#0": later})

    looks = {
        "claim": lambda: start(running, "other"),
        "find_lost": lambda: running.run("find_lost", "r", 60, "0", 100, keys=(KEY, "notes", "found")),
        "cancel": lambda: cancel(running),
    }
    assert looks[by]()["alive.a#0"] == "now"

    assert running.client.hget(f"{KEY}:results", "a#0") is None
    assert not running.client.sismember("found", "a#0")
    assert running.client.hget(f"{KEY}:attempts", "a#0") == "1"


def test_a_submitter_from_before_the_clock_was_set_back_is_silent_from_the_next_look_on(
    submitting: Recorder, later: float
) -> None:
    submitting.client.hset(KEY, mapping={"state": "submitting", "submitter_beat": later})

    assert submitting.run("adopt", 60) == {"run.submitter_beat": "now"}
    assert submitting.reply == "submitting"
    assert submitting.run("adopt", 60) == {}


def test_a_finaliser_from_before_the_clock_was_set_back_is_silent_from_the_next_look_on(
    running: Recorder, later: float
) -> None:
    running.client.hset(KEY, mapping={"state": "finalizing", "finalizer_beat": later})

    assert running.run("finalizer_silence") == {"run.finalizer_beat": "now"}
    assert running.reply == "0.000000"
    assert running.run("finalizer_silence") == {}
    running.client.hset(KEY, "state", "running")
    assert running.run("finalizer_silence") == {}
    assert running.reply == "none"
