"""Replies of thought, action and code: what each becomes, or why it cannot be used."""

from __future__ import annotations

import tracemalloc

import pytest

from rollout_tasks.agents.profiles.actions import (
    Action,
    Click,
    Done,
    Drag,
    Fail,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates, Rounding
from rollout_tasks.agents.profiles.reply import UnusableReplyError
from rollout_tasks.agents.profiles.thought_action_code import parse

SHARES = Coordinates((1920, 1080), (1, 1), Rounding.NEAREST)
PICTURE = Coordinates((1920, 1080), (1932, 1092), Rounding.SHARE_DOWN)
MIDDLE = (960, 540)


def fenced(code: str) -> str:
    return f"## Thought:\nI see.\n\n## Action:\nDo it.\n\n## Code:\n```python\n{code}\n```"


@pytest.mark.parametrize(
    ("code", "actions"),
    [
        ("pyautogui.click(x=0.5, y=0.5)", [Click(MIDDLE)]),
        ("pyautogui.click(0.5, 0.5)", [Click(MIDDLE)]),
        ("pyautogui.click((0.5, 0.5))", [Click(MIDDLE)]),
        ("pyautogui.click()", [Click()]),
        ("pyautogui.click(1, 1)", [Click((1919, 1079))]),
        ("pyautogui.click(x=0.5, y=0.5, clicks=2, interval=0.1, button='right')", [Click(MIDDLE, "right", 2)]),
        ("pyautogui.click(0.5, 0.5, 3)", [Click(MIDDLE, count=3)]),
        ("pyautogui.click(button='primary')", [Click()]),
        ("pyautogui.leftClick(0.5, 0.5)", [Click(MIDDLE)]),
        ("pyautogui.rightClick(x=0.5, y=0.5)", [Click(MIDDLE, "right")]),
        ("pyautogui.middleClick(0.5, y=0.5)", [Click(MIDDLE, "middle")]),
        ("pyautogui.doubleClick(x=0.5, y=0.5)", [Click(MIDDLE, count=2)]),
        ("pyautogui.tripleClick(x=0.5, y=0.5)", [Click(MIDDLE, count=3)]),
        ("computer.triple_click(x=0.5, y=0.5)", [Click(MIDDLE, count=3)]),
        ("computer.tripleClick(0.5, 0.5)", [Click(MIDDLE, count=3)]),
        ("pyautogui.moveTo(x=0.5, y=0.5, duration=1.5, tween=pyautogui.easeInQuad)", [Move(MIDDLE)]),
        ("pyautogui.moveTo(0, 0)\npyautogui.dragTo(0.5, 0.5, button='left')", [Move((0, 0)), Drag((MIDDLE,))]),
        ("pyautogui.dragTo(0.5, 0.5, 1.0, button='right')", [Drag((MIDDLE,), button="right")]),
        ("pyautogui.mouseDown(); pyautogui.mouseUp(0.5, 0.5)", [MouseDown(), MouseUp(MIDDLE)]),
        ("pyautogui.scroll(-10)", [Scroll(dy=-10)]),
        ("pyautogui.scroll(+3, x=0.5, y=0.5)", [Scroll(dy=3, at=MIDDLE)]),
        ("pyautogui.scroll(clicks=-1e4)", [Scroll(dy=-1000)]),
        ("pyautogui.vscroll(4)", [Scroll(dy=4)]),
        ("pyautogui.hscroll(-4)", [Scroll(dx=-4)]),
        ("pyautogui.write('a\\nb', interval=0.05)", [Type("a\nb")]),
        ("pyautogui.write(message='''a\nb''')", [Type("a\nb")]),
        ("pyautogui.write(text='a' 'b')", [Type("ab")]),
        ('pyautogui.typewrite(content="it\'s")', [Type("it's")]),
        ("pyautogui.typewrite(['a', 'enter'])", [Press(("a",)), Press(("enter",))]),
        ("pyautogui.write('),\0')", [Type("),\ufffd")]),
        ("pyautogui.press('enter')", [Press(("enter",))]),
        ("pyautogui.press(keys='tab', presses=3)", [Press(("tab",), 3)]),
        ("pyautogui.press(key='Return')", [Press(("return",))]),
        ("pyautogui.press(['down', 'up'], presses=2)", [Press(("down",)), Press(("up",))] * 2),
        ("pyautogui.hotkey('ctrl', 'C')", [Press(("ctrl", "c"))]),
        ("pyautogui.hotkey(['ctrl', 'c'])", [Press(("ctrl", "c"))]),
        ("pyautogui.hotkey(keys=['ctrl', 'c'])", [Press(("ctrl", "c"))]),
        ("pyautogui.hotkey(key1='ctrl', key2='c', interval=0.1)", [Press(("ctrl", "c"))]),
        ("pyautogui.keyDown('shift')\npyautogui.keyUp(key='shift')", [KeyDown("shift"), KeyUp("shift")]),
        ("time.sleep(2)", [Wait(2.0)]),
        ("pyautogui.sleep(0.5)", [Wait(0.5)]),
        ("computer.wait()", [Wait()]),
        ("Computer.Wait(20)", [Wait(20.0)]),
        ("computer.terminate(status='success')", [Done()]),
        ("computer.terminate('success', answer='''It's\n5''')", [Done("It's\n5")]),
        ("computer.terminate(status='success', answer='no failure')", [Done("no failure")]),
        ('computer.terminate(status="failure")', [Fail()]),
        ('computer.terminate(status="fail")', [Fail()]),
        ('{"name": "computer.terminate", "arguments": {"status": "success"}}', [Done()]),
        (
            "import pyautogui, time\n# open it\n'''Open.'''\npyautogui.click(0.5, 0.5)\ntime.sleep(1)",
            [Click(MIDDLE), Wait(1.0)],
        ),
        ("computer.terminate('success')\npyautogui.click(0.5, 0.5)", [Done()]),
        ("    pyautogui.press('a')\n    pyautogui.press('b')", [Press(("a",)), Press(("b",))]),
    ],
)
def test_what_code_means(code: str, actions: list[Action]) -> None:
    read = parse(fenced(code), SHARES)

    assert list(read.actions) == actions
    assert (read.thought, read.said) == ("I see.", "Do it.")


@pytest.mark.parametrize(
    ("place", "pixel"),
    [
        ("966, 546", MIDDLE),
        ("0.5, 0.5", MIDDLE),
        ("1932, 1092", (1919, 1079)),
        ("1, 1", (0, 0)),
        ("0, 0", (0, 0)),
        ("1.0, 0.5", (1919, 540)),
    ],
)
def test_places_in_a_resized_picture(place: str, pixel: tuple[int, int]) -> None:
    assert parse(fenced(f"pyautogui.click({place})"), PICTURE).actions == (Click(pixel),)


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        (
            "## Observation:\nA.\n## Thought:\nB.\n## Action:\nC.\n## Code:\n```python\ncomputer.wait()\n```",
            ("A.", "B.", "C."),
        ),
        ("## Thought\nB.\n## Action\nC.\n```code\ncomputer.wait()\n```\n", ("", "B.", "C.")),
        ("# Thought: B.\n# Action: C.\n```\ncomputer.wait()```", ("", "B.", "C.")),
        ("Thought: B.\nAction: C.\n```Python computer.wait()```", ("", "B.", "C.")),
        ("Thought: B.\n## Action:\nC.\n```pythoncomputer.wait()```", ("", "", "C.")),
        ("B.\n```py\ncomputer.wait()\n```", ("", "B.", "")),
        (
            "## Thought:\nNot ```python\nexit()\n```.\n## Action:\nC.\n```python\ncomputer.wait()\n```",
            ("", "Not ```python\nexit()\n```.", "C."),
        ),
    ],
)
def test_the_parts_of_a_reply(reply: str, parts: tuple[str, str, str]) -> None:
    read = parse(reply, SHARES)

    assert read.actions == (Wait(),)
    assert (read.observation, read.thought, read.said) == parts


