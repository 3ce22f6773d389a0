"""The icons on the desktop, as the notes of their program tell: which, and where. That they are there is seen in a real guest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vm_pool.guest.server import desktop_icons
from vm_pool.guest.server.atspi import names
from vm_pool.guest.server.atspi.nodes import Node, Program


def note(home: Path, icons: dict[str, tuple[int, int]], name: str = "icons.screen0-1264x656.rc") -> Path:
    folder = home / desktop_icons.NOTES
    folder.mkdir(parents=True, exist_ok=True)
    noted = "\n".join(f"[{path}]\nrow={row}\ncol={col}\n" for path, (row, col) in icons.items())
    (folder / name).write_text(f"[xfdesktop-version-4.10.3+-rcfile_format]\n4.10.3+=true\n\n{noted}")
    return folder / name


def test_what_is_there_is_told_by_its_label(tmp_path: Path) -> None:
    for name in ("notes.txt", "a [b] % 2.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sums.desktop").write_text("[Desktop Entry]\nName=Sums\nName[de]=Summen\n")
    named = [
        "Trash",
        str(tmp_path),
        *(f"{tmp_path}/{name}" for name in ("notes.txt", "a [b] % 2.txt", "sums.desktop", "gone")),
    ]
    note(tmp_path, {path: (row, 0) for row, path in enumerate(named)})

    found = desktop_icons.read(tmp_path)

    assert [name for name, _ in found] == ["Trash", "Home", "notes.txt", "a [b] % 2.txt", "Sums"]
    assert [box for _, box in found][:3] == [(48, 22, 48, 48), (48, 129, 48, 48), (48, 236, 48, 48)]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/proc/self/mem")])
def test_a_starter_that_is_none_goes_by_its_file_name(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "odd.desktop")
    note(tmp_path, {"Trash": (0, 0), str(tmp_path / "odd.desktop"): (1, 0)})

    assert [name for name, _ in desktop_icons.read(tmp_path)] == ["Trash", "odd.desktop"]


def test_the_latest_notes_count(tmp_path: Path) -> None:
    os.utime(note(tmp_path, {"Trash": (0, 1)}, "icons.screen0-1904x1016.rc"), (1, 1))
    note(tmp_path, {"Trash": (2, 2)})
    note(tmp_path, {"Trash": (5, 5)}, "icons.screen.latest.rc")

    assert desktop_icons.read(tmp_path) == [("Trash", (254, 236, 48, 48))]


@pytest.mark.parametrize("text", ["", "[a\nb", "[/]\nrow=x\ncol=1\n", "row=1\n", "\0\xff", "[/]\nrow=1\nrow=2\n"])
def test_notes_that_cannot_be_read_are_no_icons(tmp_path: Path, text: str) -> None:
    note(tmp_path, {}).write_text(text)

    assert desktop_icons.read(tmp_path) == []


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

    desktop_icons.add(programs, tmp_path)

    assert [(node.name, names.TAGS[node.role], node.showing) for node in silent.children] == [("Trash", "icon", True)]
    assert [node.name for node in speaking.children] == ["told"]
    assert other.children == []
