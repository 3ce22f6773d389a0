"""What each failure becomes: its class, how many attempts, whose failure it is, and that nothing stays held."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.errors import EpisodeInterrupted, FailureClass, RolloutFailure, boundary
from rollout_tasks.execution import checked_environment, heartbeat, rollout
from rollout_tasks.execution.checked_environment import CheckedEnvironment
from rollout_tasks.settings import settings
from tests.unit.execution import watched
from tests.unit.execution.conftest import ROLLOUT, RUN
from vm_pool.states import Endpoint as VMEndpoint

CLASSES: dict[str, tuple[bool, Literal["agent", "infrastructure"]]] = {
    "env_setup": (True, "infrastructure"),
    "env_step": (True, "infrastructure"),
    "env_evaluate": (True, "infrastructure"),
    "vm_lost": (True, "infrastructure"),
    "lease_lost": (True, "infrastructure"),
    "model": (False, "infrastructure"),
    "model_overload": (True, "infrastructure"),
    "parse": (False, "agent"),
    "timeout": (False, "agent"),
    "max_turns": (False, "agent"),
    "worker_lost": (False, "infrastructure"),
    "cancelled": (False, "infrastructure"),
    "internal": (False, "infrastructure"),
}
"""Whether another attempt may help, and whose failure it is."""


def test_the_table_has_every_class() -> None:
    assert {failure.value: (failure.retried, failure.counted_as) for failure in FailureClass} == CLASSES


VM_LOST = "rollout_tasks.environments.base:VMLost"
BROKEN = {
    "preparing": ("prepare", "builtins:OSError", "env_setup", "preparing: OSError: it broke"),
    "resetting": ("reset", "builtins:KeyError", "env_setup", "WatchedEnvironment: reset: KeyError: 'it broke'"),
    "acting": ("execute", "builtins:RuntimeError", "env_step", "WatchedEnvironment: act: RuntimeError: it broke"),
    "evaluating": (
        "evaluate",
        "builtins:ValueError",
        "env_evaluate",
        "WatchedEnvironment: evaluation: ValueError: it broke",
    ),
    "VM lost in the reset": ("reset", VM_LOST, "vm_lost", "it broke"),
    "VM lost in a step": ("execute", VM_LOST, "vm_lost", "it broke"),
    "VM lost in the evaluation": ("evaluate", VM_LOST, "vm_lost", "it broke"),
}


@pytest.mark.parametrize(("at", "raises", "failure", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_what_breaks_in_the_world_is_tried_again_and_given_back(
    submit: Any, calls: list[tuple[str, int]], at: str, raises: str, failure: str, said: str
) -> None:
    bench = submit({"at": at, "raises": raises})

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.error, verdict.attempt) == (failure, said, 2)
    assert (verdict.status, verdict.score) == ("failed", None)
    if at == "prepare":
        assert calls == [("prepare", 0)] * 2
        assert bench.events() == []
    else:
        assert [call for call in calls if call[0] == "close"] == [("close", 1), ("close", 2)]
        assert calls[-1] == ("close", 2)
        assert bench.events() == ["granted", "released"] * 2


WRONG_RETURNS = {
    "reset": (None, "env_setup", "reset", "returned None instead of an Observation"),
    "instructions": (None, "env_setup", "instructions", "returned None instead of text"),
    "tools": (None, "env_setup", "tools", "returned None instead of a list of Tool objects"),
    "tools of another kind": (
        ["act"],
        "env_setup",
        "tools",
        "returned a list with 'act' instead of a list of Tool objects",
    ),
    "execute": ("done", "env_step", "execute", "returned 'done' instead of a ToolResult"),
    "evaluate": ("1.0", "env_evaluate", "evaluate", "returned '1.0' instead of a number or None"),
}


@pytest.mark.parametrize(
    ("returns", "failure", "method", "said"),
    WRONG_RETURNS.values(),
    ids=[name.replace(" ", "-") for name in WRONG_RETURNS],
)
def test_what_a_method_returns_against_its_contract_is_told_with_class_and_method(
    submit: Any, returns: object, failure: str, method: str, said: str
) -> None:
    bench = submit(
        {"env_mode": "wrong_returns", "of": method, "returns": returns},
        max_attempts=1,
        agent="instructed" if method == "instructions" else "simulated",
    )

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert verdict.failure_class == failure
    assert verdict.error.endswith(f"WrongReturnsEnvironment.{method} {said}")
    assert bench.events() == ["granted", "released"]


@pytest.mark.parametrize(("score", "stored"), [(True, 1.0), (1, 1.0), (0, 0.0), (False, 0.0)])
def test_a_score_of_another_kind_of_number_is_stored_as_one(submit: Any, score: object, stored: float) -> None:
    bench = submit({"env_mode": "wrong_returns", "of": "evaluate", "returns": score}, agent="simulated")

    assert bench.execute() == "completed"
    assert type(bench.verdict().score) is float
    assert bench.verdict().score == stored


def test_an_agent_that_returns_nothing_is_told_with_its_class(submit: Any) -> None:
    bench = submit({}, agent="silent", max_attempts=1)

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert verdict.failure_class == "internal"
    assert verdict.error == "the episode: ContractBroken: SilentAgent.run returned None instead of an Episode"
    assert bench.events() == ["granted", "released"]


def test_a_snapshot_that_cannot_be_named_is_a_failed_setup(submit: Any) -> None:
    bench = submit({"at": "snapshot", "raises": "builtins:KeyError"})

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt) == ("env_setup", 2)
    assert verdict.error == "WatchedEnvironment.snapshot: KeyError: 'it broke'"
    assert bench.events() == []


def test_an_environment_that_cannot_be_made_is_a_failed_setup(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({})

    def broken(_world: watched.WatchedEnvironment) -> None:
        raise KeyError("it broke")

    watched.HOOKS["init"] = broken

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt) == ("env_setup", 2)
    assert verdict.error == "environment WatchedEnvironment: KeyError: 'it broke'"
    assert [name for name, _ in calls] == ["prepare", "init"] * 2
    assert bench.events() == ["granted", "released"] * 2


def test_preparing_has_a_limit_of_its_own(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.execution.stages.PREPARE_SECONDS", 0.2)
    bench = submit({"at": "prepare", "raises": "time:sleep"}, max_attempts=1)

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.error) == ("env_setup", "preparing took longer than 0.2 s")
    assert bench.events() == []


def test_each_part_of_an_attempt_may_be_stuck_for_half_a_minute_before_its_process_is_killed(submit: Any) -> None:
    bench = submit({}, limits={"max_seconds": 100})
    allowed: dict[str, float] = {}

    def look(name: str) -> None:
        pulse = heartbeat.heartbeat(settings().beat_seconds).pulse
        assert pulse is not None
        deadline = pulse.interruption.hard_deadline
        assert deadline is not None
        allowed[name] = deadline - time.monotonic()

    for name in ("reset", "execute", "evaluate", "close"):
        watched.HOOKS[name] = lambda _world, name=name: look(name)

    assert bench.execute() == "completed"

    assert all(110 < allowed[name] <= 130 for name in ("reset", "execute", "evaluate"))
    assert 220 < allowed["close"] <= 240


def test_a_stage_that_was_not_reached_has_no_time(submit: Any) -> None:
    bench = submit({"at": "reset"}, max_attempts=1)
    watched.HOOKS["reset"] = lambda _world: time.sleep(0.02)

    bench.execute()

    assert list(bench.verdict().stages) == ["setup"]


@pytest.mark.parametrize("failure", [name for name in CLASSES if name != "cancelled"])
def test_a_failure_of_each_class_is_attempted_as_often_as_it_says(
    submit: Any, calls: list[tuple[str, int]], failure: str
) -> None:
    attempts = 2 if CLASSES[failure][0] else 1
    kind = FailureClass(failure)
    bench = submit({"at": "execute", "fails_as": failure})

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.error, verdict.attempt) == (kind, "said", attempts)
    assert [name for name, _ in calls].count("close") == attempts
    assert bench.events() == ["granted", "released"] * attempts


def test_an_attempt_that_succeeds_after_one_that_failed_is_the_verdict(
    submit: Any, calls: list[tuple[str, int]]
) -> None:
    bench = submit({"at": "execute", "times": 1, "score": 0.25}, max_attempts=3)

    assert bench.execute() == "completed"

    verdict = bench.verdict()
    assert (verdict.attempt, verdict.score, verdict.failure_class, verdict.error) == (2, 0.25, None, "")
    assert calls == [
        *[("prepare", 0), ("init", 1), ("reset", 1), ("execute", 1), ("close", 1)],
        *[("prepare", 0), ("init", 2), ("reset", 2), ("execute", 2), ("evaluate", 2), ("close", 2)],
    ]
    files = [path.parent.name for path in sorted(bench.folder.rollout(ROLLOUT).glob("attempt-*/result.json"))]
    assert files == ["attempt-1", "attempt-2"]


def test_a_world_that_cannot_be_closed_spoils_no_result(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({"at": "close"})

    assert bench.execute() == "completed"

    assert bench.verdict().score == 1.0
    assert bench.events() == ["granted", "released"]


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_that_is_none_is_a_failed_evaluation(submit: Any, score: float) -> None:
    bench = submit({"score": score}, max_attempts=1)

    assert bench.execute() == "failed"
    assert bench.verdict().failure_class is FailureClass.ENV_EVALUATE


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_the_best_and_the_worst_score_are_scores(submit: Any, score: float) -> None:
    bench = submit({"score": score})

    assert bench.execute() == "completed"
    assert bench.verdict().score == score


@pytest.mark.parametrize("needs_vm", [True, False])
def test_only_what_needs_a_vm_gets_one(submit: Any, needs_vm: bool) -> None:
    seen: list[Any] = []
    watched.HOOKS["init"] = lambda world: seen.append(world.context.vm)
    bench = submit({"needs_vm": needs_vm})

    assert bench.execute() == "completed"

    assert [vm is not None for vm in seen] == [needs_vm]
    assert bench.events() == (["granted", "released"] if needs_vm else [])
    lease = bench.verdict().lease
    assert (lease.vm_id if lease else None) == ("vm-0" if needs_vm else None)
    if lease:
        assert 0 <= lease.waited < lease.allocated
        assert 0 <= lease.released - lease.allocated < 60


def test_an_episode_past_its_time_is_the_agents_failure(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({"at": "execute", "raises": "time:sleep"}, limits={"max_seconds": 0.3})

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.error, verdict.attempt) == ("timeout", "not finished within 0.3 s", 1)
    assert calls[-1] == ("close", 1)
    assert bench.events() == ["granted", "released"]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("reset", ("env_setup", "not set up within 0.3 s")),
        ("evaluate", ("env_evaluate", "not evaluated within 0.3 s")),
    ],
)
def test_a_slow_environment_is_not_the_agents_failure(submit: Any, at: str, expected: tuple[str, str]) -> None:
    bench = submit({"at": at, "raises": "time:sleep"}, limits={"max_seconds": 0.3}, max_attempts=2)

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().error) == expected
    assert bench.verdict().attempt == 2, "it is tried again"


def test_an_evaluation_has_time_of_its_own(submit: Any) -> None:
    bench = submit({}, limits={"max_seconds": 1.0})
    for at in ("reset", "execute", "evaluate"):
        watched.HOOKS[at] = lambda _world: time.sleep(0.6)

    assert bench.execute() == "completed"


def test_nobody_gets_a_vm_in_time(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({}, vm={"wait_seconds": 0.1}, max_attempts=1)
    held = bench.pool.acquire("somebody", heartbeat=False)

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert verdict.failure_class is FailureClass.ENV_SETUP
    assert verdict.error.startswith(
        f"waiting for a VM: AcquireTimeout: worker@here {ROLLOUT} got no VM of pool 'default'"
    )
    assert calls == [("prepare", 0)]
    held.check()
    assert bench.pool.status().waiters == ()


def test_the_lease_is_asked_for_as_the_run_says(submit: Any) -> None:
    seen: list[Any] = []
    watched.HOOKS["reset"] = lambda world: seen.append(
        {**bench.client.hgetall("{pool:default}:vm:vm-0"), "lease": world.context.vm}
    )
    bench = submit({}, limits={"max_seconds": 100})

    bench.execute()

    (vm,) = seen
    assert vm["holder"] == f"worker@here {ROLLOUT}"
    assert int(vm["ttl"]) == 60_000_000
    assert int(vm["ends"]) - int(vm["since"]) == 600_000_000
    assert (vm["lease"].address, dict(vm["lease"].ports)) == ("127.0.0.1", {"control": 1})


def test_a_lease_that_ends_meanwhile_is_no_success(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({}, max_attempts=1)
    watched.HOOKS["evaluate"] = lambda _world: bench.pool.force_release("vm-0")

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.score) == ("lease_lost", None)
    assert verdict.error.startswith("the lease of vm-0 ")
    assert calls[-1] == ("close", 1)


@pytest.mark.parametrize(
    ("lost_in", "reached"),
    [
        ("init", ["prepare", "init"]),
        ("reset", ["prepare", "init", "reset"]),
        ("execute", ["prepare", "init", "reset", "execute"]),
    ],
)
def test_a_lease_known_to_be_lost_is_not_touched_again(
    submit: Any, calls: list[tuple[str, int]], lost_in: str, reached: list[str]
) -> None:
    bench = submit({}, max_attempts=1)
    watched.HOOKS[lost_in] = lambda world: world.context.vm.lose("the test says so")

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class is FailureClass.LEASE_LOST
    assert [name for name, _ in calls] == [*reached, "close"]


def test_a_vm_lost_with_its_lease_counts_as_the_lease(submit: Any) -> None:
    bench = submit({"at": "execute", "raises": VM_LOST}, max_attempts=1)
    watched.HOOKS["execute"] = lambda world: world.context.vm.lose("the test says so")

    bench.execute()

    assert bench.verdict().failure_class is FailureClass.LEASE_LOST


def test_an_agent_that_breaks_is_a_defect_of_this_program(submit: Any, calls: list[tuple[str, int]]) -> None:
    bench = submit({}, agent="broken")

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt) == ("internal", 1)
    assert verdict.error == "the episode: ZeroDivisionError: the agent broke"
    assert calls[-1] == ("close", 1)


def test_an_environment_that_nobody_offers_is_a_defect_too(submit: Any) -> None:
    bench = submit({"env_mode": "no-such"})

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class is FailureClass.INTERNAL
    assert bench.verdict().error.startswith("preparing the attempt: UserError: unknown environment 'no-such'")
    assert bench.events() == []


def test_an_attempt_says_where_its_time_went_and_what_was_asked(submit: Any) -> None:
    files = {"https://files.example/sheet.xlsx": "5f" * 32}
    bench = submit({"needs_vm": True, "downloads": files})
    for name in ("reset", "execute", "evaluate"):
        watched.HOOKS[name] = lambda _world: time.sleep(0.02)

    bench.execute()

    verdict = bench.verdict()
    assert {"setup", "acting", "evaluation"} <= verdict.stages.keys()
    assert all(0.02 <= verdict.stages[name] < 30 for name in ("setup", "acting", "evaluation"))
    assert (verdict.turns, verdict.ending, verdict.worker) == (1, "done", "worker@here")
    assert 0.06 <= verdict.finished - verdict.started < 60
    lines = (bench.folder.attempt(ROLLOUT, 1) / "trajectory.jsonl").read_text().splitlines()
    header = json.loads(lines[0])["header"]
    asked = {name: header[name] for name in ("run_id", "rollout_id", "attempt", "question", "worker", "vm_id")}
    assert asked == {
        "run_id": RUN,
        "rollout_id": ROLLOUT,
        "attempt": 1,
        "question": "?",
        "worker": "worker@here",
        "vm_id": "vm-0",
    }
    assert header["downloads"] == files
    assert verdict.started <= header["started"] <= verdict.finished
    assert len(lines) > 2


@pytest.mark.parametrize(
    ("hashes", "said"),
    [
        (3, "WatchedEnvironment.prepare returned 3 instead of a mapping of texts to texts"),
        ({"https://files.example/a": None}, "instead of a mapping of texts to texts"),
        ({"https://files.example/a": float("nan")}, "instead of a mapping of texts to texts"),
        ({"https://files.example/a": "5F" * 32}, "instead of a SHA-256, which has 64 hexadecimal digits"),
        ({"https://files.example/a": ""}, "returned '' instead of a SHA-256"),
        ({f"https://files.example/{n}": "5f" * 32 for n in range(1001)}, "hashes of 1,001 files; at most 1,000"),
    ],
)
def test_hashes_of_downloads_that_are_none_are_refused(submit: Any, hashes: object, said: str) -> None:
    bench = submit({"needs_vm": True, "downloads": hashes})

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class is FailureClass.ENV_SETUP
    assert said in bench.verdict().error


@pytest.mark.parametrize("place", ["files.example/a?b=1", "[bad/a", "files.example/@a"])
def test_where_a_file_was_downloaded_is_recorded_without_the_login(submit: Any, place: str) -> None:
    bench = submit({"needs_vm": True, "downloads": {f"https://ann:s3@cret@{place}": "5f" * 32}})

    bench.execute()

    header = json.loads((bench.folder.attempt(ROLLOUT, 1) / "trajectory.jsonl").read_text().splitlines()[0])["header"]
    assert header["downloads"] == {f"https://{place}": "5f" * 32}


def test_a_border_classifies_what_is_plain_and_passes_on_what_is_not() -> None:
    with pytest.raises(RolloutFailure, match=r"^there: KeyError: 1$") as plain, boundary(FailureClass.PARSE, "there"):
        raise KeyError(1)
    assert plain.value.failure_class is FailureClass.PARSE
    assert isinstance(plain.value.__cause__, KeyError)
    with pytest.raises(RolloutFailure, match=r"^there: KeyError$"), boundary(FailureClass.PARSE, "there"):
        raise KeyError
    with pytest.raises(RolloutFailure) as long, boundary(FailureClass.PARSE, "there"):
        raise ValueError("x" * 5000)
    assert len(str(long.value)) == 2000
    with pytest.raises(RolloutFailure) as passed, boundary(FailureClass.PARSE, "there"):
        raise RolloutFailure(FailureClass.MODEL, "said")
    assert passed.value.failure_class is FailureClass.MODEL
    with pytest.raises(RolloutFailure, match=r"^there: SystemExit: 3$"), boundary(FailureClass.PARSE, "there"):
        sys.exit(3)
    with pytest.raises(EpisodeInterrupted), boundary(FailureClass.PARSE, "there"):
        raise EpisodeInterrupted(FailureClass.TIMEOUT, "late")


def test_the_run_store_counts_what_is_committed(submit: Any) -> None:
    bench = submit({"at": "execute"}, max_attempts=1)

    bench.execute()

    progress = bench.store.progress(RUN)
    assert (progress.pending, progress.committed, progress.failed, progress.failures) == (0, 1, 1, {"env_step": 1})
    assert progress.running == 0


@pytest.mark.parametrize(
    ("call", "failure"), [("instructions", "env_setup"), ("tools", "env_setup"), ("close", "env_step")]
)
def test_every_door_to_the_world_has_its_class(tmp_path: Path, call: str, failure: str) -> None:
    class Broken(watched.WatchedEnvironment):
        def instructions(self, *_: object) -> str:
            raise KeyError("broken")

        def tools(self) -> list[Tool]:
            raise KeyError("broken")

        def close(self) -> None:
            raise KeyError("broken")

    world = CheckedEnvironment(Broken(EnvironmentContext(RunConfig(), tmp_path, None)), None)

    with pytest.raises(RolloutFailure, match=r"Broken.*KeyError") as raised:
        getattr(world, call)(*([Item("1", "?")] if call == "instructions" else []))

    assert raised.value.failure_class == failure


def test_what_a_world_says_has_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Talkative(watched.WatchedEnvironment):
        def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
            return ToolResult("success", "x" * 400, Observation("y" * 600))

    monkeypatch.setattr(checked_environment, "MOST_TEXT", 3000)
    world = CheckedEnvironment(Talkative(EnvironmentContext(RunConfig(), tmp_path, None)), None)
    call = ToolCall("1", "look", {})
    for _ in range(3):
        world.execute(call)

    with pytest.raises(RolloutFailure, match=r"Talkative: look: ValueError: it has said more than .* in all") as raised:
        world.execute(call)

    assert raised.value.failure_class is FailureClass.ENV_STEP


def test_what_a_world_shows_has_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Colourful(watched.WatchedEnvironment):
        def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
            return ToolResult("success", "", Observation("", (b"x" * 400, b"y" * 600)))

    monkeypatch.setattr(checked_environment, "MOST_IMAGES", 3000)
    world = CheckedEnvironment(Colourful(EnvironmentContext(RunConfig(), tmp_path, None)), None)
    call = ToolCall("1", "look", {})
    for _ in range(3):
        world.execute(call)

    with pytest.raises(RolloutFailure, match="Colourful: look: ValueError: it has shown images of more than") as raised:
        world.execute(call)

    assert raised.value.failure_class is FailureClass.ENV_STEP


class Endpoint(BaseHTTPRequestHandler):
    """A model that says "4" to everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("agent", "failure"), [("asking", "parse"), ("answering", None)])
