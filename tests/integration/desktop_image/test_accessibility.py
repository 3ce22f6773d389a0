"""What the accessibility tree says of real programs, as OSWorld's evaluators and prompts read it."""

from __future__ import annotations

import ast
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lxml import etree
from PIL import Image

from rollout_tasks.environments.osworld.accessibility_tree import elements
from tests.integration.desktop_image.conftest import SCREEN, Desktop

NS = {
    "st": "https://accessibility.ubuntu.example.org/ns/state",
    "cp": "https://accessibility.ubuntu.example.org/ns/component",
    "attr": "https://accessibility.ubuntu.example.org/ns/attributes",
    "val": "https://accessibility.ubuntu.example.org/ns/value",
}


@pytest.fixture(scope="module")
def control(desktop: Desktop) -> Any:
    from desktop_env.controllers.python import PythonController

    return PythonController(desktop.address, desktop.ports["control"])


@pytest.fixture(scope="module")
def tree(control: Any) -> Callable[[], Any]:
    return lambda: etree.fromstring(control.get_accessibility_tree())


def seen(tree: Callable[[], Any], path: str, seconds: float = 30) -> Any:
    """The first node that an XPath finds in time."""
    deadline = time.monotonic() + seconds
    while True:
        root = tree()
        found = root.xpath(path, namespaces=NS)
        if found or time.monotonic() > deadline:
            assert found, f"no {path} in {[(node.tag, node.get('name')) for node in root.iter(etree.Element)]}"
            return found[0]
        time.sleep(0.1)


def middle(node: Any) -> tuple[int, int]:
    x, y = ast.literal_eval(node.get(f"{{{NS['cp']}}}screencoord"))
    width, height = ast.literal_eval(node.get(f"{{{NS['cp']}}}size"))
    return x + width // 2, y + height // 2


def test_an_empty_desktop_has_a_tree(tree: Callable[[], Any]) -> None:
    root = tree()
    assert root.tag == "desktop-frame"
    assert root.xpath("application[@name='xfdesktop']")


def test_icons_are_where_the_tree_says(desktop: Desktop, control: Any, tree: Callable[[], Any]) -> None:
    """Their program tells nothing of them. A name that is long, one of a starter, and enough to fill a second column."""
    desktop.shell(
        "cd ~/Desktop && touch $(seq -f file-%g.txt 12) && echo inside > 'a rather long name for notes, 2024 [old].txt'"
    )
    desktop.shell("printf '[Desktop Entry]\\nType=Application\\nName=Sums\\nExec=true\\n' > ~/Desktop/sums.desktop")
    icons = "//application[@name='xfdesktop']//icon[@st:showing]"
    seen(tree, f"{icons}[@name='Sums']")
    told = {icon.get("name"): middle(icon) for icon in tree().xpath(icons, namespaces=NS)}
    assert {"Home", "Sums", "file-1.txt"} <= told.keys()
    assert len(told) == 15
    assert len({x for x, _ in told.values()}) > 1
    for name in ("a rather long name for notes, 2024 [old].txt", "file-12.txt"):
        x, y = told[name]
        control.execute_action({"action_type": "DOUBLE_CLICK", "parameters": {"x": x, "y": y}})
        seen(tree, f"//application[@name='gedit']/frame[contains(@name, '{name[-12:]}')]")
        desktop.shell("pkill gedit; while pgrep gedit; do sleep 0.1; done")
    desktop.shell("rm ~/Desktop/*")


