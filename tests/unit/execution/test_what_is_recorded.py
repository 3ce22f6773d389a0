"""What a verdict, an attempt's record and the log say of an execution, and what a run that costs too much becomes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import EnvironmentContext
from rollout_tasks.environments.simulated import SimulatedEnvironment
from rollout_tasks.errors import FailureClass, SubmissionStopped
from rollout_tasks.execution.attempt import Attempt, _stages
from rollout_tasks.execution.checked_environment import CheckedEnvironment
from rollout_tasks.execution.rollout import Execution
from rollout_tasks.models.client import open_model
from rollout_tasks.models.usage_meter import UsageMeter
from rollout_tasks.runs.verdict import Verdict
from tests.unit.execution import watched
from tests.unit.execution.conftest import DELIVERY, ROLLOUT, RUN, Bench
from tests.unit.execution.test_failures import HangingEndpoint

KEY = f"{{run:{RUN}}}"


@dataclass
class Asked:
    """A model's endpoint, and what it was asked: the headers and the bodies."""

    url: str
    headers: list[dict[str, str]]
    bodies: list[dict[str, Any]]


@pytest.fixture
def endpoint() -> Iterator[Asked]:
    asked: list[dict[str, str]] = []
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            asked.append({name.lower(): value for name, value in self.headers.items()})
            message = {"role": "assistant", "content": "4"}
            reply = {
                **{"id": "1", "object": "chat.completion", "created": 1, "model": "m"},
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57},
            }
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not to the test's output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        yield Asked(f"http://127.0.0.1:{server.server_port}/v1", asked, bodies)
        server.shutdown()


def left_by_the_dead(bench: Bench, *, cost: float | None = None) -> None:
    """One attempt failed and is paid for; then its process died."""
    bench.store.claim(RUN, ROLLOUT, {"token": "dead", "message": "m", "worker": "w", "process": ""})
    bench.folder.begin_attempt(ROLLOUT, 1)
    bench.folder.write_attempt(Verdict(ROLLOUT, 1, "failed", failure_class=FailureClass.VM_LOST, cost=cost))
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 1.0})


def log_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "rollout_tasks.execution.rollout"]


@pytest.mark.parametrize(("agent", "failure"), [("asking", "parse"), ("answering", None)])
def test_an_attempt_says_what_it_cost_and_asks_under_a_name_of_its_own(
    submit: Any, endpoint: Asked, agent: str, failure: str | None
) -> None:
    model = {"name": "m", "base_url": endpoint.url, "prompt_price": 1000.0, "completion_price": 10_000.0}
    bench = submit({"needs_vm": False}, agent=agent, model=model)

    bench.execute()

    assert (bench.verdict().failure_class, bench.verdict().cost) == (failure, pytest.approx(0.05 + 0.07))
    (headers,) = endpoint.headers
    assert any(RUN in value and "item" in value for value in headers.values()), headers
    record = (bench.folder.attempt(ROLLOUT, 1) / "trajectory.jsonl").read_text().splitlines()
    assert json.loads(record[0])["header"]["model"] == "m"


@pytest.mark.parametrize(("seed", "index", "sampled_with"), [(7, 0, 7), (7, 3, 10), (None, 3, None)])
def test_each_rollout_of_an_item_is_sampled_with_a_seed_of_its_own(
    submit: Any, endpoint: Asked, seed: int | None, index: int, sampled_with: int | None
) -> None:
    """One seed for all would make them all alike, and their rewards never differ."""
    model = {"name": "m", "base_url": endpoint.url, "seed": seed}
    bench = submit({"needs_vm": False}, rollout=f"item#{index}", agent="answering", model=model, rollouts_per_item=4)

    bench.execute()

    assert [body.get("seed") for body in endpoint.bodies] == [sampled_with]


@pytest.mark.parametrize("asked", [True, False])
def test_a_verdict_says_what_keeps_a_trainer_from_using_the_attempts_record(
    submit: Any, endpoint: Asked, asked: bool
) -> None:
    """Tokens were asked for, and the endpoint does not tell them."""
    model = {"name": "m", "base_url": endpoint.url, "extra_body": {"return_token_ids": True} if asked else {}}
    bench = submit({"needs_vm": False}, agent="recording", model=model)

    bench.execute()

    problem = f"{bench.folder.attempt(ROLLOUT, 1)}: call 1 has no token ids of its prompt: its engine did not tell them"
    assert bench.verdict().status == "completed"
    assert bench.verdict().record_problem == (problem if asked else "")
    assert bench.verdict().as_result().record_problem == bench.verdict().record_problem


