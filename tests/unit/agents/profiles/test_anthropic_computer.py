"""Messages with calls of Claude's computer tool: what each becomes, or why it cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.agents.profiles.actions import (
    Action,
    CallUser,
    Click,
    Done,
    Drag,
    Fail,
    HoldKeys,
    MouseDown,
    MouseUp,
    Move,
    PointerPosition,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from rollout_tasks.agents.profiles.anthropic_computer import parse
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.reply import ComputerCall, UnusableReplyError

SCALED = Coordinates((1920, 1080), (1280, 720))
MIDDLE = (960, 540)


def use(call_id: str = "toolu_1", name: str = "computer", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def message(*blocks: Any, stop_reason: object = "tool_use") -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), "stop_reason": stop_reason}


@pytest.mark.parametrize(
    ("arguments", "actions"),
    [
        ({"action": "left_click", "coordinate": [640, 360]}, [Click(MIDDLE)]),
        ({"action": "left_click", "coordinate": (640, 360)}, [Click(MIDDLE)]),
        ({"action": "left_click"}, [Click()]),
        (
            {"action": "left_click", "coordinate": [1280, 720], "text": "ctrl+Shift"},
            [Click((1919, 1079), held=("ctrl", "shift"))],
        ),
        ({"action": "right_click", "coordinate": [639, 359.9]}, [Click((958, 539), "right")]),
        ({"action": "right click", "coordinate": [0, 0]}, [Click((0, 0), "right")]),
        ({"action": "left click", "coordinate": [0, 0]}, [Click((0, 0))]),
        ({"action": "middle_click", "coordinate": [0, 0]}, [Click((0, 0), "middle")]),
        ({"action": "double_click", "coordinate": [0, 0]}, [Click((0, 0), count=2)]),
        ({"action": "triple_click", "coordinate": [0, 0]}, [Click((0, 0), count=3)]),
        ({"action": "left_press", "coordinate": [0, 0]}, [MouseDown((0, 0)), Wait(1.0), MouseUp()]),
        ({"action": "mouse_move", "coordinate": [640, 360]}, [Move(MIDDLE)]),
        ({"action": "left_click_drag", "coordinate": [640, 360]}, [Drag((MIDDLE,))]),
        (
            {"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [640, 360]},
            [Drag((MIDDLE,), (0, 0))],
        ),
        ({"action": "left_mouse_down"}, [MouseDown()]),
        ({"action": "left_mouse_up", "coordinate": [640, 360]}, [MouseUp(MIDDLE)]),
        ({"action": "scroll", "scroll_direction": "down", "scroll_amount": 3}, [Scroll(dy=-3)]),
        (
            {
                "action": "scroll",
                "coordinate": [640, 360],
                "scroll_direction": "left",
                "scroll_amount": 2,
                "text": "shift",
            },
            [Scroll(dx=-2, at=MIDDLE, held=("shift",))],
        ),
        ({"action": "scroll", "scroll_direction": "up", "scroll_amount": 10**99}, [Scroll(dy=1000)]),
        ({"action": "scroll", "scroll_direction": "right", "scroll_amount": 1}, [Scroll(dx=1)]),
        ({"action": "key", "text": "Return"}, [Press(("return",))]),
        ({"action": "key", "text": "ctrl+S"}, [Press(("ctrl", "s"))]),
        ({"action": "key", "text": "ctrl + s"}, [Press(("ctrl", "s"))]),
        ({"action": "key", "text": "ctrl++"}, [Press(("ctrl", "+"))]),
        ({"action": "key", "text": "super"}, [Press(("win",))]),
        ({"action": "key", "text": "Page_Down"}, [Press(("pagedown",))]),
        ({"action": "key", "text": "Down Down ctrl+c"}, [Press(("down",)), Press(("down",)), Press(("ctrl", "c"))]),
        ({"action": "key", "text": " "}, [Press((" ",))]),
        ({"action": "hold_key", "text": "shift+a", "duration": 2}, [HoldKeys(("shift", "a"), 2.0)]),
        ({"action": "hold_key", "text": "shift"}, [HoldKeys(("shift",), 1.0)]),
        ({"action": "type", "text": '"""\\ \n'}, [Type('"""\\ \n')]),
        ({"action": "type", "text": 2024}, [Type("2024")]),
        ({"action": "key", "text": 5}, [Press(("5",))]),
        ({"action": "hold_key", "text": 5, "duration": 2}, [HoldKeys(("5",), 2.0)]),
        ({"action": "wait", "duration": 1.5}, [Wait(1.5)]),
        ({"action": "wait"}, [Wait()]),
        ({"action": "screenshot"}, [Screenshot()]),
        ({"action": "zoom", "region": [0, 0, 640, 360]}, [Zoom((0, 0), MIDDLE)]),
        ({"action": "cursor_position"}, [PointerPosition()]),
        ({"action": "done"}, [Done()]),
        ({"action": "fail"}, [Fail()]),
        ({"action": "call_user"}, [CallUser()]),
    ],
)
def test_each_action(arguments: dict[str, Any], actions: list[Action]) -> None:
    read = parse(message({"type": "text", "text": "I do it."}, use(**arguments)), SCALED)

    assert list(read.actions) == actions
    assert read.calls == (ComputerCall("toolu_1", tuple(actions)),)


def test_several_calls_keep_their_ids_and_order() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    both = message(thinking, use("a", action="mouse_move", coordinate=[0, 0]), use("b", action="key", text="Down Up"))

    read = parse(both, SCALED)

    assert [(call.id, len(call.actions)) for call in read.calls] == [("a", 1), ("b", 2)]
    assert read.actions == (Move((0, 0)), Press(("down",)), Press(("up",)))


@pytest.mark.parametrize("block", [{"type": "thinking"}, {"type": "redacted_thinking"}, {"type": "text", "text": 5}])
def test_odd_blocks_beside_a_call_do_not_hinder_it(block: dict[str, Any]) -> None:
    assert parse(message(block, use(action="wait")), SCALED).actions == (Wait(),)


@pytest.mark.parametrize("stop_reason", ["end_turn", "stop_sequence", None])
def test_a_message_without_a_call_is_the_final_answer(stop_reason: object) -> None:
    read = parse(message({"type": "text", "text": "It is 42."}, stop_reason=stop_reason), SCALED)

    assert read.actions == (Done("It is 42."),)
    assert read.calls == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (None, "message is not an object"),
        ([], "message is not an object"),
        ({}, "content of the message is not a list"),
        ({"content": "text"}, "content of the message is not a list"),
        (message("text"), "block of the message is not an object"),
        (message({"type": "text"}), "text of the message is not text"),
        (message(stop_reason="end_turn"), "neither a call of a tool nor a final text"),
        (message({"type": "text", "text": " "}, stop_reason="end_turn"), "neither a call"),
        (message({"type": "text", "text": "I will now"}, stop_reason="max_tokens"), "neither a call"),
        (message({"type": "text", "text": "I may not."}, stop_reason="refusal"), "neither a call"),
        (message({"type": "text", "text": "x"}, stop_reason=["end_turn"]), "neither a call"),
        (message({"type": "text", "text": "x" * 200_001}, stop_reason="end_turn"), "more than 200000 characters"),
        (message(use(name="bash", command="ls")), "tool 'bash' is unknown"),
        (
            message({"type": "tool_use", "name": "computer", "id": "a", "input": "left_click"}),
            "input of the call is not an object",
        ),
        (message({"type": "tool_use", "name": "computer", "input": {"action": "wait"}}), "id of the call is missing"),
        (message({"type": "tool_use", "name": ["computer"], "id": "a", "input": {}}), "tool a list is unknown"),
        (message(use()), "action a NoneType is unknown"),
        (message(use(action={})), "action a dict is unknown"),
        (message(use(action="click")), "action 'click' is unknown"),
        (message(use(action="left_click", coordinate=[5])), "coordinate of left_click is not a pair"),
        (message(use(action="left_click", coordinate="[5, 5]")), "coordinate of left_click is not a pair"),
        (message(use(action="left_click", coordinate=[float("nan"), 5])), "outside the picture"),
        (
            message(use(action="left_click", coordinate=[1919, 1079])),
            r"\(1919, 1079\) is outside the picture of 1280x720",
        ),
        (message(use(action="left_click", coordinate=[10**4000, 5])), "outside the picture"),
        (message(use(action="left_click", coordinate=[5, 5], text="hyper")), "key 'hyper' is unknown"),
        (message(use(action="left_click", text=["ctrl"])), "keys a list are unknown"),
        (message(use(action="mouse_move")), "coordinate of mouse_move is missing"),
        (message(use(action="left_click_drag", start_coordinate=[5, 5])), "coordinate of left_click_drag is missing"),
        (message(use(action="scroll", scroll_amount=3)), "scroll_direction must be"),
        (message(use(action="scroll", scroll_amount=3, scroll_direction=["up"])), "scroll_direction must be"),
        (message(use(action="scroll", scroll_direction="up")), "scroll_amount is not a number"),
        (message(use(action="scroll", scroll_direction="up", scroll_amount=0)), "scroll_amount is 0"),
        (message(use(action="key")), "text of key is missing"),
        (message(use(action="key", text="ctrl+")), "key 'ctrl\\+' is unknown"),
        (message(use(action="key", text="a " * 101)), "more than 100 combinations"),
        (message(use(action="hold_key", text="shift", duration=-1)), "duration of hold_key is outside"),
        (message(use(action="hold_key", text="shift", duration="long")), "duration of hold_key is not a number"),
        (message(use(action="type", text="")), "text of type is missing"),
        (message(use(action="type", text="x" * 200_001)), "text of type has more than"),
        (message(use(action="wait", duration=float("inf"))), "duration of wait is outside"),
        (message(use(action="wait", duration=float("nan"))), "duration of wait is outside"),
        (message(use(action="scroll", scroll_direction="up", scroll_amount=float("nan"))), "scroll_amount is outside"),
        (message(use(action="zoom")), "region of zoom is not a list of four"),
        (message(use(action="zoom", region=[5, 5, 5, 9])), "region of zoom is empty"),
        (message(use(action="zoom", region=[5, 5, 5000, 9])), "outside the picture"),
        (message(*[use(action="wait")] * 101), "more than 100 actions"),
    ],
)
def test_a_message_that_cannot_be_used_says_why(broken: Any, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said) as caught:
        parse(broken, SCALED)

    assert len(str(caught.value)) < 200
