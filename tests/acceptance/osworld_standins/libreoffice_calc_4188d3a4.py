"""Panes frozen below row 1 and right of column B: a list of sales; the reference is frozen at C2, as A1:B1 above and left of it."""

import io

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, LARGER, Turn, click, saved, spreadsheet, turn

TASK = "4188d3a4-077d-46b7-9c86-23e1a036f6c1"
_SALES = spreadsheet(
    [
        ["Date", "Order", "Region", "Article", "Units", "Price", "Total"],
        *(
            [
                f"2023-{1 + number // 4:02d}-{3 + 7 * (number % 4):02d}",
                5100 + 3 * number,
                ("North", "East", "South", "West")[number * 7 % 4],
                ("Lamp", "Shelf", "Chair", "Desk", "Rug")[number * 3 % 5],
                2 + number * 5 % 11,
                24.5 + number * 13 % 60,
                (2 + number * 5 % 11) * (24.5 + number * 13 % 60),
            ]
            for number in range(48)
        ),
    ]
)


def _reference() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_SALES))
    book["Sheet1"].freeze_panes = "C2"
    return saved(book)


FILES = {"Freeze_row_column2.xlsx": _SALES, "Freeze_row_column2_gold.xlsx": _reference()}


def _frozen_at(cell: str) -> list[Turn]:
    return [
        LARGER,
        turn("I click where it begins to move.", click(f"[table-cell] {cell}", pause=1)),
        turn("I open the menu.", click("[menu] View @", pause=1), when=f"[text] {cell} "),
        turn("I freeze what is above and to the left.", click("Freeze Rows and Columns @", pause=1)),
    ]


RIGHT = [*_frozen_at("C2"), DONE]
NEAR_MISS = [*_frozen_at("B2"), DONE]
NEAR_MISS_IS = "the second column is not frozen"
SHELL = False
