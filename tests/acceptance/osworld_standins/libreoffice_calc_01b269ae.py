"""Students whose group is told only where it changes; the reference tells it in each row."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "01b269ae-2111-4a07-81fd-3fcd711993b0"
_HEADERS = ["Student", "Level", "Adviser", "House", "Room"]
_BY_LEVEL = {2: ["Novice", "Amari"], 10: ["Advanced", "Brandt"], 21: ["Master", "Amari"]}
_BY_HOUSE = {2: ["Larch", 104], 8: ["Rowan", 212], 16: ["Larch", 118], 25: ["Alder", 305]}
"""What the columns B and C, and D and E, have from that row on."""


def _filled(known: dict[int, list], row: int) -> list:
    return known[max(start for start in known if start <= row)]


FILES = {
    "Student_Level_Fill_Blank.xlsx": spreadsheet(
        [
            _HEADERS,
            *(
                [f"S{700 + 3 * row}", *_BY_LEVEL.get(row, [None, None]), *_BY_HOUSE.get(row, [None, None])]
                for row in range(2, 31)
            ),
        ]
    ),
    "Student_Level_Fill_Blank_gold.xlsx": spreadsheet(
        [
            _HEADERS,
            *([f"S{700 + 3 * row}", *_filled(_BY_LEVEL, row), *_filled(_BY_HOUSE, row)] for row in range(2, 31)),
        ]
    ),
}


def _filled_down(last_row: int) -> list[Turn]:
    """Each group of cells is filled from its first row, the last ones to this row."""
    blocks = [("B2", "C9", 8), ("B10", "C20", 11), ("B21", "C30", 10), ("D2", "E7", 6), ("D8", "E15", 8)]
    blocks += [("D16", "E24", 9), ("D25", f"E{last_row}", last_row - 24)]
    turns = []
    for first, last, rows in blocks:
        turns += [
            turn("I select some.", click(["Formula Tool Bar", "[text]"]), write(f"{first}:{last}\n", pause=1)),
            turn("I fill them down.", keys("ctrl", "d", pause=1), when=f"{rows} rows, 2 columns"),
        ]
    return turns


RIGHT = [*_filled_down(30), DONE | {"when": "E30 - 305"}]
NEAR_MISS = [*_filled_down(29), DONE | {"when": "E29 - 305"}]
NEAR_MISS_IS = "two cells of the last row are left blank"
SHELL = False
