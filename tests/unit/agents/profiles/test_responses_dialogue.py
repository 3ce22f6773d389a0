"""Episodes in the Responses API: calls are answered with screenshots, and everything that was sent is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.trajectories.reader import read_trajectory
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop
from tests.unit.agents.profiles.played_profiles import play
from tests.unit.agents.profiles.responses_endpoint import ResponsesEndpoint, acts, says

PLAIN: dict[str, Any] = {
    "name": "plain",
    "version": "1",
    "protocol": "responses_computer",
    "prompts": {"task": "Do: {instruction}"},
    "computer_tool": "computer_use_preview",
    "places": {"span": "screen"},
    "history": {"images": None},
}


@pytest.fixture
def endpoint() -> Iterator[ResponsesEndpoint]:
    made = ResponsesEndpoint()
    yield made
    made.close()


@pytest.fixture
def desktop() -> DrawnDesktop:
    return DrawnDesktop((320, 240))


def plain(**changes: Any) -> Profile:
    return Profile.model_validate({**PLAIN, **changes})


def kinds(body: dict[str, Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in body["input"]]


def click(number: int) -> dict[str, Any]:
    return acts(number, type="click", x=number, y=5)


def test_an_episode_is_recorded_with_every_prompt(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop, tmp_path: Path
) -> None:
    endpoint.will(click(1), click(2), says("It is open."))
    episode = play(endpoint, plain(), desktop, tmp_path)

    assert (episode.answer, episode.ending, episode.usage.total_tokens) == ("It is open.", "done", 45)
    step = ["reasoning", "computer_call", "computer_call_output"]
    assert [kinds(body) for body in endpoint.bodies] == [["user"], ["user", *step], ["user", *step, *step]]
    recorded = read_trajectory(tmp_path)
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["input"] for body in endpoint.bodies]
    assert "base64" not in (tmp_path / "trajectory.jsonl").read_text()
    assert [step.ends_episode for step in recorded.steps] == [None, None, "done"]


@pytest.mark.parametrize(
    ("tool", "offered", "shown"),
    [
        (
            "computer_use_preview",
            {"type": "computer_use_preview", "display_width": 320, "display_height": 240, "environment": "linux"},
            {"type": "input_image"},
        ),
        ("computer", {"type": "computer"}, {"type": "computer_screenshot", "detail": "original"}),
    ],
)
def test_the_tool_of_the_profile(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop, tool: str, offered: dict[str, Any], shown: dict[str, Any]
) -> None:
    endpoint.will(click(1), says("Done."))
    play(endpoint, plain(computer_tool=tool), desktop, model={"max_completion_tokens": 9})

    first, second = endpoint.bodies
    assert first["tools"] == [offered]
    assert first["max_output_tokens"] == 9
    output = second["input"][-1]["output"]
    assert output.pop("image_url").startswith("data:image/png;base64,iVBOR")
    assert output == shown


def test_safety_checks_are_acknowledged_and_every_call_is_answered(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop
) -> None:
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "Look out."}
    both = click(1)["output"] + click(2)["output"]
    both[1]["pending_safety_checks"] = [check]
    endpoint.will({"output": both}, says("Done."))
    play(endpoint, plain(), desktop)

    answers = endpoint.bodies[1]["input"][-2:]
    assert [answer["call_id"] for answer in answers] == ["call_1", "call_2"]
    assert [answer["acknowledged_safety_checks"] for answer in answers] == [[check], []]
    empty, shown = (answer["output"]["image_url"] for answer in answers)
    assert len(empty) < 300 < len(shown), "each has a picture, the last that of the screen"


def test_an_action_that_failed_is_told_and_everything_is_recorded(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop, tmp_path: Path
) -> None:
    desktop.refuses = {"x=2": "no display"}
    endpoint.will({"output": click(1)["output"] + click(2)["output"]}, says("Done."))
    play(endpoint, plain(), desktop, tmp_path)

    told = endpoint.bodies[1]["input"][-1]
    assert told["content"][0]["text"] == "Execution failed for desktop_execute_python_script: no display"
    recorded = read_trajectory(tmp_path)
    new = [message for message in recorded.messages if message.get("role") != "assistant"]
    assert new == [endpoint.bodies[0]["input"][0], *endpoint.bodies[1]["input"][-3:]]


def test_older_steps_are_left_out_whole(endpoint: ResponsesEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(*map(click, range(1, 5)), says("Done."))
    play(endpoint, plain(history={"images": 3}), desktop)

    last = endpoint.bodies[-1]["input"]
    assert [item["call_id"] for item in last if item.get("type") == "computer_call_output"] == ["call_3", "call_4"]
    assert str(last).count("data:image/png") == 3


def test_an_unusable_reply_is_left_out_and_explained(endpoint: ResponsesEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(acts(1, type="explode"), {"output": []}, click(2), says("This is not feasible."))
    episode = play(endpoint, plain(prompts={"task": "{instruction}", "system": "S"}), desktop)

    assert episode.ending == "fail"
    assert [kinds(body) for body in endpoint.bodies[:3]] == [
        ["system", "user"],
        ["system", "user", "user"],
        ["system", "user", "user", "user"],
    ]
    assert endpoint.bodies[1]["input"][-1]["content"][0]["text"].startswith("The action 'explode' is unknown.")
    assert kinds(endpoint.bodies[3]) == ["system", "user", "reasoning", "computer_call", "computer_call_output"]


def test_a_refusal_ends_the_episode_at_once(endpoint: ResponsesEndpoint, desktop: DrawnDesktop) -> None:
    part = {"type": "refusal", "refusal": "I do not do that."}
    endpoint.will({"output": [{"type": "message", "role": "assistant", "content": [part]}]})
    with pytest.raises(RolloutFailure, match=r"the model refused to go on .*: I do not do that") as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.PARSE
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize(
    ("details", "problem"),
    [
        (None, "a reply cut off at its token limit"),
        ({"reason": "max_output_tokens"}, "a reply cut off at its token limit"),
        ({"reason": "content_filter"}, "a reply that the endpoint's content filter stopped"),
        ({"reason": "something_new"}, "The response was cut off or has failed"),
    ],
)
def test_an_incomplete_response_is_no_action(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop, details: Any, problem: str
) -> None:
    endpoint.will(*[{**says("Done."), "status": "incomplete", "incomplete_details": details}] * 3)
    with pytest.raises(RolloutFailure, match=problem) as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.PARSE
    assert desktop.calls == []


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ({}, "without a list of output items"),
        ({"output": [1]}, "without a list of output items"),
        ({"output": [{"type": "message", "role": "user"}]}, "with an output item that only clients write"),
        ({"output": [{"type": "computer_call_output"}]}, "with an output item that only clients write"),
        ({"output": [{}] * 201}, "with 201 output items, more than the 200 that are taken"),
        (
            {"output": [], "status": "failed", "error": {"message": "no"}},
            "with the status failed: \"{'message': 'no'}\"",
        ),
        ({"output": [{"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}]}, "nested too deeply"),
    ],
)
def test_what_is_no_response_is_the_models_failure(
    endpoint: ResponsesEndpoint, desktop: DrawnDesktop, response: dict[str, Any], says: str
) -> None:
    endpoint.will(response)
    with pytest.raises(RolloutFailure) as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.MODEL
    assert says in str(caught.value)
