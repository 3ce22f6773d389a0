"""The Python API, as a program, a notebook's event loop and a program of the multi-process framework use it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmark import Benchmark, BenchmarkError
from rollout_tasks import (
    ParallelRolloutConfig,
    RunConfig,
    UserError,
    embedded_services,
    find,
    run,
    serve_function,
    submit,
)
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.groups import Group
from tests.acceptance.multi_process_program import PRINTED, PROGRAM
from tests.conftest import REPOSITORY

ITEMS = REPOSITORY / "examples" / "items.jsonl"
SIMULATED = {"env_mode": "simulated", "simulated": {"seconds": [0.1, 0.3], "needs_vm": False}, "evaluate_results": True}


@pytest.fixture(autouse=True)
def no_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The embedded services and the scripted model, and a folder of the test's own."""
    for name in ("REDIS_URL", "ROLLOUT_REDIS_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.chdir(tmp_path)


def simulated_items(folder: Path, count: int) -> Path:
    path = folder / "work.jsonl"
    path.write_text("".join(json.dumps({"id": f"item-{n}", "question": "work"}) + "\n" for n in range(count)))
    return path


def test_a_run_in_one_call(tmp_path: Path) -> None:
    benchmark = Benchmark(ITEMS, limit=5)
    config = RunConfig(env_mode="math", metric="final_number", output_dir=tmp_path / "results")

    result = run(config, benchmark)

    assert (result.score, result.folder.parent) == (1.0, tmp_path / "results")
    assert [item.item_id for item in result.results()] == [item.id for item in benchmark]
    assert all(one.status == "completed" and one.answer for one in result.results())
    assert [row["score"] for row in result.rows()] == [1.0] * 5
    assert result.report.read_text().startswith("**The answers in this report came from the scripted model")


@pytest.mark.slow
def test_a_run_on_workers_whose_results_are_taken_as_they_come(tmp_path: Path) -> None:
    config = RunConfig.model_validate({**SIMULATED, "output_dir": tmp_path / "results"})

    async def results() -> tuple[str, list[str]]:
        submitted = await asyncio.to_thread(submit, config, Benchmark(simulated_items(tmp_path, 6)))
        return submitted.run_id, [result.item_id async for result in submitted]

    with embedded_services(2, logs=tmp_path / "logs"):
        run_id, came = asyncio.run(results())
        again = find(run_id, tmp_path / "results")
        assert again.wait(60).score is not None
        assert again.progress().completed == 6
    assert sorted(came) == [f"item-{n}" for n in range(6)]
    assert again.progress().completed == 6, "its folder tells it when the services are gone"


def test_a_trainer_takes_each_group_as_it_ends_while_it_samples_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each item's three rollouts, its own sampler is right in as many as the item says."""
    path = tmp_path / "work.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"item-{n}", "question": f"right {n}", "answer": "42"}) + "\n" for n in range(4))
    )
    asked = Counter[str]()

    def sample(request: dict[str, Any]) -> dict[str, Any]:
        question = str(request["messages"][-1]["content"]).split()[-1]
        asked[question] += 1
        message = {"role": "assistant", "content": "42" if asked[question] <= int(question) else "41"}
        logprobs = {"content": [{"token": "4", "logprob": -0.5}, {"token": "2", "logprob": -0.25}]}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "stop",
            "token_ids": [8, int(question)],
            "logprobs": logprobs,
        }
        return {"model": "policy", "prompt_token_ids": [5, 6, 7], "choices": [choice]}

    with serve_function(sample, "policy") as endpoint:
        monkeypatch.setenv("OPENAI_API_KEY", endpoint.api_key)
        config = RunConfig.model_validate(
            {
                "env_mode": "math",
                "metric": "exact_match",
                "rollouts_per_item": 3,
                "model": {
                    "name": "policy",
                    "base_url": endpoint.base_url,
                    "extra_body": {"return_token_ids": True, "logprobs": True},
                },
                "output_dir": tmp_path / "results",
            }
        )

        async def groups() -> list[Group]:
            submitted = await asyncio.to_thread(submit, config, Benchmark(path))
            return [group async for group in submitted.groups()]

        with embedded_services(2, logs=tmp_path / "logs"):
            came = asyncio.run(groups())

    assert {group.item_id: sum(group.rewards) for group in came} == {f"item-{n}": n for n in range(4)}
    assert [group.item_id for group in came if group.is_level] == [
        group.item_id for group in came if group.item_id in {"item-0", "item-3"}
    ]
    traces = [(group.item_id, trace) for group in came for rollout in group.rollouts for trace in rollout.traces]
    assert len(traces) == 12
    for name, trace in traces:
        assert trace.ids == (5, 6, 7, 8, int(name.removeprefix("item-")))
        assert trace.logprobs == (0.0, 0.0, 0.0, -0.5, -0.25)


@pytest.mark.slow
def test_a_rollout_that_is_tried_again_comes_once_with_its_verdict(tmp_path: Path) -> None:
    simulated = {"seconds": [1, 1], "needs_vm": False, "fail": "vm_lost"}
    config = RunConfig.model_validate({**SIMULATED, "simulated": simulated, "output_dir": tmp_path / "results"})

    async def results() -> list[tuple[str, str]]:
        submitted = await asyncio.to_thread(submit, config, Benchmark(simulated_items(tmp_path, 4)))
        return [(result.item_id, result.status) async for result in submitted]

    with embedded_services(2, logs=tmp_path / "logs"):
        came = asyncio.run(results())

    assert sorted(came) == [(f"item-{n}", "completed") for n in range(4)]


