"""A keyboard and a mouse that write down what pyautogui's functions do to them, so that two scripts can be compared.

What a script does is a list of events: buttons and keys going down and up, the pointer's places, notches, typed text. So
`click(x, y)` and `moveTo(x, y)` with `click()` are the same, as they are for the computer.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rollout_tasks.environments.osworld.keys import KNOWN

Event = tuple[Any, ...]
START = (7, 7)
"""Where the pointer is before anything happens."""


class Recorder:
    """Stands for the modules ``pyautogui``, ``pyperclip`` and ``time`` while a script runs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._place = START
        self._clipboard = ""

    def module(self, name: str) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(self._functions()[name])
        return module

    def _functions(self) -> dict[str, dict[str, Callable[..., None]]]:
        mouse = {
            "moveTo": lambda x=None, y=None, *_args, **_named: self._move(x, y),
            "click": self.click,
            "leftClick": lambda x=None, y=None, **_named: self.click(x, y),
            "rightClick": lambda x=None, y=None, **_named: self.click(x, y, button="right"),
            "middleClick": lambda x=None, y=None, **_named: self.click(x, y, button="middle"),
            "doubleClick": lambda x=None, y=None, button="left", **_named: self.click(x, y, 2, button=button),
            "tripleClick": lambda x=None, y=None, button="left", **_named: self.click(x, y, 3, button=button),
            "mouseDown": lambda x=None, y=None, button="left", **_named: self._button("down", x, y, button),
            "mouseUp": lambda x=None, y=None, button="left", **_named: self._button("up", x, y, button),
            "dragTo": self.drag,
            "scroll": lambda clicks, x=None, y=None: self._scroll("vertical", clicks, x, y),
            "vscroll": lambda clicks, x=None, y=None: self._scroll("vertical", clicks, x, y),
            "hscroll": lambda clicks, x=None, y=None: self._scroll("horizontal", clicks, x, y),
        }
        keyboard = {
            "write": self.write,
            "typewrite": self.write,
            "press": self.press,
            "hotkey": self.hotkey,
            "keyDown": lambda key: self._key("down", key),
            "keyUp": lambda key: self._key("up", key),
        }
        sleep = {"sleep": lambda _seconds: None}
        return {"pyautogui": {**mouse, **keyboard, **sleep}, "pyperclip": {"copy": self._copy}, "time": sleep}

    def _move(self, x: Any, y: Any) -> None:
        if isinstance(x, tuple):
            x, y = x
        self._place = (self._place[0] if x is None else int(x), self._place[1] if y is None else int(y))

    def _button(self, what: str, x: Any, y: Any, button: str) -> None:
        self._move(x, y)
        self.events.append((what, button, self._place))

    def click(
        self, x: Any = None, y: Any = None, clicks: int = 1, *_args: Any, button: str = "left", **_named: Any
    ) -> None:
        for _ in range(clicks):
            self._button("down", x, y, button)
            self._button("up", None, None, button)

    def drag(self, x: Any, y: Any, *_args: Any, button: str = "left", **_named: Any) -> None:
        self._button("down", None, None, button)
        self._button("up", x, y, button)

    def _scroll(self, axis: str, clicks: int, x: Any, y: Any) -> None:
        self._move(x, y)
        if clicks:
            self.events.append((axis, clicks, self._place))

    def _key(self, what: str, key: str) -> None:
        name = key if len(key) == 1 else key.lower()
        if len(name) > 1 and name not in KNOWN:
            return  # pyautogui ignores keys that it does not know
        same = {"space": " ", "return": "enter", "escape": "esc", "winleft": "win", "\n": "enter"}
        self.events.append((f"key {what}", same.get(name, name)))

    def press(self, keys: Any, presses: int = 1, **_named: Any) -> None:
        for _ in range(presses):
            for key in [keys] if isinstance(keys, str) else keys:
                self._key("down", key)
                self._key("up", key)

    def hotkey(self, *keys: str, **_named: Any) -> None:
        if keys == ("ctrl", "v") and self._clipboard:
            self.write(self._clipboard)
            return
        for key in keys:
            self._key("down", key)
        for key in reversed(keys):
            self._key("up", key)

    def write(self, message: Any, **_named: Any) -> None:
        for character in message:
            self.press(character)

    def _copy(self, text: str) -> None:
        self._clipboard = text

    def finished(self) -> list[Event]:
        """Returns what happened, and where the pointer is."""
        return [*self.events, ("pointer", self._place)]


@contextmanager
def _in_place_of_modules(recorder: Recorder) -> Iterator[dict[str, Any]]:
    names = ("pyautogui", "pyperclip", "time")
    before = {name: sys.modules.get(name) for name in names}
    modules = {name: recorder.module(name) for name in names}
    sys.modules.update(modules)
    try:
        yield {name: modules[name] for name in ("pyautogui", "time")}
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name)
            else:
                sys.modules[name] = module


def recorded(*scripts: str) -> list[Event]:
    """Returns what scripts do to keyboard and mouse, one after the other; ``WAIT``, ``DONE`` and ``FAIL`` are themselves.

    The scripts are ours or those of the installed official agents, made from replies that stand in the tests.

    Raises:
        Exception: Whatever a script raises, a `SyntaxError` included.
    """
    recorder = Recorder()
    with _in_place_of_modules(recorder) as names:
        for script in scripts:
            if script.strip() in {"WAIT", "DONE", "FAIL", "CALL_USER"}:
                recorder.events.append((script.strip(),))
            else:
                exec(script, dict(names))  # noqa: S102
    return recorder.finished()
