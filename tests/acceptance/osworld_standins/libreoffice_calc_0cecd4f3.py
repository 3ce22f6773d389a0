"""Resources for science teachers on one sheet, and a few that need no network on another: the first is copied, all get names."""

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "0cecd4f3-74de-457b-ba94-29ad6b5dafb6"
_HEADERS = ["Resource", "Kind", "Grades", "Minutes"]
_ONLINE = [
    ["Heat in a Cup of Tea", "Simulation", "6-8", 40],
    ["Which Rock Is It?", "Quiz", "3-5", 15],
    ["A Year of Moons", "Video", "3-5", 25],
    ["Forces on a Bridge", "Simulation", "9-12", 60],
    ["What Yeast Breathes", "Reading", "6-8", 20],
]
_OFFLINE = [["Seeds on a Window Sill", "Worksheet", "K-2", 30], ["A Cell in Clay", "Worksheet", "6-8", 45]]
_NAMES = ["LARS Resources", "LARS Resources (Backup)", "LARS Resources (Offline)"]


def _book(*sheets: tuple[str, list[list[object]]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in [_HEADERS, *rows]:
            sheet.append(row)
    return saved(book)


_FILE = "LARS_Science_Assessment_Resource_List_7-30-21"
FILES = {
    f"{_FILE}.xlsx": _book(("Sheet1", _ONLINE), ("Sheet2", _OFFLINE)),
    f"{_FILE}_gold.xlsx": _book(*zip(_NAMES, [_ONLINE, _ONLINE, _OFFLINE], strict=True)),
}
_MENU, _COPY = "[menu] Sheet", "[dialog] Move/Copy Sheet"


def _renamed(name: str) -> list[Turn]:
    """The sheet that is shown gets this name."""
    return [
        turn("I open the menu.", click(_MENU, pause=1), when=_MENU),
        turn("I rename the sheet.", click("[menu-item] Rename Sheet...", pause=1), when="Rename Sheet..."),
        turn("As asked.", keys("ctrl", "a", pause=0.5), write(f"{name}\n", pause=1), when="[dialog] Rename Sheet"),
    ]


def _copied(before: str) -> list[Turn]:
    """The first sheet gets its name and is copied to before this one, then the last one gets its name."""
    first, backup, last = _NAMES
    return [
        *_renamed(first),
        turn("I open the menu.", click(_MENU, pause=1), when=f"[page-tab] {first}"),
        turn("I copy the sheet.", click("[menu-item] Move or Copy Sheet...", pause=1), when="Move or Copy Sheet..."),
        turn("A copy.", click([_COPY, "[radio-button] Copy"], pause=1), when=_COPY),
        turn("Before this one.", click([_COPY, before], pause=1)),
        turn("It gets its name.", click([_COPY, "[text]"], num_clicks=3, pause=0.5), write(backup, pause=1)),
        turn("I confirm.", click([_COPY, "[push-button] Copy"], pause=1.5), when=f"[text] {backup}"),
        turn("I go to the second.", click("[page-tab] Sheet2", pause=1), when=f"[page-tab] {backup}"),
        *_renamed(last),
        DONE | {"when": f"[page-tab] {last}"},
    ]


RIGHT = _copied("Sheet2")
NEAR_MISS = _copied("- move to end position -")
NEAR_MISS_IS = "the copy is the last sheet"
SHELL = False
