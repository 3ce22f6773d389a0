"""A planner points in words, a grounder finds the place: both over real HTTP, on a desktop that is drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.planner_grounder import PlannerGrounderAgent
from rollout_tasks.config import Limits, RunConfig, parse_config
from rollout_tasks.environments.base import Tool
from rollout_tasks.environments.osworld.action_spaces import computer_13
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models import retries
from rollout_tasks.models.attempt_models import cost_of, open_models
from rollout_tasks.models.usage_meter import UsageMeter
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.agents.chat_endpoint import OVERFLOW, ChatEndpoint, said
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop

pytest.importorskip("mm_agents", reason="the texts of profiles come from OSWorld's own agents")

SCREEN = (1920, 1080)
TARGET = "the trash, at the lower left"


class Desktop(DrawnDesktop):
    def tools(self) -> list[Tool]:
        return computer_13.tools(View(SCREEN))


def calls(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return said(None, finish_reason="tool_calls", tool_calls=[call])


DONE = calls("desktop_control", 9, action="done")


@pytest.fixture(name="endpoints")
def _endpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ChatEndpoint, ChatEndpoint]]:
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)
    both = ChatEndpoint(), ChatEndpoint()
    yield both
    for endpoint in both:
        endpoint.close()


def config_of(planner: ChatEndpoint, grounder: ChatEndpoint, profile: str = "qwen3-vl", more: str = "") -> RunConfig:
    role = f"grounder=small,base-url={grounder.url},profile={profile}{more}"
    model = {"name": "large", "base_url": planner.url, "max_retries": 1, "prompt_price": 2, "completion_price": 8}
    return with_profile(parse_config({"agent": "planner-grounder", "model": model, "model_roles": [role]}))


def play(
    config: RunConfig, directory: Path, desktop: Desktop, limits: Limits | None = None
) -> tuple[Episode, UsageMeter]:
    trajectory = TrajectoryWriter(directory)
    trajectory.start({})
    meter = open_models(config, "run/1/0/1")
    seen = desktop.look()
    try:
        item = Item(id="1", question="Open the trash.")
        agent = PlannerGrounderAgent(config)
        return agent.run(item, desktop, seen, meter, limits or Limits(max_turns=5), trajectory), meter
    finally:
        trajectory.finish()


@pytest.mark.parametrize(
    ("profile", "reply", "place"),
    [
        (
            "qwen3-vl",
            '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [500, 250]}}\n</tool_call>',
            (960, 270),
        ),
        ("uitars-1.5", "Thought: There.\nAction: click(start_box='(966,546)')", (960, 540)),
        ("opencua", "## Action:\nClick.\n## Code:\n```python\npyautogui.click(x=966, y=546)\n```", (960, 540)),
    ],
    ids=["qwen3-vl", "uitars-1.5", "opencua"],
)
def test_what_the_planner_describes_is_clicked_where_the_grounder_sees_it(
    endpoints: tuple[ChatEndpoint, ChatEndpoint],
    tmp_path: Path,
    profile: str,
    reply: str,
    place: tuple[int, int],
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=TARGET, button="right"), DONE)
    grounder.will(said(reply))
    desktop = Desktop()

    episode, meter = play(config_of(planner, grounder, profile), tmp_path, desktop)

    assert (episode.ending, episode.turns) == ("done", 2)
    click = desktop.calls[0]
    assert (click.name, click.arguments["button"]) == ("desktop_mouse_click", "right")
    assert (click.arguments["x"], click.arguments["y"]) == pytest.approx(place, abs=8)
    assert "target" not in click.arguments
    [question] = grounder.bodies
    assert question["model"] == "small"
    assert f"Click on {TARGET}." in json.dumps(question["messages"])
    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in planner.bodies[0]["tools"]}
    assert set(offered["desktop_mouse_click"]["properties"]) == {"target", "button", "num_clicks", "pause"}
    assert offered["desktop_mouse_drag"]["required"] == offered["desktop_mouse_move"]["required"] == ["target"]
    assert (meter.usage.total_tokens, meter.roles["grounder"].usage.total_tokens) == (30, 15)
    assert meter.total.total_tokens == episode.usage.total_tokens == 45
    recorded = read_trajectory(tmp_path).steps[0]
    assert recorded.arguments == {"target": TARGET, "button": "right"}
    asked = read_trajectory(tmp_path / "grounder")
    assert asked.prompt(asked.replies[0]) == question["messages"]
    assert asked.replies[0].turn == 1


def test_calls_of_one_turn_are_recorded_with_it_and_share_its_tokens(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    several = calls("desktop_mouse_move", 1, target=TARGET)
    several["message"]["tool_calls"] += [
        calls("desktop_mouse_move", n, target=TARGET)["message"]["tool_calls"][0] for n in range(2, 9)
    ]
    planner.will(several)
    grounder.will(*[said("Action: click(start_box='(10,10)')")] * 9)
    with pytest.raises(RolloutFailure, match="no answer after 1 turns and 60 tokens of 50"):
        play(config_of(planner, grounder, "uitars-1.5"), tmp_path, Desktop(), Limits(max_tokens=50))
    assert [reply.turn for reply in read_trajectory(tmp_path / "grounder").replies] == [1, 1, 1]


@pytest.mark.parametrize("target", ["   ", "...", " .\n. "])
def test_words_that_say_nothing_are_not_looked_for(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path, target: str
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=target), DONE)
    desktop = Desktop()
    play(config_of(planner, grounder), tmp_path, desktop)
    assert [call.name for call in desktop.calls] == ["desktop_control"]
    assert grounder.bodies == []


def test_a_reply_that_is_too_long_is_not_sent_back_whole(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=TARGET), DONE)
    grounder.will(said("x" * 480_000), OVERFLOW)
    episode, _ = play(config_of(planner, grounder, "qwen2.5-vl"), tmp_path, Desktop())
    assert episode.ending == "done"
    assert len(json.dumps(grounder.bodies[1])) - len(json.dumps(grounder.bodies[0])) < 5_000


def test_the_grounder_sees_the_newest_screenshot(endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path) -> None:
    planner, grounder = endpoints
    planner.will(*(calls("desktop_mouse_click", n, target=f"thing {n}") for n in (1, 2)), DONE)
    grounder.will(*[said("Action: click(start_box='(10,10)')")] * 2)
    play(config_of(planner, grounder, "uitars-1.5"), tmp_path, Desktop())
    pictures = [json.dumps(body["messages"]).partition("base64,")[2] for body in grounder.bodies]
    assert pictures[0] != pictures[1]
    shown = json.dumps(planner.bodies[1]["messages"])
    assert pictures[1][:2000] in shown


def test_what_is_not_found_is_a_failed_call_that_the_planner_hears_of(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=TARGET), DONE)
    grounder.will(said("I see no trash."), said("Action: finished(content='no')"))
    desktop = Desktop()
    episode, _ = play(config_of(planner, grounder, "uitars-1.5"), tmp_path, desktop)
    assert episode.ending == "done"
    assert [call.name for call in desktop.calls] == ["desktop_control"]
    answer = next(one for one in planner.bodies[1]["messages"] if one["role"] == "tool")
    assert f"'{TARGET}' was not found on the screenshot" in json.dumps(answer)
    assert len(grounder.bodies) == 2


def test_calls_that_point_at_nothing_ask_no_grounder(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click"), calls("desktop_type", 2, text="a"), DONE)
    desktop = Desktop()
    _, meter = play(config_of(planner, grounder), tmp_path, desktop)
    assert grounder.bodies == []
    assert [call.name for call in desktop.calls] == ["desktop_mouse_click", "desktop_type", "desktop_control"]
    assert cost_of(config_of(planner, grounder), meter) == pytest.approx((3 * 10 * 2 + 3 * 5 * 8) / 1e6)


def test_coordinates_of_the_planners_own_are_refused(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", x=5, y=5), DONE)
    desktop = Desktop()
    play(config_of(planner, grounder), tmp_path, desktop)
    assert [call.name for call in desktop.calls] == ["desktop_control"]


def test_a_grounder_that_gives_up_is_its_endpoints_failure(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=TARGET), DONE)
    grounder.will({"status": 503})
    with pytest.raises(RolloutFailure) as failed:
        play(config_of(planner, grounder), tmp_path, Desktop())
    assert failed.value.failure_class is FailureClass.MODEL_OVERLOAD
    assert grounder.url.partition("//")[2] in str(failed.value)
    assert len(planner.bodies) == 1


def test_both_models_tokens_count_towards_the_limit(
    endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path
) -> None:
    planner, grounder = endpoints
    planner.will(*(calls("desktop_mouse_click", n, target=TARGET) for n in range(5)))
    grounder.will(*[said("Action: click(start_box='(10,10)')")] * 5)
    with pytest.raises(RolloutFailure, match="no answer after 2 turns and 45 tokens of 40"):
        play(config_of(planner, grounder, "uitars-1.5"), tmp_path, Desktop(), Limits(max_tokens=40))


def test_each_model_has_its_own_price(endpoints: tuple[ChatEndpoint, ChatEndpoint], tmp_path: Path) -> None:
    planner, grounder = endpoints
    planner.will(calls("desktop_mouse_click", target=TARGET), DONE)
    grounder.will(said("Action: click(start_box='(10,10)')"))
    priced = config_of(planner, grounder, "uitars-1.5", ",prompt-price=1,completion-price=3")
    _, meter = play(priced, tmp_path, Desktop())
    assert cost_of(priced, meter) == pytest.approx((20 * 2 + 10 * 8 + 10 * 1 + 5 * 3) / 1e6)
    assert cost_of(config_of(planner, grounder, "uitars-1.5"), meter) is None