@pytest.mark.slow
def test_a_run_that_needs_vms_is_accepted_at_once(tmp_path: Path) -> None:
    config = RunConfig.model_validate(
        {**SIMULATED, "simulated": {"seconds": [0.1, 0.1]}, "output_dir": tmp_path / "results"}
    )

    with embedded_services(2, num_vms=2, provider="simulated", logs=tmp_path / "logs"):
        assert submit(config, Benchmark(simulated_items(tmp_path, 2))).wait(60).score == 1.0


@pytest.mark.slow
def test_services_that_do_not_start_are_named(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"^worker ended by itself \(exit code 2\); see .*worker\.log: error: .*nope"),
        embedded_services(1, num_vms=1, provider="nope", logs=tmp_path / "logs"),
    ):
        pytest.fail("the block began")


@pytest.mark.slow
def test_a_run_has_the_numbers_that_it_was_given(tmp_path: Path) -> None:
    body = {"min_p": 1e-05, "large": 1e16, "text": "1e-05"}
    values = {**SIMULATED, "model": {"extra_body": body}, "output_dir": tmp_path / "results"}

    result = run(RunConfig.model_validate(values), Benchmark(simulated_items(tmp_path, 1)))

    assert RunFolder(result.folder).description.config().model.extra_body == body


@pytest.mark.slow
def test_an_incomplete_run_that_redis_does_not_know_is_not_waited_for(tmp_path: Path) -> None:
    with embedded_services(1, logs=tmp_path / "logs") as redis_url:
        values = {
            **SIMULATED,
            "simulated": {"seconds": [30, 30], "needs_vm": False},
            "output_dir": tmp_path / "results",
        }
        submitted = submit(RunConfig.model_validate(values), Benchmark(simulated_items(tmp_path, 2)))
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()

        with pytest.raises(UserError, match=f"Redis does not know run {submitted.run_id}, and it is incomplete"):
            submitted.wait(20)
    assert submitted.progress().state == "unknown"


@pytest.mark.slow
def test_a_run_is_cancelled(tmp_path: Path) -> None:
    values = {**SIMULATED, "simulated": {"seconds": [30, 30], "needs_vm": False}, "output_dir": tmp_path / "results"}
    with embedded_services(1, logs=tmp_path / "logs"):
        submitted = submit(RunConfig.model_validate(values), Benchmark(simulated_items(tmp_path, 3)))
        with pytest.raises(TimeoutError, match=f"run {submitted.run_id} is not over after 1 s"):
            submitted.wait(1)
        submitted.cancel()
        submitted.wait(60)
        assert submitted.progress().state == "cancelled"


@pytest.mark.slow
def test_a_run_that_costs_as_much_as_it_may_has_a_result_for_each_rollout(tmp_path: Path) -> None:
    model = {"prompt_price": 1000, "completion_price": 2000}
    values = {"env_mode": "math", "metric": "final_number", "max_cost": 1, "num_rollouts": 1, "model": model}
    result = run(RunConfig.model_validate({**values, "output_dir": tmp_path / "results"}), Benchmark(ITEMS, limit=5))

    found = list(result.results())

    assert sorted(one.item_id for one in found) == sorted(item.id for item in Benchmark(ITEMS, limit=5))
    assert result.summary["total_rollouts"] == len(found) == 5
    cancelled = [one.failure_class for one in found if one.status == "cancelled"]
    assert cancelled == ["cancelled"] * result.summary["standings"]["cancelled"]
    assert cancelled


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--env-mode: unknown environment 'maths': did you mean math\?"):
        run(RunConfig(env_mode="maths", output_dir=tmp_path), Benchmark(ITEMS))
    with pytest.raises(UserError, match=r"^env_kwargs: screen_widht is not an option; did you mean screen_width\?$"):
        ParallelRolloutConfig(env_kwargs={"screen_widht": 1}).run_config()
    with pytest.raises(UserError, match=r"^env_kwargs: openai_api_key is a secret"):
        ParallelRolloutConfig(env_kwargs={"openai_api_key": "k"}).run_config()
    with pytest.raises(BenchmarkError, match=r"nothing\.jsonl"):
        Benchmark("nothing.jsonl")
    with pytest.raises(UserError, match="no run 'none'"):
        find("none")


def test_a_benchmark_alone(tmp_path: Path) -> None:
    benchmark = Benchmark(ITEMS, name="examples", limit=2)
    first, second = benchmark.get_items()

    evaluation = benchmark.evaluate({first.id: first.answer, second.id: "no"}, "exact_match")
    report = benchmark.save_report(evaluation, tmp_path / "report")

    assert [row.score for row in evaluation.rows] == [1.0, 0.0]
    assert report.read_text().startswith("# examples")
    assert json.loads((report.parent / "evaluation.json").read_text())["summary"]["average_score"] == 0.5


@pytest.mark.slow
def test_a_program_of_the_multi_process_framework(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(items=str(ITEMS)))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=200, check=False)

    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr
