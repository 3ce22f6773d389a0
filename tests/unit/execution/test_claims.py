"""Who works on a rollout, who may commit it, and how often it was begun."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from rollout_tasks.errors import EpisodeInterrupted, FailureClass
from rollout_tasks.execution import claim as claim_module
from rollout_tasks.execution import heartbeat, rollout
from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.heartbeat import UNACKED_INDEX, Heartbeat, Pulse
from rollout_tasks.execution.rollout import UNREADABLE, Execution
from rollout_tasks.interruption import Interruption
from rollout_tasks.runs.finalize import finalize
from rollout_tasks.runs.store_format import VERSION, UnreadableRun
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from tests.unit.execution import watched
from tests.unit.execution.conftest import DELIVERY, ROLLOUT, RUN, Bench
from vm_pool.errors import LeaseLost, PoolRefused, PoolUnreachable
from vm_pool.processes import this_process

Calls = list[tuple[str, int]]
KEY = f"{{run:{RUN}}}"


def claim(bench: Bench, *, process: str = "", message: str = DELIVERY.task_id, token: str = "other") -> None:  # noqa: S107
    """Somebody else's claim."""
    claimed = bench.store.claim(
        RUN, ROLLOUT, {"token": token, "message": message, "worker": "w", "process": process or this_process()}
    )
    assert claimed.status == "claimed"


def ended_process() -> str:
    """The name of a process of this machine that has ended."""
    code = "from vm_pool.processes import this_process\nprint(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def take_over(bench: Bench) -> None:
    """Another execution claims the rollout, as when this one had fallen silent."""
    holder = json.loads(bench.client.hget(f"{KEY}:holders", ROLLOUT))
    other = {"token": "thief", "message": "m", "worker": "w", "process": ""}
    assert bench.store.claim(RUN, ROLLOUT, other, dead_holder=holder["token"]).status == "claimed"


def beat_now(_world: watched.WatchedEnvironment) -> None:
    """The heartbeat's next beat, without waiting for it, of news that break into the episode at once."""
    beats = heartbeat.heartbeat(settings().beat_seconds)
    assert beats.pulse is not None
    beats.beat(beats.pulse)
    watched.CALLS.append(("the beat passed", 0))


def test_what_another_message_is_at_work_on_is_left_to_it(submit: Any, calls: Calls) -> None:
    bench = submit({})
    claim(bench, message="another")

    assert bench.execute() == "busy"

    assert calls == []
    assert bench.client.hget(f"{KEY}:attempts", ROLLOUT) == "1"


def test_a_worker_with_a_long_name_gets_a_vm_for_an_item_with_a_long_one(submit: Any) -> None:
    bench = submit({})
    long = Delivery("task", None, f"worker@{'w' * 250}")

    assert Execution(bench.store, RUN, ROLLOUT, long).run() == "completed"
    assert bench.verdict().lease is not None


def test_a_redelivered_message_is_left_to_a_holder_that_beats(submit: Any, calls: Calls) -> None:
    bench = submit({})
    claim(bench)
    bench.client.zincrby(f"{KEY}:alive", -2, ROLLOUT)
    looked = []

    def beating(*arguments: Any, **options: Any) -> Any:
        looked.append(1)
        if len(looked) == 2:
            assert bench.store.beat(RUN, ROLLOUT, "other") == "running"
        return ask(*arguments, **options)

    ask, bench.store.claim = bench.store.claim, beating

    assert bench.execute() == "busy"
    assert len(looked) == 2
    assert calls == []


