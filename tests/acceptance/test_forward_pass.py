"""What is exported is what the model saw and sampled: its own forward pass over the exported traces says the same of each token.

Four agents that drop pictures each in their own way act on real desktops with a tiny model, which vLLM serves and samples without
any constraint. The forward pass is transformers', from the two Parquet files alone. Each known way to break an export is tried
once, and is found.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from rollout_tasks import RunResult, embedded_services
from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.agents.profiles.packaged_text import read_text
from rollout_tasks.environments.osworld.action_spaces import computer_13
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.models.pool.replicas import Replica
from rollout_tasks.models.served import VersionSpan
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.sampled_calls import read_sampled
from rollout_tasks.trajectories.traces import Output, Trace, TraceError, check_traces
from tests.acceptance.commands import rollouts
from tests.acceptance.policies.served_policy import (
    MODEL,
    SCRIPTS,
    Export,
    lines_of,
    own_environment,
    read_export,
    rolled_out,
    served,
    trained,
    write_tasks,
)
from tests.cpu_vllm import MINUTES, run_script, vllm_environment
from tests.desktops import needs_local_desktops

pytest.importorskip("mm_agents", reason="the texts of profiles come from OSWorld's own agents")
pytestmark = [pytest.mark.slow, needs_local_desktops, pytest.mark.timeout(2 * 60 * MINUTES)]

LARGEST_DIFFERENCE = 0.001
"""Of two log-probabilities of one token, both in float32."""
FEWEST_EPISODES, STEPS = 20, range(6, 16)
AGENTS: dict[str, dict[str, Any]] = {
    "uitars-1.5": {"limits": {"max_turns": 13}},
    "qwen2.5-vl": {"limits": {"max_turns": 12}},
    "opencua": {"limits": {"max_turns": 10}, "model": {"temperature": 0.7}},
    "tool_calling": {"limits": {"max_turns": 11}, "model": {"max_images": 3}},
}
DESKTOPS = 2
TASKS, ROLLOUTS = 2, 6
TEXT_REPLY = (
    "<think>WORD WORD WORD</think>\nThought: WORD WORD.\n"
    '<tool_call>{"name": "computer_use", "arguments": {"action": "right_click", "coordinate": [NNN, NNN]}}</tool_call>\n'
    "```python\npyautogui.rightClick(x=0.NNN, y=0.NNN)\n```\n"
    "Action: right_single(start_box='(NNN,NNN)')"
)
"""Which each of the three text protocols can read."""
TOOL_REPLY = 'WORD.<tool_call>{"name": "desktop_mouse_right_click", "arguments": {"x": NNN, "y": NNN}}</tool_call>'


def lessons() -> dict[str, Any]:
    texts = [BUILT_IN[name].prompts for name in AGENTS if name in BUILT_IN]
    corpus = [read_text(text) for one in texts for text in (one.system, one.task) if text is not None]
    corpus.append(json.dumps([tool.as_openai() for tool in computer_13.tools(View((1920, 1080)))]))
    replies = [{"text": TEXT_REPLY, "tools": False}, {"text": TOOL_REPLY, "tools": True}]
    return {"corpus": corpus, "replies": replies, "parted": 0.15}


def task(number: int) -> dict[str, Any]:
    """A task in which a dark desktop is seen, or a light window on it."""
    opened = [
        {"type": "execute", "parameters": {"command": "seq 99 > ~/Documents/list.txt", "shell": True}},
        {"type": "open", "parameters": {"path": "/home/user/Documents/list.txt"}},
        {"type": "sleep", "parameters": {"seconds": 3}},
    ]
    return {
        "id": f"look-{number}",
        "snapshot": "desktop",
        "instruction": f"Look at the desktop, number {number}.",
        "related_apps": ["os"],
        "config": opened if number % 2 else [],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": "cat ~/never", "shell": True},
            "expected": {"type": "rule", "rules": {"expected": "never\n"}},
        },
    }


@dataclass(frozen=True)
class Played:
    """What was rolled out, and what is exported of it."""

    vllm: Path
    checkpoint: Path
    folder: Path
    runs: dict[str, RunResult]
    export: Export
    said: list[dict[str, Any]]
    """What the model says of each exported row in a forward pass."""
    again: list[list[dict[str, Any]]]
    """For each row and output, its tokens' texts, and the ids of its text when it is tokenised again."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder, vllm = tmp_path_factory.mktemp("played"), vllm_environment()
    checkpoint = trained(vllm, folder / "policy", lessons())
    tasks = write_tasks(folder / "tasks", [task(number) for number in range(TASKS)])
    runs: dict[str, RunResult] = {}
    with (
        own_environment(folder / "work"),
        embedded_services(DESKTOPS, num_vms=DESKTOPS, logs=folder / "logs") as redis_url,
        served(vllm, folder / "serving", redis_url, checkpoint),
    ):
        for agent, options in AGENTS.items():
            values = {"agent": agent, "rollouts_per_item": ROLLOUTS, **options}
            runs[agent] = rolled_out(tasks, folder / "results", agent, values)
    for run in runs.values():
        done = rollouts(folder, "export", str(run.folder))
        assert done.returncode == 0, done.stderr
        print(done.stdout, done.stderr)
    export = read_export(*(run.folder / "training" for run in runs.values()))
    said = export.said_by_model(vllm, checkpoint, folder / "forward")
    run_script(
        vllm, SCRIPTS / "token_texts.py", checkpoint, folder / "forward" / "rows.jsonl", folder / "forward" / "texts"
    )
    return Played(vllm, checkpoint, folder, runs, export, said, lines_of(folder / "forward" / "texts"))


