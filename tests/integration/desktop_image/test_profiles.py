"""Each image has its own programs, which start as OSWorld's tasks start them and come up with a window that can be worked with."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from PIL import Image, ImageChops

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop, running

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(1800)]  # an image takes minutes to build

SCREEN = (1920, 1080)
"""As OSWorld has it."""
WINDOW_SECONDS = 120.0
PROGRAMS = {
    "office": [
        ("libreoffice --calc", "LibreOffice Calc", "push-button"),
        ("libreoffice --writer", "LibreOffice Writer", "push-button"),
        ("libreoffice --impress", "LibreOffice Impress", "push-button"),
    ],
    "media": [
        ("gimp", "GNU Image Manipulation Program", "menu"),
        ("VLC_VERBOSE=-1 vlc --no-audio --no-video-title-show", "VLC media player", "push-button"),
    ],
    "browser": [("google-chrome --remote-debugging-port=1337", "Google Chrome", "push-button")],
}
"""By profile: command, what the title of its window ends with, and a role of what can be clicked in it."""


@pytest.mark.parametrize("profile", PROGRAMS)
def test_the_programs_of_a_profile_start(profile: str, tmp_path: Path) -> None:
    with running(profile, profile, SCREEN) as desktop:
        before = _screenshot(desktop)
        for number, (command, title, role) in enumerate(PROGRAMS[profile]):
            desktop.launch(command)
            _wait(lambda title=title: any(title in window for window in desktop.windows()), f"a window {title!r}")
            _wait(lambda role=role: f"<{role} " in _accessibility(desktop), f"a {role} in it")
            _wait(lambda: _is_at_rest(desktop), "a screen at rest")
            picture = _screenshot(desktop)
            picture.save(Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"{profile}-{number}.png")
            assert _share_changed(before, picture) > 0.2
            before = picture
            # LibreOffice's next window, asked for while its process is about to end, would never come.
            desktop.shell(f"wmctrl -c {title!r}; timeout 60 sh -c 'while pgrep -x soffice.bin; do sleep 0.5; done'")


def _wait(done: Callable[[], bool], wanted: str) -> None:
    deadline = time.monotonic() + WINDOW_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"there is not {wanted} within {WINDOW_SECONDS:g} s"
        time.sleep(0.5)


def _accessibility(desktop: Desktop) -> str:
    return str(requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"])


def _is_at_rest(desktop: Desktop) -> bool:
    first = _screenshot(desktop)
    time.sleep(2)
    return _share_changed(first, _screenshot(desktop)) < 0.01


def _screenshot(desktop: Desktop) -> Image.Image:
    picture = Image.open(io.BytesIO(requests.get(desktop.url("/screenshot"), timeout=60).content)).convert("L")
    assert picture.size == SCREEN
    return picture


def _share_changed(before: Image.Image, after: Image.Image) -> float:
    unchanged = ImageChops.difference(before, after).histogram()[0]
    return 1 - unchanged / (SCREEN[0] * SCREEN[1])
