"""The desktop around the programs: its dock, its finder, its menu, its keys, and the machine's settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import requests
from lxml import etree

from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import SCREEN, Desktop

pytestmark = needs_local_desktops

FINDER = "Application Finder"
SECONDS = 30.0


@pytest.fixture(autouse=True)
def no_window_is_left(desktop: Desktop) -> Iterator[None]:
    """Between two tests."""
    yield
    desktop.shell("pkill -f '[g]nome-terminal'; pkill -x gnome-calculato; pkill xfce4-appfind; pkill gedit; true")
    wait_for(lambda: not desktop.windows(), "an empty desktop")


def wait_for(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline, f"no {what} within {SECONDS:g} s"
        time.sleep(0.1)


def act(desktop: Desktop, *calls: str) -> None:
    """What the agent's hands do, one after the other."""
    desktop.shell(f'python -c "import pyautogui; {"; ".join(f"pyautogui.{call}" for call in calls)}"')


def place_of(desktop: Desktop, path: str) -> tuple[int, int]:
    """The middle of what an XPath of the accessibility tree finds, once it is there."""
    found: list[etree._Element] = []

    def look() -> bool:
        tree = etree.fromstring(requests.get(desktop.url("/accessibility"), timeout=60).json()["AT"].encode())
        found[:] = tree.xpath(path)
        return bool(found)

    wait_for(look, path)
    coordinates = [
        tuple(map(int, str(found[0].xpath(f"@*[local-name()='{name}']")[0]).strip("()").split(", ")))
        for name in ("screencoord", "size")
    ]
    (x, y), (width, height) = coordinates
    return x + width // 2, y + height // 2


HELD = "keyDown('winleft'); pyautogui.sleep(1); pyautogui.keyUp('winleft')"


@pytest.mark.parametrize("opens", ["press('winleft')", HELD, "hotkey('winleft', 'a')", "hotkey('alt', 'f1')", "dock"])
def test_a_program_is_found_by_its_name(desktop: Desktop, opens: str) -> None:
    if opens == "dock":
        opens = "click({}, {})".format(
            *place_of(desktop, f"//application[@name='xfce4-panel']//push-button[@name='{FINDER}']")
        )
    act(desktop, opens)
    wait_for(lambda: FINDER in desktop.windows(), FINDER)
    act(desktop, "write('calculator', interval=0.02)", "sleep(1)", "press('enter')")

    wait_for(lambda: desktop.windows() == ["Calculator"], "calculator")


def test_keys_with_super_are_not_taken_for_super(desktop: Desktop) -> None:
    desktop.launch("gnome-calculator")
    wait_for(lambda: desktop.windows() == ["Calculator"], "calculator")
    act(desktop, "hotkey('winleft', 'up')", "sleep(1)")

    assert desktop.windows() == ["Calculator"]


@pytest.mark.parametrize("key", ["alt", "shift"])
def test_a_picture_is_taken_by_gnomes_keys_without_a_question(desktop: Desktop, key: str) -> None:
    """Of the active window, or of the screen."""
    desktop.launch("gnome-terminal")
    wait_for(lambda: len(desktop.windows()) == 1, "terminal")
    act(desktop, f"hotkey({key!r}, 'printscreen')")
    pictures = "~/Pictures/Screenshots"
    wait_for(lambda: "PNG image" in desktop.shell(f"file {pictures}/*"), "picture")

    told = desktop.shell(f"file {pictures}/*")
    assert "/Screenshot from 20" in told
    assert (f"{SCREEN[0]} x {SCREEN[1]}" in told) == (key == "shift")
    wait_for(lambda: len(desktop.windows()) == 1, "end of the flash; a question would stay")
    desktop.shell(f"rm -r {pictures}")


def test_the_dock_starts_what_it_shows(desktop: Desktop) -> None:
    act(
        desktop,
        "click({}, {})".format(
            *place_of(desktop, "//application[@name='xfce4-panel']//push-button[@name='Calculator']")
        ),
    )

    wait_for(lambda: desktop.windows() == ["Calculator"], "calculator")
    place = place_of(desktop, "//application[@name='xfce4-panel']//toggle-button[contains(@name, 'Calculator')]")
    assert place[1] > SCREEN[1] - 48


