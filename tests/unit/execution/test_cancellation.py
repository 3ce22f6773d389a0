"""A run that is cancelled: what is ended here, what is left to workers, and what its folder says of its end."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.execution.cancellation import cancel_run
from rollout_tasks.runs import ending
from rollout_tasks.runs.states import Cancellation
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from tests.unit.execution.conftest import ROLLOUT, RUN, Bench

KEY = f"{{run:{RUN}}}"


def begun_and_left(bench: Bench, *, others: int = 0) -> None:
    """A rollout that a dead worker had begun, and others that nobody has begun."""
    bench.client.hset(KEY, "total", 1 + others)
    for number in range(1, 1 + others):
        bench.client.sadd(f"{KEY}:pending", f"item#{number}")
    bench.store.claim(RUN, ROLLOUT, {"token": "dead", "message": "m", "worker": "w", "process": ""})
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})


def forgotten(bench: Bench) -> None:
    """Redis has lost what the claim of the rollout wrote."""
    for part in ("attempts", "holders"):
        bench.client.hdel(f"{KEY}:{part}", ROLLOUT)
    bench.client.zrem(f"{KEY}:alive", ROLLOUT)


def half_submitted(bench: Bench) -> None:
    assert bench.store.forget(RUN, "running")
    stored = reserve(bench.store.client, RUN, bench.config, str(bench.folder.path), 2)
    assert stored is not None
    stored.add_items([Item("item", "?")], [ROLLOUT])
    bench.client.hset(KEY, "state", "half_submitted")


def test_what_was_never_begun_and_what_a_dead_worker_left_are_cancelled_here(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench, others=2)

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=3, left=0)

    assert {verdict.status for verdict in bench.store.verdicts(RUN)} == {"cancelled"}
    worker = next(verdict.worker for verdict in bench.store.verdicts(RUN) if verdict.rollout_id == ROLLOUT)
    assert worker.startswith("cancelling on ")
    assert not ending.is_over(bench.folder), "its finaliser says that"


def test_what_a_dead_worker_finished_is_not_counted_as_cancelled(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench, others=1)
    bench.folder.begin_attempt(ROLLOUT, 1)
    bench.folder.write_attempt(Verdict(ROLLOUT, 1, "completed", answer="42", score=0.5))

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=1, left=0)


def test_a_run_whose_folder_is_another_machines_is_left_to_its_workers(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench)
    shutil.rmtree(bench.folder.path)

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=0, left=1, begun=[ROLLOUT])

    assert bench.store.state(RUN) == "cancelling"
    assert not bench.folder.path.exists()


def test_a_folder_that_cannot_be_listed_read_and_written_here_is_left_to_the_workers(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs the tests may be allowed everything; so it is the question that is looked at."""
    bench = submit({})
    begun_and_left(bench)
    asked: list[tuple[Any, int]] = []

    def refused(path: Any, mode: int) -> bool:
        asked.append((path, mode))
        return False

    monkeypatch.setattr(os, "access", refused)

    assert cancel_run(bench.store, RUN).begun == [ROLLOUT]
    assert asked == [(str(bench.folder.path), os.R_OK | os.W_OK | os.X_OK)]


def test_a_run_that_redis_forgets_meanwhile_has_nothing_left(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench)
    commit = bench.store.commit

    def commit_and_lose(*arguments: Any, **options: Any) -> Any:
        committed = commit(*arguments, **options)
        bench.client.delete(KEY)
        return committed

    bench.store.commit = commit_and_lose

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=1, left=0)


def test_a_half_submitted_run_is_over_at_once_and_its_folder_says_so(submit: Any) -> None:
    bench = submit({})
    half_submitted(bench)

    assert cancel_run(bench.store, RUN) == Cancellation("half_submitted", cancelled=1, left=0, begun=[])

    assert bench.store.state(RUN) == "cancelled"
    assert ending.is_over(bench.folder)


def test_a_half_submitted_run_that_is_resumed_just_then_is_not_called_over(submit: Any) -> None:
    bench = submit({})
    half_submitted(bench)
    state, asked = bench.store.state, []

    def resumed_between(run_id: str) -> Any:
        asked.append(run_id)
        return state(run_id) if len(asked) == 1 else "submitting"

    bench.store.state = resumed_between

    cancel_run(bench.store, RUN)

    assert asked == [RUN, RUN]
    assert not ending.is_over(bench.folder)


def test_the_end_of_a_run_that_was_cancelled_before_is_recorded_by_nobody_else(submit: Any) -> None:
    """Whoever cancelled it recorded it, or a resume has taken that back."""
    bench = submit({})
    half_submitted(bench)
    cancel_run(bench.store, RUN)
    ending.record_beginning(bench.folder)

    assert cancel_run(bench.store, RUN).found == "cancelled"

    assert not ending.is_over(bench.folder)


def test_who_cancels_begins_nothing_of_a_run_that_is_resumed_just_then(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench)
    cancel = bench.store.cancel

    def cancelled_and_resumed(*arguments: Any, **options: Any) -> Any:
        done = cancel(*arguments, **options)
        bench.client.hset(KEY, "state", "running")
        return done

    bench.store.cancel = cancelled_and_resumed

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=0, left=1)

    assert bench.folder.begun_attempts(ROLLOUT) == []
    assert bench.client.hget(f"{KEY}:attempts", ROLLOUT) == "1"
    assert bench.client.hget(f"{KEY}:holders", ROLLOUT) is None


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "attempt only"])
def test_a_result_whose_claim_redis_has_forgotten_is_not_cancelled(submit: Any, settled: bool) -> None:
    bench = submit({})
    begun_and_left(bench, others=1)
    forgotten(bench)
    completed = Verdict(ROLLOUT, 1, "completed", answer="42", score=0.5)
    bench.folder.begin_attempt(ROLLOUT, 1)
    bench.folder.write_attempt(completed)
    if settled:
        bench.folder.settle(completed, written=True)

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=1, left=0)

    verdicts = {verdict.rollout_id: verdict.status for verdict in bench.store.verdicts(RUN)}
    assert verdicts == {ROLLOUT: "completed", "item#1": "cancelled"}


def test_what_is_being_cancelled_is_so_before_its_folder_is_looked_at(submit: Any) -> None:
    """A look at 50,000 folders takes a while, in which nothing more is to be begun."""
    bench = submit({})
    states = []

    bench.store.cancel(RUN, lambda _rollout: bool(states.append(bench.store.state(RUN))))

    assert states == ["cancelling"]


def test_a_rollout_whose_folder_cannot_be_read_here_is_left_to_the_workers(submit: Any) -> None:
    bench = submit({})
    begun_and_left(bench, others=1)
    forgotten(bench)
    unreadable = bench.folder.rollout(ROLLOUT)
    unreadable.parent.mkdir(parents=True)
    unreadable.symlink_to(unreadable.name)  # a loop, which root cannot read either

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=1, left=1)

    assert [verdict.rollout_id for verdict in bench.store.verdicts(RUN)] == ["item#1"]
    assert bench.store.state(RUN) == "cancelling"


def test_what_a_resume_has_set_aside_was_not_begun(submit: Any) -> None:
    bench = submit({})
    bench.folder.begin_attempt(ROLLOUT, 1)
    bench.folder.set_aside(ROLLOUT)

    assert cancel_run(bench.store, RUN) == Cancellation("running", cancelled=1, left=0, begun=[])

    assert bench.folder.settled(ROLLOUT) is None, "that would take long for many"
