"""Episodes with profiles: what is sent, done and recorded, over real HTTP and on a desktop that is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.agents.profiles.agent import ProfileAgent
from rollout_tasks.agents.profiles.built_in import BUILT_IN
from rollout_tasks.agents.profiles.profile import Profile
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, ToolResult
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.sent_messages import KEPT_OF_CUT_OFF, PLACEHOLDER
from rollout_tasks.trajectories.reader import read_trajectory
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.agents.chat_endpoint import OVERFLOW, ChatEndpoint, Gallery, said
from tests.unit.agents.profiles.compared_agents import action, code, function, tool
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop, screenshot
from tests.unit.agents.profiles.played_profiles import QUESTION, play

SMALL = (320, 240)
UI_TARS = [action("click(start_box='(100,200)')"), action("type(content='abc')"), action("finished(content='ok')")]
QWEN = [
    tool(action="left_click", coordinate=[100, 200]),
    tool(action="type", text="abc"),
    tool(action="terminate", status="success", text="ok"),
]
CODE = [
    code("pyautogui.click(x=100, y=200)"),
    code("pyautogui.write('abc')"),
    code("computer.terminate('success', 'ok')"),
]
FUNCTIONS = [
    function(action="left_click", coordinate="[100, 200]"),
    function(action="type", text="abc"),
    function(action="terminate", status="success", text="ok"),
]
REPLIES = {
    "opencua": CODE,
    "qwen2.5-vl": QWEN,
    "qwen3-vl": QWEN,
    "qwen3.5": FUNCTIONS,
    "uitars-1.5": UI_TARS,
    "uitars-2": UI_TARS,
}
PLAIN: dict[str, Any] = {
    "name": "plain",
    "version": "1",
    "protocol": "ui_tars",
    "prompts": {"task": "Do: {instruction}"},
    "places": {"span": "picture"},
    "history": {"images": 2},
}
"""A profile without texts of other packages."""


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


@pytest.fixture
def desktop() -> DrawnDesktop:
    return DrawnDesktop(SMALL)


def plain(**changes: Any) -> Profile:
    return Profile.model_validate({**PLAIN, **changes})


def texts(body: dict[str, Any]) -> list[str]:
    """The texts and pictures of a request, in order, each with the first letter of its role."""
    found = []
    for message in body["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
        found += [f"{message['role'][0]}: {part.get('text', 'PICTURE')}" for part in parts]
    return found


def test_every_built_in_profile_has_replies_here() -> None:
    assert REPLIES.keys() == {name for name, profile in BUILT_IN.items() if profile.computer_tool is None}


@pytest.mark.parametrize("name", REPLIES)
def test_built_in_profiles_play_an_episode_and_record_it(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("mm_agents", reason="the texts of the built-in profiles are not installed")
    endpoint.will(*map(said, REPLIES[name]))
    episode = play(endpoint, name, desktop, tmp_path)

    assert (episode.ending, episode.answer, episode.turns) == ("done", "ok", 3)
    assert episode.usage.total_tokens == 45
    recorded = read_trajectory(tmp_path)
    assert [step.turn for step in recorded.steps] == [1, 2, 3]
    assert recorded.steps[-1].ends_episode == "done"
    assert [reply.turn for reply in recorded.replies] == [1, 2, 3]
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]
    assert [message["role"] for message in recorded.messages[-5:]] == [
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert "{instruction} bold" in str(endpoint.bodies[0]["messages"])


@pytest.mark.parametrize(
    ("pictures", "prefix"),
    [
        ({"format": "jpeg", "quality": 60}, "data:image/jpeg;base64,/9j/"),
        ({"format": "webp"}, "data:image/webp;base64,UklG"),
        ({"format": "png", "resize": {"factor": 32}}, "data:image/png;base64,iVBOR"),
    ],
)
def test_prompts_with_encoded_pictures_are_rebuilt(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, tmp_path: Path, pictures: dict[str, Any], prefix: str
) -> None:
    endpoint.will(*map(said, UI_TARS))
    play(endpoint, plain(pictures=pictures), desktop, tmp_path)

    recorded = read_trajectory(tmp_path)
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]
    assert endpoint.bodies[-1]["messages"][-1]["content"][0]["image_url"]["url"].startswith(prefix)
    assert "base64" not in (tmp_path / "trajectory.jsonl").read_text()


ONE, TWO, THREE, END = (action(f"type(content='{number}')") for number in "1234")


@pytest.mark.parametrize(
    ("history", "prompts", "last"),
    [
        ({"images": 2}, {}, ["u: TASK", f"a: {ONE}", f"a: {TWO}", "u: PICTURE", f"a: {THREE}", "u: PICTURE"]),
        ({"images": 1, "older": "dropped"}, {}, ["u: TASK", "u: PICTURE"]),
        (
            {"images": 2, "older": "placeholder", "steps": 1},
            {},
            ["u: TASK", f"u: {PLACEHOLDER}", f"a: {TWO}", "u: PICTURE", f"a: {THREE}", "u: PICTURE"],
        ),
        (
            {"images": 2, "older": "action", "steps": 1},
            {
                "task": "TASK{instruction} after {previous_actions}",
                "older_step": "{number}. {action}/{thought}",
                "task_with": "first_picture",
            },
            ["u: PICTURE", "u: TASK after 2. typewrite/I see.", f"a: {THREE}", "u: PICTURE"],
        ),
        (
            {"images": 1, "older": "action"},
            {"older_step": "{number}", "system": "SYSTEM", "task_with": "current_picture"},
            ["s: SYSTEM", "a: 1\n2\n3", "u: PICTURE", "u: TASK"],
        ),
        (
            {"images": None},
            {"step": "{reply}!"},
            [
                "u: TASK",
                *(f"{part}" for one in (ONE, TWO, THREE) for part in ("u: PICTURE", f"a: {one}!")),
                "u: PICTURE",
            ],
        ),
    ],
)
def test_older_steps(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, history: dict[str, Any], prompts: dict[str, Any], last: list[str]
) -> None:
    endpoint.will(*map(said, (ONE, TWO, THREE, action("finished()"))))
    play(endpoint, plain(history=history, prompts={"task": "TASK{instruction}", **prompts}), desktop)

    assert [text.replace(QUESTION, "") for text in texts(endpoint.bodies[-1])] == last


@pytest.mark.parametrize("most", [1, 2, 10])
def test_the_most_pictures_that_are_given_win_also_the_options_default(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, most: int
) -> None:
    endpoint.will(*map(said, (ONE, TWO, THREE, action("finished()"))))
    play(endpoint, plain(history={"images": 3}), desktop, model={"max_images": most})

    assert texts(endpoint.bodies[-1]).count("u: PICTURE") == min(most, 4)


@pytest.mark.parametrize(
    ("keeps", "option", "shown"),
    [
        (False, False, UI_TARS[0]),
        (True, False, f"<think>Hm.</think>\n{UI_TARS[0]}"),
        (False, True, f"<think>Hm.</think>\n{UI_TARS[0]}"),
    ],
)
def test_thinking_is_kept_if_profile_or_run_say_so(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, keeps: bool, option: bool, shown: str
) -> None:
    endpoint.will(said(f"<think>Hm.</think>\n{UI_TARS[0]}", reasoning="Deep."), said(UI_TARS[2]))
    play(endpoint, plain(history={"thinking": keeps}), desktop, model={"keep_thinking": option})

    again = next(message for message in endpoint.bodies[1]["messages"] if message["role"] == "assistant")
    assert again["content"][0]["text"] == shown
    assert again.get("reasoning") == ("Deep." if option else None)


def test_an_unusable_reply_is_explained_until_the_next_usable_one(
    endpoint: ChatEndpoint, desktop: DrawnDesktop
) -> None:
    endpoint.will(said("I will."), said(""), said(ONE), said(UI_TARS[2]))
    play(endpoint, plain(), desktop)

    _, second, third, last = map(texts, endpoint.bodies)
    assert second[2] == "a: I will."
    assert second[3].startswith("u: The reply has no part that begins with 'Action:'. Nothing was done.")
    assert third[:4] == second
    assert len(third) == 5
    assert last == ["u: Do: Make the {instruction} bold, please.", "u: PICTURE", f"a: {ONE}", "u: PICTURE"]
    assert len(desktop.calls) == 2


def test_an_unusable_reply_is_sent_back_without_its_thinking(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(said("<think>Hm.</think>\nI will."), said(UI_TARS[2]))
    play(endpoint, plain(history={"thinking": False}), desktop)

    assert texts(endpoint.bodies[1])[2] == "a: I will."


def test_or_the_same_prompt_is_sent_again(endpoint: ChatEndpoint, desktop: DrawnDesktop, tmp_path: Path) -> None:
    endpoint.will(said("I will."), said(UI_TARS[2]))
    play(endpoint, plain(after_unusable="resample"), desktop, tmp_path)

    assert endpoint.bodies[0] == endpoint.bodies[1]
    roles = [message["role"] for message in read_trajectory(tmp_path).messages]
    assert roles == ["user", "user", "assistant", "assistant"]


def test_an_unchanged_screen_is_recorded_in_each_turn(endpoint: ChatEndpoint, tmp_path: Path) -> None:
    desktop = DrawnDesktop(SMALL, number=lambda: 0)
    endpoint.will(said(ONE), said(""), said(TWO), said(UI_TARS[2]))
    play(endpoint, plain(history={"images": 1, "older": "dropped"}), desktop, tmp_path)

    roles = [message["role"] for message in read_trajectory(tmp_path).messages]
    assert roles == ["user", "user", "assistant", "user", "assistant", "user", "assistant", "user", "assistant"]


def test_three_unusable_replies_in_a_row_end_it(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(said("A"), said("B"), said(ONE), said("C"), said("D"), said("Action: fly()"))
    with pytest.raises(RolloutFailure, match=r"3 turns in a row .* the last: The action 'fly' is unknown") as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.PARSE


@pytest.mark.parametrize("call", ["hotkey(key='ctrl volumeup')", "press(key='VolumeUp')", "keydown(key='volumeup')"])
def test_windows_has_keys_that_x11_lacks(endpoint: ChatEndpoint, desktop: DrawnDesktop, call: str) -> None:
    endpoint.will(said(action(call)), said(UI_TARS[2]), said(action(call)), said(UI_TARS[2]))

    play(endpoint, plain(), desktop)
    assert texts(endpoint.bodies[1])[3].lower().startswith("u: the key 'volumeup' is unknown.")
    assert len(desktop.calls) == 1

    play(endpoint, plain(), desktop, desktop={"os_type": "Windows"})
    assert "volumeup" in str(desktop.calls[1])


def test_a_reply_that_is_cut_off_is_neither_done_nor_said(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(*[said(action("finished()"), finish_reason="length")] * 3)
    with pytest.raises(RolloutFailure, match=r"a reply cut off at its token limit \(--max-completion-tokens 5\)"):
        play(endpoint, plain(), desktop, model={"max_completion_tokens": 5})

    assert desktop.calls == []
    assert endpoint.bodies[0]["max_completion_tokens"] == 5


def test_only_the_beginning_of_a_cut_off_reply_is_sent_back(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, tmp_path: Path
) -> None:
    long = "Hm. " * 10_000
    endpoint.will(said(long, finish_reason="length"), said(UI_TARS[2]))
    play(endpoint, plain(), desktop, tmp_path)

    assert texts(endpoint.bodies[1])[2] == f"a: {long[:KEPT_OF_CUT_OFF]}"
    recorded = read_trajectory(tmp_path)
    assert long in [message["content"] for message in recorded.messages]
    assert [recorded.prompt(reply) for reply in recorded.replies] == [body["messages"] for body in endpoint.bodies]


def test_a_context_that_a_cut_off_reply_used_up_is_the_agents_failure(
    endpoint: ChatEndpoint, desktop: DrawnDesktop
) -> None:
    endpoint.will(said("Hm.", finish_reason="length"), OVERFLOW)
    with pytest.raises(RolloutFailure, match="after a reply cut off at its token limit: the conversation") as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.PARSE


def test_a_filtered_reply_is_no_action(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(*[said(action("finished()"), finish_reason="content_filter")] * 3)
    with pytest.raises(RolloutFailure, match="the last: a reply that the endpoint's content filter stopped"):
        play(endpoint, plain(), desktop)

    assert desktop.calls == []


@pytest.mark.parametrize("damaged", [screenshot(1, SMALL)[:-200], screenshot(1, SMALL)[:33] + b"no chunks"])
def test_a_broken_picture_is_the_vms_failure(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, damaged: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.will(said(ONE))
    monkeypatch.setattr(desktop, "execute", lambda _call: ToolResult("success", "", Observation(images=(damaged,))))
    with pytest.raises(
        RolloutFailure, match="something else may have answered instead of it: the screenshot is not a picture"
    ) as caught:
        play(endpoint, plain(pictures={"format": "jpeg"}), desktop)

    assert caught.value.failure_class is FailureClass.VM_LOST


@pytest.mark.parametrize(("patience", "done"), [(0, ["FAIL"]), (2, ["WAIT", "WAIT", "FAIL"])])
def test_a_call_for_the_user_waits_and_then_fails(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, patience: int, done: list[str]
) -> None:
    endpoint.will(*[said(action("call_user()"))] * len(done))
    episode = play(endpoint, plain(user_calls=patience), desktop)

    assert episode.ending == "fail"
    assert [word for turn in desktop.scripts() for word in turn] == done


@pytest.mark.parametrize("status", ["success", "failure"])
def test_what_the_model_says_at_the_end_is_the_answer(
    endpoint: ChatEndpoint, desktop: DrawnDesktop, status: str
) -> None:
    endpoint.will(said(tool(action="terminate", status=status, text="There is no such file.")))
    episode = play(endpoint, plain(protocol="qwen"), desktop)

    assert (episode.answer, episode.ending) == ("There is no such file.", "done" if status == "success" else "fail")


def test_an_answer_is_kept_until_the_end(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(said(tool(action="answer", text="42")), said(tool(action="terminate", status="failure")))
    episode = play(endpoint, plain(protocol="qwen"), desktop)

    assert (episode.answer, episode.ending) == ("42", "fail")
    assert desktop.scripts() == [["FAIL"]]


def test_an_endpoint_that_fails_is_never_the_end_of_a_task(endpoint: ChatEndpoint, desktop: DrawnDesktop) -> None:
    endpoint.will(said(ONE), {"finish_reason": "stop"})
    with pytest.raises(RolloutFailure, match="a choice without a message") as caught:
        play(endpoint, plain(), desktop)

    assert caught.value.failure_class is FailureClass.MODEL
    assert len(desktop.calls) == 1


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_turns": 2}, "no answer after 2 turns"),
        ({"max_tokens": 30}, "no answer after 2 turns and 30 tokens of 30"),
    ],
)
def test_limits(endpoint: ChatEndpoint, desktop: DrawnDesktop, limits: dict[str, Any], says: str) -> None:
    endpoint.will(*[said(ONE)] * 3)
    with pytest.raises(RolloutFailure, match=says) as caught:
        play(endpoint, plain(), desktop, limits=limits)

    assert caught.value.failure_class is FailureClass.MAX_TURNS


def test_actions_of_a_reply_are_done_in_order(endpoint: ChatEndpoint, desktop: DrawnDesktop, tmp_path: Path) -> None:
    both = action("hotkey(key='a')\n\nwait()\n\nfinished()")
    endpoint.will(said(both))
    play(endpoint, plain(), desktop, tmp_path)

    assert [call.id for call in desktop.calls] == ["turn-1-1", "turn-1-2", "turn-1-3"]
    assert [step.call_id for step in read_trajectory(tmp_path).steps] == ["turn-1-1", "turn-1-2", "turn-1-3"]


def run(agent: type[ProfileAgent], world: Any, seen: Observation, **options: Any) -> None:
    trajectory = TrajectoryWriter(Path(), enabled=False)
    config = RunConfig.model_validate(options)
    agent(config).run(Item(id="1", question="?"), world, seen, None, Limits(), trajectory)  # type: ignore[arg-type]


def test_what_the_agent_needs_is_named() -> None:
    known = plain().model_dump(mode="json")
    with pytest.raises(ValueError, match="acts through the tool desktop_execute_python_script"):
        run(ProfileAgent, Gallery(1), Observation(), profile=known)
    with pytest.raises(ValueError, match="the environment shows none"):
        run(ProfileAgent, DrawnDesktop(SMALL), Observation("text"), profile=known)
    with pytest.raises(ValueError, match="the run has no profile"):
        run(ProfileAgent, DrawnDesktop(SMALL), Observation())
