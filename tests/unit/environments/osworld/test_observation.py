"""From what the guest gives to what the agent sees: the tree's lines, the marks, pictures of the right kind."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image, ImageChops

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import accessibility_table, accessibility_tree, set_of_marks
from rollout_tasks.environments.osworld.observation import NO_TREE, desktop_view
from rollout_tasks.environments.osworld.screenshot import as_png, size_of

NAMESPACES = " ".join(
    f'xmlns:{short}="https://accessibility.ubuntu.example.org/ns/{part}"'
    for short, part in (("st", "state"), ("cp", "component"))
)
SHOWN = 'st:showing="true" st:visible="true" st:sensitive="true"'
TREE = f"""<desktop-frame {NAMESPACES}>
 <application name="gedit">
  <frame name="a.txt" {SHOWN} cp:screencoord="(100, 50)" cp:size="(400, 300)">
   <filler {SHOWN}>
    <push-button name="Save" description="Saves &lt;it&gt;" {SHOWN} cp:screencoord="(110, 60)" cp:size="(50, 20)"/>
    <push-button name="Twin" {SHOWN} cp:screencoord="(110, 60)" cp:size="(50, 20)"/>
    <push-button name="Outside" {SHOWN} cp:screencoord="(5000, 60)" cp:size="(50, 20)"/>
    <push-button name="Nowhere" {SHOWN} cp:screencoord="(-1, -1)" cp:size="(0, 0)"/>
    <menu name="File" {SHOWN} cp:screencoord="(200, 60)" cp:size="(50, 20)">
     <menu-item name="Quit" st:visible="true" cp:screencoord="(0, 0)" cp:size="(50, 20)"/>
    </menu>
    <panel st:enabled="true"><label name="Hidden" {SHOWN}/></panel>
   </filler>
   <text {SHOWN} cp:screencoord="(100, 100)" cp:size="(400, 200)">first line
second  line</text>
  </frame>
 </application>
</desktop-frame>"""
LINES = """\
[application] gedit
  [frame] a.txt
    [push-button] Save - Saves <it>
    [push-button] Twin
    [push-button] Nowhere
    [menu] File
    [text] first line second line"""


def picture(kind: str = "PNG", size: tuple[int, int] = (640, 480)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "white").save(file, kind)
    return file.getvalue()


def seen(**other: Any) -> dict[str, Any]:
    return {"screenshot": picture(), "accessibility_tree": TREE, "terminal": None, **other}


def config(kind: str, **other: Any) -> DesktopConfig:
    return DesktopConfig.model_validate({"observation_type": kind, **other})


def test_the_tree_is_what_is_shown_one_element_a_line() -> None:
    assert accessibility_tree.lines(accessibility_tree.elements(TREE, screen=(640, 480))) == LINES


def test_a_long_tree_is_cut_with_a_note() -> None:
    buttons = "".join(f'<push-button name="{number:05d}" {SHOWN}/>' for number in range(5_000))
    found = accessibility_tree.elements(f"<desktop-frame {NAMESPACES}>{buttons}</desktop-frame>")

    text = accessibility_tree.lines(found)

    *kept, note = text.split("\n")
    assert len("\n".join(kept)) <= accessibility_tree.MAX_CHARACTERS
    assert note == f"[... cut after 40000 characters: {5_000 - len(kept)} more elements]"


def node(role: str, name: str, box: tuple[int, int, int, int] | None, *inside: str, **states: bool) -> str:
    """An element that is shown, enabled unless it says otherwise."""
    states = {"enabled": True, **states}
    shown = SHOWN if states["enabled"] else SHOWN.replace('st:sensitive="true"', "")
    place = f'cp:screencoord="({box[0]}, {box[1]})" cp:size="({box[2]}, {box[3]})"' if box else ""
    said = " ".join(f'st:{state}="true"' for state, is_so in states.items() if is_so)
    return f'<{role} name="{name}" {shown} {said} {place}>{"".join(inside)}</{role}>'


def desktop(*programs: str) -> str:
    return f"<desktop-frame {NAMESPACES} xmlns:attr='https://accessibility.ubuntu.example.org/ns/attributes'>{''.join(programs)}</desktop-frame>"


def sheet(columns: int, rows: int, filled: int, buttons: int = 150, at: str = "", filled_rows: int = 99) -> str:
    """A spreadsheet's window; the first cells of the first rows have something, and one may have the focus."""
    cells = "".join(
        node(
            "table-cell", f"{chr(65 + column)}{row + 1}", (40 + 80 * column, 200 + 17 * row, 80, 17), f"r{row}c{column}"
        )
        if column < filled and row < filled_rows
        else node("table-cell", f"{chr(65 + column)}{row + 1}", (40 + 80 * column, 200 + 17 * row, 80, 17))
        for row in range(rows)
        for column in range(columns)
    )
    if at:
        cells = cells.replace(f'<table-cell name="{at}"', f'<table-cell name="{at}" st:focused="true"')
    toolbars = "".join(node("push-button", f"Button {number}", (10 * number, 60, 10, 20)) for number in range(buttons))
    document = node("document-spreadsheet", "a.xlsx", (0, 190, 1920, 800), cells)
    return desktop(node("frame", "a.xlsx", (0, 0, 1920, 1000), document, toolbars, active=True))


