"""On a real desktop: what the agent's outline says of windows that cover each other, of states, of the dock and of menus."""

from __future__ import annotations

import time
from collections.abc import Callable

import requests

from rollout_tasks.environments.osworld import set_of_marks
from rollout_tasks.environments.osworld.accessibility_tree import Element, elements, lines
from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop, desktop, library  # noqa: F401 (fixtures)

pytestmark = needs_local_desktops


def look(desktop: Desktop, until: Callable[[list[Element]], bool]) -> list[Element]:  # noqa: F811
    """What is seen, once it is so."""
    deadline = time.monotonic() + 60
    while True:
        found = elements(requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"])
        if until(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.3)


def labels(found: list[Element]) -> set[str]:
    return {one.label for one in found}


def in_focus(found: list[Element]) -> bool:
    """Whether the text of a window has the focus."""
    return any(one.role == "text" and "focused" in one.states for one in found)


def has_terminal(found: list[Element]) -> bool:
    return any(one.role == "terminal" for one in found)


def test_dock_states_and_covered_windows(desktop: Desktop) -> None:  # noqa: F811
    desktop.launch("gedit")
    desktop.shell(
        "for i in $(seq 100); do wmctrl -a gedit && break; sleep 0.2; done; wmctrl -r gedit -e 0,0,0,1000,600"
    )
    below = look(desktop, lambda found: "[push-button] Open" in labels(found) and in_focus(found))
    text = lines(below)
    assert "[push-button] Terminal\n" in text
    assert "[toggle-button] Untitled Document 1 - gedit (on)" in text
    assert in_focus(below)

    desktop.launch("gnome-terminal")
    desktop.shell(
        "for i in $(seq 100); do wmctrl -l | grep -q user@ && break; sleep 0.2; done;"
        " wmctrl -r user@desktop -e 0,0,0,1000,600; wmctrl -a user@desktop"
    )
    above = look(desktop, lambda found: "[push-button] Open" not in labels(found) and has_terminal(found))
    assert "[push-button] Open" not in labels(above)
    assert has_terminal(above)
    assert "[push-button] Terminal" in labels(above)
    marked = {one.label for one in set_of_marks.choose(above, (1280, 720)).values()}
    assert not any("Untitled" in label and "toggle" not in label for label in marked)

    desktop.shell("wmctrl -a gedit")
    again = look(desktop, lambda found: "[push-button] Open" in labels(found) and not has_terminal(found))
    assert "[push-button] Open" in labels(again)
    assert not has_terminal(again)


def test_an_open_menu_is_seen_over_the_window(desktop: Desktop) -> None:  # noqa: F811
    desktop.shell("python3 -c \"import pyautogui; pyautogui.click(500, 300, button='right')\"")

    found = look(desktop, lambda found: any(one.role.endswith("menu-item") for one in found))

    entries = [one for one in found if one.role.endswith("menu-item")]
    assert len(entries) > 3
    assert all(one.box for one in entries)
    desktop.shell("python3 -c \"import pyautogui; pyautogui.press('esc')\"")
