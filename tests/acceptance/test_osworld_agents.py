"""OSWorld's own agents solve one task on real desktops: each class as installed, its model scripted, in its own protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.runs.folder import find_run
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops

pytest.importorskip("mm_agents", reason="OSWorld's own agents are not installed")
pytestmark = [pytest.mark.slow, needs_local_desktops]

TEXT = "milk and honey"
UI_TARS = [
    "hotkey(key='ctrl a')",
    f"type(content='{TEXT}')",
    "hotkey(key='ctrl s')",
    "finished(content='It is saved.')",
]
CODE = ["pyautogui.hotkey('ctrl', 'a')", f"pyautogui.write('{TEXT}')", "pyautogui.hotkey('ctrl', 's')"]


def _computer(**action: Any) -> dict[str, Any]:
    return {"text": "", "tool_calls": [{"name": "computer", "arguments": {"action": action}}]}


def _claudes(**arguments: Any) -> dict[str, Any]:
    return {"text": "", "tool_calls": [{"name": "computer", "arguments": arguments}]}


def _said(*texts: str) -> list[dict[str, Any]]:
    return [{"text": text} for text in texts]


# ManoAgent sends none of its earlier replies, by which the scripted model knows what comes next, and ends by itself never.
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "uitars_agent.UITARSAgent": _said(*(f"Thought: Go on.\nAction: {action}" for action in UI_TARS)),
    "uitars15_v1.UITARSAgent": _said(*(f"Thought: Go on.\nAction: {action}" for action in UI_TARS)),
    "UITarsAgent": _said(*(f"Thought: Go on.\nAction: {action}" for action in UI_TARS)),
    "OpenCUAAgent": _said(
        *(f"## Thought:\nGo on.\n## Action:\nGo on.\n## Code:\n```python\n{line}\n```" for line in CODE),
        "## Thought:\nIt is saved.\n## Action:\nEnd.\n## Code:\n```code\ncomputer.terminate(status='success')\n```",
    ),
    "O3Agent": _said(*(f"```python\n{line}\n```" for line in CODE), "```DONE```"),
    # It sends no earlier reply, but the beginning of the next one: every prompt is that of the second turn.
    "AguvisAgent": _said("Never asked.", "Action: Write and save it.\n" + "\n".join(CODE)),
    "AnthropicAgent": [
        _claudes(action="key", text="ctrl+a"),
        _claudes(action="type", text=TEXT),
        _claudes(action="key", text="ctrl+s"),
        *_said("It is saved."),
    ],
    "OpenAICUAAgent": [
        _computer(type="keypress", keys=["CTRL", "A"]),
        _computer(type="type", text=TEXT),
        _computer(type="keypress", keys=["CTRL", "S"]),
        *_said("It is saved."),
    ],
}


def task(script: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "shopping",
        "snapshot": "gedit",
        "instruction": f'Replace the list in the editor by "{TEXT}", and save it.',
        "related_apps": ["gedit"],
        "config": [
            {"type": "execute", "parameters": {"command": "echo bread > ~/Documents/list.txt", "shell": True}},
            {"type": "open", "parameters": {"path": "/home/user/Documents/list.txt"}},
            {"type": "sleep", "parameters": {"seconds": 3}},
        ],
        "evaluator": {
            "func": "check_include_exclude",
            "result": {"type": "vm_command_line", "command": "cat ~/Documents/list.txt", "shell": True},
            "expected": {"type": "rule", "rules": {"include": [TEXT], "exclude": ["bread"]}},
        },
        "script": {"*": script},
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_class_solves_a_task(name: str, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks" / "examples" / "editor"
    tasks.mkdir(parents=True)
    (tasks / "shopping.json").write_text(json.dumps(task(SCRIPTS[name])))
    (tmp_path / "tasks" / "test_all.json").write_text(json.dumps({"editor": ["shopping"]}))
    command = [sys.executable, "scripts/submit.py", "--embedded", "--data-path", str(tmp_path / "tasks")]
    command += ["--env-mode", "osworld", "--provider", "local", "--num-vms", "1", "--num-rollouts", "1"]
    command += ["--agent", f"osworld:{name}", "--max-turns", "5", "--sleep-after-execution", "1"]
    command += ["--output-dir", str(tmp_path / "results"), "--run-id", "osworlds", "--json"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "REDIS_"))}

    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300)

    assert run.returncode == 0, run.stderr[-4000:]
    folder = find_run("osworlds", tmp_path / "results")
    verdict = folder.verdict("shopping#0")
    assert verdict is not None
    assert (verdict.status, verdict.score) == ("completed", 1.0), verdict
    attempt = folder.attempt(verdict.rollout_id, verdict.attempt)
    calls = [json.loads(line) for line in (attempt / "calls.jsonl").read_text().splitlines()]
    assert [call["outcome"] for call in calls if call["kind"] == "call"] == ["served"] * verdict.turns