def attempt_of(played: Played, row: dict[str, Any]) -> Path:
    run = RunFolder(played.runs[row["run_id"]].folder)
    return run.attempt(rollout_id_of(row["item_id"], row["rollout"]), row["attempt"])


def sampled_in(attempt: Path) -> list[tuple[list[int], list[int], list[float]]]:
    """The prompt, the sampled tokens and their log-probabilities of each call, as they stand in the record."""
    replies = [line["reply"] for line in lines_of(attempt / "trajectory.jsonl") if "reply" in line]
    return [tuple(one["token_data"][name] for name in ("prompt_token_ids", "token_ids", "logprobs")) for one in replies]


def test_there_are_enough_episodes_and_agents(played: Played) -> None:
    steps = Counter[str]()
    for row in played.export.rows:
        lines = lines_of(attempt_of(played, row) / "trajectory.jsonl")
        steps[str(attempt_of(played, row))] = sum(line["kind"] == "step" for line in lines)
    long = [count for count in steps.values() if count in STEPS]
    print(f"{len(steps)} episodes, {len(long)} of 6 to 15 steps, {sum(steps.values())} steps")
    assert len(long) >= FEWEST_EPISODES
    assert {row["run_id"] for row in played.export.rows} == set(AGENTS)
    assert {span["version"] for row in played.export.rows for span in row["versions"]} == {"step-1"}


def test_pictures_were_dropped_and_texts_changed_on_the_way(played: Played) -> None:
    """So that episodes have several traces, and some of these several calls."""
    for agent in AGENTS:
        rows = [row for row in played.export.rows if row["run_id"] == agent]
        print(agent, len(rows), "traces,", Counter(len(row["outputs"]) for row in rows), "calls in them")
        assert len(rows) > TASKS * ROLLOUTS, agent
    assert any(len(row["outputs"]) > 2 for row in played.export.rows)


def test_each_sampled_token_is_in_exactly_one_trace(played: Played) -> None:
    found: dict[Path, dict[int, tuple[list[int], list[int], list[float]]]] = {}
    for row in played.export.rows:
        calls = found.setdefault(attempt_of(played, row), {})
        reached = 0
        for one in row["outputs"]:
            start, end = one["start"], one["end"]
            assert one["call"] not in calls, "it is in two traces"
            assert row["sampled"][reached:end] == [False] * (start - reached) + [True] * (end - start)
            calls[one["call"]] = (row["ids"][:start], row["ids"][start:end], row["logprobs"][start:end])
            reached = end
        assert reached == len(row["ids"]) == len(row["sampled"]) == len(row["logprobs"])
    for attempt, calls in found.items():
        assert [calls[number] for number in sorted(calls)] == sampled_in(attempt)
    episodes = sum(len(list(run.results())) for run in played.runs.values())
    assert len(found) == episodes


def test_the_model_says_the_same_of_each_sampled_token(played: Played) -> None:
    differences = []
    for row, said in zip(played.export.rows, played.said, strict=True):
        assert "refused" not in said, said["refused"]
        differences += differences_of(row, said)
    assert len(differences) == sum(sum(row["sampled"]) for row in played.export.rows)
    print(f"float32: {figures(differences)}")
    assert max(differences) <= LARGEST_DIFFERENCE


def test_a_picture_is_what_its_name_says(played: Played) -> None:
    named = {name for row in played.export.rows for name in row["pictures"]}
    assert named == set(played.export.pictures)
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in played.export.pictures.items())


def differences_of(row: dict[str, Any], said: dict[str, Any]) -> list[float]:
    sampled = [one for one, is_sampled in zip(row["logprobs"], row["sampled"], strict=True) if is_sampled]
    return [abs(one - other) for one, other in zip(sampled, said["logprobs"], strict=True)]


