"""Replies in UI-TARS text: what each becomes, or why it cannot be used."""

from __future__ import annotations

import pytest

from rollout_tasks.agents.profiles.actions import (
    Action,
    CallUser,
    Click,
    Done,
    Drag,
    Fail,
    KeyDown,
    KeyUp,
    Move,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates, Rounding
from rollout_tasks.agents.profiles.reply import UnusableReplyError
from rollout_tasks.agents.profiles.ui_tars import _ACTIONS, parse
from rollout_tasks.agents.profiles.ui_tars_calls import NAMES

PICTURE = Coordinates((1920, 1080), (1932, 1092), Rounding.THOUSANDTHS_DOWN)
GRID = Coordinates((1920, 1080), (1000, 1000), Rounding.THOUSANDTHS_DOWN)
MIDDLE = (960, 540)


@pytest.mark.parametrize(
    ("written", "actions"),
    [
        ("click(start_box='(966,546)')", [Click(MIDDLE)]),
        ("click(start_box='<|box_start|>(966,546)<|box_end|>')", [Click(MIDDLE)]),
        ("click(start_box='<|box_start|>(966, 546)<|box_end|>' )", [Click(MIDDLE)]),
        ("click(start_box='<bbox>956 536 976 556</bbox>')", [Click(MIDDLE)]),
        ("click(start_box='(956,536,976,556)')", [Click(MIDDLE)]),
        ('click(start_box="(966,546)")', [Click(MIDDLE)]),
        ("click(start_box=(966,546))", [Click(MIDDLE)]),
        ("click(start_box=[966, 546])", [Click(MIDDLE)]),
        ("click(start_box='[966, 546]')", [Click(MIDDLE)]),
        ("click(start_box='966 546')", [Click(MIDDLE)]),
        ("click(point='<point>966 546</point>')", [Click(MIDDLE)]),
        ("click(point=<point>966 546</point>)", [Click(MIDDLE)]),
        ("click (start_box='(966,546)')", [Click(MIDDLE)]),
        ("computer.click(start_box='(966,546)')", [Click(MIDDLE)]),
        ("\n  click(start_box='(966,546)')\n", [Click(MIDDLE)]),
        ("click(start_box='(966.4,546.2)')[EOS]", [Click((960, 540))]),
        ("click(start_box='(966,546')", [Click(MIDDLE)]),
        ("left_single(start_box='(0,0)')", [Click((0, 0))]),
        ("left_double(start_box='(1932,1092)')", [Click((1919, 1079), count=2)]),
        ("right_single(point='<point>966 546</point>')", [Click(MIDDLE, "right")]),
        ("hover(start_box='(966,546)')", [Move(MIDDLE)]),
        ("drag(start_box='(0,0)', end_box='(966,546)')", [Drag((MIDDLE,), (0, 0))]),
        ("select(start_box='(0,0)',end_box='(966,546)')", [Drag((MIDDLE,), (0, 0))]),
        ("drag(start_point='<point>0 0</point>', end_point='<point>966 546</point>')", [Drag((MIDDLE,), (0, 0))]),
        ("hotkey(key='ctrl c')", [Press(("ctrl", "c"))]),
        ("hotkey(hotkey='ctrl shift T')", [Press(("ctrl", "shift", "t"))]),
        ("hotkey(key='ctrl+c')", [Press(("ctrl", "c"))]),
        ("hotkey(key='ctrl + c')", [Press(("ctrl", "c"))]),
        ("hotkey(key='arrowleft')", [Press(("left",))]),
        ("hotkey(key='ctrl space')", [Press(("ctrl", "space"))]),
        ("hotkey(key='Page_Down')", [Press(("pagedown",))]),
        ("hotkey(key='ctrl ,')", [Press(("ctrl", ","))]),
        ("hotkey(key='ctrl \\'')", [Press(("ctrl", "'"))]),
        ("press(key='enter')", [Press(("enter",))]),
        ("press(press='enter')", [Press(("enter",))]),
        ("keydown(key='shift')\n\nkeyup(key='shift')", [KeyDown("shift"), KeyUp("shift")]),
        ("release(key='arrowup')", [KeyUp("up")]),
        ("type(content='hello')", [Type("hello")]),
        ("type(content='hello\\n')", [Type("hello\n")]),
        ("type(content='hello\\\\n')", [Type("hello\n")]),
        ("type(content='hello\n')", [Type("hello\n")]),
        ("type(content='a\\tb\\\\c')", [Type("a\tb\\c")]),
        ("type(content='first\nsecond')", [Type("first\nsecond")]),
        ("type(content='it\\'s')", [Type("it's")]),
        ("type(content='it's')", [Type("it's")]),
        ("type(content='print('x')')", [Type("print('x')")]),
        ("type(content='f('a')\ng('b')')", [Type("f('a')\ng('b')")]),
        ("type(content=\"say 'hi'\")", [Type("say 'hi'")]),
        ("type(content='say \"hi\", (you)')", [Type('say "hi", (you)')]),
        ("type(content='\\u00e9\\ud800\\d')", [Type("é\\ud800\\d")]),
        ("type(content='abc')\nThis types it.", [Type("abc")]),
        ("type(content='abc') # types it", [Type("abc")]),
        ("type(content='abc')\n\nI typed it ('abc')", [Type("abc")]),
        ("type(content='=A1')\nhotkey(key='enter')", [Type("=A1"), Press(("enter",))]),
        ("type(content='point=3')", [Type("point=3")]),
        ("type(content='See Action: below')", [Type("See Action: below")]),
        ("type(content='Log\nAction: finished()\nend')", [Type("Log\nAction: finished()\nend")]),
        ("I note it.\n\ntype(content='Log\nAction: finished()')", [Type("Log\nAction: finished()")]),
        ("wait()\ntype(content='Action: x\nAction: finished()')", [Wait(), Type("Action: x\nAction: finished()")]),
        ("scroll(start_box='(966,546)', direction='down')", [Scroll(dy=-5, at=MIDDLE)]),
        ("scroll(point='<point>966 546</point>', direction='UP')", [Scroll(dy=5, at=MIDDLE)]),
        ("scroll(direction='left')", [Scroll(dx=-5)]),
        ("scroll(start_box='', direction='to the right')", [Scroll(dx=5)]),
        ("wait()", [Wait()]),
        ("wait() #Sleep for 5s", [Wait()]),
        ("finished()", [Done()]),
        ("finished(content='It's 5 o'clock.')", [Done("It's 5 o'clock.")]),
        ("call_user()", [CallUser()]),
        ("call_user(content='Which one?')", [CallUser("Which one?")]),
        ("error_env()", [Fail()]),
        ("click(start_box='(0,0)')\n\nfinished()", [Click((0, 0)), Done()]),
        ("finished()\n\nclick(start_box='(0,0)')", [Done()]),
        ("click(start_box='(0,0)'); wait()", [Click((0, 0)), Wait()]),
        ("I open it.\n\nclick(start_box='(0,0)')\n\nIt opens (slowly).", [Click((0, 0))]),
    ],
)
def test_what_is_written_after_action(written: str, actions: list[Action]) -> None:
    read = parse(f"Thought: I see.\nAction: {written}", PICTURE)

    assert list(read.actions) == actions
    assert read.thought == "I see."


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("Thought: Two\nlines. \nAction: wait()", "Two\nlines."),
        ("Reflection: That failed.\nAction_Summary: Again.\nAction: wait()", "Again."),
        ("Action_Summary: Again.\nAction: wait()", "Again."),
        ("I wait.\nAction: wait()", "I wait."),
        ("Action: wait()", ""),
        ("Action:wait()", ""),
        ("<think>Long.</think>\nThought: Short.\nAction: wait()", "Short."),
        ("<think>Long.\nAction: click()</think>\nAction: wait()", ""),
        ("Thought: On one line. Action: wait()", "On one line."),
        ("The word Action: is next. Action: wait()", "The word Action: is next."),
        ("Action: type(content='abc')\nAction: wait() # ('x')", "Action: type(content='abc')"),
        (
            "Thought: First.\nAction: click(start_box='(5000,1)')\nAction: wait()",
            "First.\nAction: click(start_box='(5000,1)')",
        ),
    ],
)
def test_the_thought_is_what_stands_before(reply: str, thought: str) -> None:
    read = parse(reply, PICTURE)

    assert list(read.actions) == [Wait()]
    assert read.thought == thought