def test_a_holder_that_neither_beats_nor_falls_silent_is_waited_for_no_longer_than_it_takes_to_tell(
    submit: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({})
    claim(bench)
    monkeypatch.setattr(claim_module, "_LOOK_AGAIN_SECONDS", 0.05)
    ask, looked = bench.store.claim, []

    def patient(*arguments: Any, **options: Any) -> Any:
        """The holder is silent, but never for long enough."""
        looked.append(1)
        bench.store.silent_seconds = 600
        try:
            return ask(*arguments, **options)
        finally:
            bench.store.silent_seconds = 2.0

    bench.store.claim = patient
    bench.store.silent_seconds = 2.0

    assert bench.execute() == "busy"

    assert len(looked) > 1
    assert calls == []


def test_a_holder_that_died_between_two_looks_is_taken_over(submit: Any, calls: Calls) -> None:
    """As when the process that a message was given to is killed while another copy of the message waits."""
    bench = submit({})
    claim(bench)
    ask, looked = bench.store.claim, []

    def dies(*arguments: Any, **options: Any) -> Any:
        looked.append(options.get("dead_holder"))
        if len(looked) == 2:
            holder = json.loads(bench.client.hget(f"{KEY}:holders", ROLLOUT))
            bench.client.hset(f"{KEY}:holders", ROLLOUT, json.dumps({**holder, "process": ended_process()}))
        return ask(*arguments, **options)

    bench.store.claim = dies

    assert bench.execute() == "completed"
    assert looked == ["", "", "other"]
    assert bench.verdict().attempt == 2


def test_a_holder_whose_process_has_ended_is_taken_over_at_once(submit: Any, calls: Calls) -> None:
    bench = submit({})
    claim(bench, process=ended_process())

    assert bench.execute() == "completed"

    assert bench.verdict().attempt == 2
    assert ("evaluate", 2) in calls
    assert bench.store.progress(RUN).running == 0


def test_a_rollout_whose_attempts_are_used_up_is_lost_with_its_workers(submit: Any, calls: Calls) -> None:
    bench = submit({})
    ended = ended_process()
    claim(bench, process=ended, token="first")
    bench.store.claim(
        RUN, ROLLOUT, {"token": "second", "message": DELIVERY.task_id, "process": ended}, dead_holder="first"
    )

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt, verdict.status) == ("worker_lost", 2, "failed")
    assert verdict.error == "the worker process died in each of 2 attempts"
    assert verdict.worker == DELIVERY.worker
    assert 0 < verdict.started == verdict.finished
    assert calls == []


def test_what_a_dead_execution_finished_is_committed_and_not_made_again(submit: Any, calls: Calls) -> None:
    bench = submit({})
    claim(bench, process=ended_process())
    bench.folder.begin_attempt(ROLLOUT, 1)
    bench.folder.write_attempt(Verdict(ROLLOUT, 1, "completed", answer="42", score=0.5))

    assert bench.execute() == "completed"

    assert (bench.verdict().answer, bench.verdict().attempt) == ("42", 1)
    assert calls == []
    results = sorted(bench.folder.rollout(ROLLOUT).rglob("result.json"))
    assert len(results) == 2
    assert results[0].samefile(results[1]), "the attempt's result became the rollout's, and was not written anew"


def test_what_earlier_attempts_cost_is_counted_once(submit: Any) -> None:
    bench = submit({})
    claim(bench, process=ended_process())
    bench.folder.begin_attempt(ROLLOUT, 1)
    lost = Verdict(ROLLOUT, 1, "failed", failure_class=FailureClass.VM_LOST, cost=0.5)
    bench.folder.write_attempt(lost)

    assert bench.execute() == "completed"

    verdict, progress = bench.verdict(), bench.store.progress(RUN)
    assert (verdict.attempt, verdict.cost, verdict.earlier_cost, verdict.total_cost) == (2, None, 0.5, 0.5)
    assert verdict.as_result().cost == 0.5
    assert progress is not None
    assert progress.cost == 0.5


def test_what_attempts_cost_that_a_resume_has_set_aside_is_counted_once(submit: Any) -> None:
    bench = submit({})
    for cost in (0.5, 0.25):
        attempt = bench.folder.begin_attempt(ROLLOUT, 1)
        lost = Verdict(ROLLOUT, attempt, "failed", failure_class=FailureClass.VM_LOST, cost=cost)
        bench.folder.write_attempt(lost)
        bench.folder.settle(lost, written=True)
        bench.folder.set_aside(ROLLOUT)

    assert bench.execute() == "completed"

    assert (bench.verdict().earlier_cost, bench.verdict().total_cost) == (0.75, 0.75)


def test_an_overtaken_attempt_counts_what_its_successor_has_cost(submit: Any) -> None:
    bench = submit({"needs_vm": False})

    def succeed(_world: Any) -> None:
        take_over(bench)
        number = bench.folder.begin_attempt(ROLLOUT, 2)
        lost = Verdict(ROLLOUT, number, "failed", failure_class=FailureClass.VM_LOST, cost=0.5)
        bench.folder.write_attempt(lost)

    watched.HOOKS["close"] = succeed
    bench.execute()

    finished = bench.folder.finished(ROLLOUT)
    assert finished is not None
    assert (finished.attempt, finished.status, finished.total_cost) == (1, "completed", 0.5)