def test_thinking_is_kept_apart() -> None:
    read = parse("Use ```.\n</think>" + fenced("computer.wait()"), SHARES)

    assert (read.thought, read.actions) == ("I see.", (Wait(),))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "no action"),
        ("# nothing", "no action"),
        ("import time", "no action"),
        ("click it", "not valid Python"),
        ("pyautogui.click(0.5, 0.5", "not valid Python"),
        ("pyautogui.click(0.5, 0.5)\n  pyautogui.click()", "not valid Python"),
        ("-" * 15_000 + "1", "not valid Python"),
        ("(" * 15_000, "not valid Python"),
        ("a" + ".b" * 9_000, "not valid Python"),
        ("x" * 20_001, "more than 20000 characters"),
        ("pass\n" * 201, "too many statements"),
        ("computer.wait()\n" * 101, "more than 100 actions"),
        (f"pyautogui.write({'a' * 10_001!r})", "text to write has more than 10000 characters"),
        ("WAIT", "Line 1 of the code is not a function call"),
        ("5", "Line 1 of the code is not a function call"),
        ("x = 5", "Line 1 of the code is not a function call"),
        ("pyautogui.PAUSE = 1", "Line 1 of the code is not a function call"),
        ("for _ in range(3):\n    pyautogui.press('tab')", "Line 1 of the code is not a function call"),
        ("def f():\n    pass", "Line 1 of the code is not a function call"),
        ("import os", "import of 'os' is not understood"),
        ("import pyautogui as p", "import of 'pyautogui' is not understood"),
        ("from pyautogui import click", "Line 1 of the code is not a function call"),
        ("__import__('os').system('rm -rf /')", "calls no function of pyautogui"),
        ("exec('pyautogui.click()')", "calls no function of pyautogui"),
        ("os.system('rm -rf /')", "function 'os.system' is unknown"),
        ("pyautogui.screenshot()", "function 'pyautogui.screenshot' is unknown"),
        ("pyautogui.moveRel(5, 5)", "function 'pyautogui.moveRel' is unknown"),
        ("pyautogui.click(x, y)", "argument of 'pyautogui.click' is not a literal"),
        ("pyautogui.click(*[0.5, 0.5])", "argument of 'pyautogui.click' is not a literal"),
        ("pyautogui.click(**{'x': 0.5})", "argument of 'pyautogui.click' is not a literal"),
        ("pyautogui.write(open('/etc/passwd').read())", "argument of 'pyautogui.write' is not a literal"),
        ("pyautogui.write(f'{1}')", "argument of 'pyautogui.write' is not a literal"),
        ("pyautogui.write('a' * 10**9)", "argument of 'pyautogui.write' is not a literal"),
        ("pyautogui.write(b'a')", "argument of 'pyautogui.write' is not a literal"),
        ("pyautogui.press([['a']])", "argument of 'pyautogui.press' is not a literal"),
        ("pyautogui.click(-True, 1)", "argument of 'pyautogui.click' is not a literal"),
        ("pyautogui.click(0.5, 0.5, 1, 0, 'left', 9)", "pyautogui.click has too many arguments"),
        ("pyautogui.click(0.5, 0.5, speed=5)", "pyautogui.click has no argument 'speed'"),
        ("pyautogui.click(0.5)", "outside the picture"),
        ("pyautogui.click('button.png')", "outside the picture"),
        ("pyautogui.click(500, 300)", r"\(500, 300\) is outside the picture of 1x1"),
        ("pyautogui.click(1e999, 0)", "outside the picture"),
        ("pyautogui.click(-0.1, 0.5)", "outside the picture"),
        ("pyautogui.click(True, True)", "outside the picture"),
        ("pyautogui.click(0.5, 0.5, clicks=0)", "number of clicks"),
        ("pyautogui.click(0.5, 0.5, clicks=1000)", "number of clicks"),
        ("pyautogui.click(button='back')", "button 'back' is unknown"),
        ("pyautogui.click(button=['left'])", "button a list is unknown"),
        ("pyautogui.moveTo()", "x and y of moveTo are missing"),
        ("pyautogui.scroll()", "number of notches is not a number"),
        ("pyautogui.scroll(0)", "number of notches is 0"),
        ("pyautogui.scroll(1e999)", "number of notches is outside"),
        ("pyautogui.write('')", "text to write is missing"),
        ("pyautogui.press('hyper')", "key 'hyper' is unknown"),
        ("pyautogui.press([])", "keys of press are missing"),
        ("pyautogui.press('a', presses=1e9)", "number of presses is outside"),
        ("pyautogui.press('a', presses=1.5)", "number of presses is not a number from 1 to 100"),
        ("pyautogui.hotkey()", "keys are missing"),
        ("pyautogui.hotkey('ctrl', None)", "key a NoneType is unknown"),
        ("time.sleep(-1)", "time to wait is outside"),
        ("time.sleep('long')", "time to wait is not a number"),
        ("computer.terminate()", "status of terminate must be success or failure"),
        ("computer.terminate(status='maybe')", "status of terminate must be success or failure"),
        ("computer.terminate(status=['success'])", "status of terminate must be success or failure"),
        ("{'name': 'computer.terminate'}", "Line 1 of the code is not a function call"),
        ("{'name': 'os.system', 'arguments': {}}", "function 'os.system' is unknown"),
        ("print('done')", "calls no function of pyautogui"),
    ],
)
def test_code_that_cannot_be_used_says_why(code: str, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said) as caught:
        parse(fenced(code), SHARES)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "no block of code"),
        ("## Action:\nI click.\npyautogui.click(0.5, 0.5)", "no block of code"),
        ("## Code:\n```python\npyautogui.click(0.5, 0.5)", "no block of code"),
        ("```python\ncomputer.wait()\n```\n```python\npyautogui.click(0.5", "does not end"),
        ("```bash\nls\n```", "Line 1 of the code is not a function call|not valid Python"),
    ],
)
def test_a_reply_without_code_says_so(reply: str, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said):
        parse(reply, SHARES)


def test_thinking_that_does_not_end_is_no_reply() -> None:
    with pytest.raises(UnusableReplyError, match="</think> is missing"):
        parse("<think>Perhaps:\n```python\ncomputer.terminate('success')\n```", SHARES)


def test_a_short_call_with_very_many_actions_makes_few_of_them() -> None:
    many = f"pyautogui.press({['a'] * 3900!r}, presses=100)"
    assert len(many) < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(UnusableReplyError, match="more than 100 actions"):
            parse(f"```python\n{many}\n```", SHARES)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 10_000_000, "bytes; all of its actions take more than 20 MB"