def test_an_attempt_says_what_it_asked_of_its_model(submit: Any, agent: str, failure: str | None) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            model = {"name": "m", "base_url": f"http://127.0.0.1:{server.server_port}/v1"}
            bench = submit({}, agent=agent, model=model)
            bench.execute()
        finally:
            server.shutdown()

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt, verdict.turns) == (failure, 1, 1)
    assert (verdict.usage.prompt_tokens, verdict.usage.completion_tokens) == (5, 7)
    assert verdict.stages["model"] >= 0
    assert verdict.answer == ("" if failure else "4")


class HangingEndpoint(Endpoint):
    """Takes requests and does not answer them, until it is asked whether it is there."""

    there = threading.Event()

    def do_POST(self) -> None:
        if self.there.is_set():
            super().do_POST()
        else:
            self.there.wait(5)

    def do_GET(self) -> None:
        self.there.set()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize("patience", [0.3, 60], ids=["longer than a call may take", "for all of its time"])
def test_an_endpoint_that_keeps_the_agent_waiting_is_not_the_agents_failure(submit: Any, patience: float) -> None:
    HangingEndpoint.there.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), HangingEndpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            model = {"name": "m", "base_url": f"http://127.0.0.1:{server.server_port}/v1", "timeout": patience}
            limits = {"max_seconds": 1.0}
            bench = submit({}, agent="answering", model={**model, "max_retries": 50}, limits=limits)
            assert bench.execute() == "completed"
        finally:
            server.shutdown()

    first = next(iter(bench.folder.attempts(ROLLOUT)))
    assert first.failure_class == "model_overload"
    assert first.error.startswith("not finished within 1 s: the model's endpoint had not answered for 1 s")
    assert bench.verdict().answer == "4"