@pytest.mark.parametrize(("earlier", "own", "total"), [(None, None, None), (None, 2.0, 2.0), (0.5, 2.0, 2.5)])
def test_a_rollout_costs_what_its_attempts_cost(earlier: float | None, own: float | None, total: float | None) -> None:
    assert Verdict(ROLLOUT, 2, "completed", cost=own, earlier_cost=earlier).total_cost == total


def test_what_a_killed_execution_left_half_written_is_removed(submit: Any) -> None:
    bench = submit({})
    claim(bench, process=ended_process())
    bench.folder.begin_attempt(ROLLOUT, 1)
    left = bench.folder.attempt(ROLLOUT, 1) / ".result.json.7.tmp"
    left.write_text("{")

    assert bench.execute() == "completed"

    assert not left.exists()
    assert bench.verdict().attempt == 2


def test_a_cancelled_run_is_not_begun(submit: Any, calls: Calls) -> None:
    bench = submit({})
    claim(bench, process=ended_process())
    bench.store.cancel(RUN)

    assert bench.execute() == "cancelled"

    verdict = bench.verdict()
    assert (verdict.status, verdict.failure_class, verdict.error) == ("cancelled", "cancelled", "the run was cancelled")
    assert calls == []


def test_a_rollout_that_was_never_begun_is_cancelled_as_its_first_attempt(submit: Any, calls: Calls) -> None:
    bench = submit({})
    bench.client.hset(KEY, "state", "cancelling")

    assert bench.execute() == "cancelled"

    assert bench.verdict().attempt == 1
    assert calls == []


def test_a_run_cancelled_meanwhile_stops_at_the_next_beat(submit: Any, calls: Calls) -> None:
    bench = submit({})

    def cancel(world: watched.WatchedEnvironment) -> None:
        bench.store.cancel(RUN)
        beat_now(world)

    watched.HOOKS["execute"] = cancel

    assert bench.execute() == "cancelled"

    verdict = bench.verdict()
    assert (verdict.status, verdict.failure_class, verdict.attempt) == ("cancelled", "cancelled", 1)
    assert [name for name, _ in calls] == ["prepare", "init", "reset", "execute", "close"]
    assert bench.events() == ["granted", "released"]


def test_a_rollout_that_was_taken_over_is_dropped_at_the_next_beat(submit: Any, calls: Calls) -> None:
    bench = submit({})

    def superseded(world: watched.WatchedEnvironment) -> None:
        take_over(bench)
        beat_now(world)

    watched.HOOKS["execute"] = superseded

    assert bench.execute() == "superseded"

    assert list(bench.store.verdicts(RUN)) == []
    assert [name for name, _ in calls] == ["prepare", "init", "reset", "execute", "close"]
    assert bench.store.beat(RUN, ROLLOUT, "thief") == "running"
    assert bench.events() == ["granted", "released"]
    assert bench.folder.finished(ROLLOUT) is None


def test_a_finished_attempt_is_left_to_who_has_taken_over(submit: Any) -> None:
    bench = submit({})

    def superseded(_world: watched.WatchedEnvironment) -> None:
        """As a beat says it, after the last moment at which it could break into the episode."""
        take_over(bench)
        beats = heartbeat.heartbeat(settings().beat_seconds)
        assert beats.pulse is not None
        beats.pulse.superseded = True

    watched.HOOKS["close"] = superseded

    assert bench.execute() == "superseded"

    assert list(bench.store.verdicts(RUN)) == []
    assert not (bench.folder.rollout(ROLLOUT) / "result.json").exists()
    finished = bench.folder.finished(ROLLOUT)
    assert finished is not None
    assert finished.status == "completed"


def test_a_claim_lost_without_a_beat_commits_nothing(submit: Any) -> None:
    bench = submit({"at": "evaluate"})
    watched.HOOKS["evaluate"] = lambda _world: take_over(bench)

    assert bench.execute() == "superseded"

    assert list(bench.store.verdicts(RUN)) == []
    assert bench.client.hget(f"{KEY}:attempts", ROLLOUT) == "2"