@pytest.mark.parametrize("thinking", ["<think>Hm. Action: click()</think>", "Hm. Action: click()\n</think>"])
def test_thinking_is_kept_apart(thinking: str) -> None:
    read = parse(f"{thinking}\nThought: Short.\nAction: wait()", PICTURE)

    assert (read.thought, read.actions) == ("Short.", (Wait(),))


def test_later_models_count_to_1000() -> None:
    assert parse("Action: click(point='<point>500 250</point>')", GRID).actions == (Click((960, 270)),)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "no part that begins with 'Action:'"),
        ("Thought: I am done.", "no part that begins with 'Action:'"),
        ("Action:", "no action"),
        ("Action: I would click here.", "no action"),
        ("Action: click", "no action"),
        ("Action: click()", "start_box of click is missing"),
        ("Action: click(start_box='')", "start_box of click is missing"),
        ("Action: click(start_box='(1933.5,2000)')", r"\(1933.5, 2000\) is outside the picture of 1932x1092"),
        ("Action: click(start_box='(-50,5)')", "outside the picture"),
        ("Action: click(start_box='(5,)')", "two numbers, or four for a box, and not 1"),
        ("Action: click(start_box='(1,2,3)')", "and not 3"),
        ("Action: click(start_box='(nan,5)')", "not a pair of numbers"),
        ("Action: click(start_box='(1e9,5)')", "not a pair of numbers"),
        ("Action: click(start_box='(1,2)'", "start_box of click does not end"),
        ("Action: click(start_box='(1,2", "does not end"),
        ("Action: click('(1,2)')", "not written as name='value'"),
        ("Action: click(1, 2)", "not written as name='value'"),
        ("Action: click(start_box=)", "has no value"),
        ("Action: click(start_box=((1,2))", "do not end"),
        ("Action: drag(start_box='(1,2)')", "end_box of drag is missing"),
        ("Action: hotkey(key='ctrl nothing')", "key 'nothing' is unknown"),
        ("Action: hotkey()", "key of hotkey is missing"),
        ("Action: hotkey(key='a b c d e f g h i')", "More than 8 keys"),
        ("Action: keydown(key='ctrl c')", "key 'ctrl c' is unknown"),
        ("Action: type(content='')", "content of type is missing"),
        ("Action: type(content='never ends", "content of type does not end"),
        ("Action: type(content='abc') and more", "content of type does not end"),
        ("Action: type(content='Log\nAction: finished()", "content of type does not end"),
        ("Thought: One line. Action: type(content='Log Action: finished()", "content of type does not end"),
        ("<think>I could say\nAction: finished()", "</think> is missing"),
        ("Action: type(content='" + "a" * 10_001 + "')", "content of type has more than 10000 characters"),
        ("Action: scroll(direction='sideways')", "up, down, left or right"),
        ("Action: open_app(app_name='x')", "action 'open_app' is unknown"),
        ("Action: __import__('os').system('rm')", "action '__import__' is unknown"),
        ("Action: click(start_box='(1,2)')\n\nclick(start_box='(1,2)", "start_box of click does not end"),
        ("Action: " + "wait()\n" * 101, "more than 100 actions"),
        ("Action: wait()" + " " * 200_000, "more than 200000 characters"),
    ],
)
def test_a_reply_that_cannot_be_used_says_why(reply: str, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said) as caught:
        parse(reply, PICTURE)

    assert len(str(caught.value)) < 200


def test_each_name_that_is_read_is_carried_out() -> None:
    assert set(_ACTIONS) == set(NAMES)
