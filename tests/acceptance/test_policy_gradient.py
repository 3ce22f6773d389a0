"""One whole step of GRPO: rollouts on real desktops, groups, a gradient over the exported traces, new weights in the pool.

The tiny policy puts the pointer into the left or the right half of the screen, as it samples; the task is solved where it is in the
right one. Afterwards vLLM itself finds what was rewarded more likely than before, and what was not less likely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from rollout_tasks import RunResult, embedded_services
from rollout_tasks.models.pool.replicas import Replica
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.trajectories.reader import read_trajectory
from tests.acceptance.commands import rollouts
from tests.acceptance.policies.served_policy import (
    MODEL,
    POOL,
    SCRIPTS,
    Export,
    own_environment,
    read_export,
    rolled_out,
    served,
    trained,
    write_tasks,
)
from tests.cpu_vllm import MINUTES, run_script, vllm_environment
from tests.desktops import needs_local_desktops

pytestmark = [pytest.mark.slow, needs_local_desktops, pytest.mark.timeout(2 * 60 * MINUTES)]

DESKTOPS = 2
TASKS, ROLLOUTS = 2, 8
RATE = 0.01
"""Of a gradient whose length is 1 at most."""
SYSTEM = "You operate a computer. Do this: {instruction} Reply with a thought and an action."
LEFT, RIGHT = 250, 750
ACTED = "finished(content='It is there.')"
REPLY = "Thought: WORD.\nAction: hover(start_box='({across},500)')\n" + ACTED
PROFILE = {
    "name": "pointer",
    "version": "1",
    "protocol": "ui_tars",
    "prompts": {"task": SYSTEM, "task_with": "first_picture"},
    "places": {"span": "grid", "grid": [1000, 1000]},
    "sampling": {"temperature": 1.0, "max_tokens": 100},
}
ACROSS = "python3 -c 'import pyautogui; print(pyautogui.position().x > pyautogui.size().width // 2)'"


def lessons() -> dict[str, Any]:
    texts = [REPLY.format(across=across) for across in (LEFT, RIGHT)]
    return {"corpus": [SYSTEM] * 20, "replies": [{"text": text, "tools": False} for text in texts], "parted": 0}


def task(number: int) -> dict[str, Any]:
    return {
        "id": f"right-{number}",
        "snapshot": "desktop",
        "instruction": f"Put the pointer into the right half of the screen{'!' * number}",
        "related_apps": ["os"],
        "config": [],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": ACROSS, "shell": True},
            "expected": {"type": "rule", "rules": {"expected": "True\n"}},
        },
    }


@dataclass(frozen=True)
class Step:
    """The step, and what there was before and after it."""

    before: RunResult
    after: RunResult
    export: Export
    advantages: dict[tuple[str, int], float]
    """Of each rollout before, by its item and index."""
    logprobs: dict[tuple[str, int], tuple[float, float]]
    """Of each rollout's reply as vLLM tells it, with the weights before and after."""
    loss: str


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Step:
    folder, vllm = tmp_path_factory.mktemp("step"), vllm_environment()
    checkpoint, new = trained(vllm, folder / "policy", lessons()), folder / "policy" / "step-2"
    tasks = write_tasks(folder / "tasks", [task(number) for number in range(TASKS)])
    profile = folder / "pointer.yaml"
    profile.write_text(yaml.safe_dump(PROFILE))
    options = {"agent": str(profile), "rollouts_per_item": ROLLOUTS, "limits": {"max_turns": 3}}
    with (
        own_environment(folder / "work"),
        embedded_services(DESKTOPS, num_vms=DESKTOPS, logs=folder / "logs") as redis_url,
        served(vllm, folder / "serving", redis_url, checkpoint) as replica,
    ):
        before = rolled_out(tasks, folder / "results", "before", options)
        done = rollouts(folder, "export", str(before.folder))
        assert done.returncode == 0, done.stderr
        export, advantages = read_export(before.folder / "training"), advantages_of(before)
        first = {rollout: logprob_of(replica, before, export, rollout) for rollout in advantages}

        rows = [{**row, "advantage": advantages[row["item_id"], row["rollout"]]} for row in export.rows]
        written = Export(rows, export.pictures).written(folder / "gradient")
        loss = run_script(vllm, SCRIPTS / "policy_gradient.py", checkpoint, *written, str(RATE), new)
        reloaded = rollouts(folder, "model", "reload", POOL, str(new), REDIS_URL=redis_url)
        assert reloaded.returncode == 0, reloaded.stderr

        second = {rollout: logprob_of(replica, before, export, rollout) for rollout in advantages}
        after = rolled_out(tasks, folder / "results", "after", options)
    both = {rollout: (first[rollout], second[rollout]) for rollout in advantages}
    return Step(before, after, export, advantages, both, loss)


