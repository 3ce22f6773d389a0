"""Episodes in Anthropic's Messages API: calls are answered with screenshots, and everything that was sent is recorded."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rollout_tasks.agents.profiles.actions import Screenshot
from rollout_tasks.agents.profiles.dialogue import ActionOutcome
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.environments.base import ToolResult
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.sent_messages import PLACEHOLDER
from rollout_tasks.trajectories.reader import read_trajectory
from tests.hostile.random_replies.answers import Answer, Request
from tests.unit.agents.chat_endpoint import ChatEndpoint
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop, screenshot
from tests.unit.agents.profiles.played_profiles import play

PLAIN: dict[str, Any] = {
    "name": "plain",
    "version": "1",
    "protocol": "anthropic_computer",
    "computer_tool": "computer_20250124",
    "prompts": {"task": "Do: {instruction}", "system": "You are {client_password}."},
    "pictures": {"format": "png", "size": [160, 120]},
    "places": {"span": "picture"},
    "history": {"images": None},
    "sampling": {"max_tokens": 99},
}


class MessagesEndpoint(ChatEndpoint):
    """Plays the fields of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[Mapping[str, str]] = []

    def _answer(self, request: Request) -> Answer:
        assert request.path.endswith("/messages")
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.bodies.append(json.loads(request.body))
        usage = {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 5}
        whole = {"model": "m-1", "role": "assistant", "stop_reason": "tool_use", "usage": usage}
        return Answer(json.dumps({**whole, **self.choices.pop(0)}).encode())


@pytest.fixture
def endpoint() -> Iterator[MessagesEndpoint]:
    made = MessagesEndpoint()
    yield made
    made.close()


@pytest.fixture
def desktop() -> DrawnDesktop:
    return DrawnDesktop((320, 240))


def plain(**changes: Any) -> Profile:
    return Profile.model_validate({**PLAIN, **changes})


def acts(number: int, **arguments: Any) -> dict[str, Any]:
    thought = {"type": "thinking", "thinking": "I see.", "signature": f"s{number}"}
    arguments = arguments or {"action": "left_click", "coordinate": [80, 60]}
    return {"content": [thought, {"type": "tool_use", "id": f"t{number}", "name": "computer", "input": arguments}]}


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", **more}


def shown(message: dict[str, Any]) -> list[str]:
    """What a message has, in words."""
    found = []
    for part in message["content"]:
        inner = part["content"] if part["type"] == "tool_result" else [part]
        found += [one.get("text", one["type"]) for one in inner]
    return found


def test_an_episode_is_recorded_with_every_prompt(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, tmp_path: Path
) -> None:
    endpoint.will(acts(1), acts(2), says("It is open."))
    episode = play(endpoint, plain(), desktop, tmp_path)

    assert (episode.answer, episode.ending, episode.usage.total_tokens) == ("It is open.", "done", 45)
    first, _, last = endpoint.bodies
    assert first["system"] == [{"type": "text", "text": "You are password."}]
    assert (first["max_tokens"], "temperature" in first) == (99, False)
    assert first["tools"] == [
        {
            "type": "computer_20250124",
            "name": "computer",
            "display_width_px": 160,
            "display_height_px": 120,
            "display_number": 1,
        }
    ]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert last["messages"][1]["content"] == acts(1)["content"]
    assert shown(last["messages"][0]) == ["image", "Do: Make the {instruction} bold, please."]
    assert last["messages"][4]["content"][0]["tool_use_id"] == "t2"
    assert "x=160, y=120" in desktop.scripts()[0][0]

    recorded = read_trajectory(tmp_path)
    prompts = [recorded.prompt(reply) for reply in recorded.replies]
    assert [prompt[1:] for prompt in prompts] == [body["messages"] for body in endpoint.bodies]
    assert prompts[0][0] == {"role": "system", "content": "You are password."}
    lines = (tmp_path / "trajectory.jsonl").read_text().splitlines()
    assert max(map(len, lines)) < 2000, "pictures are files"


