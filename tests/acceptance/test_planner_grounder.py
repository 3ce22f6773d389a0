"""A planner and a grounder solve a task on a real desktop, each at an endpoint of its own; one of them fails in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.runs.folder import find_run
from rollout_tasks.trajectories.reader import read_trajectory
from tests.acceptance.test_osworld_agents import TEXT, task
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops
from tests.unit.agents.chat_endpoint import ChatEndpoint, said

pytest.importorskip("mm_agents", reason="the texts of profiles come from OSWorld's own agents")
pytestmark = [pytest.mark.slow, needs_local_desktops]

TARGET = "the text of the list in the editor's window"


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    call = {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return said(None, finish_reason="tool_calls", tool_calls=[call])


PLAN = [
    _call("desktop_mouse_click", target=TARGET),
    _call("desktop_hotkey", keys=["ctrl", "a"]),
    _call("desktop_type", text=TEXT),
    _call("desktop_hotkey", keys=["ctrl", "s"]),
    _call("desktop_control", action="done"),
]
MIDDLE = said("Thought: That is the text.\nAction: click(start_box='(966,546)')")


@pytest.fixture(name="endpoints")
def _endpoints() -> Iterator[tuple[ChatEndpoint, ChatEndpoint]]:
    both = ChatEndpoint(), ChatEndpoint()
    yield both
    for endpoint in both:
        endpoint.close()


def test_both_solve_a_task(endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path) -> None:
    planner, grounder = endpoints
    planner.will(*PLAN)
    grounder.will(MIDDLE)
    tasks = tmp_path / "tasks" / "examples" / "editor"
    tasks.mkdir(parents=True)
    (tasks / "shopping.json").write_text(json.dumps(task([])))
    (tmp_path / "tasks" / "test_all.json").write_text(json.dumps({"editor": ["shopping"]}))
    command = [sys.executable, "scripts/submit.py", "--embedded", "--data-path", str(tmp_path / "tasks")]
    command += ["--env-mode", "osworld", "--provider", "local", "--num-vms", "1", "--num-rollouts", "1"]
    command += ["--agent", "planner-grounder", "--model", "policy", "--base-url", planner.url]
    command += ["--model-role", f"grounder=policy,base-url={grounder.url},profile=uitars-1.5"]
    command += ["--sleep-after-execution", "1", "--output-dir", str(tmp_path / "results"), "--run-id", "two", "--json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "REDIS_"))}
    environment["OPENAI_API_KEY"] = "sk-of-the-planner"

    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300)

    assert run.returncode == 0, run.stderr[-4000:]
    folder = find_run("two", tmp_path / "results")
    verdict = folder.verdict("shopping#0")
    assert verdict is not None
    assert (verdict.status, verdict.score, verdict.turns) == ("completed", 1.0, 5), verdict
    assert verdict.usage.total_tokens == (5 + 1) * 15
    assert {"model", "grounder"} <= verdict.stages.keys()
    attempt = folder.attempt(verdict.rollout_id, verdict.attempt)
    steps = read_trajectory(attempt).steps
    assert steps[0].arguments == {"target": TARGET}
    assert '"x": 960' in steps[0].response
    asked = read_trajectory(attempt / "grounder")
    assert asked.prompt(asked.replies[0]) == grounder.bodies[0]["messages"]
    assert f"Click on {TARGET}." in json.dumps(grounder.bodies[0]["messages"])
    assert asked.header == {"role": "grounder", "model": "policy", "profile": "uitars-1.5 1"}
    assert folder.description.agent() == "planner-grounder (grounder: policy, uitars-1.5 1)"
    stored = (folder.path / "run.json").read_text()
    assert grounder.url in stored
    assert "sk-of-the-planner" not in stored
