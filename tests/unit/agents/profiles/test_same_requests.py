"""Over a whole episode, the built-in profiles send what OSWorld's official agents send, to the byte, and do the same."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agents.chat_endpoint import ChatEndpoint, said
from tests.unit.agents.profiles import official_agents
from tests.unit.agents.profiles.compared_agents import action, code, tool
from tests.unit.agents.profiles.drawn_desktop import DrawnDesktop, screenshot
from tests.unit.agents.profiles.played_profiles import MODEL, QUESTION, play
from tests.unit.agents.profiles.recorded_pyautogui import recorded
from tests.unit.agents.profiles.responses_endpoint import ResponsesEndpoint, acts, says

Official = Callable[[ChatEndpoint, pytest.MonkeyPatch], Callable[[bytes], Sequence[str]]]
"""Returns what predicts the scripts of the next step from its screenshot."""
QUIET = official_agents.logging.getLogger("official")


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


def qwen_3(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    module = official_agents.module("qwen3vl_agent")
    patch.setattr(
        module, "smart_resize", official_agents.module("opencua.utils").smart_resize
    )  # its own is not shipped
    patch.setenv("OPENAI_BASE_URL", endpoint.url)
    agent = module.Qwen3VLAgent(model=MODEL, api_backend="openai")
    agent.reset(QUIET)
    return lambda seen: agent.predict(QUESTION, {"screenshot": seen})[1]


def qwen_25(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    from rollout_tasks.agents.profiles.coordinates import QWEN_25

    module = official_agents.module("qwen25vl_agent")
    patch.setattr(module, "smart_resize", lambda height, width: QWEN_25.size(width, height)[::-1])  # not shipped
    patch.setenv("DASHSCOPE_API_KEY", "none")
    patch.setattr(module.openai, "OpenAI", _at(endpoint, module.openai.OpenAI))
    agent = module.Qwen25VLAgent(model=MODEL)
    agent.reset(QUIET)
    return lambda seen: agent.predict(QUESTION, {"screenshot": seen})[1]


def _at(endpoint: ChatEndpoint, client: Any) -> Callable[..., Any]:
    return lambda **options: client(**{**options, "base_url": endpoint.url})


def ui_tars_15(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    patch.setenv("DOUBAO_API_URL", endpoint.url)
    patch.setenv("DOUBAO_API_KEY", "none")
    runner = {
        "temperature": 1.0,
        "top_k": -1,
        "top_p": 0.9,
        "max_tokens": 500,
        "infer_mode": "qwen25vl_normal",
        "prompt_style": "qwen25vl_normal",
        "input_swap": False,
        "language": "Chinese",
        "max_pixels": 16384 * 28 * 28,
        "min_pixels": 100 * 28 * 28,
        "callusr_tolerance": 3,
        "history_n": 5,
    }
    agent = official_agents.module("uitars15_v1").UITARSAgent(model=MODEL, runtime_conf=runner)
    agent.reset()
    return lambda seen: agent.predict(QUESTION, {"screenshot": seen})[1]


def ui_tars_2(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    patch.setenv("DOUBAO_API_URL", f"{endpoint.url}/chat/completions")
    patch.setenv("DOUBAO_API_KEY", "none")
    agent = official_agents.module("uitars15_v2").UITarsAgent(
        model=MODEL,
        model_type="doubao",
        max_tokens=3000,
        top_p=0.9,
        temperature=0.0,
        max_trajectory_length=None,
        max_image_history_length=5,
    )
    agent.reset(QUIET)
    return lambda seen: agent.predict(QUESTION, {"screenshot": seen})[1]


def open_cua(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    module = official_agents.module("opencua.opencua_agent")
    post = module.httpx.post
    patch.setattr(module.httpx, "post", lambda _address, **rest: post(f"{endpoint.url}/chat/completions", **rest))
    patch.setenv("OPENCUA_API_KEY", "none")
    agent = module.OpenCUAAgent(
        model=MODEL,
        history_type="action_history",
        max_steps=100,
        max_tokens=2048,
        coordinate_type="qwen25",
        password="password",
    )
    agent.reset(QUIET)
    return lambda seen: agent.predict(QUESTION, {"screenshot": seen})[1]


def openai_cua(endpoint: ChatEndpoint, patch: pytest.MonkeyPatch) -> Callable[[bytes], Sequence[str]]:
    patch.setenv("OPENAI_BASE_URL", endpoint.url)
    patch.setenv("OPENAI_API_KEY_CUA", "none")
    desktop = types.SimpleNamespace(
        step=lambda _script: ({"screenshot": screenshot(len(endpoint.bodies))}, 0.0, False, {})
    )
    agent = official_agents.module("openai_cua_agent").OpenAICUAAgent(desktop, model=MODEL, client_password="password")
    agent.reset(QUIET)

    def scripts(seen: bytes) -> Sequence[str]:
        actions = agent.predict(QUESTION, {"screenshot": seen})[1]
        for one in actions:
            agent.step(one)
        return [one["action"] for one in actions] or ["DONE"]  # its runner ends the episode then

    return scripts


UI_TARS_REPLIES = [
    action("click(start_box='(100,200)')"),
    "\n" + action("left_double(start_box='(300, 401)')") + "\n",
    action("drag(start_box='(100,200)', end_box='(300,400)')"),
    "Thought: \u6253\u5f00\u3002\nAction: hotkey(key='ctrl s')",
    action("type(content='Hello, world')"),
    action("scroll(start_box='(100,200)', direction='down')"),
    action("wait()"),
    action("right_single(start_box='(1900,1080)')"),
    "Reflection: No.\nAction_Summary: Again.\nAction: click(start_box='(7,9)')",
    action("click(start_box='(100,200)')"),
    action("hotkey(key='enter')"),
    action("finished()"),
]
POINT_REPLIES = [
    f"<think>Step {number}.</think>\n" + reply
    for number, reply in enumerate(
        [
            action("click(point='<point>100 200</point>')"),
            action("left_double(point='<point>300 401</point>')"),
            action("drag(start_point='<point>100 200</point>', end_point='<point>300 400</point>')"),
            action("hotkey(key='ctrl s')"),
            action("type(content='Hello, world')"),
            action("scroll(point='<point>100 200</point>', direction='down')"),
            action("wait()"),
            action("right_single(point='<point>999 998</point>')"),
            action("keydown(key='shift')"),
            action("click(point='<point>7 9</point>')"),
            action("keyup(key='shift')"),
            action("finished(content='ok')"),
        ]
    )
]
QWEN_REPLIES = [
    tool(action="left_click", coordinate=[100, 200]),
    "action: Type the name.\n" + tool(action="type", text="Hello").partition("\n")[2],
    tool(action="key", keys=["ctrl", "s"]).partition("\n")[2],
    "I will scroll.\n" + tool(action="scroll", pixels=-5).partition("\n")[2],
    tool(action="wait", time=3),
    tool(action="double_click", coordinate=[998, 997]),
    tool(action="right_click", coordinate=[5, 6]),
    tool(action="mouse_move", coordinate=[500, 500]),
    tool(action="left_click_drag", coordinate=[600, 500]),
    "Some words.\n" + tool(action="middle_click", coordinate=[11, 12]) + "\n",
    tool(action="key", keys=["enter"]),
    tool(action="terminate", status="success"),
]
CODE_REPLIES = [
    code("pyautogui.click(x=100, y=200)"),
    code("pyautogui.write('Hello', interval=0.1)"),
    code("pyautogui.hotkey('ctrl', 's')"),
    code("pyautogui.scroll(-5)"),
    code("computer.wait()"),
    code("pyautogui.doubleClick(x=1931, y=1091)"),
    code("pyautogui.moveTo(x=100, y=200)\npyautogui.dragTo(x=300, y=400, button='left')"),
    "# Step 8:\n" + code("pyautogui.press('enter')"),
    code("pyautogui.rightClick(x=7, y=9)"),
    code("pyautogui.press(['a', 'b'])"),
    code("pyautogui.click(x=966, y=546)"),
    code("computer.terminate(status='success')"),
]
EPISODES: dict[str, tuple[Official, list[str]]] = {
    "opencua": (open_cua, CODE_REPLIES),
    "qwen2.5-vl": (qwen_25, QWEN_REPLIES),
    "qwen3-vl": (qwen_3, QWEN_REPLIES),
    "uitars-1.5": (ui_tars_15, UI_TARS_REPLIES),
    "uitars-2": (ui_tars_2, POINT_REPLIES),
}
EACH_TIME = {"qwen3-vl", "uitars-1.5"}
"""What the default suite plays: each episode takes seconds."""


RESPONSES = [
    acts(1, type="screenshot"),
    acts(2, type="click", x=100, y=200, button="left"),
    acts(3, type="type", text="Hello"),
    acts(4, type="keypress", keys=["CTRL", "s"]),
    acts(5, type="wait"),
    acts(6, type="double_click", x=1900, y=1000),
    acts(7, type="move", x=7, y=9),
    acts(8, type="scroll", x=100, y=200, scroll_x=0, scroll_y=5),
    acts(9, type="click", x=9, y=9, button="right"),
    acts(10, type="drag", path=[{"x": 1, "y": 2}, {"x": 300, "y": 400}]),
    acts(11, type="keypress", keys=["ENTER"]),
    says("It is bold."),
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EACH_TIME else pytest.mark.slow) for name in EPISODES]
)
def test_requests_and_actions_are_the_official_ones(
    endpoint: ChatEndpoint, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # an official agent writes files
    make, replies = EPISODES[name]
    choices = [said(reply) for reply in replies]

    endpoint.will(*choices)
    predict = make(endpoint, monkeypatch)
    theirs = [list(predict(screenshot(number))) for number in range(len(replies))]
    official = endpoint.bodies
    endpoint.will(*choices)
    desktop = DrawnDesktop(number=lambda: len(endpoint.bodies))
    play(endpoint, name, desktop)
    ours = endpoint.bodies

    assert len(official) == len(ours) == len(replies) == 12
    for number, (their_body, our_body) in enumerate(zip(official, ours, strict=True)):
        assert _readable(our_body) == _readable(their_body), f"step {number}"
    for number, (their_scripts, our_scripts) in enumerate(zip(theirs, desktop.scripts(), strict=True)):
        assert recorded(*our_scripts) == recorded(*their_scripts), f"step {number}"


def test_requests_and_actions_in_the_responses_api_are_the_official_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = ResponsesEndpoint()
    endpoint.will(*RESPONSES)
    predict = openai_cua(endpoint, monkeypatch)
    theirs = [list(predict(screenshot(number))) for number in range(len(RESPONSES))]
    official = endpoint.bodies
    endpoint.will(*RESPONSES)
    desktop = DrawnDesktop(number=lambda: len(endpoint.bodies))
    play(endpoint, "openai-cua", desktop)
    ours = endpoint.bodies
    endpoint.close()

    assert [_readable(body) for body in ours] == [_readable(body) for body in official]
    for number, (their_scripts, our_scripts) in enumerate(zip(theirs, desktop.scripts(), strict=True)):
        done = [event for event in recorded(*our_scripts) if event != ("WAIT",)]  # it sleeps in a script instead
        assert done == recorded(*their_scripts), f"step {number}"


def _readable(body: Any) -> Any:
    """Returns a body with the digests of its pictures in their place, so that a difference can be read."""
    if isinstance(body, dict):
        return {key: _readable(value) for key, value in body.items()}
    if isinstance(body, list):
        return [_readable(value) for value in body]
    picture = isinstance(body, str) and body.startswith("data:")
    return hashlib.sha256(body.encode()).hexdigest() if picture else body