def figures(differences: list[float]) -> str:
    ordered = sorted(differences)
    middle, most = ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))]
    return (
        f"{len(ordered)} tokens, differences of log-probabilities: largest {ordered[-1]:.2e},"
        f" 99th percentile {most:.2e}, median {middle:.2e}, mean {sum(ordered) / len(ordered):.2e}"
    )


Row = dict[str, Any]
Failure = Callable[[Played, int], Row | None]
"""Returns a row with the failure, given its number; None where it could make no difference."""


def image_token(played: Played) -> int:
    return int(json.loads((played.checkpoint / "config.json").read_text())["image_token_id"])


def changed(row: Row, first: int, end: int, ids: list[int], sampled: list[bool], logprobs: list[float]) -> Row:
    """A row with other tokens in a place; outputs after it move."""
    moved = len(ids) - (end - first)
    parts = {"ids": ids, "sampled": sampled, "logprobs": logprobs}
    outputs = [
        {
            **one,
            "start": one["start"] + moved * (one["start"] >= end),
            "end": one["end"] + moved * (one["end"] >= end),
        }
        for one in row["outputs"]
    ]
    return {
        **row,
        **{name: row[name][:first] + part + row[name][end:] for name, part in parts.items()},
        "outputs": outputs,
    }


def first_picture(row: Row, image: int) -> tuple[int, int]:
    """Where the places of the first picture begin and end."""
    first = row["ids"].index(image)
    end = first
    while row["ids"][end] == image:
        end += 1
    return first, end


def expanded_twice(played: Played, number: int) -> Row | None:
    row, image = played.export.rows[number], image_token(played)
    first, end = first_picture(row, image)
    again = (end - first) ** 2
    return changed(row, first, end, [image] * again, [False] * again, [0.0] * again)


def not_expanded(played: Played, number: int) -> Row | None:
    row, image = played.export.rows[number], image_token(played)
    first, end = first_picture(row, image)
    return changed(row, first, end, [image], [False], [0.0])


def picture_lost(played: Played, number: int) -> Row | None:
    row = played.export.rows[number]
    return {**row, "pictures": row["pictures"][1:]}


def picture_lost_with_its_places(played: Played, number: int) -> Row | None:
    row = played.export.rows[number]
    first, end = first_picture(row, image_token(played))
    return {**changed(row, first, end, [], [], []), "pictures": row["pictures"][1:]}


def picture_swapped(played: Played, number: int) -> Row | None:
    """The last picture becomes the first one of the other task, where their sizes are the same."""
    row = played.export.rows[number]
    others = [one for one in played.export.rows if one["item_id"] != row["item_id"] and one["run_id"] == row["run_id"]]
    last, other = row["pictures"][-1], others[0]["pictures"][0]
    same = picture(played, last).size == picture(played, other).size
    return {**row, "pictures": [*row["pictures"][:-1], other]} if same and last != other else None


def picture(played: Played, name: str) -> Image.Image:
    return Image.open(io.BytesIO(played.export.pictures[name]))


def tokenised_again(played: Played, number: int) -> Row | None:
    """The first reply whose text has other tokens when it is tokenised again has those, with as many of its log-probabilities."""
    row = played.export.rows[number]
    for one, found in zip(row["outputs"], played.again[number], strict=True):
        start, end, again = one["start"], one["end"], found["again"]
        if row["ids"][start:end] != again:
            logprobs = (row["logprobs"][start:end] + [row["logprobs"][end - 1]] * len(again))[: len(again)]
            return changed(row, start, end, again, [True] * len(again), logprobs)
    return None


def without_reasoning(played: Played, number: int) -> Row | None:
    """What was thought in the first reply is not in the prompts of the others."""
    row, texts = played.export.rows[number], played.again[number][0]["texts"]
    if len(row["outputs"]) < 2 or "</think>" not in "".join(texts):
        return None
    length = next(count for count in range(len(texts) + 1) if "</think>" in "".join(texts[:count]))
    start = row["outputs"][0]["start"]
    return changed(row, start, start + length, [], [], [])


FAILURES: dict[str, Failure] = {
    "pictures expanded twice": expanded_twice,
    "pictures not expanded": not_expanded,
    "a picture lost": picture_lost,
    "a picture lost with its places": picture_lost_with_its_places,
    "a picture swapped": picture_swapped,
    "text tokenised again": tokenised_again,
    "reasoning removed": without_reasoning,
}
TRIED = 4
"""Rows with each failure."""
SOMETIMES = {"a picture swapped"}
"""Failures that make no difference where a reply does not depend on what changed: seen in one row at least, not in each."""


