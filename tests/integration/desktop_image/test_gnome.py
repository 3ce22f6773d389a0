"""The real GNOME Shell: its bar, dock, icons and search do what a person expects, and assistive technology sees them."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import requests
from lxml import etree
from PIL import Image

from desktop_image.profiles import GNOME, PROFILES
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import SCREEN, Desktop, remove_image, running

pytestmark = [
    needs_local_desktops,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]  # its image takes a minute or two to build

NAME = "test-gnome"
SECONDS = 60.0
STANDS_STILL = "/screenshot?without=clock"
BAR = 32
"""Pixels."""
NAMESPACES = {"st": "https://accessibility.ubuntu.example.org/ns/state"}


@pytest.fixture(scope="module")
def desktop() -> Iterator[Desktop]:
    """Of an image with GNOME Shell and little else, in the place of the profile, which has everything."""
    command = [sys.executable, "scripts/build_guest.py", "--name", NAME]
    for package in (*GNOME.split(), "nautilus"):
        command += ["--package", package]
    try:
        built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
        assert built.returncode == 0, built.stderr
        with running(NAME, NAME) as desktop:
            yield desktop
    finally:
        remove_image(NAME)


def until(done: Callable[[], bool], wanted: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"there is not {wanted}"
        time.sleep(0.5)


def seen(desktop: Desktop, xpath: str) -> bool:
    tree = requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"]
    return bool(etree.fromstring(tree).xpath(xpath, namespaces=NAMESPACES))


def press(desktop: Desktop, code: str) -> None:
    command = ["python", "-c", f"import pyautogui; {code}"]
    requests.post(desktop.url("/execute"), json={"command": command}, timeout=60).raise_for_status()


def test_the_profile_has_all_of_the_full_image() -> None:
    assert set(PROFILES["gnome"]) == {*PROFILES["full"], *GNOME.split()}


def test_bar_dock_and_icons_are_in_the_accessibility_tree(desktop: Desktop) -> None:
    desktop.shell("touch ~/Desktop/hello.txt")
    shell = "//application[@name='gnome-shell']"
    for what in (
        f"{shell}//label[@name='Activities' and @st:showing]",
        f"{shell}//push-button[@name='Terminal' and @st:showing]",
        f"{shell}//toggle-button[@name='Show Applications' and @st:showing]",
        f"{shell}//label[contains(@name, '\u2236') and @st:showing]",  # the clock
        "//application[@name='gjs']//label[translate(@name, '\u200b', '') = 'hello.txt' and @st:showing]",
    ):
        until(lambda what=what: seen(desktop, what), what)


def test_a_program_is_found_by_the_super_key(desktop: Desktop) -> None:
    press(desktop, "pyautogui.press('win')")
    until(
        lambda: seen(desktop, "//application[@name='gnome-shell']//text[@st:editable and @st:showing]"),
        "a field to search in",
    )
    press(desktop, "pyautogui.write('calculator'); pyautogui.sleep(3); pyautogui.press('enter')")
    until(lambda: "Calculator" in desktop.windows(), "a calculator")
    desktop.shell("wmctrl -c Calculator")


def test_a_terminal_comes_by_its_shortcut(desktop: Desktop) -> None:
    press(desktop, "pyautogui.hotkey('ctrl', 'alt', 't')")
    until(lambda: any("user@desktop" in title for title in desktop.windows()), "a terminal")
    desktop.shell("wmctrl -c user@desktop")


def test_the_shell_follows_its_settings(desktop: Desktop) -> None:
    desktop.shell("gsettings set org.gnome.shell favorite-apps \"['org.gnome.Calculator.desktop']\"")
    terminal = "//application[@name='gnome-shell']//push-button[@name='Terminal' and @st:showing]"
    until(lambda: not seen(desktop, terminal), "a dock without the terminal")


def test_its_clock_is_no_sign_of_an_earlier_user(desktop: Desktop) -> None:
    def pictures() -> list[bytes]:
        return [requests.get(desktop.url(path), timeout=60).content for path in ("/screenshot", STANDS_STILL)]

    def at_rest() -> bool:
        _, before = pictures()
        time.sleep(2)
        return pictures()[1] == before

    press(desktop, "pyautogui.moveTo(900, 500)")
    until(at_rest, "a screen at rest")
    whole, still = pictures()
    assert Image.open(io.BytesIO(still)).size == (SCREEN[0], SCREEN[1] - BAR)
    desktop.shell("gsettings set org.gnome.desktop.interface clock-show-seconds true; sleep 3")
    now, still_now = pictures()
    assert now != whole
    assert still_now == still


def test_one_that_ended_is_started_again(desktop: Desktop) -> None:
    desktop.shell("pkill -9 -x gnome-shell")
    until(lambda: bool(requests.get(desktop.url("/health"), timeout=30).json()["ok"]), "a healthy desktop")
    until(lambda: seen(desktop, "//application[@name='gnome-shell']//label[@name='Activities']"), "a new bar")
