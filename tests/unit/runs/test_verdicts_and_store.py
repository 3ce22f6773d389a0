"""What a verdict says to the benchmark, and what the run store keeps of a run: every value, there and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.models.base import Usage
from rollout_tasks.runs.states import Cancellation, Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import MIN_VERSION, VERSION, UnreadableRun
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from rollout_tasks.runs.verdict import LeaseRecord, Verdict, rollout_id_of, split_rollout_id

RUN = "r"
KEY = "{run:r}"
LEASE = LeaseRecord("vm-1", 7, 1.25, 100.0, 130.0)
FULL = Verdict(
    "a#b#3",
    2,
    "failed",
    answer="42",
    score=0.5,
    failure_class=FailureClass.PARSE,
    error="cannot be read",
    ending="done",
    turns=4,
    usage=Usage(11, 13),
    cost=0.125,
    stages={"model": 1.5, "acting": 2.5},
    worker="w",
    started=10.0,
    finished=15.5,
    lease=LEASE,
)


def test_what_a_newer_version_stores_besides_is_passed_over() -> None:
    lease = {"vm_id": "vm-1", "fence": 7, "waited": 1.25, "allocated": 100.0, "released": 130.0}
    document = {"rollout_id": "a#0", "attempt": 1, "status": "completed", "new": 1}
    document |= {"usage": {"prompt_tokens": 3, "new": 1}, "lease": {**lease, "new": 1}}

    verdict = Verdict.from_json(json.dumps(document))

    assert verdict.usage.prompt_tokens == 3
    assert verdict.lease == LeaseRecord(**lease)


def test_a_verdict_survives_json() -> None:
    assert Verdict.from_json(FULL.as_json()) == FULL
    assert Verdict.from_json(FULL.as_json(later="unknown"), rollout_id="c#0").rollout_id == "c#0"
    bare = Verdict("a#0", 1, "completed")
    assert Verdict.from_json(bare.as_json()) == bare
    assert "error" not in json.loads(bare.as_json())
    assert isinstance(Verdict.from_json(FULL.as_json()).failure_class, FailureClass)


def test_a_verdict_is_written_without_what_is_empty() -> None:
    assert FULL.as_dict() == {
        "rollout_id": "a#b#3",
        "attempt": 2,
        "status": "failed",
        "answer": "42",
        "score": 0.5,
        "failure_class": "parse",
        "error": "cannot be read",
        "ending": "done",
        "turns": 4,
        "usage": {"prompt_tokens": 11, "completion_tokens": 13, "requests": 0, "seconds": 0.0},
        "cost": 0.125,
        "stages": {"model": 1.5, "acting": 2.5},
        "worker": "w",
        "started": 10.0,
        "finished": 15.5,
        "lease": {"vm_id": "vm-1", "fence": 7, "waited": 1.25, "allocated": 100.0, "released": 130.0},
    }
    assert Verdict("a#0", 1, "completed").as_dict() == {
        "rollout_id": "a#0",
        "attempt": 1,
        "status": "completed",
        "turns": 0,
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "requests": 0, "seconds": 0.0},
        "started": 0.0,
        "finished": 0.0,
    }
    assert FULL.as_json(later=1).startswith('{"rollout_id":"a#b#3","attempt":2,')
    assert FULL.as_json(later=1).endswith(',"later":1}')


def test_half_a_letter_is_written_as_a_sign_that_it_is_missing() -> None:
    broken = Verdict("a#0", 1, "failed", answer="x\ud83d", error="\udc00y")

    assert (broken.as_dict()["answer"], broken.as_dict()["error"]) == ("x\ufffd", "\ufffdy")


@pytest.mark.parametrize("failure", list(FailureClass))
def test_what_says_nothing_about_the_agent_is_worth_repeating(failure: FailureClass) -> None:
    verdict = Verdict("a#0", 1, "failed", failure_class=failure)

    assert verdict.worth_repeating == (failure.counted_as == "infrastructure")
    assert not Verdict("a#0", 1, "completed").worth_repeating


def test_the_benchmark_hears_everything() -> None:
    result = FULL.as_result()

    assert (result.item_id, result.index, result.status) == ("a#b", 3, "failed")
    assert (result.answer, result.score, result.failure_class, result.counted_as) == ("42", 0.5, "parse", "agent")
    assert (result.error, result.seconds, result.attempts) == ("cannot be read", 5.5, 2)
    assert result.stages == {"vm": 1.25, "model": 1.5, "acting": 2.5}
    assert (result.prompt_tokens, result.completion_tokens) == (11, 13)
    completed = Verdict("a#0", 1, "completed", started=5.0, finished=4.0).as_result()
    assert (completed.failure_class, completed.counted_as, completed.error, completed.seconds) == (
        None,
        None,
        None,
        0.0,
    )
    assert completed.stages == {}


@pytest.mark.parametrize(("item_id", "index"), [("a", 0), ("a#b", 12), ("#", 1)])
def test_a_rollouts_id_is_its_items_and_its_number(item_id: str, index: int) -> None:
    assert split_rollout_id(rollout_id_of(item_id, index)) == (item_id, index)


@pytest.fixture
def store(redis_url: str) -> Iterator[RunStore]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield RunStore(client, silent_seconds=60)
    client.close()


CONFIG = RunConfig(max_attempts=5, priority=3, metric="exact_match")
ITEMS = [Item("a", "one?", "1"), Item("b", "two?", "2", metadata={"k": "v"})]
ROLLOUTS = ["a#0", "a#1", "b#0"]


def create(store: RunStore, rollouts: int = 3) -> StoredSubmission:
    stored = reserve(store.client, RUN, CONFIG, "/folder", rollouts, ["q.one", "q.two"])
    assert stored is not None
    return stored


def test_a_stored_run_says_what_it_is(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)

    assert store.config(RUN) == (CONFIG, "/folder")
    assert store.client.hget(KEY, "max_attempts") == "5"
    assert sorted(store.items(RUN), key=lambda item: item.id) == ITEMS
    assert list(store.items_of(RUN, ["b#0", "x#0"])) == ITEMS[1:]
    assert stored.everything_stored()
    assert store.state(RUN) == "submitting"
    assert stored.everything_sent()
    assert store.state(RUN) == "running"
    assert store.active() == [RUN]
    progress = store.progress(RUN)
    assert progress is not None
    assert (progress.run_id, progress.total, progress.pending, progress.queues) == (RUN, 3, 3, ("q.one", "q.two"))
    assert progress.created > 1_700_000_000
    assert store.state("none") is store.progress("none") is None
    assert store.running("none") == 0
    with pytest.raises(KeyError):
        store.config("none")


def test_a_run_that_nothing_has_come_of_has_no_counts(store: RunStore) -> None:
    create(store)

    found = store.progress(RUN)

    assert found is not None
    assert replace(found, created=0.0) == Progress(
        run_id=RUN,
        state="submitting",
        total=3,
        pending=0,
        committed=0,
        running=0,
        completed=0,
        failed=0,
        cancelled=0,
        failures={},
        score_sum=0.0,
        created=0.0,
        queues=("q.one", "q.two"),
        problem="",
    )
    assert found.stored == 0


def test_a_run_of_before_versions_were_counted_is_read(store: RunStore) -> None:
    create(store)
    assert store.client.hmget(KEY, "version", "min_version") == [str(VERSION), str(MIN_VERSION)]
    store.client.hdel(KEY, "version", "min_version")

    assert store.config(RUN) == (CONFIG, "/folder")


@pytest.mark.parametrize(("silent", "state"), [(230, "submitting"), (260, "half_submitted")])
def test_a_submitter_is_silent_for_four_times_as_long_before_it_counts_as_dead(
    store: RunStore, silent: int, state: str
) -> None:
    create(store)
    seconds, _ = store.client.time()  # type: ignore[misc]
    store.client.hset(KEY, "submitter_beat", int(seconds) - silent)

    assert store.adopt(RUN) == state


def test_a_commit_may_be_repeated_by_who_made_it_and_by_nobody_else(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    store.claim(RUN, "a#0", {"token": "t"})
    verdict = Verdict("a#0", 1, "completed")

    found = [store.commit(RUN, verdict, by).outcome for by in ("other", "t", "t", "other")]

    assert found == ["superseded", "ok", "ok", "committed"]
    stored = json.loads(store.client.hget(f"{KEY}:results", "a#0"))  # type: ignore[arg-type]
    assert "rollout_id" not in stored
    assert stored.pop("token") == "t"
    assert Verdict.from_dict(stored, rollout_id="a#0") == verdict
    assert store.commit("none", verdict, "t").outcome == "unknown"


def test_verdicts_are_found_in_the_order_in_which_they_are_asked_for(store: RunStore) -> None:
    stored = create(store)
    kept = [Verdict(name, 1, "completed", answer=name) for name in ("a#0", "b#0")]
    stored.add_results(kept)

    assert store.verdicts_of(RUN, ["b#0", "a#1", "a#0"]) == [kept[1], None, kept[0]]
    assert store.count_items(RUN) == 0
    stored.add_items(ITEMS, [])
    assert store.count_items(RUN) == 2


def test_a_claim_given_back_does_not_count(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    store.claim(RUN, "a#0", {"token": "t"})

    assert not store.hand_back(RUN, "a#0", "other")
    assert store.hand_back(RUN, "a#0", "t")

    again = store.claim(RUN, "a#0", {"token": "u"})
    assert (again.status, again.attempt) == ("claimed", 1)


def test_many_items_are_stored_in_parts(store: RunStore) -> None:
    items = [Item(f"item-{number}", "?" * 10_000) for number in range(700)]
    stored = create(store, 1400)

    stored.add_items(items, [f"{item.id}#{index}" for item in items for index in (0, 1)])

    assert stored.everything_stored()
    assert store.client.hlen(f"{KEY}:items") == 700
    assert {item.id for item in store.items(RUN)} == {item.id for item in items}


def test_results_put_back_count_like_committed_ones(store: RunStore) -> None:
    stored = create(store)
    kept = [
        Verdict("a#0", 1, "completed", score=0.25),
        Verdict("a#1", 2, "failed", failure_class=FailureClass.TIMEOUT, error="late"),
    ]
    stored.add_results(kept)
    stored.add_items(ITEMS, ROLLOUTS)

    progress = store.progress(RUN)

    assert progress is not None
    assert (progress.completed, progress.failed, progress.cancelled, progress.score_sum) == (1, 1, 0, 0.25)
    assert (progress.failures, progress.pending, progress.committed) == ({"timeout": 1}, 1, 2)
    assert sorted(store.verdicts(RUN), key=lambda verdict: verdict.rollout_id) == kept


def test_costs_are_summed_and_a_run_that_is_complete_has_nothing_to_cancel(store: RunStore) -> None:
    stored = reserve(store.client, RUN, RunConfig(max_cost=1.0), "/results/r", len(ROLLOUTS))
    stored.add_results([Verdict("a#0", 1, "completed", cost=0.25)])
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    assert store.progress(RUN).cost == 0.25  # type: ignore[union-attr]
    for rollout_id in ("a#1", "b#0"):
        store.claim(RUN, rollout_id, {"token": rollout_id})

    free = store.commit(RUN, Verdict("a#1", 1, "completed"), "a#1")
    assert (free.reached_max_cost, store.progress(RUN).cost) == (False, 0.25)  # type: ignore[union-attr]
    assert not store.commit(RUN, Verdict("b#0", 1, "completed", cost=0.75), "b#0").reached_max_cost, (
        "nothing is left to cancel"
    )
    assert store.progress(RUN).cost == 1.0  # type: ignore[union-attr]


def test_what_is_left_of_a_run_that_has_cost_what_it_may_is_cancelled_once(store: RunStore) -> None:
    stored = reserve(store.client, RUN, RunConfig(max_cost=1.0), "/results/r", len(ROLLOUTS))
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    for rollout_id in ("a#0", "b#0"):
        store.claim(RUN, rollout_id, {"token": rollout_id})

    dear = Verdict("a#0", 1, "completed", cost=1.5)
    assert store.commit(RUN, dear, "a#0").reached_max_cost
    assert store.commit(RUN, dear, "a#0").reached_max_cost, "a lost reply would be the end of the limit"
    assert store.cancel(RUN, why="dear").left == 1
    assert not store.commit(RUN, replace(dear, rollout_id="b#0"), "b#0").reached_max_cost
    assert [verdict.error for verdict in store.verdicts(RUN) if verdict.status == "cancelled"] == ["dear"]


def test_a_committed_verdict_is_kept_whole(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    start = store.claim(RUN, "a#0", {"token": "t", "worker": "w"})
    assert (start.status, start.attempt, start.item, start.holder) == ("claimed", 1, ITEMS[0], None)
    assert start.created == store.progress(RUN).created > 1_700_000_000  # type: ignore[union-attr]
    assert [store.beat(RUN, "a#0", token) for token in ("t", "u")] == ["running", "superseded"]
    assert store.beat("none", "a#0", "t") == "unknown"
    busy = store.claim(RUN, "a#0", {"token": "u"})
    assert (busy.status, busy.item, busy.holder) == ("busy", None, {"token": "t", "worker": "w"})
    assert 0 <= busy.silent < 60
    assert store.running(RUN) == 1
    verdict = Verdict("a#0", 1, "completed", answer="é", score=0.1, lease=LEASE, usage=Usage(1, 2))

    commit = store.commit(RUN, verdict, "t")

    assert (commit.outcome, commit.left, commit.finalize) == ("ok", 2, False)
    assert list(store.verdicts(RUN)) == [verdict]
    assert store.running(RUN) == 0
    assert store.progress(RUN).score_sum == 0.1  # type: ignore[union-attr]


def test_cancelling_counts_over_all_its_parts(store: RunStore) -> None:
    stored = create(store, 2500)
    rollouts = [f"a#{index}" for index in range(2500)]
    stored.add_items(ITEMS, rollouts)
    stored.everything_sent()
    store.claim(RUN, "a#7", {"token": "t"})

    assert store.cancel(RUN) == Cancellation("running", 2499, 1, [])

    assert store.cancel(RUN) == Cancellation("cancelling", 0, 1, [])
    cancelled = next(store.verdicts(RUN))
    assert (cancelled.status, cancelled.failure_class) == ("cancelled", FailureClass.CANCELLED)
    assert (cancelled.error, cancelled.attempt) == ("the run was cancelled", 0)
    assert store.cancel("none") == Cancellation("unknown", 0, 0, [])


def test_a_silent_finaliser_is_seen_by_its_silence(store: RunStore) -> None:
    stored = create(store, 0)
    stored.everything_sent()
    assert store.finalizer_silent(RUN) == float("inf")

    assert store.begin_finalize(RUN, "f", silent_seconds=60) == "go"

    assert 0 <= store.finalizer_silent(RUN) < 60
    store.client.hset(KEY, "finalizer_beat", 1)
    assert store.finalizer_silent(RUN) > 10**9
    assert store.beat_finalize(RUN, "f") == "finalizing"
    assert store.finalizer_silent(RUN) < 60
    assert store.end_finalize(RUN, "f", "2026", "no report") == "done"
    assert store.progress(RUN).problem == "no report"  # type: ignore[union-attr]
    assert store.active() == []
    assert 6 * 86_400 < store.client.ttl(KEY) <= 7 * 86_400


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("cancelling", "it was cancelled"),
        ("cancelled", "it was cancelled"),
        ("running", "it is running already"),
        ("done", "it is done already"),
    ],
)
def test_what_cannot_be_submitted_any_further_says_why(store: RunStore, state: str, said: str) -> None:
    stored = create(store)
    store.client.hset(KEY, "state", state)

    with pytest.raises(UserError, match=f"^run r cannot be submitted any further: {said}$"):
        stored.add_items(ITEMS, ROLLOUTS)


def test_another_submission_and_a_lost_run_are_told_apart(store: RunStore) -> None:
    stored = create(store)
    other = StoredSubmission(store.client, RUN, "other")
    for method in (other.everything_sent, other.everything_stored, other.submitter_lives):
        with pytest.raises(UserError, match="it has been submitted again meanwhile"):
            method()
    store.client.delete(KEY)
    with pytest.raises(UserError, match=r"Redis does not know it \(any more\)"):
        stored.submitter_lives()


def test_what_this_version_cannot_read_is_said(store: RunStore) -> None:
    create(store)
    store.client.hset(KEY, "min_version", 2)
    with pytest.raises(UnreadableRun, match=r"^run r was stored by a newer version of this software"):
        store.config(RUN)
    store.client.hset(KEY, mapping={"min_version": 1, "config": '{"nonsense": 1}'})
    with pytest.raises(
        UnreadableRun, match=r"^run r: its stored configuration cannot be read here: 1 validation error for RunConfig$"
    ):
        store.config(RUN)
    store.client.hset(KEY, "config", '{"profile": {"name": "mine", "version": "1", "colour": "red"}}')
    with pytest.raises(UnreadableRun, match=r"^run r: its stored configuration cannot be read here: profile: "):
        store.config(RUN)


def test_a_draining_run_is_left_as_it_is_when_it_is_over(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    store.set_draining(RUN)
    assert store.state(RUN) == "draining"
    store.client.hset(KEY, "state", "done")
    store.set_draining(RUN)
    assert store.state(RUN) == "done"
    assert not store.forget(RUN, "running")
    assert store.forget(RUN, "done")
    assert store.state(RUN) is None
    stored.wait_until_durable()


def test_the_wait_for_a_vm_is_told_to_the_millisecond() -> None:
    waited = Verdict("a#0", 1, "completed", lease=LeaseRecord("vm-1", 1, 1.23456, 5.0, 6.0))

    assert waited.as_result().stages == {"vm": 1.235}