def test_cells_of_a_texts_table_are_listed_with_what_is_in_them() -> None:
    cells = [
        node("table-cell", name, (0, 0, 9, 9), node("paragraph", text, (0, 0, 9, 9)))
        for name, text in (("A1", "x"), ("B1", "y"))
    ]

    text = accessibility_tree.lines(
        accessibility_tree.elements(desktop(node("document-text", "a", (0, 0, 99, 99), *cells)))
    )

    assert text == "[document-text] a\n  [table-cell] A1\n    [paragraph] x\n  [table-cell] B1\n    [paragraph] y"


def test_what_is_on_or_selected_or_cannot_be_used_is_said() -> None:
    xml = desktop(
        node("check-box", "Wrap", None, checked=True),
        node("toggle-button", "Bold", None, pressed=True, focused=True),
        node("page-tab", "Sheet 2", None, selected=True),
        node("push-button", "Undo", None, enabled=False),
        node("combo-box", "Size", None, expanded=True),
        node("label", "Text", None, selected=True),
    )

    assert accessibility_tree.lines(accessibility_tree.elements(xml)).splitlines() == [
        "[check-box] Wrap (on)",
        "[toggle-button] Bold (on, focused)",
        "[page-tab] Sheet 2 (selected)",
        "[push-button] Undo (disabled)",
        "[combo-box] Size (open)",
        "[label] Text",
    ]


def test_what_the_active_window_covers_is_neither_listed_nor_marked() -> None:
    buttons = [node("push-button", "Covered", (300, 300, 40, 20)), node("push-button", "Beside", (0, 0, 40, 20))]
    below = node("frame", "Below", (0, 0, 800, 600), *buttons)
    above = node("frame", "Above", (200, 200, 400, 300), node("push-button", "OK", (300, 300, 40, 20)), active=True)

    found = accessibility_tree.elements(desktop(below, above))

    assert [one.name for one in found] == ["Below", "Beside", "Above", "OK"]
    assert [one.name for one in set_of_marks.choose(found, (800, 600)).values()] == ["Beside", "OK"]


@pytest.mark.parametrize(
    ("box", "seen"),
    [
        ((300, 300, 40, 20), None),
        ((200, 200, 400, 300), None),
        ((0, 0, 40, 20), (0, 0, 40, 20)),
        ((600, 300, 40, 20), (600, 300, 40, 20)),
        ((0, 100, 800, 500), (0, 100, 200, 500)),
        ((250, 300, 500, 20), (600, 300, 150, 20)),
        ((300, 150, 40, 100), (300, 150, 40, 50)),
        ((300, 450, 40, 100), (300, 500, 40, 50)),
    ],
)
def test_of_what_is_partly_covered_the_largest_seen_part_is_told(
    box: tuple[int, int, int, int], seen: tuple[int, int, int, int] | None
) -> None:
    below = node("frame", "Below", (0, 0, 800, 600), node("text", "Essay", box))
    above = node("frame", "Above", (200, 200, 400, 300), active=True)

    found = [one.box for one in accessibility_tree.elements(desktop(below, above)) if one.role == "text"]

    assert found == ([seen] if seen else [])