@pytest.mark.parametrize(
    ("profile", "recorded"),
    [(None, None), ({"name": "own", "version": "2", "protocol": "qwen"}, {"name": "own", "version": "2"})],
)
@pytest.mark.parametrize(("agent", "played"), [(None, "simulated"), ("answering", "answering")])
def test_a_record_says_who_played(
    tmp_path: Path, agent: str | None, played: str, profile: Any, recorded: dict[str, str] | None
) -> None:
    config = RunConfig(agent=agent, profile=profile)
    attempt = Attempt(RUN, ROLLOUT, 1, Item(id="item", question="?"), config, tmp_path, "worker")

    header = attempt._header(SimulatedEnvironment, None)

    assert (header["agent"], header["profile"]) == (played, recorded)


@pytest.mark.parametrize("at", [None, "execute"])
def test_a_verdict_says_where_the_items_code_ran_and_who_vouches_for_its_score(
    submit: Any, monkeypatch: pytest.MonkeyPatch, at: str | None
) -> None:
    monkeypatch.setattr(watched.WatchedEnvironment, "task_code", "cell")
    monkeypatch.setattr(watched.WatchedEnvironment, "attestation", "unattested")
    bench = submit({"at": at, "needs_vm": False}, max_attempts=1)

    bench.execute()

    verdict = bench.verdict()
    assert verdict.status == ("failed" if at else "completed")
    assert (verdict.task_code, verdict.attestation) == ("cell", "unattested")


def test_an_environment_knows_which_of_its_items_rollouts_it_is_for(submit: Any) -> None:
    bench = submit({"needs_vm": False})
    bench.client.sadd(f"{KEY}:pending", "item#3")
    seen: list[int] = []
    watched.HOOKS["init"] = lambda world: seen.append(world.context.index)

    assert Execution(bench.store, RUN, "item#3", DELIVERY).run() == "completed"
    assert seen == [3]


def test_stages_are_told_to_the_millisecond(tmp_path: Any) -> None:
    world = CheckedEnvironment(watched.WatchedEnvironment(EnvironmentContext(RunConfig(), tmp_path, None)), None)
    assert world.seconds == {"setup": 0.0, "acting": 0.0, "evaluation": 0.0}
    world.seconds = {"setup": 1.23456, "acting": 0.0, "evaluation": 0.0017}
    meter = UsageMeter(open_model(RunConfig().model, session_id="s", api_key="k", base_url="http://127.0.0.1:9/v1"))
    meter.seconds = 2.71828

    assert _stages(meter, [world]) == {"model": 2.718, "setup": 1.235, "evaluation": 0.002}


def test_a_lease_is_waited_for_seconds_and_not_since_the_machine_began(submit: Any) -> None:
    bench = submit({})

    bench.execute()

    assert bench.verdict().lease is not None
    assert 0 <= bench.verdict().lease.waited < 30


@pytest.mark.parametrize(
    ("fails_as", "told"),
    [("parse", "lease_lost"), ("max_turns", "lease_lost"), ("model", "model"), (None, "lease_lost")],
)
def test_a_lease_that_had_ended_takes_the_agents_failures_away_and_no_others(
    submit: Any, fails_as: str | None, told: str
) -> None:
    item = {"at": "execute", "fails_as": fails_as} if fails_as else {}
    bench = submit(item, max_attempts=1)
    watched.HOOKS["execute"] = lambda _world: bench.pool.force_release("vm-0")

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().score) == (told, None)


