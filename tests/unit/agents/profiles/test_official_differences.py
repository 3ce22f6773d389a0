"""Where an official agent does something wrong with a reply, by name: what it does, and what is done here."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.agents.profiles.reply import UnusableReplyError
from tests.unit.agents.profiles.compared_agents import CLICK, action, code, computer, ours, theirs, tool, use
from tests.unit.agents.profiles.recorded_pyautogui import START, Event, recorded

Result = list[Event] | type[Exception]


def typed(text: str) -> list[Event]:
    return recorded(f"pyautogui.write({text!r})")


def clicked(x: int, y: int) -> list[Event]:
    return recorded(f"pyautogui.click({x}, {y})")


def pressed(*keys: str) -> list[Event]:
    return recorded(f"pyautogui.hotkey(*{keys!r})")


def then(*parts: list[Event]) -> list[Event]:
    """One after the other; the pointer is where the last leaves it."""
    return [event for part in parts for event in part if event[0] != "pointer"] + parts[-1][-1:]


REFUSED = UnusableReplyError
NOTHING = recorded()
DONE, FAIL, WAIT = recorded("DONE"), recorded("FAIL"), recorded("WAIT")
TWO_WORDS, PROSE = action(r"type(content='two words\\n')"), action("click(start_box='(0,0)')\n\nIt opens.")

UI_TARS: list[tuple[str, Any, Result, Result]] = [
    (
        "ui_tars_1: clicks outside the screen",
        action("click(start_box='(1000,1000)')"),
        clicked(1920, 1080),
        clicked(1919, 1079),
    ),
    ("ui_tars_1: clicks far outside the screen", action("click(start_box='(5000,9)')"), clicked(9600, 9), REFUSED),
    ("ui_tars_15: clicks left of the screen", action("click(start_box='(-90,9)')"), clicked(-89, 8), REFUSED),
    ("ui_tars_1: enters twice", TWO_WORDS, typed("two words\n\n"), typed("two words\n")),
    ("ui_tars_15: text of two lines is no Python", action(r"type(content='a\nb')"), SyntaxError, typed("a\nb")),
    ("ui_tars_15: reads backslashes twice", action(r"type(content='C:\\new')"), typed("C:\new"), typed("C:\\new")),
    ("ui_tars_15: drops blanks in front", action("type(content='  a')"), typed("a"), typed("  a")),
    ("ui_tars_15: enters nothing for a line break", action(r"type(content='\n')"), NOTHING, typed("\n")),
    ("ui_tars_15: types the call itself", action('type(content="abc")'), typed('type(content="abc")'), typed("abc")),
    (
        "ui_tars_15: prose after the call is no Python",
        action("type(content='abc')\nIt types."),
        SyntaxError,
        typed("abc"),
    ),
    ("ui_tars_15: refuses prose", PROSE, ValueError, clicked(0, 0)),
    ("ui_tars_15: crashes for press", action("press(key='enter')"), UnboundLocalError, pressed("enter")),
    (
        "ui_tars_15_points: does not release a key",
        action("press(key='a')"),
        recorded("pyautogui.keyDown('a')"),
        pressed("a"),
    ),
    ("ui_tars_1: does not know press", action("press(key='enter')"), NOTHING, pressed("enter")),
    (
        "ui_tars_15_points: turns the wheel the wrong way",
        action("scroll(direction='up')"),
        recorded("pyautogui.scroll(-5)"),
        recorded("pyautogui.scroll(5)"),
    ),
    (
        "ui_tars_15: does not scroll sideways",
        action("scroll(direction='right')"),
        NOTHING,
        recorded("pyautogui.hscroll(5)"),
    ),
    (
        "ui_tars_15_points: cannot read two actions",
        action("hover(start_box='(0,0)')\n\nhotkey(key='a')"),
        ValueError,
        recorded("pyautogui.moveTo(0, 0)\npyautogui.press('a')"),
    ),
    (
        "ui_tars_15: cannot read two actions on two lines",
        action("hotkey(key='a')\nhotkey(key='b')"),
        ValueError,
        recorded("pyautogui.press(['a', 'b'])"),
    ),
    ("ui_tars_15: finishes without acting", action("hotkey(key='a')\n\nfinished()"), DONE, then(pressed("a"), DONE)),
    ("ui_tars_15: presses nothing for ctrl+c", action("hotkey(key='ctrl+c')"), NOTHING, pressed("ctrl", "c")),
    (
        "ui_tars_15: adds shift for a capital",
        action("hotkey(key='ctrl C')"),
        pressed("ctrl", "C"),
        pressed("ctrl", "c"),
    ),
    (
        "ui_tars_15: cannot read tokens",
        action("click(start_box='<|box_start|>(0,0)<|box_end|>')"),
        ValueError,
        clicked(0, 0),
    ),
    ("ui_tars_15: does nothing for an unknown action", action("open_app(app_name='x')"), NOTHING, REFUSED),
    ("ui_tars_15: crashes without a place", action("click()"), TypeError, REFUSED),
    ("ui_tars_15: drags nothing without an end", action("drag(start_box='(1,2)')"), NOTHING, REFUSED),
    ("ui_tars_1: does nothing for a broken call", action("click(start_box='(1,2)"), NOTHING, REFUSED),
]
BROKEN = '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_cl\n</tool_call>'
FUNCTION = (
    "<tool_call>\n<function=computer_use>\n<parameter=action>\nterminate\n</parameter>\n</function>\n</tool_call>"
)
QWEN: list[tuple[str, Any, Result, Result]] = [
    (
        "qwen_3: clicks outside the screen",
        tool(action="left_click", coordinate=[999, 999]),
        clicked(1920, 1080),
        clicked(1919, 1079),
    ),
    (
        "qwen_3: clicks far outside the screen",
        tool(action="left_click", coordinate=[1900, 9]),
        clicked(3651, 9),
        REFUSED,
    ),
    ("qwen_3: says done for failure", tool(action="terminate", status="failure"), DONE, FAIL),
    ("qwen_3: says done for any status", tool(action="terminate", status="stuck"), DONE, REFUSED),
    (
        "qwen_3: moves to a corner without a place",
        tool(action="mouse_move"),
        recorded("pyautogui.moveTo(0, 0)"),
        REFUSED,
    ),
    (
        "qwen_3: drags to a corner without a place",
        tool(action="left_click_drag"),
        recorded("pyautogui.dragTo(0, 0)"),
        REFUSED,
    ),
    ("qwen_3: a quote is no Python", tool(action="type", text="it's"), SyntaxError, typed("it's")),
    ("qwen_3: a line break is no Python", tool(action="type", text="a\n"), SyntaxError, typed("a\n")),
    ("qwen_3: reads backslashes", tool(action="type", text="\\n"), typed("\n"), typed("\\n")),
    (
        "qwen_3: leaves a quote in a key",
        tool(action="key", keys=["keys=['ctrl'", "'c']"]),
        SyntaxError,
        pressed("ctrl", "c"),
    ),
    ("qwen_3: presses the letters of a name", tool(action="key", keys="tab"), pressed("t", "a", "b"), pressed("tab")),
    ("qwen_3: presses nothing for ctrl+c", tool(action="key", keys=["ctrl+c"]), NOTHING, pressed("ctrl", "c")),
    (
        "qwen_3: does not look where to scroll",
        tool(action="scroll", pixels=5, coordinate=[0, 0]),
        recorded("pyautogui.scroll(5)"),
        recorded("pyautogui.scroll(5, 0, 0)"),
    ),
    (
        "qwen_3: turns the wheel without end",
        tool(action="scroll", pixels=5000),
        recorded("pyautogui.scroll(5000)"),
        recorded("pyautogui.scroll(1000)"),
    ),
    (
        "qwen_3: does not click three times",
        tool(action="triple_click"),
        NOTHING,
        recorded("pyautogui.tripleClick()"),
    ),
    ("qwen_3: does not scroll sideways", tool(action="hscroll", pixels=5), NOTHING, recorded("pyautogui.hscroll(5)")),
    ("qwen_3: does nothing for an unknown action", tool(action="explode"), NOTHING, REFUSED),
    ("qwen_3: does nothing for an unknown tool", CLICK.replace("computer_use", "bash"), NOTHING, REFUSED),
    ("qwen_3: does nothing for a broken call", BROKEN, NOTHING, REFUSED),
    ("qwen_3: does nothing for a call on one line", f"<tool_call>{CLICK}</tool_call>", NOTHING, clicked(192, 216)),
    ("qwen_3: does nothing for functions", FUNCTION, NOTHING, DONE),
    ("qwen_3: crashes for three numbers", tool(action="left_click", coordinate=[1, 2, 3]), ValueError, REFUSED),
    ("qwen_3: crashes for a place as text", tool(action="left_click", coordinate="[0, 0]"), ValueError, clicked(0, 0)),
    ("qwen_3: crashes for a wait without words", tool(action="wait").partition("\n")[2], IndexError, WAIT),
    ("qwen_3: does nothing without a call", "I am done.", NOTHING, REFUSED),
]
NOT_YET = code("# not computer.terminate('success') yet\npyautogui.press('a')")
CODE: list[tuple[str, Any, Result, Result]] = [
    (
        "open_cua: clicks outside the screen",
        code("pyautogui.click(x=1, y=1)"),
        clicked(1920, 1080),
        clicked(1919, 1079),
    ),
    ("open_cua: clicks far outside the screen", code("pyautogui.click(x=9, y=1)"), clicked(17280, 1080), REFUSED),
    ("open_cua: runs any code", code("len('abc')"), NOTHING, REFUSED),
    (
        "open_cua: loses how far to scroll at a place",
        code("pyautogui.scroll(-5, x=0.1, y=0.2)"),
        TypeError,
        recorded("pyautogui.scroll(-5, 192, 216)"),
    ),
    (
        "open_cua: cannot click three times",
        code("computer.triple_click(x=0.1, y=0.2)"),
        NameError,
        recorded("pyautogui.tripleClick(192, 216)"),
    ),
    ("open_cua: fails for an answer", code("computer.terminate(status='success', answer='no failure')"), FAIL, DONE),
    ("open_cua: says done for a comment", NOT_YET, DONE, pressed("a")),
    ("open_cua: only waits", code("pyautogui.press('a')\ncomputer.wait()"), WAIT, then(pressed("a"), WAIT)),
    ("open_cua: says fail without code", "## Action:\nI click.", FAIL, REFUSED),
    ("open_cua: says fail without an action", "```python\npyautogui.press('a')\n```", FAIL, pressed("a")),
    ("open_cua: says fail for half a block", "## Action:\nB.\n```python\npyautogui.press('a')", FAIL, REFUSED),
    ("open_cua_resized: mixes up two sizes", code("pyautogui.click(0.5, 0.5)"), clicked(966, 546), clicked(960, 540)),
    ("open_cua: presses nothing for an unknown key", code("pyautogui.press('hyper')"), NOTHING, REFUSED),
    (
        "open_cua: adds shift for a capital",
        code("pyautogui.hotkey('ctrl', 'C')"),
        pressed("ctrl", "C"),
        pressed("ctrl", "c"),
    ),
]
CUT_OFF = {"content": [{"type": "text", "text": "I will"}], "stop_reason": "max_tokens"}
BASH = {"content": [{"type": "tool_use", "id": "a", "name": "bash", "input": {"action": "left_click"}}]}
CLAUDE: list[tuple[str, Any, Result, Result]] = [
    (
        "claude: clicks outside the screen",
        use(action="left_click", coordinate=[1280, 720]),
        clicked(1920, 1080),
        clicked(1919, 1079),
    ),
    (
        "claude: clicks far outside the screen",
        use(action="left_click", coordinate=[1919, 9]),
        clicked(2878, 13),
        REFUSED,
    ),
    ("claude: says done for half a message", CUT_OFF, DONE, REFUSED),
    ("claude: says done for an empty message", {"content": [], "stop_reason": "end_turn"}, DONE, REFUSED),
    ("claude: does not know left click", use(action="left click", coordinate=[0, 0]), ValueError, clicked(0, 0)),
    (
        "claude: does not release held keys",
        use(action="hold_key", text="a"),
        recorded("pyautogui.keyDown('a')"),
        pressed("a"),
    ),
    ("claude: presses command for super", use(action="key", text="super"), pressed("command"), pressed("win")),
    (
        "claude: presses nothing for keys in a row",
        use(action="key", text="a b"),
        NOTHING,
        recorded("pyautogui.press(['a', 'b'])"),
    ),
    ("claude: makes a capital small", use(action="key", text="A"), pressed("a"), pressed("A")),
    (
        "claude: holds no keys while it scrolls",
        use(action="scroll", scroll_direction="up", scroll_amount=2, text="ctrl"),
        recorded("pyautogui.scroll(2)"),
        recorded("pyautogui.keyDown('ctrl')\npyautogui.scroll(2)\npyautogui.keyUp('ctrl')"),
    ),
    ("claude: a quote at the end is no Python", use(action="type", text='say "hi"'), SyntaxError, typed('say "hi"')),
    ("claude: reads backslashes", use(action="type", text="a\\tb"), typed("a\tb"), typed("a\\tb")),
    ("claude: cannot zoom", use(action="zoom", region=[0, 0, 9, 9]), ValueError, WAIT),
    ("claude: crashes without an amount", use(action="scroll", scroll_direction="down"), TypeError, REFUSED),
    ("claude: does not look at the tool's name", BASH, clicked(*START), REFUSED),
]
BATCH = {"output": [{"type": "computer_call", "call_id": "a", "actions": [{"type": "keypress", "keys": ["A"]}]}]}
RESPONSES: list[tuple[str, Any, Result, Result]] = [
    ("responses: clicks outside the screen", computer(type="click", x=1920, y=5), clicked(1920, 5), clicked(1919, 5)),
    ("responses: clicks far outside the screen", computer(type="click", x=9999, y=5), clicked(9999, 5), REFUSED),
    (
        "responses: clicks left for the wheel",
        computer(type="click", x=5, y=5, button="wheel"),
        clicked(5, 5),
        recorded("pyautogui.middleClick(5, 5)"),
    ),
    ("responses: clicks left for back", computer(type="click", x=5, y=5, button="back"), clicked(5, 5), REFUSED),
    ("responses: drops a click without a place", computer(type="click", x=5), NOTHING, REFUSED),
    ("responses: presses nothing for an arrow", computer(type="keypress", keys=["ARROWUP"]), NOTHING, pressed("up")),
    (
        "responses: scrolls to the left for right",
        computer(type="scroll", scroll_x=5, scroll_y=0),
        recorded("pyautogui.hscroll(-5)"),
        recorded("pyautogui.hscroll(5)"),
    ),
    (
        "responses: drops at every place of a path",
        computer(type="drag", path=[[0, 0], [5, 5], [9, 9]]),
        recorded("pyautogui.moveTo(0, 0)\npyautogui.dragTo(5, 5)\npyautogui.dragTo(9, 9)"),
        recorded("pyautogui.mouseDown(0, 0)\npyautogui.mouseUp(9, 9)"),
    ),
    ("responses: drops an unknown action", computer(type="explode"), NOTHING, REFUSED),
    ("responses: cannot read a batch", BATCH, KeyError, pressed("a")),
]
ALL = [*UI_TARS, *QWEN, *CODE, *CLAUDE, *RESPONSES]


@pytest.mark.parametrize(
    ("agent", "reply", "official", "here"),
    [(name.partition(":")[0], *rest) for name, *rest in ALL],
    ids=[name for name, *_ in ALL],
)
def test_the_official_agent_is_wrong(agent: str, reply: Any, official: Result, here: Result) -> None:
    for play, expected in ((theirs, official), (ours, here)):
        if isinstance(expected, type):
            with pytest.raises(expected):
                play(agent, reply)
        else:
            assert play(agent, reply) == expected