def test_no_icon_hides_the_others_and_settings_count(desktop: Desktop, control: Any, tree: Callable[[], Any]) -> None:
    """Links that lead nowhere, pipes, more files than cells; then the panel at the top."""
    desktop.shell(
        "cd ~/Desktop && ln -s nowhere lost && ln -s round round && mkfifo pipe && touch $'two\nlines' $'b\\xff'"
        " && mkfifo pipe.desktop"
    )
    icons = "//application[@name='xfdesktop']//icon[@st:showing]"
    seen(tree, f"{icons}[@name='pipe.desktop']")
    told = {icon.get("name") for icon in tree().xpath(icons, namespaces=NS)}
    assert {"Home", "lost", "pipe", "pipe.desktop"} <= told

    desktop.shell("cd ~/Desktop && rm -f * && touch $(seq -f file-%03g 90)")
    seen(tree, f"{icons}[@name='file-020']")
    places = [middle(icon) for icon in tree().xpath(icons, namespaces=NS)]
    assert len(places) == len(set(places)) == 72

    desktop.shell("cd ~/Desktop && rm -f * && echo inside > one.txt")
    seen(tree, f"{icons}[@name='one.txt']")
    panel = "xfconf-query -c xfce4-panel -p /panels/panel-1/position"
    before = desktop.shell(panel).strip()
    desktop.shell(f"{panel} -s 'p=6;x=0;y=0'; sleep 3")
    x, y = middle(seen(tree, f"{icons}[@name='one.txt']"))
    control.execute_action({"action_type": "DOUBLE_CLICK", "parameters": {"x": x, "y": y}})
    seen(tree, "//application[@name='gedit']/frame[contains(@name, 'one.txt')]")
    desktop.shell(f"pkill gedit; while pgrep gedit; do sleep 0.1; done; {panel} -s '{before}'; rm ~/Desktop/*")


@pytest.fixture
def _calculator(desktop: Desktop, tree: Callable[[], Any]) -> Iterator[None]:
    desktop.launch("gnome-calculator")
    seen(tree, "//application[@name='gnome-calculator']//push-button[@name='7'][@st:showing][@st:enabled]")
    yield
    desktop.shell("pkill gnome-calculato; while pgrep gnome-calculato; do sleep 0.1; done")


@pytest.mark.usefixtures("_calculator")
def test_buttons_are_where_the_tree_says(desktop: Desktop, control: Any, tree: Callable[[], Any]) -> None:
    """GTK 4 tells positions inside its window; clicking by the tree shows that they were set right, and follow the window."""
    desktop.shell("wmctrl -r Calculator -e 0,700,100,-1,-1")
    for key in ("7", "×", "6", "="):
        button = seen(tree, f"//application[@name='gnome-calculator']//push-button[@name='{key}']")
        x, y = middle(button)
        assert 700 <= x < SCREEN[0]
        control.execute_action({"action_type": "CLICK", "parameters": {"x": x, "y": y}})
    seen(tree, "//application[@name='gnome-calculator']//*[contains(text(), '42') or contains(@name, '42')]")


@pytest.mark.usefixtures("_calculator")
def test_open_menus_are_where_the_tree_says(control: Any, tree: Callable[[], Any]) -> None:
    """A menu of GTK 4 has a window of its own, which is not where the program says."""
    calculator = "//application[@name='gnome-calculator']"
    for path in (
        f"({calculator}//push-button[@name='GtkMenuButton'][@st:showing])[last()]",
        f"{calculator}//menu-item[@name='Preferences'][@st:showing]",
    ):
        x, y = middle(seen(tree, path))
        control.execute_action({"action_type": "CLICK", "parameters": {"x": x, "y": y}})
    seen(tree, f"{calculator}/*[@name='Preferences']")


def test_a_long_list_gives_the_rows_in_sight(desktop: Desktop, tree: Callable[[], Any]) -> None:
    desktop.shell("mkdir -p ~/many && cd ~/many && touch $(seq -f file-%04g 2000)")
    # The file manager that runs already would open its window before it hears of the change, or take it along as it ends.
    desktop.shell("thunar -q; timeout 20 sh -c 'while pgrep -xi thunar; do sleep 0.1; done'")
    desktop.shell("xfconf-query -c thunar -p /last-view -n -t string -s ThunarDetailsView")
    desktop.launch("thunar ~/many")
    listed = "//table-cell[starts-with(@name, 'file-') or starts-with(text(), 'file-')]"
    seen(tree, listed)  # wherever in the list: it goes along with the file that was read first
    rows = tree().xpath(listed, namespaces=NS)
    assert 5 < len(rows) < 200
    desktop.shell("pkill -i thunar")