def test_what_drops_down_from_a_tool_bar_is_listed_though_its_window_is_empty() -> None:
    none = node("push-button", "No Fill", (110, 60, 80, 20))
    button = node("push-button", "Colour", (100, 20, 40, 20), node("panel", "Colour", (100, 50, 100, 200), none))
    editor = node("frame", "Editor", (0, 0, 800, 600), button, node("paragraph", "Text", (120, 90, 60, 20)))
    above = node("frame", "Colour", (100, 50, 100, 200), active=True)
    names = [one.name for one in accessibility_tree.elements(desktop(editor, above))]
    assert names == ["Editor", "Colour", "Colour", "No Fill", "Colour"]


def test_what_a_dialog_of_the_same_name_covers_is_not_listed() -> None:
    legend = node("panel", "Legend", (100, 50, 300, 300), node("push-button", "Covered", (120, 90, 60, 20)))
    editor = node("frame", "Editor", (0, 0, 800, 600), legend)
    dialog = node("dialog", "Legend", (110, 60, 200, 200), active=True)
    assert "Covered" not in [one.name for one in accessibility_tree.elements(desktop(editor, dialog))]


def test_the_desktop_covers_nothing_and_menus_are_above_all() -> None:
    active = node("frame", "Desktop", (0, 0, 800, 600), active=True).replace(
        "<frame ", "<frame attr:window-type='desktop' ", 1
    )
    window = node("frame", "Files", (100, 100, 300, 300), node("push-button", "OK", (200, 200, 40, 20)))
    assert [one.name for one in accessibility_tree.elements(desktop(active, window))] == ["Desktop", "Files", "OK"]

    above = node("frame", "Editor", (0, 0, 800, 600), active=True)
    popup = node("window", "", (100, 100, 100, 100), node("menu-item", "Open", (110, 110, 50, 20)))
    covered = desktop(above, popup)
    assert [one.name for one in accessibility_tree.elements(covered)] == ["Editor"]
    shown = covered.replace("<window ", "<window attr:window-type='popup-menu' ", 1)
    assert [one.name for one in accessibility_tree.elements(shown)] == ["Editor", "Open"]


def test_what_has_neither_name_nor_place_is_left_out() -> None:
    xml = desktop(
        node("push-button", "", None), node("push-button", "", (1, 1, 9, 9)), node("menu-item", "Closed", None)
    )

    assert accessibility_tree.lines(accessibility_tree.elements(xml)) == "[push-button]"


def test_a_full_sheet_leaves_room_for_every_button() -> None:
    found = accessibility_tree.elements(sheet(columns=20, rows=40, filled=10))

    text = accessibility_tree.lines(found, with_places=True)

    assert len(text) < 8_000
    assert all(f"[push-button] Button {number} @ " in text for number in range(150))
    assert "[row] 1 @ 208: A1 - r0c0 | B1 - r0c1" in text
    assert "more cells with content have no room here]" in text
    assert "40 @ 871" in text
    assert "[columns] A @ 80, B @ 160, " in text


def test_without_room_the_rows_around_the_focus_are_said() -> None:
    text = accessibility_tree.lines(
        accessibility_tree.elements(sheet(columns=20, rows=40, filled=10, at="C31")), with_places=True
    )

    said = [int(line.split()[1]) for line in text.splitlines() if line.strip().startswith("[row] ")]
    assert 8 <= len(said) < 40
    assert said == list(range(said[0], said[-1] + 1))
    assert abs((said[0] + said[-1]) / 2 - 31) <= 1
    assert "C31 - r30c2 (focused)" in text


def test_a_small_sheet_is_all_there_however_many_toolbars_there_are() -> None:
    text = accessibility_tree.lines(
        accessibility_tree.elements(sheet(columns=20, rows=40, filled=0, buttons=400, at="F8")), with_places=True
    )
    assert "[row] 8 @ 327: F8 (focused)" in text

    text = accessibility_tree.lines(
        accessibility_tree.elements(sheet(columns=20, rows=40, filled=6, filled_rows=8, buttons=400)), with_places=True
    )
    assert "[row] 8 @ 327: A8 - r7c0 | " in text
    assert "no room" not in text