def test_a_lease_taken_away_is_told_by_the_beat_and_another_is_asked_for(submit: Any, calls: Calls) -> None:
    bench = submit({})

    def revoke(world: watched.WatchedEnvironment) -> None:
        if world.context.attempt == 1:
            bench.pool.force_release("vm-0")
            beat_now(world)

    watched.HOOKS["execute"] = revoke

    assert bench.execute() == "completed"

    assert ("the beat passed", 0) not in calls
    first = Verdict.from_json((bench.folder.attempt(ROLLOUT, 1) / "result.json").read_text())
    assert first.failure_class is FailureClass.LEASE_LOST
    assert bench.verdict().attempt == 2
    assert bench.events() == ["granted", "revoked", "granted", "released"]


def test_a_beat_renews_the_lease_the_message_and_the_claim(submit: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench = submit({})
    bench.client.zadd(UNACKED_INDEX, {"tag": 1.0})
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})
    seen: dict[str, float] = {}

    def beat(world: watched.WatchedEnvironment) -> None:
        lease = world.context.vm
        bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})
        bench.client.zadd(UNACKED_INDEX, {"tag": 1.0})
        before = lease.deadline
        beats = heartbeat.heartbeat(settings().beat_seconds)
        assert beats.pulse is not None
        beats.pulse.last_beat -= 100
        beats.beat(beats.pulse)
        seen.update(
            lease=lease.deadline - before,
            message=bench.client.zscore(UNACKED_INDEX, "tag"),
            claim=bench.client.zscore(f"{KEY}:alive", ROLLOUT),
            silent=beats.pulse.silent,
            extra=bench.client.zcard(UNACKED_INDEX),
        )

    watched.HOOKS["execute"] = beat

    assert bench.execute(Delivery("task-1", "tag", "worker")) == "completed"
    assert seen["lease"] > 0
    assert seen["message"] > 1.0
    assert seen["claim"] > 1.0
    assert seen["silent"] < 50
    assert seen["extra"] == 1
    assert "heartbeat of" not in caplog.text


def test_a_beat_without_redis_changes_nothing_and_says_so(
    submit: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", "redis://127.0.0.1:1/0")
    settings.cache_clear()
    beats = Heartbeat(60.0)
    pulse = Pulse(RUN, ROLLOUT, "token", Interruption(), delivery_tag=None)
    pulse.last_beat -= 10

    beats.beat(pulse)

    assert pulse.silent > 10
    assert not pulse.interruption.requested
    assert f"heartbeat of {ROLLOUT}: Redis failed: Error 111" in caplog.text


def test_a_redis_that_does_it_again_is_told_once(submit: Any, caplog: pytest.LogCaptureFixture) -> None:
    submit({})
    beats = Heartbeat(60.0)
    pulse = Pulse(RUN, ROLLOUT, "token", Interruption(), delivery_tag=None)
    connections = beats._client.connection_pool
    port = connections.connection_kwargs["port"]
    for reachable in (1, port):
        connections.disconnect()
        connections.connection_kwargs["port"] = reachable
        for connection in connections._available_connections:
            connection.port = reachable
        for _ in range(2):
            beats.beat(pulse)

    said = [record.message for record in caplog.records if record.name == heartbeat.__name__]
    assert [sentence.partition(": Error")[0] for sentence in said] == [
        f"heartbeat of {ROLLOUT}: Redis failed",
        f"heartbeat of {ROLLOUT}: Redis works again",
    ]


def test_news_about_an_attempt_that_is_over_disturb_no_later_one(submit: Any) -> None:
    bench = submit({})
    claim(bench)
    beats = Heartbeat(60.0)
    late = Pulse(RUN, ROLLOUT, "earlier", Interruption(), delivery_tag=None)

    beats.beat(late)

    assert not late.superseded
    assert not late.interruption.requested


def test_an_item_that_redis_lost_is_an_internal_failure(submit: Any, calls: Calls) -> None:
    bench = submit({})
    bench.client.delete(f"{KEY}:items")

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().attempt) == ("internal", 1)
    assert bench.verdict().error == "the run store does not have its item"
    assert calls == []


