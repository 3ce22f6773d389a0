"""Four rows of a class's marks; the reference has them again below, rows as columns."""

from __future__ import annotations

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "eb03d19a-b88d-4de4-8a64-ca0ac66f426b"
_TABLE: list[list[object]] = [
    ["Students", "Ingrid", "Tobias", "Yusuf", "Carmen"],
    ["Class", "7a", "7b", "7a", "7c"],
    ["Subject", "Physics", "History", "Music", "Biology"],
    ["Marks", 81, 67, 92.5, 74],
]


def _sheet(*, solved: bool) -> bytes:
    book = openpyxl.Workbook()
    sheet = book["Sheet"]
    sheet.title = "Sheet1"
    for row, cells in enumerate(_TABLE, 2):
        for column, cell in enumerate(cells, 2):
            sheet.cell(row, column, cell)
            if solved:
                sheet.cell(6 + column, row, cell)
    return saved(book)


FILES = {
    "Students_Class_Subject_Marks.xlsx": _sheet(solved=False),
    "Students_Class_Subject_Marks_gold.xlsx": _sheet(solved=True),
}
_DIALOG = "[dialog] Paste Special"


def _turned(last: str, columns: int) -> list[Turn]:
    """The table up to this cell is copied and turned."""
    name_box = click(["Formula Tool Bar", "[text]"])
    return [
        turn("I select the table.", name_box, write(f"B2:{last}\n", pause=1), when="[document-spreadsheet]"),
        turn("I copy it.", keys("ctrl", "c", pause=1), when=f"4 rows, {columns} columns"),
        turn("I go where it is wanted.", name_box, write("B8\n", pause=1)),
        turn("I paste it.", keys("ctrl", "shift", "v", pause=1.5), when="[text] B8"),
        turn("Rows as columns.", click([_DIALOG, "[check-box] Transpose"], pause=1), when=_DIALOG),
        turn("That is all.", click([_DIALOG, "[push-button] OK"], pause=1), when="[check-box] Transpose (on"),
        DONE | {"when": f"E{6 + columns + 1} - "},
    ]


RIGHT = _turned("F5", 5)
NEAR_MISS = _turned("E5", 4)
NEAR_MISS_IS = "the last student is left out"
SHELL = False