def test_of_rows_too_long_for_their_room_the_focused_one_is_told_in_short() -> None:
    xml = sheet(columns=20, rows=40, filled=20, buttons=400, at="C31").replace(">r30c", f">{'long ' * 20}r30c")

    text = accessibility_tree.lines(accessibility_tree.elements(xml), with_places=True)

    assert f"[row] 31 @ 718: A31 - {'long ' * 6}... | " in text  # with 60 characters of each cell there is no room


def test_what_is_above_or_left_of_the_screen_is_not_listed() -> None:
    away = [
        node("menu-item", name, box) for name, box in {"Far": (-2147483580, 9, 50, 9), "Up": (0, -40, 9, 9)}.items()
    ]
    edge = node("push-button", "Edge", (-5, -5, 9, 9))

    assert (
        accessibility_tree.lines(accessibility_tree.elements(desktop(*away, edge)), with_places=True)
        == "[push-button] Edge @ (2, 2)"
    )


def test_a_small_sheet_is_all_there() -> None:
    text = accessibility_tree.lines(accessibility_tree.elements(sheet(columns=6, rows=10, filled=3)))

    assert "[row] 10: A10 - r9c0 | B10 - r9c1 | C10 - r9c2" in text
    assert "no room" not in text
    assert "@" not in text


def test_spaces_in_a_sheets_cells_are_all_told_in_one_line() -> None:
    xml = (
        sheet(columns=2, rows=2, filled=2)
        .replace("r0c0", "  two  and\ttab ")
        .replace("r1c0", "one\nmore")
        .replace("r1c1", "  ")
    )

    text = accessibility_tree.lines(accessibility_tree.elements(xml))

    assert "[row] 1: A1 -   two  and tab  | B1 - r0c1" in text
    assert "[row] 2: A2 - one more | B2 -   " in text


def test_cells_are_marked_after_buttons_and_empty_ones_last() -> None:
    found = accessibility_tree.elements(sheet(columns=20, rows=40, filled=5))

    labels = [one.label for one in set_of_marks.choose(found, (1920, 1080)).values()]

    assert len(labels) == set_of_marks.MAX_MARKS
    assert sum("Button" in label for label in labels) == 150
    assert sum(" - r" in label for label in labels) == 200
    assert labels[0] == "[table-cell] A1 - r0c0"
    assert labels[-1] == "[push-button] Button 149"


def test_a_long_document_does_not_drown_the_rest() -> None:
    text = "word " * 100_000
    found = accessibility_tree.elements(f"<desktop-frame {NAMESPACES}><text {SHOWN}>{text}</text></desktop-frame>")

    assert len(accessibility_tree.lines(found)) < accessibility_tree.MAX_DESCRIPTION + 20


LAUGHS = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
HOSTILE = {
    "empty": "",
    "no XML": "no xml",
    "a file": "<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><a name='x'>&e;</a>",
    "laughs": f'<!DOCTYPE a [<!ENTITY e0 "ha">{LAUGHS}]><a name="x">&e11;</a>',
    "5,000 deep": "<panel name='x'>" * 5_000 + "</panel>" * 5_000,
    "900 deep": "<panel name='x'>" * 900 + "</panel>" * 900,
    "long": "<a name='" + "x" * (16 << 20) + "'/>",
    "digits": f'<a {NAMESPACES} cp:screencoord="({"9" * 5000}, 1)" cp:size="(1, 1)" name="x"/>',
    "half a pair": "<a name='\ud800'/>",
    "NUL": "<a name='\0'/>",
}