def test_a_folder_that_cannot_be_written_is_said(submit: Any, calls: Calls) -> None:
    bench = submit({})
    bench.folder.rollout(ROLLOUT).parent.write_text("in the way")

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class is FailureClass.INTERNAL
    assert bench.verdict().error == f"the result could not be written to {bench.folder.path}: Not a directory"
    assert calls == []


@pytest.mark.parametrize("spent", [True, False])
def test_the_last_commit_asks_for_the_report_when_the_chord_cannot(submit: Any, spent: bool) -> None:
    bench = submit({})
    if spent:
        bench.store.finalize_by_last_commit(RUN)

    assert bench.execute() == "completed"

    assert bench.client.llen("finalize") == int(spent)


def test_a_run_that_is_gone_is_nobodys_business(submit: Any, calls: Calls) -> None:
    bench = submit({})

    assert Execution(bench.store, "no-such-run", ROLLOUT, DELIVERY).run() == "unknown"
    assert calls == []


def test_a_run_gone_after_the_claim_is_left(submit: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = submit({})
    ask = bench.store.claim

    def claim_and_lose(*arguments: Any, **options: Any) -> Any:
        claimed = ask(*arguments, **options)
        bench.client.delete(KEY)
        return claimed

    monkeypatch.setattr(bench.store, "claim", claim_and_lose)

    assert bench.execute() == "unknown"
    assert calls == []


def test_a_configuration_that_cannot_be_read_is_handed_back(submit: Any, calls: Calls) -> None:
    bench = submit({})
    bench.client.hset(KEY, "config", '{"no_such_option": 1}')

    assert bench.execute() == UNREADABLE

    assert bench.client.hgetall(f"{KEY}:attempts") == {ROLLOUT: "0"}
    assert bench.client.hgetall(f"{KEY}:holders") == {}
    assert calls == []


def test_a_run_of_a_newer_version_is_not_finalised_and_stays_free_for_whoever_can(submit: Any, calls: Calls) -> None:
    bench = submit({})
    assert bench.execute() == "completed"
    bench.client.hset(KEY, "min_version", VERSION + 1)

    with pytest.raises(UnreadableRun, match=f"^run {RUN} was stored by a newer version"):
        finalize(RUN)

    bench.client.hset(KEY, "min_version", VERSION)
    left = [bench.folder.path / f".{name}.77-88.tmp" for name in ("events.jsonl", "evaluation.json", "report.md")]
    for path in left:
        path.write_text("half, by a killed process")
    assert finalize(RUN) == "done"
    assert not [path for path in left if path.exists()]
    assert ROLLOUT in bench.folder.events.read_text()
    assert bench.folder.evaluation.exists()
    assert finalize("no-such-run") == "unknown"


def test_silence_is_judged_by_the_shortest_of_what_must_be_kept_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, silent in (("ROLLOUT_LEASE_TTL", "6", 6.0), ("ROLLOUT_VISIBILITY_TIMEOUT", "3", 3.0)):
        monkeypatch.setenv(name, value)
        settings.cache_clear()
        assert settings().silent_seconds == silent
        assert settings().beat_seconds == silent / 3
    monkeypatch.delenv("ROLLOUT_LEASE_TTL")
    monkeypatch.delenv("ROLLOUT_VISIBILITY_TIMEOUT")
    settings.cache_clear()
    assert settings().silent_seconds == 15.0


def test_a_vm_of_ones_own_is_held_for_the_attempt(submit: Any, calls: Calls) -> None:
    bench = submit({}, vm={"use_pool": False, "provider_name": "simulated", "provider_options": {"boot_seconds": 0}})

    assert bench.execute() == "completed"

    lease = bench.verdict().lease
    assert lease is not None
    assert lease.vm_id.startswith("own-")
    assert lease.fence == 0
    assert bench.events() == []


@pytest.mark.parametrize(("item", "address"), [({"snapshot": "its-own"}, "its-own"), ({}, "the-runs")])
def test_a_vm_of_ones_own_starts_from_the_items_snapshot(submit: Any, item: dict[str, str], address: str) -> None:
    bench = submit(item, vm={"use_pool": False, "provider_name": "snapshots", "snapshot_name": "the-runs"})
    seen: list[str] = []
    watched.HOOKS["execute"] = lambda world: seen.append(world.context.vm.address)

    assert bench.execute() == "completed"

    assert seen == [f"{address}.example.org"]


@pytest.mark.parametrize("error", [TimeoutError("it does not end"), RuntimeError("no answer"), OSError(28, "full")])
def test_a_vm_of_ones_own_that_cannot_be_stopped_takes_no_result_away(
    submit: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    bench = submit({}, vm={"use_pool": False, "provider_name": "snapshots"})

    def fail(_vm_id: str) -> None:
        raise error

    watched.HOOKS["stop"] = fail

    assert bench.execute() == "completed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.score, verdict.attempt) == (None, 1.0, 1)
    assert verdict.lease is not None
    assert f"{verdict.lease.vm_id}: it may still run: it could not be stopped" in caplog.messages


def test_a_vm_of_ones_own_that_does_not_boot_is_a_failed_setup(submit: Any, calls: Calls) -> None:
    options = {"boot_seconds": 0, "boot_failure": 1.0}
    bench = submit({}, vm={"use_pool": False, "provider_name": "simulated", "provider_options": options})

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().attempt) == ("env_setup", 2)
    assert bench.verdict().error.startswith("starting a VM: ")
    assert [name for name, _ in calls] == ["prepare", "prepare"]


def test_an_attempt_that_cannot_be_written_is_a_verdict_all_the_same(submit: Any) -> None:
    bench = submit({})

    def break_folder(world: watched.WatchedEnvironment) -> None:
        shutil.rmtree(world.context.directory)
        world.context.directory.write_text("no folder")

    watched.HOOKS["close"] = break_folder

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert verdict.failure_class is FailureClass.INTERNAL
    assert verdict == bench.folder.verdict(ROLLOUT), "the folder has what is committed"


def test_a_verdict_that_cannot_be_read_is_never_written_over(submit: Any) -> None:
    bench = submit({})
    result = bench.folder.rollout(ROLLOUT) / "result.json"
    watched.HOOKS["evaluate"] = lambda _world: result.write_text("{")

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.score) == ("internal", None)
    assert str(result) in verdict.error
    assert result.read_text() == "{"


