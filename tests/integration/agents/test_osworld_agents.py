"""OSWorld's own agents, each in a cell, with their model behind the session gateway: the classes as installed, nothing changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.osworld.agent_classes import agent_class
from rollout_tasks.agents.osworld.constructor import arguments_of
from rollout_tasks.config import DesktopConfig, Limits, RunConfig
from rollout_tasks.errors import EpisodeInterrupted, FailureClass, RolloutFailure, UserError
from rollout_tasks.interruption import Interruption
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models import retries
from rollout_tasks.models.client import open_model
from rollout_tasks.models.usage_meter import UsageMeter
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.agents.chat_endpoint import OVERFLOW, ChatEndpoint, said
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop

pytest.importorskip("mm_agents", reason="OSWorld's own agents are not installed")

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


def _claudes(number: int, **arguments: Any) -> dict[str, Any]:
    function = {"name": "computer", "arguments": json.dumps(arguments)}
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
    "AnthropicAgent": [_claudes(1, action="left_click", coordinate=[640, 360]), said("That is it.")],
    "OpenAICUAAgent": [_computer(1, type="click", button="left", x=960, y=540), said("That is it.")],
}


_ALWAYS = ("uitars15_v1.UITARSAgent", "O3Agent", "OpenAICUAAgent")
"""One for each way in which the classes ask and act."""
NAMES = [pytest.param(name, marks=() if name in _ALWAYS else pytest.mark.slow) for name in CLASSES]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatEndpoint]:
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)
    endpoint = ChatEndpoint()
    yield endpoint
    endpoint.close()


def config_of(name: str, endpoint: ChatEndpoint) -> RunConfig:
    return RunConfig(agent=f"osworld:{name}", model=ModelConfig(name="policy", base_url=endpoint.url, max_retries=1))


def meter(name: str, endpoint: ChatEndpoint) -> UsageMeter:
    return UsageMeter(open_model(config_of(name, endpoint).model, session_id=f"{name}/1/0/1", api_key="none"))


def play(
    name: str,
    endpoint: ChatEndpoint,
    desktop: DrawnDesktop,
    directory: Path,
    limits: Limits | None = None,
    model: UsageMeter | None = None,
) -> tuple[Episode, UsageMeter]:
    config = config_of(name, endpoint)
    trajectory = TrajectoryWriter(directory)
    trajectory.start({})
    trajectory.observed(desktop.look())
    model = model or meter(name, endpoint)
    agent = registry.agent(f"osworld:{name}")(config)
    try:
        item = Item(id="1", question=TASK)
        return agent.run(item, desktop, desktop.look(), model, limits or Limits(max_turns=5), trajectory), model
    finally:
        trajectory.finish()


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_that_gives_up_is_no_action_of_the_agent(name: str, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    """The classes turn it into DONE, into no action, or ask again for hours."""
    desktop = DrawnDesktop()
    endpoint.will(CLASSES[name][0], {"status": 503})

    with pytest.raises(RolloutFailure) as failure:
        play(name, endpoint, desktop, tmp_path)

    assert failure.value.failure_class is FailureClass.MODEL_OVERLOAD
    assert "503" in str(failure.value)


def test_a_reply_that_the_class_cannot_read_is_the_models_failure(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(*[said(UI_TARS[0])] * 30)  # without the summary that this class wants

    with pytest.raises(RolloutFailure, match="osworld:ManoAgent cannot go on: ValueError") as failure:
        play("ManoAgent", endpoint, DrawnDesktop(), tmp_path)

    assert failure.value.failure_class is FailureClass.PARSE
    assert "Traceback" in (tmp_path / "agent.log").read_text()


def test_a_prompt_that_does_not_fit_is_the_classes_to_shorten(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(OVERFLOW, *CLASSES["uitars_agent.UITARSAgent"])

    episode, model = play("uitars_agent.UITARSAgent", endpoint, DrawnDesktop(), tmp_path)

    assert (episode.ending, model.turns, model.usage.requests) == ("done", 2, 3)


def test_a_prompt_that_never_fits_is_no_action(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(*[OVERFLOW] * 30)

    with pytest.raises(RolloutFailure, match="maximum context length") as failure:
        play("uitars_agent.UITARSAgent", endpoint, DrawnDesktop(), tmp_path)

    assert failure.value.failure_class is FailureClass.MODEL


def test_a_broken_call_of_the_computer_tool_ends_nothing(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    broken = {"id": "c", "type": "function", "function": {"name": "computer", "arguments": '{"type": "click"}'}}
    endpoint.will(*[said(None, finish_reason="tool_calls", tool_calls=[broken])] * 3)

    with pytest.raises(RolloutFailure, match="3 turns in a row") as failure:
        play("OpenAICUAAgent", endpoint, DrawnDesktop(), tmp_path)

    assert failure.value.failure_class is FailureClass.PARSE


@pytest.mark.parametrize("limits", [Limits(max_turns=1), Limits(max_turns=5, max_tokens=10)])
def test_limits_end_the_episode(limits: Limits, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    endpoint.will(*CLASSES["O3Agent"])

    with pytest.raises(RolloutFailure) as failure:
        play("O3Agent", endpoint, DrawnDesktop(), tmp_path, limits)

    assert failure.value.failure_class is FailureClass.MAX_TURNS


def test_an_endpoint_that_hangs_is_known_as_such_at_the_deadline(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    """As in an attempt: a deadline ends the episode, and what kept it waiting decides whose failure that is."""
    endpoint.will(*CLASSES["O3Agent"])
    late = threading.Event()
    endpoint.when_asked = lambda: late.wait(30)
    model = meter("O3Agent", endpoint)

    with pytest.raises(EpisodeInterrupted), Interruption().scope(8.0, FailureClass.TIMEOUT, "late", grace=60):
        play("O3Agent", endpoint, DrawnDesktop(), tmp_path, model=model)

    late.set()
    assert model.unanswered > 0.5


def test_the_screen_that_a_class_has_in_its_code() -> None:
    small = DesktopConfig(screen_width=1280, screen_height=720)

    with pytest.raises(UserError, match="--agent osworld:UITarsAgent only knows a screen of 1920x1080 pixels"):
        arguments_of(agent_class("UITarsAgent"), RunConfig(desktop=small), Limits())
    given = arguments_of(agent_class("uitars_agent.UITARSAgent"), RunConfig(desktop=small), Limits())
    assert given["runtime_conf"] == {"screen_width": 1280, "screen_height": 720}
