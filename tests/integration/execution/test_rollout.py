"""One rollout's execution, in this process, beside a real Valkey and real files: whatever happened before, one verdict stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import redis

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.execution.attempt import Attempt
from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.heartbeat import Pulse
from rollout_tasks.execution.rollout import Execution
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from tests.conftest import REPOSITORY
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

RUN = "run-1"
ROLLOUT = "item#0"
SILENT = 60.0
QUICK = {"seconds": [0.0, 0.01], "steps": 2, "needs_vm": False}


@dataclass
class Place:
    """One run of one rollout."""

    store: RunStore
    folder: RunFolder
    config: RunConfig
    simulated: dict[str, object] = field(default_factory=dict)

    def submit(self) -> None:
        stored = reserve(self.store.client, RUN, self.config, str(self.folder.path), 1)
        stored.add_items([Item("item", "?", env_config=dict(self.simulated))], [ROLLOUT])
        assert stored.everything_sent()

    def execution(self, message: str = "message") -> Execution:
        return Execution(self.store, RUN, ROLLOUT, Delivery(message, None, "worker@here"))

    def silence(self) -> None:
        """Has the rollout's holder been silent for longer than one that lives."""
        self.store.client.zincrby(f"{{run:{RUN}}}:alive", -(SILENT + 1), ROLLOUT)

    def committed(self) -> Verdict:
        [verdict] = self.store.verdicts(RUN)
        assert self.folder.verdict(ROLLOUT) == verdict, "the folder and the run store disagree"
        return verdict

    def attempts(self) -> list[int]:
        return [int(path.name.removeprefix("attempt-")) for path in self.folder.begun_attempts(ROLLOUT)]


@pytest.fixture
def place(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUT_LEASE_TTL", str(SILENT))
    settings.cache_clear()
    config = RunConfig.model_validate({"env_mode": "simulated", "simulated": QUICK, "max_attempts": 3})
    folder = RunFolder(tmp_path / "results" / RUN)
    folder.description.create(config, [Item("item", "?")], data_path="x", data_name="x")
    store = RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=SILENT)
    place = Place(store, folder, config)
    place.submit()
    return place


def left_by_a_dead_process(place: Place, *, settled: bool, attempts: int = 1) -> Verdict:
    """An execution that wrote its result and died before it could say so."""
    for number in range(1, attempts + 1):
        assert place.store.claim(RUN, ROLLOUT, {"token": f"dead-{number}"}).status == "claimed"
        place.folder.begin_attempt(ROLLOUT, number)
        if number < attempts:
            place.silence()
    verdict = Verdict(ROLLOUT, attempts, "completed", answer="of the dead", score=0.5)
    place.folder.write_attempt(verdict)
    if settled:
        place.folder.settle(verdict, written=True)
    place.silence()
    return verdict


@pytest.mark.parametrize("settled", [True, False])
def test_a_finished_attempt_is_committed_and_not_made_again(place: Place, settled: bool) -> None:
    verdict = left_by_a_dead_process(place, settled=settled)

    assert place.execution().run() == "completed"

    assert place.committed() == verdict
    assert place.attempts() == [1]


@pytest.mark.parametrize("settled", [True, False])
def test_the_last_attempts_result_is_never_called_lost(place: Place, settled: bool) -> None:
    """All attempts are used up, and the last one had written what it found before its process died."""
    verdict = left_by_a_dead_process(place, settled=settled, attempts=3)

    assert place.execution().run() == "completed"

    assert place.committed() == verdict


def test_attempts_used_up_without_any_result_are_lost(place: Place) -> None:
    for number in range(1, 4):
        place.store.claim(RUN, ROLLOUT, {"token": f"dead-{number}"})
        place.folder.begin_attempt(ROLLOUT, number)
        place.silence()

    assert place.execution().run() == "failed"

    verdict = place.committed()
    assert verdict.failure_class is FailureClass.WORKER_LOST
    assert verdict.error == "the worker process died in each of 3 attempts"
    assert all(not any(path.iterdir()) for path in place.folder.begun_attempts(ROLLOUT)), (
        "somebody wrote into another's"
    )


def test_a_settled_verdict_that_no_attempt_wrote_is_committed_as_it_is(place: Place) -> None:
    """As when a worker dies between settling that all attempts were used up and saying so."""
    lost = Verdict(ROLLOUT, 3, "failed", failure_class=FailureClass.WORKER_LOST, error="died in each of 3 attempts")
    place.folder.settle(lost, written=False)

    assert place.execution().run() == "failed"

    assert place.committed() == lost


