"""The image `full` where OSWorld's evaluators look: formats, ports, windows' classes, settings, and what a fresh profile says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from lxml import etree

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import SCREEN, Desktop

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(1800)]  # an image takes minutes to build

PROFILE = "full"
SECONDS = 120.0
STATE = "{https://accessibility.ubuntu.example.org/ns/state}"
PLACE = "{https://accessibility.ubuntu.example.org/ns/component}"
DOCK = "//application[@name='xfce4-panel']//push-button"


@pytest.fixture(autouse=True)
def no_window_is_left(desktop: Desktop) -> Iterator[None]:
    """Between two tests."""
    yield
    desktop.shell("timeout 20 sh -c 'while pgrep -x soffice.bin; do wmctrl -c LibreOffice; sleep 0.5; done'")
    desktop.shell(
        "pkill -KILL soffice.bin; pkill 'chrome|gimp|vlc|gedit|eog|evince|nautilus'; pkill -f '[t]hunderbird'; true"
    )
    desktop.shell("rm -f ~/Desktop/.~lock*")
    # What LibreOffice would ask about after a kill.
    desktop.shell("sed -i '/Office.Recovery/d' ~/.config/libreoffice/4/user/registrymodifications.xcu")
    desktop.shell(
        "for id in $(wmctrl -l | awk '$2 != -1 {print $1}'); do timeout 5 xkill -id $id; done >/dev/null 2>&1"
    )
    wait_for(lambda: not desktop.windows(), "empty desktop")


def wait_for(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"no {what} within {SECONDS:g} s"
        time.sleep(0.3)


def act(desktop: Desktop, *calls: str) -> None:
    """What the agent's hands do, one after the other."""
    desktop.shell(f'python -c "import pyautogui; {"; ".join(f"pyautogui.{call}" for call in calls)}"')


def classes(desktop: Desktop) -> list[str]:
    """Instance and class of each window that a user would call one."""
    listed = [line.split() for line in desktop.shell("wmctrl -lx").splitlines()]
    return [words[2] for words in listed if words[1] != "-1"]


def make_text(path: Path) -> None:
    import docx

    document = docx.Document()
    document.add_paragraph("text")
    document.save(str(path))


def make_sheet(path: Path) -> None:
    import openpyxl

    openpyxl.Workbook().save(path)


def make_slides(path: Path) -> None:
    import pptx

    slides = pptx.Presentation()
    slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "title"
    slides.save(str(path))


@pytest.mark.parametrize(
    ("make", "name", "title"),
    [
        (make_text, "a.docx", "a.docx - LibreOffice Writer"),
        (make_sheet, "a.xlsx", "a.xlsx - LibreOffice Calc"),
        (make_slides, "a.pptx", "a.pptx - LibreOffice Impress"),
    ],
)
def test_saving_asks_nothing(
    desktop: Desktop, tmp_path: Path, make: Callable[[Path], None], name: str, title: str
) -> None:
    make(tmp_path / name)
    path = f"/home/user/Desktop/{name}"
    with (tmp_path / name).open("rb") as content:
        upload = {"file_path": path}
        requests.post(desktop.url("/setup/upload"), data=upload, files={"file_data": content}, timeout=60)
    requests.post(desktop.url("/setup/open_file"), json={"path": path}, timeout=130).raise_for_status()
    wait_for(lambda: desktop.windows() == [title], title)
    before = desktop.shell(f"stat -c %s.%Y {path}")
    # As OSWorld's own tasks end: a click into the middle, and Ctrl+S; something must have changed, or nothing is saved.
    act(
        desktop,
        "sleep(2)",
        "press('f2')" if name == "a.pptx" else "press('end')",
        "write('7')",
        "press('esc')",
        "sleep(1)",
    )
    if name == "a.xlsx":
        act(desktop, "write('7')", "press('enter')", "sleep(1)")
    act(desktop, "hotkey('ctrl', 's')")

    wait_for(lambda: desktop.shell(f"stat -c %s.%Y {path}") != before, "saved file")
    assert desktop.windows() == [title]