def with_failure(played: Played, failure: Failure) -> dict[int, Row]:
    """Rows with a failure, by their number; from all agents where it is possible."""
    found: dict[int, Row] = {}
    numbers = sorted(range(len(played.export.rows)), key=lambda number: (number * 7919) % len(played.export.rows))
    for number in numbers:
        if len(found) < TRIED and (row := failure(played, number)) is not None:
            found[number] = row
    return found


@pytest.mark.parametrize("name", FAILURES)
def test_the_forward_pass_finds(name: str, played: Played, tmp_path: Path) -> None:
    rows = with_failure(played, FAILURES[name])
    assert rows, "no trace in which it makes a difference"
    bad = replace(played.export, rows=list(rows.values()))
    found = []
    for number, row, said in zip(
        rows, bad.rows, bad.said_by_model(played.vllm, played.checkpoint, tmp_path), strict=True
    ):
        if "refused" not in said:
            differences = differences_of(row, said)
            print(f"{name}, row {number}: {figures(differences)}")
            found.append(max(differences) > LARGEST_DIFFERENCE)
        else:
            print(f"{name}, row {number}: {said['refused']}")
            found.append(True)
    assert any(found) if name in SOMETIMES else all(found)


def trace_of(row: Row) -> Trace:
    return Trace(
        outputs=tuple(Output(**one) for one in row["outputs"]),
        ids=tuple(row["ids"]),
        sampled=tuple(row["sampled"]),
        logprobs=tuple(row["logprobs"]),
        pictures=tuple(row["pictures"]),
        spans=tuple(VersionSpan(**one) for one in row["versions"]),
        model=row["model"],
    )


def beside(played: Played, number: int) -> list[int]:
    """The numbers of the rows of one rollout."""
    row = played.export.rows[number]
    names = ("run_id", "item_id", "rollout")
    return [place for place, other in enumerate(played.export.rows) if all(other[name] == row[name] for name in names)]


@pytest.mark.parametrize("name", FAILURES)
def test_the_check_of_traces_finds(name: str, played: Played) -> None:
    for number, row in with_failure(played, FAILURES[name]).items():
        calls = read_sampled(attempt_of(played, row)).calls
        good = {place: trace_of(played.export.rows[place]) for place in beside(played, number)}
        check_traces(list(good.values()), calls)
        with pytest.raises(TraceError):
            check_traces(list({**good, number: trace_of(row)}.values()), calls)


ASKED_AGAIN = 40


def test_how_much_less_exact_bfloat16_is(played: Played, redis_url: str, tmp_path: Path) -> None:
    """Only told: the prompts of some calls are sampled again by a server that computes in bfloat16."""
    with served(played.vllm, tmp_path / "serving", redis_url, played.checkpoint, "bfloat16") as replica:
        rows = [
            sampled_again(played, replica, row) for row in played.export.rows[:: len(played.export.rows) // ASKED_AGAIN]
        ]
    again = replace(played.export, rows=rows)
    for dtype in ("bfloat16", "float32"):
        said = again.said_by_model(played.vllm, played.checkpoint, tmp_path / dtype, dtype)
        differences = [one for row, found in zip(rows, said, strict=True) for one in differences_of(row, found)]
        print(f"sampled in bfloat16, forward pass in {dtype}: {figures(differences)}")


def sampled_again(played: Played, replica: Replica, row: Row) -> Row:
    """Returns a trace of the prompt of a row's first call, sampled anew."""
    trajectory = read_trajectory(attempt_of(played, row))
    reply = trajectory.replies[row["outputs"][0]["call"] - 1]
    asked: dict[str, Any] = {"model": MODEL, "messages": trajectory.prompt(reply), "max_tokens": 100, "logprobs": True}
    asked["return_token_ids"] = True
    said = httpx.post(f"{replica.base_url}/chat/completions", json=asked, timeout=300).raise_for_status().json()
    prompt, output = said["prompt_token_ids"], said["choices"][0]["token_ids"]
    logprobs = [one["logprob"] for one in said["choices"][0]["logprobs"]["content"]]
    return {
        "ids": prompt + output,
        "sampled": [False] * len(prompt) + [True] * len(output),
        "logprobs": [0.0] * len(prompt) + logprobs,
        "pictures": row["pictures"][: prompt_pictures(played, prompt)],
    }


def prompt_pictures(played: Played, prompt: list[int]) -> int:
    """Returns how many pictures a prompt has: each stands between two tokens of its own."""
    begins = int(json.loads((played.checkpoint / "config.json").read_text())["vision_start_token_id"])
    return prompt.count(begins)
