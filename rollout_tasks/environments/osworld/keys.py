"""The names of keys: those that pyautogui can press, and other names that models use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]
_NAMED = """
    add alt altleft altright apps backspace capslock ctrl ctrlleft ctrlright decimal del delete divide down end enter esc
    escape execute f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 help home insert
    left multiply num0 num1 num2 num3 num4 num5 num6 num7 num8 num9 numlock pagedown pageup pause pgdn pgup print
    printscreen prntscrn prtsc prtscr return right scrolllock select separator shift shiftleft shiftright space subtract
    tab up win winleft winright
"""
KNOWN = frozenset([*_PRINTABLE, "\t", "\n", "\r", *_NAMED.split()])
"""What pyautogui presses on X11. It has names for more keys (``fn``, ``volumeup``, ...), and silently presses none there."""
_ONLY_ON_WINDOWS = """
    accept browserback browserfavorites browserforward browserhome browserrefresh browsersearch browserstop clear convert
    final hanguel hangul hanja junja kana kanji launchapp1 launchapp2 launchmail launchmediaselect modechange nexttrack
    nonconvert playpause prevtrack sleep stop volumedown volumemute volumeup
"""
_PRESSED: Mapping[str, frozenset[str]] = {
    "Ubuntu": KNOWN,
    "Windows": (KNOWN - {"\r"}).union(_ONLY_ON_WINDOWS.split()),
}
"""What pyautogui presses in each system's guests."""
_PRESSED_ANYWHERE = frozenset[str]().union(*_PRESSED.values())

_OTHER_NAMES = {
    "alt_l": "altleft",
    "alt_r": "altright",
    "arrowdown": "down",
    "arrowleft": "left",
    "arrowright": "right",
    "arrowup": "up",
    "back_space": "backspace",
    "caps_lock": "capslock",
    "cmd": "win",
    "command": "win",
    "control": "ctrl",
    "control_l": "ctrlleft",
    "control_r": "ctrlright",
    "kp_enter": "enter",
    "menu": "apps",
    "meta": "win",
    "minus": "-",
    "next": "pagedown",
    "num_lock": "numlock",
    "option": "alt",
    "optionleft": "altleft",
    "optionright": "altright",
    "page_down": "pagedown",
    "page_up": "pageup",
    "period": ".",
    "plus": "+",
    "comma": ",",
    "prior": "pageup",
    "print_screen": "printscreen",
    "scroll_lock": "scrolllock",
    "shift_l": "shiftleft",
    "shift_r": "shiftright",
    "slash": "/",
    "spacebar": "space",
    "super": "win",
    "super_l": "winleft",
    "super_r": "winright",
    "windows": "win",
}


def known_key(name: str, system: str | None = None) -> str | None:
    """Returns pyautogui's name of a key that guests of a system have, or those of any; None if there is no such key."""
    pressed = _PRESSED_ANYWHERE if system is None else _PRESSED[system]
    if name in pressed:
        return name
    lower = name.strip().lower()
    lower = _OTHER_NAMES.get(lower, lower)
    return lower if lower in pressed else None


def known_combination(text: str, system: str | None = None) -> list[str] | None:
    """Returns the keys of a combination such as ``ctrl+shift+t``; None if one of them is unknown."""
    names = text.split("+")
    if names[-2:] == ["", ""]:  # ctrl++
        names = [*names[:-2], "+"]
    keys = [known_key(name, system) for name in names]
    return None if None in keys else [key for key in keys if key is not None]


def pressed_together(keys: Iterable[str]) -> list[str]:
    """Returns keys as they are pressed at once. Of several, letters become small: to a capital, pyautogui would add shift."""
    several = list(keys)
    return [key.lower() if len(key) == 1 else key for key in several] if len(several) > 1 else several
