"""The run store's scripts on a real Valkey: one holder, one result, whoever asks and however often."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict

RUN = "run-1"
ALIVE = f"{{run:{RUN}}}:alive"
SILENT = 60.0
ROLLOUTS = ["a#0", "b#0"]
DONE = Verdict("a#0", 1, "completed", answer="42", score=0.5)


@pytest.fixture
def store(redis_url: str) -> RunStore:
    store = RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=SILENT)
    stored = reserve(store.client, RUN, RunConfig(), "/nowhere", len(ROLLOUTS))
    stored.add_items([Item("a", "?"), Item("b", "?")], ROLLOUTS)
    assert stored.everything_sent()
    return store


def holder(token: str, message: str = "m") -> dict[str, str]:
    return {"token": token, "message": message}


def claim(store: RunStore, token: str, rollout: str = "a#0", **options: object):  # type: ignore[no-untyped-def]
    return store.claim(RUN, rollout, holder(token), **options)  # type: ignore[arg-type]


def age(store: RunStore, seconds: float, rollout: str = "a#0") -> None:
    """Has a rollout's holder been silent for so much longer."""
    store.client.zincrby(ALIVE, -seconds, rollout)


def test_an_id_is_given_out_once(store: RunStore) -> None:
    assert not reserve(store.client, RUN, RunConfig(), "/elsewhere", 1)
    assert store.config(RUN)[1] == "/nowhere"


def test_one_holder_at_a_time(store: RunStore) -> None:
    first = claim(store, "one")
    second = claim(store, "two")

    assert (first.status, first.attempt, first.item) == ("claimed", 1, Item("a", "?"))
    assert (second.status, second.holder["token"]) == ("busy", "one")


def test_starting_again_after_a_lost_reply_counts_no_attempt(store: RunStore) -> None:
    assert [claim(store, "one").attempt for _ in range(3)] == [1, 1, 1]
    assert [claim(store, "one", after=1).attempt for _ in range(3)] == [2, 2, 2]


def test_a_silent_holder_is_superseded_and_cannot_commit(store: RunStore) -> None:
    claim(store, "one")
    age(store, SILENT + 1)

    taken = claim(store, "two")

    assert (taken.status, taken.attempt) == ("claimed", 2)
    assert store.beat(RUN, "a#0", "one") == "superseded"
    assert store.commit(RUN, DONE, "one").outcome == "superseded"
    assert claim(store, "one", after=1).status == "superseded"
    assert store.commit(RUN, replace(DONE, attempt=2), "two").outcome == "ok"


def test_a_beating_holder_is_not_superseded(store: RunStore) -> None:
    claim(store, "one")
    for _ in range(4):
        age(store, SILENT / 2)
        assert store.beat(RUN, "a#0", "one") == "running"

    assert claim(store, "two").status == "busy"


def test_a_holder_known_to_be_dead_is_taken_over_at_once(store: RunStore) -> None:
    claim(store, "one")

    assert claim(store, "two", dead_holder="somebody else").status == "busy"
    assert claim(store, "two", dead_holder="one").status == "claimed"


def test_the_first_verdict_wins_and_repeating_it_is_harmless(store: RunStore) -> None:
    claim(store, "one")

    commits = [store.commit(RUN, DONE, "one") for _ in range(3)]
    other = store.commit(RUN, replace(DONE, answer="43"), "two")

    assert [(commit.outcome, commit.left) for commit in commits] == [("ok", 1)] * 3
    assert other.outcome == "committed"
    assert list(store.verdicts(RUN)) == [DONE]
    progress = store.progress(RUN)
    assert (progress.completed, progress.pending, progress.running, progress.score_sum) == (1, 1, 0, 0.5)
    assert claim(store, "three").status == "committed"


def test_attempts_are_bounded(store: RunStore) -> None:
    statuses = []
    for token in ("one", "two", "three", "four"):
        statuses.append(claim(store, token).status)
        age(store, SILENT + 1)

    assert statuses == ["claimed", "claimed", "claimed", "exhausted"]


def test_an_attempt_that_is_handed_back_does_not_count(store: RunStore) -> None:
    assert claim(store, "one").attempt == 1
    assert not store.hand_back(RUN, "a#0", "two")

    assert [store.hand_back(RUN, "a#0", "one") for _ in range(2)] == [True, False]

    assert store.progress(RUN).running == 0
    assert store.commit(RUN, DONE, "one").outcome == "superseded"
    again = claim(store, "two")
    assert (again.status, again.attempt) == ("claimed", 1)


