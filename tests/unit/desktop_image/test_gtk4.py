"""GTK 4 tells of a menu where its button is, and not that a dialog is there: both end up as they are seen."""

from __future__ import annotations

import pytest

from desktop_image.server.atspi import gtk4, names
from desktop_image.server.atspi.nodes import Box, Node, Program, Windows

PID = 7
HOME = (PID, "Home")
WINDOWS = {HOME: (520, 246, 880, 540), (PID, "New Folder"): (740, 446, 440, 139), (8, "Rename"): (0, 0, 440, 139)}
SEEN = names.VISIBLE | names.SENSITIVE
OPEN = SEEN | names.SHOWING


def node(role: str, box: Box, *children: Node, name: str = "", states: int = SEEN) -> Node:
    made = Node("p", "/", names.ROLES.index(role), name, states=states, box=box)
    made.adopt(children)
    return made


def files(*windows: Node) -> Program:
    """A file manager with these windows, whose positions are told from their own corner."""
    root = Node("p", "/", name="org.gnome.Nautilus")
    root.adopt(windows)
    return Program(root, {}, "GTK", "4.8.3", PID)


def main_window(*children: Node) -> Node:
    return node("frame", (0, 0, 880, 540), *children, name="Home", states=SEEN | names.SHOWING | names.ACTIVE)


def dialog(name: str = "New Folder", states: int = SEEN) -> Node:
    return node("dialog", (0, 0, 440, 139), node("text", (20, 60, 400, 34)), name=name, states=states)


def states_of(program: Program) -> list[int]:
    return [one.states for window in program.root.children[1:] for one in window.walk()]


def test_an_open_dialog_is_showing_with_all_in_it() -> None:
    program = files(main_window(), dialog())

    gtk4.set_states(program)

    assert states_of(program) == [SEEN | names.SHOWING, SEEN | names.SHOWING | names.ENABLED]


def test_a_hidden_dialog_is_not() -> None:
    program = files(main_window(), dialog(states=names.SENSITIVE))

    gtk4.set_states(program)

    assert not any(states & names.SHOWING for states in states_of(program))


def test_a_dialog_is_where_its_window_is() -> None:
    program = files(main_window(), dialog())

    gtk4.set_places(program, Windows(WINDOWS, [], None))

    assert [one.box for one in program.root.children[1].walk()] == [(740, 446, 440, 139), (760, 506, 400, 34)]


@pytest.mark.parametrize(("active", "is_active"), [((PID, "New Folder"), True), (HOME, False), (None, False)])
def test_a_dialog_is_active_as_the_window_manager_says(active: tuple[int, str] | None, is_active: bool) -> None:
    program = files(main_window(), dialog())

    gtk4.set_places(program, Windows(WINDOWS, [], active))

    assert bool(program.root.children[1].states & names.ACTIVE) == is_active


def test_a_dialog_without_a_title_is_where_the_programs_other_window_is() -> None:
    """Its window's title is the program's name then."""
    windows = {HOME: WINDOWS[HOME], (PID, "org.gnome.Nautilus"): (740, 446, 440, 139)}
    program = files(main_window(), dialog(name="", states=SEEN | names.SHOWING))

    gtk4.set_places(program, Windows(windows, [], (PID, "org.gnome.Nautilus")))

    untitled = program.root.children[1]
    assert [one.box for one in untitled.walk()] == [(740, 446, 440, 139), (760, 506, 400, 34)]
    assert untitled.states & names.ACTIVE


def test_a_dialog_whose_window_is_not_there_is_nowhere() -> None:
    program = files(main_window(), dialog(name="", states=SEEN | names.SHOWING))

    gtk4.set_places(program, Windows({HOME: WINDOWS[HOME]}, [], HOME))

    assert [one.box for one in program.root.children[1].walk()] == [None, None]


def test_what_a_main_window_says_of_itself_stays() -> None:
    program = files(node("frame", (0, 0, 880, 540), name="Home", states=SEEN | names.SHOWING))

    gtk4.set_places(program, Windows(WINDOWS, [], HOME))

    assert not program.root.children[0].states & names.ACTIVE


def menu(corner: tuple[int, int]) -> Node:
    """A menu of two lines with its shadow, told at this corner."""
    x, y = corner
    lines = [node("menu item", (x + 42, y + 28 + 32 * line, 160, 32)) for line in range(2)]
    return node("menu", (x, y, 244, 451), node("filler", (x + 24, y + 22, 196, 403), *lines), states=OPEN)


def test_an_open_menu_is_where_its_own_window_is() -> None:
    program = files(main_window(node("filler", (241, 47, 639, 493), menu((241, 47)))))

    gtk4.set_places(program, Windows(WINDOWS, [(0, 0, 94, 30), (829, 345, 244, 451)], HOME))

    view = program.root.children[0].children[0]
    assert view.box == (761, 293, 639, 493)
    assert [one.box for one in view.children[0].walk()] == [
        (829, 345, 244, 451),
        (853, 367, 196, 403),
        (871, 373, 160, 32),
        (871, 405, 160, 32),
    ]


def test_a_menu_in_a_menu_is_where_its_own_window_is() -> None:
    inner = node("menu", (241, 47, 120, 90), node("menu item", (260, 60, 80, 32)), states=OPEN)
    outer = node("menu", (241, 47, 244, 451), inner, states=OPEN)
    program = files(main_window(node("filler", (241, 47, 639, 493), outer)))

    gtk4.set_places(program, Windows(WINDOWS, [(829, 345, 244, 451), (1050, 400, 120, 90)], HOME))

    assert (outer.box, inner.box, inner.children[0].box) == (
        (829, 345, 244, 451),
        (1050, 400, 120, 90),
        (1069, 413, 80, 32),
    )


def test_two_menus_of_one_size_get_a_window_each() -> None:
    views = [node("filler", (241, 47, 639, 493), menu((241, 47))) for _ in range(2)]
    program = files(main_window(*views))

    gtk4.set_places(program, Windows(WINDOWS, [(600, 300, 244, 451), (829, 345, 244, 451)], HOME))

    assert [view.children[0].box for view in views] == [(600, 300, 244, 451), (829, 345, 244, 451)]


@pytest.mark.parametrize(
    ("box", "states"),
    [((241, 47, 244, 450), OPEN), ((242, 47, 244, 451), OPEN), pytest.param((241, 47, 244, 451), SEEN, id="closed")],
)
def test_what_only_resembles_an_open_menu_stays(box: Box, states: int) -> None:
    button = node("push button", box, states=states)
    program = files(main_window(node("filler", (241, 47, 639, 493), button)))

    gtk4.set_places(program, Windows(WINDOWS, [(829, 345, 244, 451)], HOME))

    assert button.box == (box[0] + 520, box[1] + 246, *box[2:])


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("7 7", "7"),
        ("_Delete Delete", "Delete"),
        ("Save _As Save As", "Save As"),
        ("", ""),
        (" ", " "),
        ("Delete", "Delete"),
        ("_Open With", "_Open With"),
        ("aa_aa", "aa_aa"),
        ("7 8", "7 8"),
    ],
)
def test_a_name_from_a_label_is_said_once(told: str, name: str) -> None:
    program = files(node("frame", (0, 0, 880, 540), node("push button", (0, 0, 80, 34), name=told)))

    gtk4.set_states(program)

    assert program.root.children[0].children[0].name == name
