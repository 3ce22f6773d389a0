"""Typing in the guest, with libraries that stand for those of a guest and its screen; a real one is typed into elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rollout_tasks.environments.osworld.text_input import SOURCE

SPARE = 20
"""Keys without a symbol."""
LONGEST_SECONDS = 120.0
"""What the guest's server waits for a command."""


class Guest:
    """A screen whose keyboard has the letters and some spare keys, and a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.rows = [[0xFFE1, 0], [0xFF0D, 0], *([code, code - 32] for code in range(ord("a"), ord("z") + 1))]
        self.rows += [[0, 0]] * SPARE
        self.seconds = 0.0
        self.typed = ""
        self.display = SimpleNamespace(info=SimpleNamespace(min_keycode=8, max_keycode=7 + len(self.rows)))
        self._shift = False

    def get_keyboard_mapping(self, _first: int, _count: int) -> list[list[int]]:
        return [list(row) for row in self.rows]

    def keysym_to_keycode(self, _symbol: int) -> int:
        return 8

    def change_keyboard_mapping(self, keycode: int, symbols: list[tuple[int, int]]) -> None:
        self.rows[keycode - 8] = list(symbols[0])

    def fake_input(self, _screen: object, event: int, keycode: int) -> None:
        if keycode == 8:
            self._shift = event == 2
        elif event == 2:
            symbol = self.rows[keycode - 8][self._shift]
            self.typed += "\n" if symbol == 0xFF0D else chr(symbol % 0x1000000)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def guest() -> Guest:
    return Guest()


@pytest.fixture
def typewrite(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """pyautogui's typing, replaced for this guest."""
    xlib, ext = ModuleType("Xlib"), ModuleType("Xlib.ext")
    parts = {
        "X": SimpleNamespace(KeyPress=2, KeyRelease=3),
        "XK": SimpleNamespace(XK_Shift_L=0xFFE1),
        "display": SimpleNamespace(Display=lambda: guest),
    }
    vars(xlib).update(parts)
    vars(ext).update(xtest=SimpleNamespace(fake_input=guest.fake_input))
    monkeypatch.setitem(sys.modules, "Xlib", xlib)
    monkeypatch.setitem(sys.modules, "Xlib.ext", ext)
    pyautogui = SimpleNamespace(typewrite=None)
    exec(SOURCE, {"pyautogui": pyautogui, "time": SimpleNamespace(sleep=guest.sleep)})  # noqa: S102 (as guests do)
    typewrite: Callable[..., Any] = pyautogui.typewrite
    return typewrite


REFUSED = r"^typing this text takes \d+ s, and a command may type for 90 s: none of it was typed; use several commands$"


def characters(number: int) -> str:
    """So many different Chinese characters."""
    return "".join(chr(0x4E00 + one) for one in range(number))


@pytest.mark.parametrize(
    "text", ["abc", "Ab\nC", characters(5), f"a{characters(SPARE + 3)}B", characters(1000), "ab" * 8000]
)
def test_a_text_is_typed_in_time(text: str, typewrite: Callable[..., Any], guest: Guest) -> None:
    typewrite(text)
    assert guest.typed == text
    assert guest.seconds < LONGEST_SECONDS
    assert guest.rows[-SPARE:] == [[0, 0]] * SPARE


@pytest.mark.parametrize(
    ("text", "interval"), [(characters(2000), 0.0), ("a" * 30_000, 0.0), ("abc" * 100, 1.0), (characters(500) * 4, 0.0)]
)
def test_a_text_that_would_be_left_half_typed_is_refused(
    text: str, interval: float, typewrite: Callable[..., Any], guest: Guest
) -> None:
    with pytest.raises(ValueError, match=REFUSED):
        typewrite(text, interval)
    assert guest.typed == ""
    assert guest.seconds == 0


def test_the_texts_of_a_command_share_its_time(typewrite: Callable[..., Any], guest: Guest) -> None:
    typewrite("a" * 10_000)
    with pytest.raises(ValueError, match=REFUSED):
        typewrite("b" * 10_000)
    assert guest.typed == "a" * 10_000
    assert guest.seconds < LONGEST_SECONDS
