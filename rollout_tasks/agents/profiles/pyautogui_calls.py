"""What calls of pyautogui mean, with the functions of ``time`` and ``computer`` that models use beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from rollout_tasks.agents.profiles.actions import (
    Action,
    Button,
    Click,
    Done,
    Drag,
    Fail,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Point,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.code_calls import CodeCall
from rollout_tasks.agents.profiles.coordinates import Coordinates, Rounding
from rollout_tasks.agents.profiles.key_names import key, together
from rollout_tasks.agents.profiles.reply import UnusableReplyError, bounded, notches, number, seconds, shown, typed_text

MOST_CLICKS = 10
MOST_PRESSES = 100
_BUTTONS = frozenset({"left", "middle", "right"})
_SAME_BUTTON = {"primary": "left", "secondary": "right"}
_ALSO_TAKEN = frozenset(
    {"_pause", "content", "duration", "interval", "key", "logScreenshot", "message", "mouseDownUp", "pause", "text"}
)
"""Arguments that say nothing about what is done, and names that models give to others."""
Given = Mapping[str, Any]


def actions_of(call: CodeCall, coordinates: Coordinates) -> Iterator[Action]:
    """Yields what a call means; a short one may mean very many actions.

    Raises:
        UnusableReplyError: The function is unknown, or its arguments cannot be used.
    """
    found = _FUNCTIONS.get(call.name.lower())
    if found is None:
        raise UnusableReplyError(f"The function {shown(call.name)} is unknown.")
    parameters, meaning = found
    yield from meaning(_by_name(call, parameters), coordinates)


def _by_name(call: CodeCall, parameters: Sequence[str]) -> Given:
    """Returns the arguments by name; a parameter that begins with ``*`` takes all that are left."""
    given: dict[str, Any] = {}
    positional = list(call.positional)
    for parameter in parameters:
        if parameter.startswith("*"):
            given[parameter] = [*positional, *(call.named[name] for name in call.named if name.startswith("key"))]
            positional = []
        elif positional:
            given[parameter] = positional.pop(0)
    if positional:
        raise UnusableReplyError(f"{call.name} has too many arguments.")
    unknown = call.named.keys() - {*parameters, *_ALSO_TAKEN}
    if unknown and "*keys" not in given:
        raise UnusableReplyError(f"{call.name} has no argument {shown(min(unknown))}.")
    return {**given, **call.named}


def _place(given: Given, coordinates: Coordinates) -> Point | None:
    x, y = given.get("x"), given.get("y")
    if isinstance(x, list) and len(x) == 2 and y is None:
        x, y = x
    if x is None and y is None:
        return None
    if _is_share(x) and _is_share(y) and not (isinstance(x, int) and isinstance(y, int)):
        return Coordinates(coordinates.screen, (1, 1), Rounding.NEAREST).place(x, y)
    return coordinates.place(x, y)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _needed(given: Given, coordinates: Coordinates, function: str) -> Point:
    place = _place(given, coordinates)
    if place is None:
        raise UnusableReplyError(f"The x and y of {function} are missing.")
    return place


def _button(given: Given) -> Button:
    name = given.get("button")
    name = "left" if name is None else name
    name = _SAME_BUTTON.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in _BUTTONS:
        raise UnusableReplyError(f"The button {shown(name)} is unknown.")
    return cast(Button, name)


def _count(value: object, what: str, most: int) -> int:
    if value is None:
        return 1
    count = number(value, what, most)
    if count < 1 or count != int(count):
        raise UnusableReplyError(f"The {what} is not a number from 1 to {most}.")
    return int(count)


Meaning = Callable[[Given, Coordinates], Iterable[Action]]


def _click(button: Button | None, count: int | None) -> Meaning:
    def meaning(given: Given, coordinates: Coordinates) -> Iterable[Action]:
        clicks = count or _count(given.get("clicks"), "number of clicks", MOST_CLICKS)
        yield Click(_place(given, coordinates), button or _button(given), clicks)

    return meaning


def _scroll(axis: str) -> Meaning:
    def meaning(given: Given, coordinates: Coordinates) -> Iterable[Action]:
        turns = notches(given.get("clicks"), "number of notches")
        if turns == 0:
            raise UnusableReplyError("The number of notches is 0.")
        at = _place(given, coordinates)
        yield Scroll(dx=turns, at=at) if axis == "dx" else Scroll(dy=turns, at=at)

    return meaning


def _write(given: Given, _coordinates: Coordinates) -> Iterable[Action]:
    text = next((given[name] for name in ("message", "text", "content") if given.get(name) is not None), None)
    if isinstance(text, list):
        yield from (Press((key(name),)) for name in text)
    else:
        yield Type(typed_text(text, "text to write"))


def _press(given: Given, _coordinates: Coordinates) -> Iterable[Action]:
    names = next((given[name] for name in ("keys", "key", "button") if given.get(name) is not None), None)
    times = _count(given.get("presses"), "number of presses", MOST_PRESSES)
    if names is None or names == []:
        raise UnusableReplyError("The keys of press are missing.")
    if not isinstance(names, list):
        yield Press(together([names]), times)
        return
    for _ in range(times):
        yield from (Press(together([name])) for name in names)


def _hotkey(given: Given, _coordinates: Coordinates) -> Iterable[Action]:
    names = given["*keys"]
    yield Press(together(names[0] if len(names) == 1 and isinstance(names[0], list) else names))


def _wait(given: Given, _coordinates: Coordinates) -> Iterable[Action]:
    value = given.get("seconds", given.get("secs"))
    yield Wait(None if value is None else seconds(value, "time to wait"))


def _terminate(given: Given, _coordinates: Coordinates) -> Iterable[Action]:
    answer = given.get("answer")
    said = "" if answer is None else bounded(answer, "answer of terminate")
    status = given.get("status")
    status = status.strip().lower() if isinstance(status, str) else status
    if status not in ("success", "failure", "fail"):
        raise UnusableReplyError("The status of terminate must be success or failure.")
    yield Done(said) if status == "success" else Fail(said)


def _drag(given: Given, coordinates: Coordinates) -> Iterable[Action]:
    yield Drag((_needed(given, coordinates, "dragTo"),), button=_button(given))


_POINT = ("x", "y")
_SECONDS = ("seconds", "secs")
_CLICK = (*_POINT, "clicks", "interval", "button")
_MORE_CLICKS = (*_POINT, "interval", "button")
_MOUSE_BUTTON = (*_POINT, "button")
_TRIPLE = (_MORE_CLICKS, _click(None, 3))
_FUNCTIONS: Mapping[str, tuple[Sequence[str], Meaning]] = {
    "computer.terminate": (("status", "answer"), _terminate),
    "computer.triple_click": _TRIPLE,
    "computer.tripleclick": _TRIPLE,
    "computer.wait": (_SECONDS, _wait),
    "pyautogui.click": (_CLICK, _click(None, None)),
    "pyautogui.doubleclick": (_MORE_CLICKS, _click(None, 2)),
    "pyautogui.dragto": ((*_POINT, "duration", "tween", "button"), _drag),
    "pyautogui.hotkey": (("*keys",), _hotkey),
    "pyautogui.hscroll": (("clicks", *_POINT), _scroll("dx")),
    "pyautogui.keydown": (("key",), lambda given, _: [KeyDown(key(given.get("key")))]),
    "pyautogui.keyup": (("key",), lambda given, _: [KeyUp(key(given.get("key")))]),
    "pyautogui.leftclick": (_POINT, _click("left", 1)),
    "pyautogui.middleclick": (_POINT, _click("middle", 1)),
    "pyautogui.mousedown": (_MOUSE_BUTTON, lambda given, where: [MouseDown(_place(given, where), _button(given))]),
    "pyautogui.mouseup": (_MOUSE_BUTTON, lambda given, where: [MouseUp(_place(given, where), _button(given))]),
    "pyautogui.moveto": ((*_POINT, "duration"), lambda given, where: [Move(_needed(given, where, "moveTo"))]),
    "pyautogui.press": (("keys", "presses", "interval", "button"), _press),
    "pyautogui.rightclick": (_POINT, _click("right", 1)),
    "pyautogui.scroll": (("clicks", *_POINT), _scroll("dy")),
    "pyautogui.sleep": (_SECONDS, _wait),
    "pyautogui.tripleclick": _TRIPLE,
    "pyautogui.typewrite": (("message", "interval"), _write),
    "pyautogui.vscroll": (("clicks", *_POINT), _scroll("dy")),
    "pyautogui.write": (("message", "interval"), _write),
    "time.sleep": (_SECONDS, _wait),
}
"""By the name in small letters: the parameters in order, and the meaning. What only shapes a movement is not looked at."""