class BrokenLease:
    """One whose renewal fails in a way that nobody foresaw."""

    doubtful = False

    def renew(self) -> None:
        raise TypeError("a defect")


class UnreachableLease:
    """One whose renewal Redis does not answer, or refuses."""

    doubtful = False

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def renew(self) -> None:
        raise self.problem


class RenewedLease:
    doubtful = False

    def renew(self) -> None:
        pass


@pytest.mark.parametrize("problem", [PoolUnreachable("Redis does not answer"), PoolRefused("Redis does not answer")])
def test_a_lease_that_cannot_be_renewed_now_keeps_no_claim_from_its_beat(
    submit: Any, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    bench = submit({})
    claim(bench, token="mine")
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})
    beats = Heartbeat(60.0)
    pulse = Pulse(RUN, ROLLOUT, "mine", Interruption(), None, lease=UnreachableLease(problem))

    beats.beat(pulse)
    beats.beat(pulse)

    assert bench.client.zscore(f"{KEY}:alive", ROLLOUT) > 1.0
    assert not pulse.interruption.requested
    assert caplog.messages == [f"heartbeat of {ROLLOUT}: lease not renewed: Redis does not answer; trying again"]

    pulse.lease = RenewedLease()
    beats.beat(pulse)
    pulse.lease = UnreachableLease(problem)
    beats.beat(pulse)
    assert len(caplog.messages) == 2, "it is another outage"


def test_a_lease_that_was_lost_for_an_earlier_attempt_disturbs_no_later_one(submit: Any) -> None:
    bench = submit({})
    claim(bench, token="mine")
    pulse = Pulse(RUN, ROLLOUT, "mine", Interruption(), None)

    class Lost:
        doubtful = False

        def renew(self) -> None:
            pulse.lease = None  # given back while the beat was at work
            raise LeaseLost("it is gone")

    pulse.lease = Lost()

    Heartbeat(60.0).beat(pulse)

    assert not pulse.interruption.requested