@pytest.mark.parametrize("xml", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("style", ["lines", "osworld"])
def test_a_broken_or_hostile_tree_does_no_harm(xml: str, style: str) -> None:
    try:
        text = (
            accessibility_tree.lines(accessibility_tree.elements(xml))
            if style == "lines"
            else accessibility_table.written(xml)
        )
    except ValueError:
        return
    assert "root:" not in text
    assert len(text) < 2 * accessibility_tree.MAX_CHARACTERS
    text.encode()


def test_what_is_deeper_than_programs_go_is_left_out() -> None:
    found = accessibility_tree.elements("<panel name='x'>" * 900 + "</panel>" * 900)

    assert len(found) == accessibility_tree.DEEPEST + 1


@pytest.mark.parametrize("kind", ["a11y_tree", "som"])
def test_what_is_partly_on_the_screen_is_clicked_there(kind: str) -> None:
    """The screen has 640x480 pixels."""
    boxes = {
        "Right": (600, 9, 500, 20),
        "Below": (9, 470, 50, 400),
        "Corner": (620, 460, 900, 900),
        "All": (-50, -50, 2000, 2000),
        "Sliver": (639, 9, 50, 20),
        "Beside": (640, 9, 50, 20),
        "Under": (9, 480, 50, 20),
        "Far": (2147483600, 9, 50, 20),
    }
    view = desktop_view(
        seen(accessibility_tree=desktop(*(node("push-button", name, box) for name, box in boxes.items()))), config(kind)
    )
    if kind == "som":
        assert view.marks == {1: (620, 19), 2: (34, 475), 3: (630, 470), 4: (320, 240)}
    else:
        assert view.observation.text.splitlines() == [
            "[push-button] Right @ (620, 19)",
            "[push-button] Below @ (34, 475)",
            "[push-button] Corner @ (630, 470)",
            "[push-button] All @ (320, 240)",
            "[push-button] Sliver @ (639, 19)",
        ]


def test_marks_are_on_what_can_be_clicked_and_is_on_the_screen() -> None:
    chosen = set_of_marks.choose(accessibility_tree.elements(TREE), (640, 480))

    assert (
        set_of_marks.listed(chosen)
        == "1: [push-button] Save - Saves <it>\n2: [menu] File\n3: [text] first line second line"
    )
    assert chosen[1].centre == (135, 70)


def test_marks_are_drawn_where_their_elements_are() -> None:
    chosen = set_of_marks.choose(accessibility_tree.elements(TREE), (640, 480))

    drawn = set_of_marks.draw(picture(), chosen)

    with Image.open(io.BytesIO(drawn)) as after, Image.open(io.BytesIO(picture())) as before:
        assert after.size == (640, 480)
        changed = ImageChops.difference(after.convert("RGB"), before.convert("RGB"))
        for element in chosen.values():
            assert element.box is not None
            left, top, width, height = element.box
            assert changed.crop((left, top, left + width, top + height)).getbbox() is not None
        assert changed.crop((0, 320, 640, 480)).getbbox() is None


@pytest.mark.parametrize(
    ("kind", "text", "images"),
    [
        ("screenshot", "", 1),
        ("screenshot_a11y_tree", LINES, 1),
        ("a11y_tree", None, 0),
        ("som", "1: [push-button] Save - Saves <it>\n2: [menu] File\n3: [text] first line second line", 1),
    ],
)
def test_each_type_of_observation(kind: str, text: str | None, images: int) -> None:
    looked = desktop_view(seen(), config(kind))

    assert text is None or looked.observation.text == text
    assert len(looked.observation.images) == images
    assert looked.screen == (640, 480)
    assert (looked.marks is None) == (kind != "som")


def test_an_agent_without_pictures_is_told_where_to_click() -> None:
    text = desktop_view(seen(), config("a11y_tree")).observation.text

    assert "    [push-button] Save - Saves <it> @ (135, 70)\n" in text
    assert "    [push-button] Nowhere\n" in text


def test_a_missing_tree_is_said_and_fails_only_who_sees_nothing_else() -> None:
    assert desktop_view(seen(accessibility_tree=None), config("screenshot_a11y_tree")).observation.text == NO_TREE
    assert desktop_view(seen(accessibility_tree=None), config("som")).observation.text == NO_TREE
    with pytest.raises(ValueError, match="no accessibility tree"):
        desktop_view(seen(accessibility_tree=None), config("a11y_tree"))


def test_the_terminal_is_shown_on_request() -> None:
    looked = desktop_view(seen(terminal="$ ls"), config("screenshot", require_terminal=True))
    assert looked.observation.text == "Terminal:\n$ ls"
    assert desktop_view(seen(terminal="$ ls"), config("screenshot")).observation.text == ""


def test_pictures_become_png_with_their_size() -> None:
    assert as_png(picture()) == picture()
    assert size_of(as_png(picture("JPEG", (320, 200)))) == (320, 200)
    with pytest.raises(ValueError, match="not a picture"):
        as_png(b"GIF8 not really")