def test_unknown_runs_and_rollouts_are_nothing(store: RunStore) -> None:
    assert store.claim("other", "a#0", holder("one")).status == "unknown"
    assert store.claim(RUN, "c#0", holder("one")).status == "unknown"
    assert store.beat("other", "a#0", "one") == "unknown"
    assert store.commit("other", DONE, "one").outcome == "unknown"
    assert store.progress("other") is None


def test_draining_admits_nothing_new_but_lets_the_running_ones_end(store: RunStore) -> None:
    claim(store, "one")
    store.set_draining(RUN)

    assert claim(store, "two", "b#0").status == "draining"
    assert claim(store, "one", after=1).status == "claimed"
    assert store.commit(RUN, DONE, "one").outcome == "ok"


def test_cancelling_commits_what_nobody_holds_and_tells_the_holders(store: RunStore) -> None:
    claim(store, "one")

    done = store.cancel(RUN)

    assert (done.found, done.cancelled, done.left, done.begun) == ("running", 1, 1, [])
    assert store.beat(RUN, "a#0", "one") == "cancelling"
    assert claim(store, "one", after=1).status == "cancelled"
    ended = replace(DONE, status="cancelled", failure_class=FailureClass.CANCELLED, score=None)
    assert store.commit(RUN, ended, "one").finalize
    assert {verdict.failure_class for verdict in store.verdicts(RUN)} == {FailureClass.CANCELLED}


def test_a_run_is_finalised_by_one_process_once_when_all_is_in(store: RunStore) -> None:
    assert store.begin_finalize(RUN, "early", silent_seconds=60) == "incomplete"
    for rollout in ROLLOUTS:
        claim(store, rollout, rollout)
        commit = store.commit(RUN, replace(DONE, rollout_id=rollout), rollout)
    assert commit.finalize, "the chord fired early: the last commit has to ask again"

    assert store.begin_finalize(RUN, "one", silent_seconds=60) == "go"
    assert store.begin_finalize(RUN, "two", silent_seconds=60) == "busy"
    assert store.begin_finalize(RUN, "two", silent_seconds=0) == "go"
    assert store.end_finalize(RUN, "one", "now") == "superseded"
    assert [store.end_finalize(RUN, "two", "now") for _ in range(2)] == ["done", "done"]
    assert store.begin_finalize(RUN, "three", silent_seconds=0) == "over"
    assert store.client.hget(f"{{run:{RUN}}}", "times_finalised") == "1"
    assert store.active() == []


@pytest.mark.parametrize("state", ["submitting", "running", "draining", "cancelling"])
def test_a_run_without_a_result_for_each_rollout_is_never_finalised(store: RunStore, state: str) -> None:
    claim(store, "one")
    store.commit(RUN, DONE, "one")
    store.client.hset(f"{{run:{RUN}}}", "state", state)
    store.client.delete(f"{{run:{RUN}}}:pending")

    assert store.begin_finalize(RUN, "early", silent_seconds=60) == "incomplete"
    assert store.state(RUN) == state


def test_a_finaliser_that_beats_is_not_replaced_and_a_silent_one_is(store: RunStore) -> None:
    for rollout in ROLLOUTS:
        claim(store, "one", rollout)
        store.commit(RUN, replace(DONE, rollout_id=rollout), "one")
    assert store.finalizer_silent(RUN) == math.inf
    assert store.beat_finalize(RUN, "one") == "superseded"
    store.begin_finalize(RUN, "one", silent_seconds=60)

    _let_pass(store, 100)
    assert 100 <= store.finalizer_silent(RUN) < 160
    assert store.beat_finalize(RUN, "one") == "finalizing"
    assert store.finalizer_silent(RUN) < 60
    assert store.begin_finalize(RUN, "two", silent_seconds=60) == "busy"

    _let_pass(store, 100)
    assert store.begin_finalize(RUN, "two", silent_seconds=60) == "go"
    assert store.beat_finalize(RUN, "one") == "superseded"
    assert store.beat_finalize(RUN, "two") == "finalizing"

    store.end_finalize(RUN, "two", "now")
    assert store.beat_finalize(RUN, "two") == "superseded"
    assert store.finalizer_silent(RUN) == math.inf
    assert store.beat_finalize("another", "two") == "unknown"


def _let_pass(store: RunStore, seconds: float) -> None:
    """As if the finaliser had said nothing for so long."""
    store.client.hincrbyfloat(f"{{run:{RUN}}}", "finalizer_beat", -seconds)


def test_a_forgotten_run_leaves_no_key(store: RunStore) -> None:
    claim(store, "one")
    store.commit(RUN, DONE, "one")

    assert not store.forget(RUN, "submitting")
    assert store.forget(RUN, "running")

    assert store.client.keys("*") == []
