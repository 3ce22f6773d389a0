"""The icons on the desktop, as the notes of their program tell: which, and where. That they are there is seen in a real guest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from desktop_image.server import desktop_icons
from desktop_image.server.atspi import names
from desktop_image.server.atspi.nodes import Box, Node, Program

AREA = (0, 0, 1280, 672)
"""What a panel of 48 pixels at the bottom leaves of 1280 x 720."""


def note(home: Path, icons: dict[str, tuple[object, object]], name: str = "icons.screen0-1264x656.rc") -> Path:
    folder = home / desktop_icons.NOTES
    folder.mkdir(parents=True, exist_ok=True)
    noted = "\n".join(f"[{path}]\nrow={row}\ncol={col}\n" for path, (row, col) in icons.items())
    (folder / name).write_text(
        f"[xfdesktop-version-4.10.3+-rcfile_format]\n4.10.3+=true\n\n{noted}", errors="surrogateescape"
    )
    return folder / name


def note_all(home: Path, paths: list[str]) -> None:
    note(home, {path: (row, 0) for row, path in enumerate(paths)})


def read(home: Path, area: Box = AREA) -> list[str]:
    return [name for name, _ in desktop_icons.read(home, area)]


def test_what_is_there_is_told_by_its_label(tmp_path: Path) -> None:
    for name in ("notes.txt", "a [b] % 2.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sums.desktop").write_text("[Desktop Entry]\nName=Sums\nName[de]=Summen\n")
    named = [f"{tmp_path}/{name}" for name in ("notes.txt", "a [b] % 2.txt", "sums.desktop", "gone")]
    note_all(tmp_path, ["Trash", str(tmp_path), *named])

    found = desktop_icons.read(tmp_path, AREA)

    assert [name for name, _ in found] == ["Trash", "Home", "notes.txt", "a [b] % 2.txt", "Sums"]
    assert [box for _, box in found][:3] == [(48, 22, 48, 48), (48, 129, 48, 48), (48, 236, 48, 48)]


@pytest.mark.parametrize(
    ("starter", "label"),
    [
        ("[Desktop Entry]\nName = Spaced\n", "Spaced"),
        ("[Desktop Action new]\nName=New Window\n[Desktop Entry]\nName=Real\n", "Real"),
        ("[Desktop Entry]\nName=Plain\nName[en]=English\nName[en_US]=American\nName[de]=Deutsch\n", "American"),
        ("[Desktop Entry]\nName=Plain\nName[en]=English\n", "English"),
        ("[Desktop Entry]\nName=Plain\nName[en_US]=\n", "Plain"),
        ("[Desktop Entry]\nName=First\nName=Second\n", "Second"),
        ("[Desktop Entry]\nName=a\\sb\\\\c\\d\n", "a b\\c\\d"),
        ("Name=without a group\n", "odd.desktop"),
        ("[Desktop Entry]\nNames=none\n", "odd.desktop"),
        ("", "odd.desktop"),
    ],
)
def test_a_starter_goes_by_the_name_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: str, label: str
) -> None:
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    (tmp_path / "odd.desktop").write_text(starter)
    note_all(tmp_path, [str(tmp_path / "odd.desktop")])

    assert read(tmp_path) == [label]


def huge(path: Path) -> None:
    path.write_bytes(b"x")
    os.truncate(path, 100 << 30)


def missing(path: Path) -> None:
    path.symlink_to("nowhere")


def round_and_round(path: Path) -> None:
    path.symlink_to(path.name)


def far_away(path: Path) -> None:
    path.symlink_to("x" * 300)


def memory(path: Path) -> None:
    path.symlink_to("/proc/self/mem")


def unreadable(path: Path) -> None:
    path.touch(mode=0)


ODD = [Path.mkdir, os.mkfifo, huge, missing, round_and_round, far_away, memory, unreadable]


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["odd.desktop", "odd"])
def test_what_is_odd_goes_by_its_file_name_and_hides_no_other(
    tmp_path: Path, make: Callable[[Path], object], name: str
) -> None:
    make(tmp_path / name)
    note_all(tmp_path, ["Trash", str(tmp_path / name), str(tmp_path)])

    assert read(tmp_path) == ["Trash", name, "Home"]


@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "a]b", "[a", "a=b", "row=3", "#a", " a ", "\udcff", "ü", "a\x85b", "a\tb"]
)
def test_no_name_of_a_file_hides_another(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    note_all(tmp_path, ["Trash", str(tmp_path / name), str(tmp_path)])

    found = read(tmp_path)

    assert {"Trash", "Home"} <= set(found)
    assert found in (["Trash", name, "Home"], ["Trash", "\ufffd", "Home"], ["Trash", "Home"])
    assert len(found) == 3 or "\n" in name


@pytest.mark.parametrize(
    "place", [(-1, 0), ("9" * 400, 0), (0, "9" * 10), (6, 0), (0, 12), ("x", 0), ("", ""), ("1_0", 0), ("²", 0)]
)
def test_a_place_that_is_none_is_left_out(tmp_path: Path, place: tuple[object, object]) -> None:
    note(tmp_path, {str(tmp_path): place, "Trash": (5, 11)})

    assert read(tmp_path) == ["Trash"]


def test_what_has_no_cell_of_its_own_is_left_out(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"f{number}") for number in (11, 12, 1, 2)]
    for path in paths:
        Path(path).touch()
    (tmp_path / "z").mkdir()
    note(tmp_path, dict.fromkeys(paths, (0, 0)))
    assert read(tmp_path) == ["f1"]
    note(tmp_path, dict.fromkeys([*paths, str(tmp_path / "z")], (0, 0)))
    assert read(tmp_path) == ["z"]
    note(tmp_path, dict.fromkeys([*paths, str(tmp_path / "z"), "Trash"], (0, 0)))
    assert read(tmp_path) == ["Trash"]


def test_what_is_gone_takes_no_room(tmp_path: Path) -> None:
    note(tmp_path, {**{f"/gone/{number}": (number % 6, 1) for number in range(5000)}, "Trash": (0, 0)})

    assert read(tmp_path) == ["Trash"]


def test_panels_elsewhere_move_them(tmp_path: Path) -> None:
    note(tmp_path, {"Trash": (0, 0)})

    assert desktop_icons.read(tmp_path, (0, 48, 1280, 672)) == [("Trash", (48, 70, 48, 48))]
    assert desktop_icons.read(tmp_path, (100, 0, 1280, 672)) == [("Trash", (148, 22, 48, 48))]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ('<property name="style" type="int" value="0"/>', []),
        ('<property name="style" type="int" value="1"/>', []),
        ('<property name="style" type="int" value="2"/>', ["File System", "Trash", "Home"]),
        ('<property name="show-trash" type="bool" value="false"/>', ["File System", "Home"]),
        ('<property name="show-home" type="bool" value="false"/>', ["File System", "Trash"]),
        ('<property name="show-filesystem" type="bool" value="false"/>', ["Trash", "Home"]),
        ('<property name="icon-size" type="uint" value="9' + "9" * 5000 + '"/>', ["File System", "Trash", "Home"]),
        ("<property", ["File System", "Trash", "Home"]),
    ],
)
def test_settings_count(tmp_path: Path, setting: str, shown: list[str]) -> None:
    note_all(tmp_path, ["/", "Trash", str(tmp_path)])
    settings = tmp_path / desktop_icons.SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text(f"<channel>\n{setting}\n</channel>")

    assert read(tmp_path) == shown


def test_larger_pictures_need_larger_cells(tmp_path: Path) -> None:
    note(tmp_path, {"Trash": (1, 0)})
    settings = tmp_path / desktop_icons.SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text('<property name="icon-size" type="uint" value="96"/>')

    ((_, box),) = desktop_icons.read(tmp_path, AREA)

    assert box[2:] == (96, 96)
    assert box[1] > 200


def test_the_latest_notes_count(tmp_path: Path) -> None:
    os.utime(note(tmp_path, {"Trash": (0, 1)}, "icons.screen0-1904x1016.rc"), (1, 1))
    note(tmp_path, {"Trash": (2, 2)})
    note(tmp_path, {"Trash": (5, 5)}, "icons.screen.latest.rc")

    assert desktop_icons.read(tmp_path, AREA) == [("Trash", (254, 236, 48, 48))]


@pytest.mark.parametrize("make", ODD)
def test_notes_and_settings_that_are_no_files_cost_nothing(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(note(tmp_path, {}).with_name("icons.screen0-1x1.rc"))
    (tmp_path / desktop_icons.SETTINGS).parent.mkdir(parents=True)
    make(tmp_path / desktop_icons.SETTINGS)

    assert read(tmp_path) == []


@pytest.mark.parametrize("text", ["", "[a\nb", "[/]\nrow=x\ncol=1\n", "row=1\n", "\0\xff", "[/]\nrow=1\nrow=2\n"])
def test_notes_that_cannot_be_read_are_no_icons(tmp_path: Path, text: str) -> None:
    note(tmp_path, {}).write_text(text)

    assert read(tmp_path) == []


def test_they_are_put_where_their_program_tells_nothing(tmp_path: Path) -> None:
    note(tmp_path, {"Trash": (0, 0)})
    silent, other, speaking = (
        Node("p", "/view"),
        Node("p", "/view"),
        Node("p", "/view", children=[Node("p", "/icon", name="told")]),
    )
    programs = [
        Program(Node("p", "/", name=name, children=[Node("p", "/frame", name="Desktop", children=[view])]), {})
        for name, view in (("xfdesktop", silent), ("xfdesktop", speaking), ("other", other))
    ]

    desktop_icons.add(programs, tmp_path, AREA)

    assert [(node.name, names.TAGS[node.role], node.showing) for node in silent.children] == [("Trash", "icon", True)]
    assert [node.name for node in speaking.children] == ["told"]
    assert other.children == []