def test_only_a_failure_that_is_tried_again_is_warned_of(submit: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench = submit({"at": "execute", "fails_as": "env_step", "needs_vm": False}, max_attempts=3)

    assert bench.execute() == "failed"

    assert bench.verdict().attempt == 3
    assert log_of(caplog) == [f"{ROLLOUT}: attempt {number} failed (env_step: said)" for number in (1, 2)]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_last_attempts_result_becomes_the_rollouts_and_is_not_written_anew(submit: Any, cancelled: bool) -> None:
    bench = submit({"at": "execute", "fails_as": "env_step", "needs_vm": False}, max_attempts=1 + cancelled)
    if cancelled:  # no beat has told it yet
        watched.HOOKS["close"] = lambda _world: bench.store.cancel(RUN)

    assert bench.execute() == "failed"

    assert (bench.verdict().failure_class, bench.verdict().attempt) == ("env_step", 1)
    mine = bench.folder.attempt(ROLLOUT, 1) / "result.json"
    assert mine.samefile(bench.folder.rollout(ROLLOUT) / "result.json")


@pytest.mark.parametrize("ended", ["exhausted", "cancelled"])
def test_a_verdict_without_an_attempt_says_what_the_earlier_ones_cost(submit: Any, ended: str) -> None:
    bench = submit({}, max_attempts=1)
    left_by_the_dead(bench, cost=0.5)
    if ended == "cancelled":
        bench.client.hset(KEY, "state", "cancelling")

    bench.execute()

    verdict = bench.verdict()
    assert verdict.failure_class == ("cancelled" if ended == "cancelled" else "worker_lost")
    assert (verdict.cost, verdict.earlier_cost, verdict.total_cost) == (None, 0.5, 0.5)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_run_that_has_cost_what_it_may_is_cancelled_and_asks_for_its_report(
    submit: Any, caplog: pytest.LogCaptureFixture, others: int
) -> None:
    bench = submit({"needs_vm": False}, max_cost=0.5)
    left_by_the_dead(bench, cost=0.5)
    bench.client.hset(KEY, "total", 1 + others)
    for number in range(1, 1 + others):
        bench.client.sadd(f"{KEY}:pending", f"item#{number}")

    assert bench.execute() == "completed"

    why = "the run has reached its --max-cost of $0.50"
    rest = [verdict for verdict in bench.store.verdicts(RUN) if verdict.rollout_id != ROLLOUT]
    assert [(verdict.status, verdict.error) for verdict in rest] == [("cancelled", why)] * others
    assert bench.client.llen("finalize") == (1 if others else 0), "the chord asks for it where nothing is cancelled"
    assert (f"run {RUN}: {why}; the rest is cancelled" in caplog.messages) is bool(others)


def test_a_run_that_costs_too_much_and_is_busy_elsewhere_is_not_over_yet(submit: Any) -> None:
    bench = submit({"needs_vm": False}, max_cost=0.5)
    left_by_the_dead(bench, cost=0.5)
    bench.client.hset(KEY, "total", 2)
    bench.client.sadd(f"{KEY}:pending", "item#1")
    assert bench.store.claim(RUN, "item#1", {"token": "other", "message": "m"}).status == "claimed"

    assert bench.execute() == "completed"

    assert bench.store.state(RUN) == "cancelling"
    assert bench.client.llen("finalize") == 0


def test_an_agent_that_took_most_of_its_time_itself_has_failed_itself(submit: Any) -> None:
    HangingEndpoint.there.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), HangingEndpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            model = {"name": "m", "base_url": f"http://127.0.0.1:{server.server_port}/v1", "timeout": 60}
            bench = submit({"needs_vm": False}, agent="late", model=model, limits={"max_seconds": 2.0})
            assert bench.execute() == "failed"
        finally:
            HangingEndpoint.there.set()
            server.shutdown()

    verdict = bench.verdict()
    assert (verdict.failure_class, verdict.error, verdict.attempt) == ("timeout", "not finished within 2 s", 1)


def test_an_interrupted_submission_carries_what_there_is_to_say() -> None:
    stopped = SubmissionStopped("the run goes on")

    assert (stopped.sentence, str(stopped), isinstance(stopped, KeyboardInterrupt)) == (
        "the run goes on",
        "the run goes on",
        True,
    )


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_an_unfinished_episode_is_scored_where_its_environment_says_so(submit: Any, score: float) -> None:
    """As OSWorld does: what was left on the desktop counts."""
    unfinished = {"at": "execute", "fails_as": "max_turns", "needs_vm": False, "score": score}
    bench = submit({"env_mode": "unfinished", **unfinished})

    assert bench.execute() == "completed"

    verdict = bench.verdict()
    assert (verdict.score, verdict.ending, verdict.failure_class, verdict.answer) == (score, "max_turns", None, "")
    assert [what for what, _ in watched.CALLS][-2:] == ["evaluate", "close"]


@pytest.mark.parametrize(
    ("env_mode", "fails_as"), [("watched", "max_turns"), ("unfinished", "parse"), ("unfinished", "timeout")]
)
def test_any_other_unfinished_episode_has_no_score(submit: Any, env_mode: str, fails_as: str) -> None:
    bench = submit({"env_mode": env_mode, "at": "execute", "fails_as": fails_as, "needs_vm": False})

    assert bench.execute() == "failed"

    assert (bench.verdict().score, bench.verdict().failure_class) == (None, fails_as)
    assert "evaluate" not in [what for what, _ in watched.CALLS]