def test_what_redis_has_forgotten_the_folder_knows(place: Place) -> None:
    assert place.execution().run() == "completed"
    first = place.committed()
    assert place.store.forget(RUN, "running")
    place.submit()

    assert place.execution().run() == "completed"

    assert place.committed() == first
    assert place.attempts() == [1]


def test_an_attempt_that_redis_has_forgotten_keeps_its_folder(place: Place) -> None:
    place.folder.begin_attempt(ROLLOUT, 1)  # of somebody who is cut off, and goes on writing there

    assert place.execution().run() == "completed"

    assert place.committed().attempt == 2
    assert not any(place.folder.attempt(ROLLOUT, 1).iterdir())


def test_a_verdict_that_was_settled_meanwhile_is_taken(place: Place) -> None:
    """Its author was cut off from Redis, not from the folder."""
    execution = place.execution()
    claimed = execution.claim.take()
    other = Verdict(ROLLOUT, 1, "completed", answer="first", score=0.0)
    place.folder.begin_attempt(ROLLOUT, 1)
    place.folder.write_attempt(other)
    place.folder.settle(other, written=True)

    assert claimed.status == "claimed"
    assert execution.run() == "completed"

    assert place.committed() == other


def test_who_lost_the_claim_changes_nothing_of_what_was_committed(place: Place) -> None:
    slow = place.execution("slow")
    assert slow.claim.take().status == "claimed"
    place.silence()
    assert place.execution("quick").run() == "completed"
    committed = place.committed()

    assert slow.run() == "committed"
    mine = replace(committed, attempt=1, answer="mine")
    assert place.folder.settle(mine, written=False) == committed

    assert place.committed() == committed


@pytest.mark.parametrize(
    ("failure", "times", "attempts", "status"),
    [
        (FailureClass.VM_LOST, 1, 2, "completed"),
        (FailureClass.ENV_SETUP, 2, 3, "completed"),
        (FailureClass.ENV_EVALUATE, 3, 3, "failed"),
        (FailureClass.MODEL_OVERLOAD, 9, 3, "failed"),
        (FailureClass.PARSE, 1, 1, "failed"),
        (FailureClass.MODEL, 1, 1, "failed"),
    ],
)
def test_each_attempt_leaves_how_it_ended(
    place: Place, failure: FailureClass, times: int, attempts: int, status: str
) -> None:
    place.store.forget(RUN, "running")
    place.simulated = {"fail": failure.value, "fail_times": times}
    place.submit()

    assert place.execution().run() == status

    ended = list(place.folder.attempts(ROLLOUT))
    assert [verdict.attempt for verdict in ended] == list(range(1, attempts + 1))
    assert [verdict.failure_class for verdict in ended[:times]] == [failure] * min(times, attempts)
    assert place.committed() == ended[-1]


def test_a_result_that_cannot_be_written_is_said(place: Place) -> None:
    parent = place.folder.rollout(ROLLOUT).parent
    parent.write_text("a file where the rollouts' folders belong")

    assert place.execution().run() == "failed"

    [verdict] = place.store.verdicts(RUN)
    assert verdict.failure_class is FailureClass.INTERNAL
    assert f"could not be written to {place.folder.path}" in verdict.error


def test_temporary_files_of_the_dead_are_removed(place: Place) -> None:
    left_by_a_dead_process(place, settled=False)
    left = place.folder.attempt(ROLLOUT, 1)
    (left / ".result.json.1.tmp").write_text("{")
    (left / ".step_001.png.part").write_bytes(b"")

    place.execution().run()

    assert [path.name for path in left.iterdir()] == ["result.json"]


REVOKING = '''
from typing import ClassVar
from rollout_tasks.environments.simulated import SimulatedEnvironment
from rollout_tasks.redis_client import connect
from tests.conftest import REPOSITORY
from vm_pool.pool import VMPool


class RevokingEnvironment(SimulatedEnvironment):
    """An operator takes the VM away while the first attempt is evaluated."""

    def evaluate(self):
        if self._context.attempt == 1:
            VMPool(connect(tries=0)).force_release("vm-0")
        return super().evaluate()
'''