def test_a_claim_taken_over_is_known_from_the_beat_on(submit: Any) -> None:
    bench = submit({})
    claim(bench)
    beats = Heartbeat(60.0)
    beats.pulse = pulse = Pulse(RUN, ROLLOUT, "earlier", Interruption(), delivery_tag=None)

    beats.beat(pulse)

    beats.pulse = None
    assert pulse.superseded
    with pytest.raises(EpisodeInterrupted, match="another worker has taken this rollout over") as told:
        pulse.interruption.raise_if_requested()
    assert told.value.failure_class is FailureClass.WORKER_LOST


def test_a_heartbeat_outlives_a_defect(submit: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench = submit({})
    claim(bench, token="mine")
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})
    beats = Heartbeat(0.05)
    beats.pulse = Pulse(RUN, ROLLOUT, "mine", Interruption(), None, lease=BrokenLease())
    deadline = time.monotonic() + 30
    while "a beat failed" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    beats.pulse.lease = None

    while bench.client.zscore(f"{KEY}:alive", ROLLOUT) == 1.0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    beats.pulse = None


def test_a_claim_that_fell_silent_and_was_taken_over_settles_nothing(submit: Any) -> None:
    bench = submit({})

    def fall_silent(_world: watched.WatchedEnvironment) -> None:
        take_over(bench)
        beats = heartbeat.heartbeat(settings().beat_seconds)
        assert beats.pulse is not None
        beats.pulse.last_beat -= 1e6

    watched.HOOKS["close"] = fall_silent

    assert bench.execute() == "superseded"

    assert not (bench.folder.rollout(ROLLOUT) / "result.json").exists()
    assert bench.folder.finished(ROLLOUT) is not None


def test_a_failure_of_a_run_that_is_gone_meanwhile_settles_nothing(submit: Any) -> None:
    bench = submit({"at": "evaluate"}, max_attempts=1)
    watched.HOOKS["evaluate"] = lambda _world: bench.client.delete(KEY)

    assert bench.execute() == "superseded"

    assert not (bench.folder.rollout(ROLLOUT) / "result.json").exists()


def test_a_folder_that_cannot_be_looked_at_is_an_internal_failure(
    submit: Any, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({})
    listdir = os.listdir

    def broken(path: Any = ".") -> list[str]:
        if path == bench.folder.rollout(ROLLOUT):
            raise OSError(errno.EACCES, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", broken)

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class is FailureClass.INTERNAL
    assert bench.verdict().error == f"{bench.folder.rollout(ROLLOUT)} cannot be used: Permission denied"
    assert calls == []


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        ([], "the worker process died in each of 2 attempts"),
        ([1], "the worker process died in 1 of 2 attempts; the others failed (vm_lost)"),
        ([1, 2], "each of 2 attempts failed (vm_lost), and then the worker process died"),
    ],
)
def test_how_attempts_were_used_up_is_said(submit: Any, failed: list[int], said: str) -> None:
    bench = submit({})
    ended = ended_process()
    claim(bench, process=ended, token="first")
    second = {"token": "second", "message": DELIVERY.task_id, "process": ended}
    bench.store.claim(RUN, ROLLOUT, second, dead_holder="first")
    for number in (1, 2):
        bench.folder.begin_attempt(ROLLOUT, number)
    for number in failed:
        bench.folder.write_attempt(Verdict(ROLLOUT, number, "failed", failure_class=FailureClass.VM_LOST))

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().error) == ("worker_lost", said)


def test_the_heartbeat_is_one_per_process_and_knows_its_rollout_only_while_it_runs(submit: Any) -> None:
    bench = submit({})
    seen: list[Any] = []
    before = set(threading.enumerate())  # other tests' threads that renewed leases end after a while

    def look(world: watched.WatchedEnvironment) -> None:
        assert beats.pulse is not None
        seen.append((beats.pulse, beats.pulse.lease is world.context.vm))
        begun = set(threading.enumerate()) - before
        assert not [thread for thread in begun if thread.name.startswith("leases of")], "one more beats"

    watched.HOOKS["execute"] = look
    beats = heartbeat.heartbeat(settings().beat_seconds)

    bench.execute()

    ((pulse, has_lease),) = seen
    assert (pulse.run_id, pulse.rollout_id, has_lease) == (RUN, ROLLOUT, True)
    assert beats.pulse is None
    assert pulse.lease is None
    assert heartbeat.heartbeat(settings().beat_seconds) is beats
    assert beats.interval == settings().beat_seconds == 5.0
    assert beats._thread.daemon, "it would keep its process from ending"


