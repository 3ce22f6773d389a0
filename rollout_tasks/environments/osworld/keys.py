"""The names of keys: those that pyautogui knows, and other names that models use."""

from __future__ import annotations

_PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]
_NAMED = """
    accept add alt altleft altright apps backspace browserback browserfavorites browserforward browserhome browserrefresh
    browsersearch browserstop capslock clear convert ctrl ctrlleft ctrlright decimal del delete divide down end enter esc
    escape execute f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24 final fn hanguel
    hangul hanja help home insert junja kana kanji launchapp1 launchapp2 launchmail launchmediaselect left modechange
    multiply nexttrack nonconvert num0 num1 num2 num3 num4 num5 num6 num7 num8 num9 numlock pagedown pageup pause pgdn pgup
    playpause prevtrack print printscreen prntscrn prtsc prtscr return right scrolllock select separator shift shiftleft
    shiftright sleep space stop subtract tab up volumedown volumemute volumeup win winleft winright yen command option
    optionleft optionright
"""
KNOWN = frozenset([*_PRINTABLE, "\t", "\n", "\r", *_NAMED.split()])

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
    "control": "ctrl",
    "control_l": "ctrlleft",
    "control_r": "ctrlright",
    "kp_enter": "enter",
    "menu": "apps",
    "meta": "win",
    "minus": "-",
    "next": "pagedown",
    "num_lock": "numlock",
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


def known_key(name: str) -> str | None:
    """Returns pyautogui's name of a key; None if the name is unknown."""
    if name in KNOWN:
        return name
    lower = name.strip().lower()
    lower = _OTHER_NAMES.get(lower, lower)
    return lower if lower in KNOWN else None


def known_combination(text: str) -> list[str] | None:
    """Returns the keys of a combination such as ``ctrl+shift+t``; None if one of them is unknown."""
    names = text.split("+")
    if names[-2:] == ["", ""]:  # ctrl++
        names = [*names[:-2], "+"]
    keys = [known_key(name) for name in names]
    return None if None in keys else [key for key in keys if key is not None]