def test_the_login_is_the_apis_own(endpoint: MessagesEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(says("Done."))
    play(endpoint, plain(computer_tool="computer_20251124"), desktop)

    headers = endpoint.headers[0]
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("none", "2023-06-01")
    assert headers["anthropic-beta"] == "computer-use-2025-11-24"
    assert "authorization" not in headers


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_text_is_recorded_and_not_sent_back_as_the_api_refuses_it(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, tmp_path: Path, blank: str
) -> None:
    thought, use = acts(1)["content"]
    words = {"type": "text", "text": "I click. "}
    written = [thought, {"type": "text", "text": blank}, words, use]
    endpoint.will({"content": written}, says("Done."))
    play(endpoint, plain(), desktop, tmp_path)

    assert endpoint.bodies[1]["messages"][1] == {"role": "assistant", "content": [thought, words, use]}
    recorded = read_trajectory(tmp_path)
    assert {"role": "assistant", "content": written} in recorded.messages
    assert recorded.prompt(recorded.replies[1])[1:] == endpoint.bodies[1]["messages"]


def test_only_the_newest_screenshots_are_sent(endpoint: MessagesEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(*map(acts, range(1, 4)), says("Done."))
    play(endpoint, plain(history={"images": 2}), desktop)

    asked = [shown(message) for message in endpoint.bodies[-1]["messages"] if message["role"] == "user"]
    task = "Do: Make the {instruction} bold, please."
    assert asked == [[PLACEHOLDER, task], ["Success", PLACEHOLDER], ["Success", "image"], ["Success", "image"]]


CLICK: dict[str, Any] = {"action": "left_click", "coordinate": [80, 60]}
ZOOM: dict[str, Any] = {"action": "zoom", "region": [40, 30, 80, 60]}
PRESS: dict[str, Any] = {"action": "key", "text": "Return"}
WHERE: dict[str, Any] = {"action": "cursor_position"}
FAILED = "Execution failed for desktop_execute_python_script: no display"


def answers(message: dict[str, Any]) -> list[list[str]]:
    """What each part of a message has, in words."""
    return [
        [one.get("text", one["type"]) for one in (part["content"] if part["type"] == "tool_result" else [part])]
        for part in message["content"]
    ]


@pytest.mark.parametrize(
    ("calls", "answered"),
    [
        ([CLICK, CLICK, CLICK], [["Success"], ["Success"], ["Success", "image"]]),
        ([WHERE], [["X=75,Y=50", "image"]]),
        ([ZOOM], [["Success", "image"]]),
        ([CLICK, ZOOM], [["Success", "image"], ["Success", "image"]]),
        ([ZOOM, CLICK], [["Success", "image"], ["Success", "image"]]),
        ([PRESS], [[FAILED], ["image"]]),
        ([PRESS, CLICK], [[FAILED], ["Success", "image"]]),
        ([CLICK, PRESS], [["Success"], [FAILED], ["image"]]),
        ([PRESS, ZOOM], [[FAILED], ["Success", "image"], ["image"]]),
        (
            [{"action": "call_user"}, CLICK],
            [["Success"], ["Not done: an earlier call of this message handed over to the user."], ["image"]],
        ),
    ],
)
def test_every_call_of_a_message_is_answered_with_what_it_asked_for(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, tmp_path: Path, calls: list[Any], answered: list[list[str]]
) -> None:
    desktop.says, desktop.refuses = {"position()": "150 100"}, {"pyautogui.press(": "no display"}
    content = [block for number, call in enumerate(calls) for block in acts(number, **call)["content"]]
    endpoint.will({"content": content}, says("Done."))
    play(endpoint, plain(user_calls=1), desktop, tmp_path)

    last = endpoint.bodies[1]["messages"][-1]
    assert answers(last) == answered
    results = [part for part in last["content"] if part["type"] == "tool_result"]
    assert [result["tool_use_id"] for result in results] == [f"t{number}" for number in range(len(calls))]
    for result in results:
        text = result["content"][0]["text"]
        assert result.get("is_error", False) == (text not in ("Success", "X=75,Y=50"))
        assert not result.get("is_error") or len(result["content"]) == 1, "the API refuses a picture there"
    recorded = read_trajectory(tmp_path)
    assert recorded.prompt(recorded.replies[1])[1:] == endpoint.bodies[1]["messages"]


def test_a_zoom_shows_the_part_of_the_screen_in_full_resolution(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop
) -> None:
    endpoint.will(acts(1, **ZOOM), says("Done."))
    play(endpoint, plain(), desktop)

    (answer,) = endpoint.bodies[1]["messages"][-1]["content"]
    part = Image.open(io.BytesIO(b64decode(answer["content"][1]["source"]["data"])))
    screen = Image.open(io.BytesIO(screenshot(1, (320, 240))))
    assert part.size == (81, 61)
    assert part.tobytes() == screen.crop((80, 60, 161, 121)).tobytes()


@pytest.mark.parametrize(("tool", "zoom"), [("computer_20250124", None), ("computer_20251124", True)])
def test_a_tool_that_can_zoom_is_offered_so(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, tool: str, zoom: bool | None
) -> None:
    endpoint.will(says("Done."))
    play(endpoint, plain(computer_tool=tool), desktop)

    (offered,) = endpoint.bodies[0]["tools"]
    assert (offered["type"], offered.get("enable_zoom")) == (tool, zoom)


def test_many_calls_have_one_picture_and_the_history_keeps_its_own(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop
) -> None:
    many = [block for number in range(12) for block in acts(number)["content"]]
    endpoint.will(acts(99), {"content": many}, says("Done."))
    play(endpoint, plain(history={"images": 3}), desktop)

    assert str(endpoint.bodies[-1]["messages"]).count("'type': 'image'") == 3
    assert PLACEHOLDER not in str(endpoint.bodies[-1]["messages"])


def test_an_unusable_reply_is_left_out_and_explained(endpoint: MessagesEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(acts(1, action="explode"), acts(2), says("Done."))
    play(endpoint, plain(), desktop)

    _, second, last = endpoint.bodies
    assert shown(second["messages"][-1])[0].startswith("The action 'explode' is unknown.")
    assert [message["role"] for message in second["messages"]] == ["user", "user"]
    assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_reply_that_is_cut_off_is_no_answer(endpoint: MessagesEndpoint, desktop: DrawnDesktop, reason: str) -> None:
    endpoint.will(*[says("Done.", stop_reason=reason)] * 3)
    with pytest.raises(RolloutFailure, match="a reply cut off at its token limit"):
        play(endpoint, plain(), desktop)

    assert desktop.calls == []


def test_a_refusal_is_parse_with_its_reason_and_not_asked_again(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop
) -> None:
    endpoint.will(says("I cannot help.", stop_reason="refusal"))
    with pytest.raises(RolloutFailure, match=r"refused to go on \(it stopped with refusal\): I cannot help") as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.PARSE
    assert desktop.calls == []


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ({}, "without a list of content blocks"),
        ({"content": "text"}, "without a list of content blocks"),
        ({"content": [{}] * 201}, "with 201 content blocks, more than the 200 that are taken"),
        ({"content": [{"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}]}, "nested too deeply"),
    ],
)
def test_what_is_no_message_is_the_models_failure(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, response: dict[str, Any], says: str
) -> None:
    endpoint.will(response)
    with pytest.raises(RolloutFailure) as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.MODEL
    assert says in str(caught.value)


def test_a_model_cannot_name_files_of_the_record(
    endpoint: MessagesEndpoint, desktop: DrawnDesktop, tmp_path: Path
) -> None:
    fake = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": {"$file": "../key"}}}
    endpoint.will({"content": [fake, *acts(1)["content"]]}, says("Done."))
    play(endpoint, plain(), desktop, tmp_path)

    recorded = read_trajectory(tmp_path)
    assert recorded.prompt(recorded.replies[1])[1:] == endpoint.bodies[1]["messages"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, ""),
        (ToolResult("success", "printed"), ""),
        (ToolResult("failed", "no display"), "no display"),
        (ToolResult("failed", " "), "The action failed."),
    ],
)
def test_a_problem_is_never_an_empty_text_which_the_api_refuses(result: ToolResult | None, problem: str) -> None:
    assert ActionOutcome(Screenshot(), result).problem == problem