def test_the_holder_says_where_it_runs(submit: Any) -> None:
    bench = submit({})
    seen: list[dict[str, Any]] = []
    watched.HOOKS["execute"] = lambda _world: seen.append(json.loads(bench.client.hget(f"{KEY}:holders", ROLLOUT)))

    bench.execute()

    (holder,) = seen
    assert {name: holder[name] for name in ("message", "worker", "process")} == {
        "message": "task-1",
        "worker": "worker@here",
        "process": this_process(),
    }
    assert str(os.getpid()) in holder["process"]


def test_the_store_of_a_worker_waits_out_what_it_can(submit: Any) -> None:
    submit({})

    assert rollout.run_store() is rollout.run_store()
    assert rollout.run_store().silent_seconds == 15.0
    assert isinstance(rollout.run_store().client, redis.Redis)
    assert rollout.run_rollout("no-such-run", ROLLOUT, DELIVERY) == "unknown"


def test_the_heartbeat_goes_on_beating_until_the_rollout_is_over(submit: Any) -> None:
    bench = submit({})
    claim(bench, token="t")
    beats = Heartbeat(0.02)
    pulse = Pulse(RUN, ROLLOUT, "t", Interruption(), delivery_tag=None)
    beats.pulse = pulse
    seen: set[float] = set()
    deadline = time.monotonic() + 60
    while len(seen) < 4:
        assert time.monotonic() < deadline, "it has stopped"
        seen.add(pulse.last_beat)
        time.sleep(0.01)

    beats.pulse = None


def test_a_lease_in_doubt_is_renewed_before_its_turn(submit: Any) -> None:
    bench = submit({})
    claim(bench, token="t")
    lease = bench.pool.acquire("me", heartbeat=False)
    beats = Heartbeat(600.0)
    pulse = Pulse(RUN, ROLLOUT, "t", Interruption(), delivery_tag=None, lease=lease)
    before = lease.deadline
    lease._breaks_seen = -5  # as if a connection had broken since
    assert lease.doubtful

    beats.pulse = pulse
    beats_by = time.monotonic() + 60
    while lease.deadline == before:
        assert time.monotonic() < beats_by, "it waits for its turn"
        time.sleep(0.01)

    beats.pulse = None
    assert not lease.doubtful


def test_a_run_cancelled_while_waiting_for_a_vm_ends_the_wait(submit: Any, calls: Calls) -> None:
    bench = submit({}, priority=7)
    bench.pool.acquire("somebody", heartbeat=False)
    beats = heartbeat.heartbeat(settings().beat_seconds)
    waiting: list[Any] = []

    def cancel() -> None:
        while not (waiters := bench.pool.status().waiters):
            time.sleep(0.02)
        waiting.extend(waiters)
        bench.store.cancel(RUN)
        assert beats.pulse is not None
        beats.beat(beats.pulse)

    with ThreadPoolExecutor() as threads:
        cancelling = threads.submit(cancel)
        assert bench.execute() == "cancelled"
        cancelling.result()

    verdict = bench.verdict()
    assert (verdict.status, verdict.failure_class, verdict.error) == ("cancelled", "cancelled", "the run was cancelled")
    assert verdict.lease is None
    assert calls == [("prepare", 0)]
    assert [one.priority for one in waiting] == [7]
    assert bench.pool.status().waiters == ()


def test_beats_keep_their_distance(submit: Any) -> None:
    bench = submit({})
    claim(bench, token="t")
    beats = Heartbeat(0.4)
    pulse = Pulse(RUN, ROLLOUT, "t", Interruption(), delivery_tag=None)
    beats.pulse = pulse
    seen: set[float] = set()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        seen.add(pulse.last_beat)
        time.sleep(0.01)

    beats.pulse = None
    assert len(seen) <= 4


def test_a_verdict_that_was_broken_before_is_told_as_such(submit: Any, calls: Calls) -> None:
    bench = submit({})
    result = bench.folder.rollout(ROLLOUT) / "result.json"
    (bench.folder.rollout(ROLLOUT) / "attempt-1").mkdir(parents=True)
    result.write_text("{")

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class == "internal"
    assert str(result) in bench.verdict().error
    assert calls == []