def advantages_of(run: RunResult) -> dict[tuple[str, int], float]:
    """Those of GRPO: how much better than its group, in the group's standard deviations."""
    found = {}
    for group in run.groups():
        if group.is_level:
            continue
        mean = sum(group.rewards) / len(group.rewards)
        deviation = math.sqrt(sum((one - mean) ** 2 for one in group.rewards) / len(group.rewards))
        for rollout in group.rollouts:
            found[group.item_id, rollout.index] = (rollout.reward - mean) / deviation
    return found


def logprob_of(replica: Replica, run: RunResult, export: Export, rollout: tuple[str, int]) -> float:
    """Returns the log-probability of a rollout's first reply with the weights of now, as vLLM tells it for the ids of the trace."""
    row = next(one for one in export.rows if (one["item_id"], one["rollout"]) == rollout)
    attempt = RunFolder(run.folder).attempt(rollout_id_of(*rollout), row["attempt"])
    trajectory = read_trajectory(attempt)
    reply = trajectory.replies[0]
    messages = [*trajectory.prompt(reply), trajectory.messages[reply.message_index]]
    asked = {
        "model": MODEL,
        "messages": messages,
        "add_generation_prompt": False,
        "prompt_logprobs": 0,
        "return_token_ids": True,
        "max_tokens": 1,
    }
    said = httpx.post(f"{replica.base_url}/chat/completions", json=asked, timeout=120).raise_for_status().json()
    output = row["outputs"][0]
    ids, places = row["ids"][: output["end"]], range(output["start"], output["end"])
    if said["prompt_token_ids"][: len(ids)] != ids:
        return math.nan  # its text has other tokens when it is tokenised again
    return sum(said["prompt_logprobs"][place][str(ids[place])]["logprob"] for place in places)


def rewards(run: RunResult) -> list[float]:
    return [reward for group in run.groups() for reward in group.rewards]


def versions(run: RunResult) -> set[str]:
    return {
        span.version
        for group in run.groups()
        for rollout in group.rollouts
        for trace in rollout.traces
        for span in trace.spans
    }


def test_what_was_sampled_decides_the_reward(step: Step) -> None:
    """It is 1 exactly where the reply that was sampled points into the right half."""
    run = RunFolder(step.before.folder)
    for group in step.before.groups():
        for rollout in group.rollouts:
            attempt = run.attempt(rollout_id_of(group.item_id, rollout.index), rollout.attempt)
            trajectory = read_trajectory(attempt)
            said = trajectory.messages[trajectory.replies[0].message_index]["content"]
            if "hover" in said and ACTED in said:
                assert rollout.reward == float(f"({RIGHT}," in said), said
    assert set(rewards(step.before)) == {0.0, 1.0}


def test_what_was_rewarded_became_likelier_as_vllm_tells_it(step: Step) -> None:
    known = {rollout: both for rollout, both in step.logprobs.items() if not math.isnan(both[0])}
    print(step.loss, f"{len(known)} of {len(step.logprobs)} replies have the same tokens when they are tokenised again")
    for row in step.export.rows:
        rollout, output = (row["item_id"], row["rollout"]), row["outputs"][0]
        if rollout in known and row["trace"] == 0:
            told = sum(row["logprobs"][output["start"] : output["end"]])
            assert told == pytest.approx(known[rollout][0], abs=0.001 * (output["end"] - output["start"]))
    better = [after - before for one, (before, after) in known.items() if step.advantages[one] > 0]
    worse = [after - before for one, (before, after) in known.items() if step.advantages[one] < 0]
    mean, mean_worse = sum(better) / len(better), sum(worse) / len(worse)
    print(f"change of a reply's log-probability: rewarded {mean:+.3f}, not rewarded {mean_worse:+.3f}")
    assert mean > 0 > mean_worse


def test_new_rollouts_have_the_new_weights(step: Step) -> None:
    before, after = rewards(step.before), rewards(step.after)
    print(f"mean reward: before {sum(before) / len(before):.2f}, after {sum(after) / len(after):.2f}")
    assert versions(step.before) == {"step-1"}
    assert versions(step.after) == {"step-2"}
