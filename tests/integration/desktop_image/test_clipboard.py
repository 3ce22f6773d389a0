"""What a script copies can be pasted: agents such as UI-TARS type by the clipboard."""

from __future__ import annotations

import time

import pytest
import requests

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop

pytestmark = needs_local_desktops

SECONDS = 30.0
TEXT = "milk & 蜂蜜"
PASTE = f"pyperclip.copy({TEXT!r}); pyautogui.hotkey('ctrl', 'a'); pyautogui.hotkey('ctrl', 'v'); time.sleep(0.5)"


@pytest.mark.parametrize(
    "interpreter", ["python", *(pytest.param(name, marks=pytest.mark.slow) for name in ("python3", "/usr/bin/python3"))]
)
def test_a_script_pastes_what_it_copies(desktop: Desktop, interpreter: str) -> None:
    """By the interpreter that is kept warm for agents' scripts, and by others."""
    desktop.shell("echo bread > ~/Documents/list.txt; (gedit ~/Documents/list.txt &) >/dev/null 2>&1")
    deadline = time.monotonic() + SECONDS
    while not any("list.txt" in title for title in desktop.windows()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(1)

    code = f"import pyautogui, pyperclip, time; {PASTE}; pyautogui.hotkey('ctrl', 's'); time.sleep(0.5)"
    answer = requests.post(desktop.url("/execute"), json={"command": [interpreter, "-c", code]}, timeout=60).json()

    assert answer["returncode"] == 0, answer
    while desktop.shell("cat ~/Documents/list.txt").strip() != TEXT:
        assert time.monotonic() < deadline, desktop.shell("cat ~/Documents/list.txt")
        time.sleep(0.2)
    desktop.shell("pkill gedit; true")
    while desktop.windows():
        assert time.monotonic() < deadline + SECONDS
        time.sleep(0.2)


def test_what_was_copied_stays_after_its_script(desktop: Desktop) -> None:
    for code, printed in (("pyperclip.copy('kept')", ""), ("print(pyperclip.paste())", "kept\n")):
        body = {"command": ["python", "-c", f"import pyperclip; {code}"]}
        answer = requests.post(desktop.url("/execute"), json=body, timeout=60).json()
        assert (answer["returncode"], answer["output"]) == (0, printed)