@pytest.fixture
def revoking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment of another package."""
    package = tmp_path / "package"
    (package / "revoking-1.dist-info").mkdir(parents=True)
    (package / "revoking.py").write_text(REVOKING)
    (package / "revoking-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: revoking\nVersion: 1\n")
    entry = "[rollout_tasks.environments]\nrevoking = revoking:RevokingEnvironment\n"
    (package / "revoking-1.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(package))
    registry._offered.cache_clear()
    yield
    registry._offered.cache_clear()
    sys.modules.pop("revoking", None)


@pytest.mark.usefixtures("revoking")
def test_a_lease_that_ended_before_the_vm_was_given_back_spoils_the_attempt(place: Place) -> None:
    pool = VMPool(place.store.client)
    pool.register("vm-0", Endpoint("127.0.0.1"))
    place.store.forget(RUN, "running")
    place.config = place.config.model_copy(update={"env_mode": "revoking"})
    place.simulated = {"needs_vm": True}
    place.submit()

    assert place.execution().run() == "completed"

    first, second = place.folder.attempts(ROLLOUT)
    assert (first.status, first.failure_class, first.score) == ("failed", FailureClass.LEASE_LOST, None)
    assert first.lease.vm_id == "vm-0"
    assert (second.status, second.lease.vm_id) == ("completed", "vm-0")
    assert json.loads((place.folder.attempt(ROLLOUT, 1) / "result.json").read_text())["failure_class"] == "lease_lost"


def ask_to_cancel(run_id: str) -> subprocess.CompletedProcess[str]:
    """submit.py --cancel: in a process of its own, for a Celery application has one broker for life."""
    return subprocess.run(
        [sys.executable, "scripts/submit.py", "--cancel", run_id, "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def cancel(place: Place) -> dict[str, int]:
    done = ask_to_cancel(RUN)
    assert done.returncode == 0, done.stderr
    said: dict[str, int] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "only written"])
def test_a_cancelled_run_keeps_what_a_dead_worker_had_finished(place: Place, settled: bool) -> None:
    left = left_by_a_dead_process(place, settled=settled)

    said = cancel(place)

    assert place.committed() == left
    assert said["being_stopped"] == 0


def test_a_cancelled_run_has_no_result_of_an_attempt_that_left_none(place: Place) -> None:
    assert place.store.claim(RUN, ROLLOUT, {"token": "dead"}).status == "claimed"
    place.folder.begin_attempt(ROLLOUT, 1)
    assert place.store.cancel(RUN).begun == [], "its worker may live"
    place.silence()

    said = cancel(place)

    assert place.committed().failure_class is FailureClass.CANCELLED
    assert said["being_stopped"] == 0


@pytest.mark.usefixtures("place")
def test_a_run_that_nobody_knows_cannot_be_cancelled_and_that_is_wrong_input() -> None:
    done = ask_to_cancel("no-such-run")

    assert done.returncode == 2
    assert "no-such-run" in done.stderr


def test_a_folder_that_cannot_be_looked_into_is_said_and_does_not_keep_the_run_from_its_end(place: Place) -> None:
    """As one of another user's, or on a file server that does not answer."""
    folder = place.folder.rollout(ROLLOUT)
    folder.parent.mkdir()
    folder.symlink_to(folder)

    assert place.execution().run() == "failed"

    [verdict] = place.store.verdicts(RUN)
    assert verdict.failure_class is FailureClass.INTERNAL
    assert str(folder) in verdict.error


HALF = "half a pair: \ud83d"


def test_an_answer_with_half_a_surrogate_pair_is_a_result(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models do write them."""

    def answers(self: Attempt, _pulse: Pulse) -> Verdict:
        return Verdict(ROLLOUT, self.number, "completed", answer=HALF, score=1.0)

    monkeypatch.setattr(Attempt, "run", answers)

    assert place.execution().run() == "completed"

    assert place.committed().score == 1.0


def test_a_cancelled_run_keeps_what_a_stopped_worker_had_finished(place: Place) -> None:
    """It was told to stop between settling its verdict and committing it, and handed the rollout back."""
    execution = place.execution()
    assert execution.claim.take().status == "claimed"
    verdict = Verdict(ROLLOUT, place.folder.begin_attempt(ROLLOUT, 1), "completed", answer="of the stopped", score=0.5)
    place.folder.write_attempt(verdict)
    place.folder.settle(verdict, written=True)
    execution.claim.hand_back()

    cancel(place)

    assert place.committed() == verdict


def test_a_worker_that_died_in_the_last_attempt_did_not_die_in_those_that_failed(place: Place) -> None:
    assert place.store.claim(RUN, ROLLOUT, {"token": "dead"}).status == "claimed"
    for number in (1, 2):
        place.folder.begin_attempt(ROLLOUT, number)
        place.folder.write_attempt(Verdict(ROLLOUT, number, "failed", failure_class=FailureClass.VM_LOST, error="gone"))
        assert place.store.claim(RUN, ROLLOUT, {"token": "dead"}, after=number).status == "claimed"
    place.folder.begin_attempt(ROLLOUT, 3)
    place.silence()

    assert place.execution().run() == "failed"

    verdict = place.committed()
    assert verdict.failure_class is FailureClass.WORKER_LOST
    assert verdict.error == "the worker process died in 1 of 3 attempts; the others failed (vm_lost)"