def test_a_worker_that_alone_cannot_reach_the_endpoint_gives_up(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others see it answer, so that each outage it notes is soon said to be over."""
    monkeypatch.setattr(rollout, "MOST_OUTAGES", 3)
    monkeypatch.setattr(rollout, "wait_while_out", lambda *_arguments, **_options: True)
    model = {"name": "m", "base_url": "http://127.0.0.1:9/v1", "timeout": 1, "max_retries": 1}
    bench = submit({}, agent="asking", model=model, max_attempts=2)

    assert bench.execute() == "failed"

    assert bench.verdict().failure_class == "model_overload"
    assert len(list(bench.folder.attempts(ROLLOUT))) == 5


def test_a_model_that_cannot_be_set_up_gives_the_vm_back_and_says_which_it_was(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "\u201ckey\u201d")
    bench = submit({})

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.attempt) == ("model", 1)
    assert verdict.error.startswith("the model's configuration: UserError: OPENAI_API_KEY")
    assert verdict.lease is not None
    assert (verdict.lease.vm_id, verdict.score) == ("vm-0", None)
    assert bench.events() == ["granted", "released"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_trajectory_is_written_only_when_it_is_wanted(submit: Any, kept: bool) -> None:
    bench = submit({}, save_results=kept)

    bench.execute()

    assert (bench.folder.attempt(ROLLOUT, 1) / "trajectory.jsonl").exists() is kept


def test_a_pool_without_vms_is_waited_for_in_one_place_of_the_queue(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vm_pool.waiting.EMPTY_SECONDS", 0.2)
    bench = submit({}, vm={"wait_seconds": 30.0}, max_attempts=1)
    bench.pool.remove(["vm-0"])
    seen: set[str] = set()

    def come_late() -> None:
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            seen.update(waiter.token for waiter in bench.pool.status().waiters)
            time.sleep(0.05)
        bench.pool.register("vm-1", VMEndpoint("127.0.0.1", {"control": 1}))

    host = threading.Thread(target=come_late)
    host.start()

    assert bench.execute() == "completed"

    host.join()
    assert bench.verdict().lease is not None
    assert bench.verdict().lease.vm_id == "vm-1"
    assert len(seen) == 1


def test_a_pool_that_stays_without_vms_fails_the_attempt_when_the_wait_is_over(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vm_pool.waiting.EMPTY_SECONDS", 0.2)
    bench = submit({}, vm={"wait_seconds": 1.0}, max_attempts=1)
    bench.pool.remove(["vm-0"])
    began = time.monotonic()

    bench.execute()

    assert time.monotonic() - began >= 1.0
    assert bench.verdict().failure_class == "env_setup"
    assert "PoolEmpty" in bench.verdict().error


def test_news_of_the_end_do_not_interrupt_the_closing(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each heartbeat brings them again, as long as the environment closes."""
    bench = submit({"at": "execute", "raises": "time:sleep"}, max_attempts=1, limits={"max_seconds": 0.3})
    beats = heartbeat.heartbeat(settings().beat_seconds)
    closed: list[str] = []

    def close(_world: object) -> None:
        for _ in range(5):
            assert beats.pulse is not None
            beats.pulse.interruption.request(FailureClass.CANCELLED, "the run was cancelled")
            time.sleep(0.02)
        closed.append("to the end")

    watched.HOOKS["close"] = close

    bench.execute()

    assert closed == ["to the end"]


def test_who_was_asked_to_stop_closes_in_a_hurry(
    submit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that is stopped has less time than a slow guest may take for its recording."""
    monkeypatch.setattr("rollout_tasks.execution.stages.HURRIED_CLEANUP_SECONDS", 0.3)
    bench = submit({}, max_attempts=1)

    def ask(_world: object) -> None:
        pulse = heartbeat.heartbeat(settings().beat_seconds).pulse
        assert pulse is not None
        pulse.interruption.request(FailureClass.CANCELLED, "the run was cancelled")

    watched.HOOKS["execute"] = ask
    watched.HOOKS["close"] = lambda _world: time.sleep(20)

    bench.execute()

    assert (
        f"{ROLLOUT}: environment not closed cleanly: closing the environment took longer than 0.3 s" in caplog.messages
    )


def test_an_environment_that_does_not_close_in_time_takes_no_result_away(
    submit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rollout_tasks.execution.stages.CLEANUP_SECONDS", 0.3)
    bench = submit({}, max_attempts=1)
    watched.HOOKS["close"] = lambda _world: time.sleep(20)

    assert bench.execute() == "completed"

    assert (
        f"{ROLLOUT}: environment not closed cleanly: closing the environment took longer than 0.3 s" in caplog.messages
    )
    assert bench.events() == ["granted", "released"]
