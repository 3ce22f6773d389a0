"""The icons on the desktop: their program says nothing of them to assistive technology, but notes in which cell each one is.

How large cells are, and what is between them, follows from the size of what the panel leaves, as in xfdesktop 4.18 (Debian 12).
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .atspi import names
from .atspi.nodes import Box, Node, Program

PROGRAM, FRAME = "xfdesktop", "Desktop"
NOTES = Path(".config/xfce4/desktop")
"""In the user's home. Written a second after an icon has come, gone or moved."""
ICON, PADDING, MARGIN = 48, 6, 8
"""Pixels. The panel is at the bottom, so that cells begin at the screen's upper left corner."""
CELL = 1.9 * ICON + 2 * PADDING
MOST = 500
TRASH = "Trash"
"""What is noted for the only icon that stands for no file."""
_STATES = names.ENABLED | names.SENSITIVE | names.SHOWING | names.VISIBLE
_FILE = re.compile(r"icons\.screen0-(\d+)x(\d+)\.rc")


def add(programs: Sequence[Program], home: Path) -> None:
    """Puts the icons into the tree of the program that draws them, unless it has told of them itself.

    Args:
        programs: All that are on the screen.
        home: The user's home folder.
    """
    for program in programs:
        for frame in program.root.children:
            if program.root.name == PROGRAM and frame.name == FRAME:
                view = frame.children[0] if frame.children else frame
                if view.children:
                    continue
                view.adopt(
                    Node(program.root.program, "", names.ROLES.index("icon"), name, states=_STATES, box=box)
                    for name, box in read(home)
                )


def read(home: Path) -> list[tuple[str, Box]]:
    """The label of each icon and where its picture is, column by column; none where nothing was noted."""
    try:
        size, notes = max(_notes(home / NOTES), key=lambda found: found[1].stat().st_mtime)
        icons = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",))
        icons.read_string(notes.read_text(errors="replace"))
        across, down = (_grid(pixels) for pixels in size)
        found = []
        for path in icons.sections()[:MOST]:
            place = icons[path]
            if "row" in place and "col" in place and (path == TRASH or Path(path).exists()):
                x, y = across[0] + int(place["col"]) * across[1], down[0] + int(place["row"]) * down[1]
                box = (round(x + (CELL - ICON) / 2), round(y) + PADDING, ICON, ICON)
                found.append((_label(Path(path), home), box))
    except (ValueError, OSError, configparser.Error):  # nothing was noted, or not by the release that is known here
        return []
    return sorted(found, key=lambda icon: icon[1][:2])


def _notes(folder: Path) -> Iterator[tuple[tuple[int, int], Path]]:
    for file in folder.iterdir():
        if (size := _FILE.fullmatch(file.name)) is not None:
            yield (int(size[1]), int(size[2])), file


def _grid(pixels: int) -> tuple[int, float]:
    """Where the first cell begins, and how far it is from one to the next."""
    cells = max(int((pixels - 2 * MARGIN) / CELL), 1)
    rest = int(pixels - cells * CELL)
    between = (rest - 2 * MARGIN) // (cells - 1) if cells > 1 else 1
    return MARGIN + (rest - (cells - 1) * between) // 2, CELL + between


def _label(path: Path, home: Path) -> str:
    if path == home:
        return "Home"
    if path.suffix == ".desktop" and path.is_file():
        with suppress(OSError):  # it may not be read
            named = re.search(r"^Name=(.+)$", path.read_text(errors="replace"), re.MULTILINE)
            if named is not None:
                return named[1]
    return path.name
