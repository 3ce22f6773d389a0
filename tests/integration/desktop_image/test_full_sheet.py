"""A window of Calc that is full of cells, as the agent sees it: short, and no control is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest
import requests
from lxml import etree

from rollout_tasks.environments.osworld import accessibility_tree
from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop, running

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(1800)]  # an image takes minutes to build

SCREEN = (1920, 1080)
SECONDS = 120.0
MOST_BYTES = 8192
STATE = "{https://accessibility.ubuntu.example.org/ns/state}"
PLACE = "{https://accessibility.ubuntu.example.org/ns/component}"
CONTROLS = {
    *("push-button", "toggle-button", "combo-box", "entry", "text", "menu"),
    *("page-tab", "check-box", "radio-button", "list-item"),
}


@pytest.fixture(scope="module")
def desktop() -> Iterator[Desktop]:
    """Of the size that runs have unless told otherwise."""
    with running("full", "full-sheet", SCREEN) as desktop:
        yield desktop


def wide_sheet(path: Path) -> None:
    """More rows and columns than a screen shows, and in each cell more than it shows."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in range(1, 81):
        sheet.append([f"Invoice {row}-{column}, paid by transfer in March" for column in range(1, 41)])
    book.save(path)


def tree_of(desktop: Desktop) -> str:
    return str(requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"])


def controls(xml: str) -> list[str]:
    """Each control that is shown on the screen, as a line of the tree begins with it."""
    found = []
    for node in etree.fromstring(xml.encode()).iter(*CONTROLS):
        x, y = (int(number) for number in node.get(f"{PLACE}screencoord", "(-1, -1)").strip("()").split(","))
        width, height = (int(number) for number in node.get(f"{PLACE}size", "(0, 0)").strip("()").split(","))
        shown = all(node.get(f"{STATE}{name}") == "true" for name in ("showing", "visible", "enabled"))
        if shown and node.get("name") and 0 <= x < SCREEN[0] and 0 <= y < SCREEN[1] and width > 0 and height > 0:
            found.append(f"[{node.tag}] {node.get('name')}")
    return found


@pytest.fixture(scope="module")
def xml(desktop: Desktop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tree of the desktop with the sheet in a window, when the window shows it all."""
    book = tmp_path_factory.mktemp("sheet") / "invoices.xlsx"
    wide_sheet(book)
    path = f"/home/user/Desktop/{book.name}"
    with book.open("rb") as content:
        upload = {"file_path": path}
        requests.post(desktop.url("/setup/upload"), data=upload, files={"file_data": content}, timeout=60)
    requests.post(desktop.url("/setup/open_file"), json={"path": path}, timeout=130).raise_for_status()
    deadline = time.monotonic() + SECONDS
    while "Invoice 30-" not in (xml := tree_of(desktop)):
        assert time.monotonic() < deadline, f"no full window within {SECONDS:g} s"
        time.sleep(1)
    return xml


@pytest.mark.parametrize("with_places", [True, False])
def test_an_observation_of_a_full_window_is_short_and_has_every_control(xml: str, with_places: bool) -> None:
    text = accessibility_tree.lines(accessibility_tree.elements(xml, screen=SCREEN), with_places=with_places)

    shown = controls(xml)
    assert len(shown) > 80  # menus, tool bars, the side bar, the dock
    assert [one for one in shown if one not in text] == []
    assert "A1 - Invoice 1-1" in text
    assert len(text.encode()) < MOST_BYTES
