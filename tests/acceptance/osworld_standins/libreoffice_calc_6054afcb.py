"""Budgets and variances of some days, a few of them not known; in the reference, those rows are hidden."""

import io
from datetime import date

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, Turn, click, saved, spreadsheet, turn, write

TASK = "6054afcb-5bab-4702-90a0-b259b5d3217c"
_UNKNOWN = [4, 7, 8, 13]
"""Rows with no figures."""
_PLAIN = spreadsheet(
    [
        ["Date", "Budget", "Variance"],
        *(
            [date(2023, 5, row), *(("N/A", "N/A") if row in _UNKNOWN else (1500 + row * 37 % 400, row * 53 % 210 - 90))]
            for row in range(2, 17)
        ),
    ]
)


def _reference() -> bytes:
    """Each row has a height of its own, as LibreOffice writes it: an evaluator knows a row by such a word."""
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    sheet = book["Sheet1"]
    for row in range(1, sheet.max_row + 1):
        sheet.row_dimensions[row].height = 12.8
        sheet.row_dimensions[row].hidden = row in _UNKNOWN
    return saved(book)


FILES = {"Date_Budget_Variance_HideNA.xlsx": _PLAIN, "Date_Budget_Variance_HideNA_gold.xlsx": _reference()}


def _hidden(*rows: tuple[int, int]) -> list[Turn]:
    """These rows, from the first to the last of each, hidden."""
    turns = []
    for first, last in rows:
        turns += [
            turn("I select them.", click(["Formula Tool Bar", "[text]"]), write(f"A{first}:A{last}\n", pause=1)),
            turn("I open the menu.", click("[menu] Format @", pause=1), when=f"A{first} - "),
            turn("The rows.", click("[menu] Rows @", pause=1)),
            turn("I hide them.", click("[menu-item] Hide @", pause=1)),
        ]
    return turns


RIGHT = [*_hidden((4, 4), (7, 8), (13, 13)), DONE]
NEAR_MISS = [*_hidden((4, 4), (7, 7), (13, 13)), DONE]
NEAR_MISS_IS = "one of two such rows on end can still be seen"
SHELL = False