def test_the_editor_shows_its_text_and_menus_their_items(
    desktop: Desktop, control: Any, tree: Callable[[], Any]
) -> None:
    desktop.shell("printf 'first <line> & more\\nsecond' > ~/text.txt")
    desktop.launch("gedit ~/text.txt")
    text = seen(tree, "//application[@name='gedit']//text[contains(text(), 'second')]")
    assert text.text == "first <line> & more\nsecond"
    assert text.get(f"{{{NS['st']}}}multi_line") == "true"
    x, y = middle(seen(tree, "(//application[@name='gedit']//toggle-button[@name='Menu'][@st:showing])[last()]"))
    control.execute_action({"action_type": "CLICK", "parameters": {"x": x, "y": y}})
    seen(tree, "//application[@name='gedit']//*[contains(@name, 'Find and Replace')][@st:showing]")
    control.execute_action({"action_type": "PRESS", "parameters": {"key": "esc"}})


def is_white(picture: bytes) -> bool:
    return Image.open(io.BytesIO(picture)).convert("L").resize((8, 8)).getextrema()[0] > 240


def test_an_open_list_of_choices_is_what_an_agent_sees(desktop: Desktop, control: Any, tree: Callable[[], Any]) -> None:
    """It covers the window that it belongs to, and is listed there, too."""
    where = "//application[@name='gnome-screenshot']"

    def click(node: Any) -> None:
        x, y = middle(node)
        control.execute_action({"action_type": "CLICK", "parameters": {"x": x, "y": y}})

    desktop.launch("gnome-screenshot --interactive")
    click(seen(tree, f"{where}//push-button[@name='Take Screenshot'][@st:showing]"))
    folder = seen(tree, f"{where}//combo-box[@name='Pictures'][@st:showing]")
    deadline = time.monotonic() + 20
    while is_white(control.get_screenshot()):  # its flash covers the screen, and takes clicks
        assert time.monotonic() < deadline
        time.sleep(0.1)
    click(folder)
    choice = f"{where}/window//menu-item[@name='Desktop'][@st:showing]"
    seen(tree, choice)
    xml = control.get_accessibility_tree()
    (entry,) = etree.fromstring(xml).xpath(choice, namespaces=NS)
    told = [(one.role, one.name, one.centre) for one in elements(xml, screen=SCREEN)]
    assert ("menu-item", "Desktop", middle(entry)) in told
    click(entry)
    click(seen(tree, f"{where}//combo-box[@name='Desktop']/ancestor::frame//push-button[@name='Save']"))

    seen(tree, "//application[@name='xfdesktop']//icon[starts-with(@name, 'Screenshot from')]")
    desktop.shell("rm ~/Desktop/*.png")


def test_a_frozen_program_is_left_out_with_a_note(desktop: Desktop, tree: Callable[[], Any]) -> None:
    desktop.launch("gnome-terminal")
    seen(tree, "//application[@name='gnome-terminal-server']//terminal")
    desktop.shell("pkill -STOP gedit")
    try:
        root = tree()
        frozen, *_ = root.xpath("application[@name='gedit']") or pytest.fail(str([one.attrib for one in root]))
        assert "does not answer" in frozen.get("note")
        assert not frozen.xpath(".//text")
        assert root.xpath("application[@name='gnome-terminal-server']//terminal")
    finally:
        desktop.shell("pkill -CONT gedit")
    seen(tree, "//application[@name='gedit'][not(@note)]//text")


def test_programs_that_come_and_go_do_not_disturb(desktop: Desktop, tree: Callable[[], Any]) -> None:
    desktop.shell("pkill gedit; pkill gnome-terminal; true")
    deadline = time.monotonic() + 60
    while tree().xpath("application[@name='gedit']") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not tree().xpath("application[@name='gedit']")


def test_the_tree_is_read_again_after_its_bus_was_restarted(desktop: Desktop, tree: Callable[[], Any]) -> None:
    # The bus first: who starts it ends last, and is started again, with a new bus that nobody kills.
    desktop.shell("pkill -f '[a]ccessibility.conf'; pkill at-spi-bus-laun; true")
    there = "pgrep at-spi-bus-laun && pgrep -f '[a]ccessibility.conf'"
    said = desktop.shell(
        f"for _ in $(seq 600); do {there} && exit; sleep 0.1; done; echo never; ps -eo pid,lstart,args"
    )
    assert "never" not in said, said
    desktop.launch("gnome-calculator")
    seen(tree, "//application[@name='gnome-calculator']//push-button[@name='7']")
