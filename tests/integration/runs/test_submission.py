"""Submitting in steps, each of which may be the last: a run is whole, or said to be half-submitted, and never scored by half."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs import submit
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Cancellation
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import UnreadableRun
from rollout_tasks.runs.submission import Submission, resumed_submission
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from rollout_tasks.runs.submit import enqueue, write_down
from rollout_tasks.runs.verdict import Verdict

RUN = "run-1"
KEY = f"{{run:{RUN}}}"
ITEMS = [Item(name, "?") for name in "abcd"]
ROLLOUTS = [f"{item.id}#0" for item in ITEMS]
SILENT = 60.0
DEAD = 4 * SILENT + 1
"""After this long, a submitter without a sign of life counts as dead."""


@pytest.fixture
def store(redis_url: str) -> RunStore:
    return RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=SILENT)


def create(store: RunStore) -> StoredSubmission:
    stored = reserve(store.client, RUN, RunConfig(), "/nowhere", len(ROLLOUTS), ["rollout.light"])
    assert stored is not None
    return stored


def age(store: RunStore, seconds: float) -> None:
    """Has the submitter been silent for so much longer."""
    store.client.hincrbyfloat(KEY, "submitter_beat", -seconds)


def finish(store: RunStore, rollout_id: str) -> None:
    assert store.claim(RUN, rollout_id, {"token": rollout_id}).status == "claimed"
    verdict = Verdict(rollout_id, 1, "completed", answer="1", score=1.0)
    assert store.commit(RUN, verdict, rollout_id).outcome == "ok"


def test_a_run_of_which_a_part_is_stored_is_half_submitted_and_never_finalised(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS[:2])
    assert store.adopt(RUN) == "submitting"
    age(store, DEAD)

    assert store.adopt(RUN) == "half_submitted"

    assert store.claim(RUN, "a#0", {"token": "one"}).status == "half_submitted"
    assert store.begin_finalize(RUN, "finaliser", silent_seconds=60) == "incomplete"
    progress = store.progress(RUN)
    assert (progress.stored, progress.total, progress.committed) == (2, 4, 0)


def test_a_part_that_is_all_in_is_not_the_run(store: RunStore) -> None:
    """As when rollouts of a run ran while the rest was being stored."""
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS[:2])
    for rollout_id in ROLLOUTS[:2]:
        finish(store, rollout_id)

    assert store.begin_finalize(RUN, "finaliser", silent_seconds=60) == "incomplete"


def test_a_run_that_is_stored_goes_on_without_its_submitter(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    age(store, DEAD)

    assert store.adopt(RUN) == "running"

    commits = []
    for rollout_id in ROLLOUTS:
        store.claim(RUN, rollout_id, {"token": rollout_id})
        commits.append(store.commit(RUN, Verdict(rollout_id, 1, "completed"), rollout_id).finalize)
    assert commits == [False, False, False, True], "no chord may be left to ask for the run to be finalised"


def test_a_submitter_that_was_only_slow_goes_on(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS[:2])
    age(store, DEAD)
    assert store.adopt(RUN) == "half_submitted"

    stored.add_items(ITEMS, ROLLOUTS[2:])

    assert store.state(RUN) == "submitting"
    assert stored.everything_stored()
    assert stored.everything_sent()
    assert store.state(RUN) == "running"


def test_a_submitter_that_lives_is_not_taken_over(store: RunStore) -> None:
    stored = create(store)
    for _ in range(6):
        age(store, SILENT)
        stored.submitter_lives()
        assert store.adopt(RUN) == "submitting"


def test_a_submission_that_another_has_replaced_adds_nothing(store: RunStore) -> None:
    old = create(store)
    old.add_items(ITEMS, ROLLOUTS[:2])
    assert store.forget(RUN, "submitting")
    new = create(store)

    with pytest.raises(UserError, match="submitted again meanwhile"):
        old.add_items(ITEMS, ROLLOUTS)
    with pytest.raises(UserError, match="submitted again meanwhile"):
        old.everything_sent()

    assert store.progress(RUN).stored == 0
    new.add_items(ITEMS, ROLLOUTS)
    assert new.everything_sent()


def test_what_redis_has_lost_is_noticed_before_and_after_sending(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    store.client.srem(f"{KEY}:pending", "b#0")

    assert not stored.everything_stored()
    assert not stored.everything_sent()
    stored.add_items(ITEMS, ROLLOUTS)

    assert stored.everything_stored()
    assert stored.everything_sent()


def test_storing_again_what_has_a_verdict_by_now_changes_nothing(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    finish(store, "a#0")

    stored.add_items(ITEMS, ROLLOUTS)
    kept = Verdict("b#0", 1, "completed", score=0.5)
    for _ in range(2):
        stored.add_results([kept])

    progress = store.progress(RUN)
    assert (progress.committed, progress.completed, progress.score_sum) == (2, 2, 1.5)
    assert sorted(store.verdicts(RUN), key=lambda verdict: verdict.rollout_id)[1] == kept


def test_cancelling_a_half_submitted_run_ends_it(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS[:2])

    assert store.cancel(RUN) == Cancellation("submitting", 2, 0, [])

    progress = store.progress(RUN)
    assert progress.state == "cancelled"
    assert progress.problem
    assert store.active() == []
    with pytest.raises(UserError, match="was cancelled"):
        stored.add_items(ITEMS, ROLLOUTS)


def test_hosts_clocks_decide_nothing(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, _ = store.client.time()
    now = float(seconds)
    for wrong in (now - 600, now + 600):
        monkeypatch.setattr(time, "time", lambda wrong=wrong: wrong)
        stored = create(store)
        stored.add_items(ITEMS, ROLLOUTS)
        assert store.adopt(RUN) == "submitting"
        assert abs(store.progress(RUN).created - now) < 60
        stored.everything_sent()
        store.claim(RUN, "a#0", {"token": "one"})
        assert store.running(RUN) == 1
        assert store.forget(RUN, "running")


def test_a_run_of_a_newer_version_is_left_alone(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    store.client.hset(KEY, mapping={"version": 99, "min_version": 98, "config": '{"of": "the future"}'})

    assert store.claim(RUN, "a#0", {"token": "one"}).status == "newer"
    with pytest.raises(UnreadableRun, match=f"run {RUN} was stored by a newer version"):
        store.config(RUN)
    assert store.progress(RUN).running == 0


def test_a_neighbouring_version_that_says_so_is_understood(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    stored.everything_sent()
    store.client.hset(KEY, mapping={"version": 2, "min_version": 1, "what": "nobody knows yet"})

    assert store.claim(RUN, "a#0", {"token": "one"}).status == "claimed"
    assert store.config(RUN)[0] == RunConfig()


def test_a_verdict_is_kept_however_often_it_is_replaced(store: RunStore) -> None:
    stored = create(store)
    stored.add_items(ITEMS, ROLLOUTS)
    finish(store, "a#0")
    verdict = Verdict("a#0", 1, "completed", answer="2", score=0.0)

    stored.add_results([replace(verdict, answer="3")])

    assert next(store.verdicts(RUN)).answer == "1"


def lost(folder: RunFolder) -> Submission:
    """What a resume finds in a run of which a rollout was lost to the infrastructure."""
    folder.description.create(RunConfig(), ITEMS[:1], data_path="x", data_name="x")
    folder.settle(Verdict("a#0", 1, "failed", failure_class=FailureClass.VM_LOST), written=False)
    return resumed_submission(folder)


def resumed_by_another(folder: RunFolder, store: RunStore) -> Verdict:
    """Another resume of the same run, of which a worker has just finished the rollout."""
    stored = reserve(store.client, RUN, RunConfig(), str(folder.path), 1)
    folder.set_aside("a#0")
    stored.add_items(ITEMS[:1], ["a#0"])
    assert stored.everything_sent()
    verdict = Verdict("a#0", folder.begin_attempt("a#0", 1), "completed", answer="1", score=1.0)
    store.claim(RUN, "a#0", {"token": "one"})
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)
    assert store.commit(RUN, verdict, "one").outcome == "ok"
    return verdict


def test_who_resumes_what_somebody_else_has_just_resumed_changes_nothing(store: RunStore, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / RUN)
    late = replace(lost(folder), config=RunConfig(max_cost=9.0))
    verdict = resumed_by_another(folder, store)

    with pytest.raises(UserError, match="somebody else"):
        write_down(late)
        enqueue(late, store)

    assert folder.verdict("a#0") == verdict
    assert folder.description.config() == RunConfig()


def test_who_resumes_what_somebody_else_has_just_finished_rolls_nothing_out_again(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / RUN)
    late = lost(folder)
    verdict = resumed_by_another(folder, store)
    assert store.begin_finalize(RUN, "finaliser", silent_seconds=60) == "go"
    assert store.end_finalize(RUN, "finaliser", "now") == "done"
    sent: list[Submission] = []
    monkeypatch.setattr(submit, "_send", lambda submission, *_others: sent.append(submission))

    write_down(late)
    enqueue(late, store)

    assert (list(sent[0].kept), list(sent[0].todo)) == ([verdict], [])
    assert folder.verdict("a#0") == verdict
    assert list(store.verdicts(RUN)) == [verdict]