def test_the_desktops_menu_has_every_program(desktop: Desktop) -> None:
    act(desktop, f"rightClick({SCREEN[0] // 2}, {SCREEN[1] // 2})")
    act(desktop, "click({}, {})".format(*place_of(desktop, "//menu[@name='Applications']")))

    place_of(desktop, "//menu[@name='Accessories']")
    act(desktop, "press(['esc', 'esc', 'esc'])")


def test_the_terminal_that_is_read_is_the_focused_one(desktop: Desktop) -> None:
    def said() -> str | None:
        answer: str | None = requests.get(desktop.url("/terminal"), timeout=30).json()["output"]
        return answer

    for text in ("first", "second"):
        desktop.launch(f"gnome-terminal --title={text} -- bash -c 'echo {text}; sleep 1000'")
        wait_for(lambda text=text: said() == text, f"terminal that says {text}")
    desktop.shell("wmctrl -a first")
    wait_for(lambda: said() == "first", "focused first terminal")
    desktop.launch("gnome-calculator")
    wait_for(lambda: said() is None, "terminal without the focus that says nothing")
    desktop.shell("wmctrl -a second")
    wait_for(lambda: said() == "second", "focused second terminal")


def test_of_windows_with_one_name_the_oldest_is_meant(desktop: Desktop) -> None:
    for number in range(3):
        desktop.launch("gnome-calculator" if number == 1 else f"gnome-terminal --title=alike -- sleep {1000 + number}")
        wait_for(lambda number=number: len(desktop.windows()) == number + 1, f"window {number + 1}")
    oldest = desktop.shell("wmctrl -l | grep alike | head -n 1").split()[0]

    requests.post(desktop.url("/setup/activate_window"), json={"window_name": "alike"}, timeout=30).raise_for_status()
    assert int(desktop.shell("xdotool getactivewindow")) == int(oldest, 16)
    requests.post(desktop.url("/setup/close_window"), json={"window_name": "alike"}, timeout=30).raise_for_status()
    wait_for(lambda: oldest not in desktop.shell("wmctrl -l"), "closing of the oldest")
    assert "alike" in desktop.windows()


def test_the_time_zone_is_told_and_set(desktop: Desktop) -> None:
    def zone() -> str:
        return desktop.shell("timedatectl").splitlines()[3].strip()

    assert zone() == "Time zone: Etc/UTC (UTC, +0000)"
    assert desktop.shell("timedatectl set-timezone Asia/Tokyo") == ""
    assert zone() == "Time zone: Asia/Tokyo (JST, +0900)"
    desktop.shell("echo password | sudo -S timedatectl set-timezone Etc/UTC")
    assert zone() == "Time zone: Etc/UTC (UTC, +0000)"


@pytest.mark.parametrize("name", ["org.freedesktop.hostname1", "org.freedesktop.locale1", "org.freedesktop.timedate1"])
def test_the_systems_bus_has_the_machines_settings(desktop: Desktop, name: str) -> None:
    path = "/" + name.replace(".", "/")

    said = desktop.shell(f"gdbus introspect --system --dest {name} --object-path {path}")

    assert f"interface {name} {{" in said


COMMANDS = (
    *(
        "bc",
        "cpio",
        "ed",
        "file",
        "git",
        "jq",
        "lsof",
        "nc",
        "netstat",
        "ping",
        "rsync",
        "time",
        "tree",
        "uuidgen",
        "vi",
    ),
    *("wmctrl", "xclip", "xsel", "zip", "unzip"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_programs_of_a_common_desktop_are_there(desktop: Desktop, command: str) -> None:
    assert desktop.shell(f"command -v {command}").startswith("/")


def test_gnomes_favourites_are_a_setting(desktop: Desktop) -> None:
    assert "'org.gnome.Terminal.desktop'" in desktop.shell("gsettings get org.gnome.shell favorite-apps")
    desktop.shell("gsettings set org.gnome.shell favorite-apps \"['gimp.desktop']\"")
    assert desktop.shell("gsettings get org.gnome.shell favorite-apps") == "['gimp.desktop']\n"
    desktop.shell("gsettings reset org.gnome.shell favorite-apps")