def middles(desktop: Desktop, path: str) -> dict[str, tuple[int, int]]:
    """The middle of each node that an XPath finds, that has a name and a place and is showing, by its name."""
    tree = etree.fromstring(requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"].encode())
    found = {}
    for node in tree.xpath(path, namespaces={"st": STATE.strip("{}")}):
        if node.get(f"{STATE}showing") == "true" and node.get("name") and node.get(f"{PLACE}size"):
            x, y, width, height = (
                int(number)
                for name in ("screencoord", "size")
                for number in node.get(f"{PLACE}{name}").strip("()").split(",")
            )
            found[node.get("name")] = (x + width // 2, y + height // 2)
    return found


def test_gimps_open_menus_are_in_the_tree(desktop: Desktop) -> None:
    """GIMP is made with GTK 2, which does not say of the items of an open menu that they are showing."""

    def shown() -> dict[str, tuple[int, int]]:
        return middles(desktop, "//application[@name='gimp']//*[self::menu or contains(name(), 'menu-item')]")

    def click(name: str) -> None:
        act(desktop, f"click{shown()[name]}")

    desktop.launch("gimp")
    wait_for(lambda: "Windows" in shown(), "menu bar of GIMP")
    bar = set(shown())
    assert "Dockable Dialogs" not in bar
    click("Windows")
    wait_for(lambda: "Dockable Dialogs" in shown(), "open menu")
    assert "Tool Options" not in shown()
    click("Dockable Dialogs")
    wait_for(lambda: "Tool Options" in shown(), "open menu in a menu")
    # It is longer than the screen, and what is out of it cannot be seen.
    assert all(0 <= x < SCREEN[0] and 0 <= y < SCREEN[1] for x, y in shown().values())
    act(desktop, "press('esc')")
    wait_for(lambda: "Tool Options" not in shown(), "closed inner menu")
    act(desktop, "press('esc')")
    wait_for(lambda: set(shown()) == bar, "closed menu")


def test_menus_and_dialogs_of_the_file_manager_are_where_the_tree_says(desktop: Desktop) -> None:
    """It is made with GTK 4, which tells of a menu where its view is, and not that a dialog is showing."""

    def shown() -> dict[str, tuple[int, int]]:
        return middles(desktop, "//application[@name='org.gnome.Nautilus']//*")

    def click(name: str, button: str = "left") -> None:
        wait_for(lambda: name in shown(), name)
        x, y = shown()[name]
        act(desktop, f"click({x}, {y}, button={button!r})")

    desktop.shell("mkdir -p ~/papers && touch ~/papers/first.txt ~/papers/second.txt")
    desktop.launch("nautilus ~/papers")
    click("second.txt", "right")
    click("Rename…")
    wait_for(lambda: "New Filename" in shown(), "field for a name")
    act(desktop, "write('third')")
    click("Rename")
    wait_for(lambda: "third.txt" in shown(), "renamed file")
    click("third.txt", "right")
    click("Compress…")
    wait_for(lambda: "Archive name" in shown(), "dialog")
    active = {"Create Compressed Archive"}
    wait_for(lambda: middles(desktop, "//dialog[@st:active]").keys() == active, "focus in the dialog")
    act(desktop, "write('packed')")
    click("Create")

    wait_for(lambda: "packed.zip" in shown(), "archive")
    assert desktop.shell("ls ~/papers").split() == ["first.txt", "packed.zip", "third.txt"]
    desktop.shell("rm -r ~/papers")


@pytest.mark.parametrize("started", ["dock", "finder", "link"])
def test_chrome_can_be_asked_however_it_was_started(desktop: Desktop, started: str) -> None:
    if started == "dock":
        act(desktop, "click(24, 696)")  # the first in the row
    elif started == "finder":
        act(
            desktop,
            "press('winleft')",
            "sleep(3)",
            "write('google chrome', interval=0.02)",
            "sleep(1)",
            "press('enter')",
        )
    else:
        desktop.launch("xdg-open http://localhost:1/")

    def version() -> str:
        try:
            return str(
                requests.get(f"http://{desktop.address}:{desktop.ports['chromium']}/json/version", timeout=5).text
            )
        except requests.RequestException:
            return ""

    wait_for(lambda: "Chrome/" in version(), "browser that answers on its port of debugging")


@pytest.mark.parametrize(
    ("command", "known_as"),
    [
        ("google-chrome --remote-debugging-port=1337", "google-chrome.Google-chrome"),
        ("/usr/bin/thunderbird", "Mail.thunderbird"),
        ("thunderbird", "Mail.thunderbird"),
        ("libreoffice --calc", "libreoffice.libreoffice-calc"),
        ("libreoffice --writer", "libreoffice.libreoffice-writer"),
        ("gimp", "gimp.Gimp"),
        ("gimp-2.10", "gimp-2.10.Gimp-2.10"),
        ("vlc", "vlc.vlc"),
        ("gedit", "gedit.Gedit"),
        ("eog", "eog.Eog"),
        ("evince", "evince.Evince"),
        ("gnome-terminal", "gnome-terminal-server.Gnome-terminal"),
        ("nautilus", "org.gnome.Nautilus.org.gnome.Nautilus"),
    ],
)
def test_windows_have_the_class_that_tasks_name(desktop: Desktop, command: str, known_as: str) -> None:
    desktop.launch(command)

    wait_for(lambda: known_as in classes(desktop), f"window of class {known_as}")
    asked = {"window_name": known_as, "strict": True, "by_class": True}
    requests.post(desktop.url("/setup/close_window"), json=asked, timeout=30).raise_for_status()

    def closes() -> bool:
        """Programs that are still starting do not listen to being closed; a person would try again."""
        gone = known_as not in classes(desktop)
        if not gone:
            requests.post(desktop.url("/setup/close_window"), json=asked, timeout=30)
        return gone

    wait_for(closes, f"closing of {known_as}")


def test_every_panel_of_gnomes_settings_opens(desktop: Desktop) -> None:
    panels = desktop.shell("gnome-control-center --list").split()[2:]
    assert len(panels) > 25
    aborted = {}
    for panel in panels:
        said = desktop.shell(f"timeout 5 gnome-control-center {panel} 2>&1; code=$?; echo; echo $code").splitlines()
        if said[-1] != "124":  # as timeout says of what it had to end
            aborted[panel] = said
    assert aborted == {}


FRESH = {
    "default_search_engine": "Google",
    "enabled_experiments": [],
    "chrome_language": "en-US",
    "chrome_color_scheme": "system",
    "enable_do_not_track": "false",
    "enable_enhanced_safety_browsing": "false",
    "enable_safe_browsing": "false",
    "new_startup_page": "true",
    "data_delete_automacally": "false",
    "chrome_font_size": {"default_fixed_font_size": 13, "default_font_size": 16, "minimum_font_size": 13},
}
"""What desktop-env's getters say of a browser that was started and ended, and nothing else."""


def test_a_fresh_browser_has_chosen_nothing(desktop: Desktop) -> None:
    from desktop_env.controllers.python import PythonController

    from rollout_tasks.environments.osworld.desktop_env_import import desktop_env

    desktop.shell("rm -rf ~/.config/google-chrome.before; cp -a ~/.config/google-chrome ~/.config/google-chrome.before")
    desktop.launch("google-chrome --remote-debugging-port=1337")
    wait_for(lambda: "google-chrome.Google-chrome" in classes(desktop), "browser")
    desktop.shell("sleep 3; pkill chrome; while pgrep -x chrome; do sleep 0.2; done")
    environment: Any = SimpleNamespace(
        controller=PythonController(desktop.address, desktop.ports["control"]), vm_platform="Linux"
    )

    getters = desktop_env().getters
    assert {name: getattr(getters, f"get_{name}")(environment, {}) for name in FRESH} == FRESH
