"""The same replies do the same to the computer as with OSWorld's official agents, to the pixel and the key."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rollout_tasks.agents.profiles.coordinates import QWEN_3, QWEN_25, UI_TARS, Resizing
from tests.unit.agents.profiles import official_agents
from tests.unit.agents.profiles.compared_agents import (
    CLICK,
    RESIZED,
    SCREEN,
    action,
    code,
    computer,
    ours,
    theirs,
    tool,
    use,
    without_waits,
)
from tests.unit.agents.profiles.recorded_pyautogui import START

UI_TARS_REPLIES = [
    action("click(start_box='(100,200)')"),
    action("click(start_box='(100, 200)')"),
    action('click(start_box="(100,200)")'),
    action("click(start_box='(100,200')"),
    action("click(start_box='(100,200,300,401)')"),
    action("click(start_box='100.5,200')"),
    action("left_single(start_box='(100,200)')"),
    action("left_double(start_box='(100,200)')"),
    action("right_single(start_box='(100,200)')"),
    action("hover(start_box='(100,200)')"),
    action("drag(start_box='(100,200)', end_box='(300,400)')"),
    action("select(start_box='(100,200)', end_box='(300,400)')"),
    action("hotkey(key='ctrl c')"),
    action("hotkey(hotkey='ctrl shift t')"),
    action("hotkey(key='Enter')"),
    action("hotkey(key='ctrl space')"),
    action("type(content='Hello, world')"),
    action("type(content='Hello\\n')"),
    action("type(content='it's')"),
    action("type(content='it\\'s')"),
    action("type(content='say \"hi\"')"),
    action("scroll(start_box='(100,200)', direction='down')"),
    action("scroll(start_box='(100,200)', direction='scroll UP')"),
    action("wait()"),
    action("finished()"),
    action("finished(content='42')"),
    action("call_user()"),
    action("error_env()"),
    action(" click(start_box='(100,200)')"),
    "Reflection: No.\nAction_Summary: Again.\nAction: click(start_box='(100,200)')",
    "Action_Summary: Again.\nAction: click(start_box='(100,200)')",
    "Thought: On one line. Action: click(start_box='(100,200)')",
]
SEVERAL = [
    action("click(start_box='(100,200)')\n\ntype(content='abc')\n\nhotkey(key='enter')"),
    action("finished()\n\nclick(start_box='(100,200)')"),
    "Thought: A.\nAction: click(start_box='(1,2)')\n\nAction: click(start_box='(100,200)')",
    "Action:click(start_box='(100,200)')",
]
PROSE = [
    action("I open it.\n\nclick(start_box='(100,200)')"),
    action("click(start_box='(100,200)')\n\nIt opens."),
]
ESCAPED_TWICE = [action("type(content='two words\\\\n')")]
KEYS = [action("hotkey(key='arrowup')")]
POINTS = [
    action("click(point='<point>100 200</point>')[EOS]"),
    action("left_double(start_point='<point>100 200</point>')"),
    action("drag(start_point='<point>100 200</point>', end_point='<point>300 400</point>')"),
    action("scroll(point='<point>100 200</point>', direction='down')"),
    action("keydown(key='shift')"),
    action("keyup(key='arrowleft')"),
    action("release(press='space')"),
    "<think>Hm.</think>\nThought: A.\nAction: click(point='<point>100 200</point>')",
]
QWEN_REPLIES = [
    tool(action="left_click", coordinate=[100, 200]),
    tool(action="left_click", coordinate=[100.7, 200.2]),
    tool(action="left_click"),
    tool(action="right_click", coordinate=[100, 200]),
    tool(action="right_click"),
    tool(action="middle_click", coordinate=[100, 200]),
    tool(action="middle_click"),
    tool(action="double_click", coordinate=[100, 200]),
    tool(action="double_click"),
    tool(action="mouse_move", coordinate=[100, 200]),
    tool(action="left_click_drag", coordinate=[100, 200]),
    tool(action="type", text="Hello, world"),
    tool(action="key", keys=["enter"]),
    tool(action="key", keys=["ctrl", "c"]),
    tool(action="key", keys=["keys=[ctrl", "c]"]),
    tool(action="key", keys=["['ctrl", " shift ", "t"]),
    tool(action="key", keys=["ctrl", 1]),
    tool(action="scroll", pixels=-5),
    tool(action="scroll", pixels=-500),
    tool(action="wait", time=3),
    tool(action="terminate", status="success"),
    tool(action="terminate"),
    tool(action="left_click", coordinate=[1, 2]) + "\n" + tool(action="type", text="abc"),
    CLICK,
    f"Action: Click.\n  {CLICK}",
    f"<tool_call>\n{CLICK}",
    f"<tool_call>\n\n  {CLICK.replace(', ', f',{chr(10)}')}\n</tool_call>",
    f"I will click.\n<tool_call>\n{CLICK}\n</tool_call>\nDone.",
]
CODE_REPLIES = [
    code("pyautogui.click(x=0.1, y=0.2)"),
    code("pyautogui.click(0.1, 0.2)"),
    code("pyautogui.click(x=0.1, y=0.2, clicks=2, button='right')"),
    code("pyautogui.rightClick(x=0.1, y=0.2)"),
    code("pyautogui.middleClick(x=0.1, y=0.2)"),
    code("pyautogui.doubleClick(x=0.1, y=0.2)"),
    code("pyautogui.tripleClick(x=0.1, y=0.2)"),
    code("pyautogui.moveTo(x=0.1, y=0.2, duration=0.5)"),
    code("pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.dragTo(x=0.3, y=0.4, button='left')"),
    code("pyautogui.scroll(-5)"),
    code("pyautogui.scroll(clicks=5, x=0.1, y=0.2)"),
    code("pyautogui.write('Hello', interval=0.1)"),
    code("pyautogui.write(message='It\\'s\\n')"),
    code("pyautogui.press('enter')"),
    code("pyautogui.press(['a', 'b'], presses=2)"),
    code("pyautogui.hotkey('ctrl', 'c')"),
    code("pyautogui.keyDown('shift')\npyautogui.click(x=0.1, y=0.2)\npyautogui.keyUp('shift')"),
    code("import pyautogui\nimport time\npyautogui.click(x=0.1, y=0.2)\n# a note"),
    code("computer.wait()"),
    code("computer.terminate(status='success')"),
    code("computer.terminate(status='failure')"),
    code("computer.terminate(status='fail')"),
    code('{"name": "computer.terminate", "arguments": {"status": "success"}}'),
    "## Thought\nA.\n## Action\nB.\n```code\ncomputer.terminate(status='success', answer='42')\n```",
    "## Action:\nB.\n```python pyautogui.press('a')```",
    "## Action:\nB.\n```pythonpyautogui.press('a')```",
    "## Action:\nB.\n```\npyautogui.press('a')\n```",
    "```python\nexit()\n```\n## Action:\nB.\n```python\npyautogui.press('a')\n```\nThat is all.",
]
CLAUDE_REPLIES = [
    use(action="left_click", coordinate=[100, 200]),
    use(action="left_click", coordinate=[100.7, 200.2]),
    use(action="left_click"),
    use(action="left_click", coordinate=[100, 200], text="ctrl+shift"),
    use(action="right click", coordinate=[100, 200]),
    use(action="right_click", coordinate=[100, 200]),
    use(action="middle_click", coordinate=[100, 200]),
    use(action="double_click", coordinate=[100, 200]),
    use(action="triple_click", coordinate=[100, 200]),
    use(action="left_press", coordinate=[100, 200]),
    use(action="mouse_move", coordinate=[100, 200]),
    use(action="left_click_drag", coordinate=[100, 200]),
    use(action="left_click_drag", start_coordinate=[300, 400], coordinate=[100, 200]),
    use(action="left_mouse_down"),
    use(action="left_mouse_up"),
    use(action="scroll", coordinate=[100, 200], scroll_direction="down", scroll_amount=3),
    use(action="scroll", scroll_direction="left", scroll_amount=3),
    use(action="key", text="Return"),
    use(action="key", text="ctrl+S"),
    use(action="key", text="ctrl + s"),
    use(action="key", text="Page_Down"),
    use(action="key", text="super_l"),
    use(action="key", text="Escape"),
    use(action="type", text="Hello, it's me\n"),
    use(action="done"),
    use(action="fail"),
    use(action="call_user"),
    {"content": [{"type": "text", "text": "It is done."}], "stop_reason": "end_turn"},
]
RESPONSES_REPLIES = [
    computer(type="click", x=100, y=200, button="left"),
    computer(type="click", x=100, y=200, button="right"),
    computer(type="click", x=100, y=200),
    computer(type="double_click", x=100, y=200),
    computer(type="move", x=100, y=200),
    computer(type="drag", path=[{"x": 100, "y": 200}, {"x": 300, "y": 400}]),
    computer(type="drag", path=[[100, 200], [300, 400]]),
    computer(type="scroll", x=100, y=200, scroll_x=0, scroll_y=5),
    computer(type="scroll", scroll_x=0, scroll_y=-5),
    computer(type="type", text="Hello, it's me\n"),
    computer(type="keypress", keys=["CTRL", "A"]),
    computer(type="keypress", keys=["ENTER"]),
    computer(type="keypress", keys=["A"]),
    computer(type="keypress", keys=["arrowdown"]),
]
ALL = {
    "ui_tars_1": [*UI_TARS_REPLIES, *SEVERAL, *PROSE],
    "ui_tars_15": [*UI_TARS_REPLIES, *SEVERAL, *KEYS, *ESCAPED_TWICE],
    "ui_tars_15_points": [*UI_TARS_REPLIES, *KEYS, *POINTS, *ESCAPED_TWICE],
    "qwen_3": QWEN_REPLIES,
    "qwen_25": [*QWEN_REPLIES, f"⚗\n{CLICK}\n⚗", f"📐\n{CLICK}\n</tool_call>"],
    "open_cua": CODE_REPLIES,
    "open_cua_absolute": [
        reply.replace("0.1", "100").replace("0.2", "200.5").replace("0.3", "300") for reply in CODE_REPLIES
    ],
    "open_cua_resized": [reply.replace("0.", "10") for reply in CODE_REPLIES],
    "claude": CLAUDE_REPLIES,
    "responses": RESPONSES_REPLIES,
}


@pytest.mark.parametrize(("agent", "reply"), [(agent, reply) for agent, replies in ALL.items() for reply in replies])
def test_a_reply_does_the_same(agent: str, reply: Any) -> None:
    expected = theirs(agent, reply)

    assert expected != [("pointer", START)]
    assert without_waits(ours(agent, reply)) == without_waits(expected)


CLICKS: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float], bool]] = {
    "ui_tars_1": (lambda x, y: action(f"click(start_box='({x},{y})')"), (1000, 1000), False),
    "ui_tars_15": (lambda x, y: action(f"click(start_box='({x},{y})')"), RESIZED, False),
    "ui_tars_15_points": (lambda x, y: action(f"click(point='<point>{x} {y}</point>')"), (1000, 1000), False),
    "qwen_3": (lambda x, y: tool(action="left_click", coordinate=[x, y]), (999, 999), False),
    "qwen_25": (lambda x, y: tool(action="left_click", coordinate=[x, y]), RESIZED, False),
    "open_cua": (lambda x, y: code(f"pyautogui.click(x={x}, y={y})"), (1, 1), True),
    "open_cua_resized": (lambda x, y: code(f"pyautogui.click(x={x}, y={y})"), RESIZED, False),
    "open_cua_absolute": (lambda x, y: code(f"pyautogui.click(x={x}, y={y})"), SCREEN, False),
    "claude": (lambda x, y: use(action="left_click", coordinate=[x, y]), (1280, 720), False),
    "responses": (lambda x, y: computer(type="click", x=x, y=y, button="left"), SCREEN, False),
}


@pytest.mark.parametrize("agent", CLICKS)
def test_every_click_is_on_the_same_pixel(agent: str) -> None:
    write, (width, height), shares = CLICKS[agent]
    chance = random.Random(5)
    for step in range(400):
        x, y = width * step / 400, height * (399 - step) / 400
        if shares:
            x, y = round(x + chance.random() / 400, 4), round(y, 3)
        else:
            x, y = int(x) + 2, int(y) + 2
        expected = theirs(agent, write(x, y))
        if any(place[0] >= SCREEN[0] or place[1] >= SCREEN[1] for *_, place in expected if isinstance(place, tuple)):
            continue
        assert ours(agent, write(x, y)) == expected, (x, y)


@pytest.mark.parametrize(
    "picture", [(1920, 1080), (1280, 720), (1366, 768), (100, 100), (7680, 4320), (3000, 40), (640, 480)]
)
@pytest.mark.parametrize(
    ("resizing", "name", "limits"),
    [
        (UI_TARS, "uitars15_v1", {}),
        (UI_TARS, "uitars15_v2", {}),
        (QWEN_25, "opencua.utils", {"factor": 28, "min_pixels": 3136, "max_pixels": 12845056}),
        (QWEN_3, "opencua.utils", {"factor": 32, "min_pixels": 3136, "max_pixels": 16 * 16 * 4 * 12800}),
    ],
)
def test_pictures_are_resized_alike(
    resizing: Resizing, name: str, limits: dict[str, int], picture: tuple[int, int]
) -> None:
    width, height = picture
    official_height, official_width = official_agents.module(name).smart_resize(height, width, **limits)

    assert resizing.size(width, height) == (official_width, official_height)
