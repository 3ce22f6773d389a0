"""How long each part of an execution waits, and how often it looks."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from rollout_tasks.execution import claim as claim_module
from rollout_tasks.execution import heartbeat, results_disk
from rollout_tasks.execution.claim import RolloutClaim
from rollout_tasks.execution.heartbeat import Heartbeat
from rollout_tasks.execution.results_disk import once_usable
from rollout_tasks.settings import settings
from tests.unit.execution import watched
from tests.unit.execution.conftest import DELIVERY, ROLLOUT, RUN
from tests.unit.execution.test_results_disk import FOLDER, FULL, Disk, fail_first, to_attempt
from vm_pool.processes import this_process


def test_a_silent_holder_is_looked_at_twice_a_second_for_twice_as_long_as_one_that_lives_may_be_silent(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({})
    holder = {"token": "other", "message": DELIVERY.task_id, "worker": "w", "process": this_process()}
    assert bench.store.claim(RUN, ROLLOUT, holder).status == "claimed"
    bench.store.silent_seconds = 30.0
    pauses: list[float] = []
    monkeypatch.setattr(claim_module, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))

    assert RolloutClaim(bench.store, RUN, ROLLOUT, DELIVERY).take().status == "busy"

    assert pauses == [0.5] * 120


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_looks_after_its_lease_twice_a_second_between_beats(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit({})
    pauses: list[float] = []
    others = threading.enumerate()  # with the heartbeat that earlier tests may have started in this process

    def monotonic() -> float:
        return time.monotonic() if threading.current_thread() in others else sum(pauses)

    def sleep(seconds: float) -> None:
        if threading.current_thread() in others:
            time.sleep(seconds)
            return
        if len(pauses) == 6:
            raise SystemExit  # ends this heartbeat's thread
        pauses.append(seconds)

    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))

    beats = Heartbeat(1.2)
    beats._thread.join(30)

    assert not beats._thread.is_alive()
    assert pauses == pytest.approx([0.5, 0.5, 0.2] * 2)


def test_a_disk_gets_no_time_where_there_is_none_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(results_disk, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
    monkeypatch.setattr(results_disk, "PATIENCE_SECONDS", 0.0)

    with pytest.raises(OSError, match="No space left"):
        once_usable(Disk(FULL).write, FOLDER, wanted=lambda: True)

    assert pauses == []


def test_a_cancelled_run_does_not_wait_for_room_for_an_attempt_that_has_ended(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({"needs_vm": False})
    fail_first(monkeypatch, "link", to_attempt, 10**6)
    tries: list[float] = []

    def cancel_then_wait(seconds: float) -> None:
        tries.append(seconds)
        assert len(tries) < 60
        if len(tries) == 2:
            bench.store.cancel(RUN)
            beats = heartbeat.heartbeat(settings().beat_seconds)
            assert beats.pulse is not None
            beats.beat(beats.pulse)

    monkeypatch.setattr(results_disk, "time", SimpleNamespace(monotonic=time.monotonic, sleep=cancel_then_wait))

    assert bench.execute() == "failed"

    assert len(tries) == 2
    assert bench.verdict().error == (f"the result could not be written to {bench.folder.path}: No space left on device")


def test_a_vm_is_waited_for_no_longer_than_the_run_says(submit: Any) -> None:
    bench = submit({}, vm={"wait_seconds": 0.2}, max_attempts=1)
    bench.pool.acquire("somebody", heartbeat=False)

    bench.execute()

    (_, _, within) = bench.verdict().error.partition(" within ")
    assert 0 < float(within.split(" s")[0]) <= 0.2


def test_a_lease_lasts_as_long_as_configured_without_a_beat(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_LEASE_TTL", "45")
    bench = submit({})
    seen: list[str] = []
    watched.HOOKS["execute"] = lambda _world: seen.append(bench.client.hget("{pool:default}:vm:vm-0", "ttl"))

    assert bench.execute() == "completed"

    assert seen == ["45000000"]
