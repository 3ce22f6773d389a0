"""OSWorld's own agents, each in a cell, with their model behind the session gateway: the classes as installed, nothing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.base import Episode
from rollout_tasks.config import Limits, ModelConfig, RunConfig
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models import retries
from rollout_tasks.models.client import open_model
from rollout_tasks.models.usage_meter import UsageMeter
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.agents.chat_endpoint import ChatEndpoint, said
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop

pytest.importorskip("mm_agents", reason="the official agents are not installed")

TASK = "Open the trash."
UI_TARS = [
    "Thought: There it is.\nAction: click(start_box='(500,500)')",
    "Thought: That is it.\nAction: finished(content='ok')",
]
POINTS = [
    "<think>There.</think>\nThought: There it is.\nAction: click(point='<point>500 500</point>')",
    "Thought: That is it.\nAction: finished(content='ok')",
]
OPEN_CUA = [
    "# Step 1:\n## Thought:\nThere it is.\n## Action:\nClick on it.\n## Code:\n```python\npyautogui.click(x=0.5, y=0.5)\n```",
    "# Step 2:\n## Thought:\nDone.\n## Action:\nEnd.\n## Code:\n```code\ncomputer.terminate(status='success')\n```",
]
CODE = ["Thought:\nThere it is.\n```python\npyautogui.click(960, 540)\n```", "```DONE```"]
AGUVIS = ["Action: Click on it.\npyautogui.click(x=0.5, y=0.5)", "Done."]
MANO = [text.replace("\nAction:", "\nAction desp: Go on.\nAction:") for text in UI_TARS]


def _computer(number: int, **action: Any) -> dict[str, Any]:
    function = {"name": "computer", "arguments": json.dumps({"action": action})}
    calls = [{"id": f"call-{number}", "type": "function", "function": function}]
    return said(None, finish_reason="tool_calls", tool_calls=calls)


CLASSES: dict[str, list[dict[str, Any]]] = {
    "uitars_agent.UITARSAgent": [*map(said, UI_TARS)],
    "uitars15_v1.UITARSAgent": [*map(said, UI_TARS)],
    "UITarsAgent": [*map(said, POINTS)],
    "OpenCUAAgent": [*map(said, OPEN_CUA)],
    "O3Agent": [*map(said, CODE)],
    "ManoAgent": [*map(said, MANO)],
    "AguvisAgent": [*map(said, AGUVIS)],
    "OpenAICUAAgent": [_computer(1, type="click", button="left", x=960, y=540), said("That is it.")],
}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatEndpoint]:
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


def play(
    name: str, endpoint: ChatEndpoint, desktop: DrawnDesktop, directory: Path, limits: Limits | None = None
) -> tuple[Episode, UsageMeter]:
    config = RunConfig(agent=f"osworld:{name}", model=ModelConfig(name="policy", base_url=endpoint.url, max_retries=1))
    trajectory = TrajectoryWriter(directory)
    trajectory.start({})
    trajectory.observed(desktop.look())
    model = UsageMeter(open_model(config.model, session_id=f"{name}/1/0/1", api_key="none"))
    agent = registry.agent(f"osworld:{name}")(config)
    try:
        item = Item(id="1", question=TASK)
        return agent.run(item, desktop, desktop.look(), model, limits or Limits(max_turns=5), trajectory), model
    finally:
        trajectory.finish()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_acts_until_it_is_done(name: str, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    desktop = DrawnDesktop()
    endpoint.will(*CLASSES[name])

    episode, model = play(name, endpoint, desktop, tmp_path)

    assert (episode.ending, episode.turns, model.turns) == ("done", 2, 2)
    first, last = (script for turn in desktop.scripts() for script in turn)
    assert "click" in first
    assert last == "DONE"
    assert [body["model"] for body in endpoint.bodies] == ["policy", "policy"]
    assert TASK in json.dumps(endpoint.bodies[0]["messages"])
    record = read_trajectory(tmp_path)
    assert [reply.completion_tokens for reply in record.replies] == [5, 5]
    assert [step.turn for step in record.steps] == [1, 2]
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [call["outcome"] for call in calls if call["kind"] == "call"] == ["served", "served"]


@pytest.mark.parametrize("name", CLASSES)
def test_an_endpoint_that_gives_up_is_no_action_of_the_agent(name: str, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    """The classes turn it into DONE, into no action, or ask again for hours."""
    desktop = DrawnDesktop()
    endpoint.will(CLASSES[name][0], {"status": 503})

    with pytest.raises(RolloutFailure) as failure:
        play(name, endpoint, desktop, tmp_path)

    assert failure.value.failure_class is FailureClass.MODEL_OVERLOAD
    assert "503" in str(failure.value)
    assert [word for turn in desktop.scripts() for word in turn if word in ("DONE", "FAIL")] == []
