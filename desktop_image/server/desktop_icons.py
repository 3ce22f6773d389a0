"""Adds the desktop's icons to the accessibility tree: their program does not report them, but notes each one's cell.

The size and spacing of cells follow from the size of the screen without panels, as in xfdesktop 4.18 (Debian 12). The
files read here belong to the user: nothing in them may cost much time, or hide more than itself.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .atspi import names
from .atspi.nodes import Box, Node, Program

PROGRAM, FRAME = "xfdesktop", "Desktop"
NOTES = Path(".config/xfce4/desktop")
"""In the user's home. Written a second after an icon appears, disappears or moves."""
SETTINGS = Path(".config/xfce4/xfconf/xfce-perchannel-xml/xfce4-desktop.xml")
"""Also in the user's home; exists once a setting was changed. Written within seconds."""
NOTES_BYTES, STARTER_BYTES = 1 << 20, 1 << 16
"""Most bytes read of a file of notes, and of a file that starts a program."""
PADDING, MARGIN = 6, 8
"""Pixels."""
MOST = 500
SPECIAL = {"Trash": ("Trash", "show-trash"), "/": ("File System", "show-filesystem")}
"""Names noted for icons without a file: label, and the setting that hides it. The home folder also has one."""
_STATES = names.ENABLED | names.SENSITIVE | names.SHOWING | names.VISIBLE
_FILE = re.compile(r"icons\.screen0-\d+x\d+\.rc")
_NUMBER = re.compile(r"(row|col)=(\d{1,4})")
_ESCAPED = {"s": " ", "n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a screen.

    Args:
        area: The screen without panels.
        icon: Size of the pictures, in pixels.
    """

    area: Box
    icon: int = 48

    def box(self, row: int, column: int) -> Box | None:
        """Returns the position of a cell's picture; None when the cell does not exist."""
        cell = 1.9 * self.icon + 2 * PADDING
        across, down = (self._cells(pixels - 2 * MARGIN, cell) for pixels in self.area[2:])
        if row >= down[0] or column >= across[0]:
            return None
        x, y = across[1] + column * across[2], down[1] + row * down[2]
        corner = (self.area[0] + round(x + (cell - self.icon) / 2), self.area[1] + round(y) + PADDING)
        return (*corner, self.icon, self.icon)

    @staticmethod
    def _cells(pixels: int, cell: float) -> tuple[int, int, float]:
        """Returns the number of cells, the start of the first, and the distance from one to the next."""
        cells = max(int((pixels - 2 * MARGIN) / cell), 1)
        rest = int(pixels - cells * cell)
        between = (rest - 2 * MARGIN) // (cells - 1) if cells > 1 else 1
        return cells, MARGIN + (rest - (cells - 1) * between) // 2, cell + between


def add(programs: Sequence[Program], home: Path, area: Box) -> None:
    """Adds the icons to the tree of the program that draws them, unless it reports them itself.

    Args:
        programs: All programs on the screen.
        home: The user's home folder.
        area: The screen without panels.
    """
    for program in programs:
        for frame in program.root.children:
            if program.root.name == PROGRAM and frame.name == FRAME:
                view = frame.children[0] if frame.children else frame
                if view.children:
                    continue
                view.adopt(
                    Node(program.root.program, "", names.ROLES.index("icon"), name, states=_STATES, box=box)
                    for name, box in read(home, area)
                )


def read(home: Path, area: Box) -> list[tuple[str, Box]]:
    """Returns each icon's label and its picture's position, column by column; empty when nothing was noted."""
    settings = dict(
        re.findall(r'<property name="([\w-]+)" type="\w+" value="(\w+)"', _text(home / SETTINGS, NOTES_BYTES))
    )
    if settings.get("style") in ("0", "1"):  # no icons, or those of minimised windows
        return []
    size = settings.get("icon-size", "")
    grid = Grid(area, min(max(int(size), 16), 192)) if re.fullmatch(r"\d{1,3}", size) else Grid(area)
    cells: dict[Box, list[str]] = {}
    for path, row, column in _noted(home):
        if (box := grid.box(row, column)) is not None and _is_shown(path, home, settings):
            cells.setdefault(box, []).append(path)
    # Icons without a free cell are also noted in the first cell, which shows the icon that came first.
    first = {box: min(paths, key=lambda path: _order(path, home)) for box, paths in cells.items()}
    return [(_label(path, home), box) for box, path in sorted(first.items(), key=lambda cell: cell[0][:2])[:MOST]]


def _noted(home: Path) -> Iterator[tuple[str, int, int]]:
    """Yields each icon's path, row and column in the latest notes."""
    try:
        files = [file for file in (home / NOTES).iterdir() if _FILE.fullmatch(file.name)]
        latest = max(files, key=lambda file: file.lstat().st_mtime)
    except (OSError, ValueError):
        return
    for group in re.split(r"^\[", _text(latest, NOTES_BYTES, "surrogateescape"), flags=re.MULTILINE)[1:]:
        path, closed, places = group.rpartition("]\n")
        place = {found[1]: found[2] for line in places.split("\n") if (found := _NUMBER.fullmatch(line))}
        if closed and len(place) == 2:
            yield path, int(place["row"]), int(place["col"])


def _is_shown(path: str, home: Path, settings: dict[str, str]) -> bool:
    if path in SPECIAL:
        return settings.get(SPECIAL[path][1]) != "false"
    if path == str(home):
        return settings.get("show-home") != "false"
    return "\0" not in path and os.path.lexists(path)


def _order(path: str, home: Path) -> tuple[bool, bool, str]:
    """Sort key: xfdesktop fills the cells with icons without a file, then folders, then files."""
    return path not in SPECIAL and path != str(home), not os.path.isdir(path), path.casefold()


def _label(path: str, home: Path) -> str:
    if path in SPECIAL:
        return SPECIAL[path][0]
    if path == str(home):
        return "Home"
    name = os.path.basename(path).encode(errors="surrogateescape").decode(errors="replace")
    if not name.endswith(".desktop"):
        return name
    return _name_in(_text(Path(path), STARTER_BYTES)) or name


def _name_in(starter: str) -> str:
    """Returns a program's name from the file that starts it, in the session's language."""
    language = os.environ.get("LANG", "").partition(".")[0]
    keys = ("Name", f"Name[{language.partition('_')[0]}]", f"Name[{language}]")
    group, found = "", {}
    for line in starter.split("\n"):
        if line.startswith("["):
            group = line.strip()
        elif group == "[Desktop Entry]":
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip()
    name = next((found[key] for key in reversed(keys) if found.get(key)), "")
    return re.sub(r"\\(.)", lambda escape: _ESCAPED.get(escape[1], escape[0]), name)


def _text(path: Path, most: int, errors: str = "replace") -> str:
    """Returns the beginning of a file; empty when it is not readable. Never waits, as opening a pipe would."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                return os.read(file, most).decode(errors=errors)
        finally:
            os.close(file)
    return ""
