"""Assets of six years; the reference's changes are fractions of one, as numbers, not as formulas."""

import io
from itertools import pairwise

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, click, saved, spreadsheet, turn, write

TASK = "04d9aeaf-7bed-4024-bedb-e10e6f00eb7f"
_ASSETS = [
    [2014, 48250, 131400, 7320],
    [2015, 52980, 128750, 7815],
    [2016, 50410, 140225, 7815],
    [2017, 61735, 152660, 6940],
    [2018, 66120, 149875, 8455],
    [2019, 63540, 171310, 9105],
]
_PLAIN = spreadsheet(
    [
        ["Year", "Current Assets", "Fixed Assets", "Other Assets", "Current Liabilities", "Owner's Equity"],
        *([*row, row[1] // 2, sum(row[1:]) - row[1] // 2] for row in _ASSETS),
    ]
)
_HEADERS = ["Year", "CA changes", "FA changes", "OA changes"]


def _reference() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    sheet = book.create_sheet("Sheet2")
    sheet.append(_HEADERS)
    for (_, *before), (year, *now) in pairwise(_ASSETS):
        sheet.append([year, *((new - old) / old for old, new in zip(before, now, strict=True))])
    return saved(book)


FILES = {"SmallBalanceSheet.xlsx": _PLAIN, "4_SmallBalanceSheet_gt1.xlsx": _reference()}


def _changes(base: int) -> list[dict]:
    """The new sheet; each year is compared with the one in this row for 2015, and so on."""
    rows = [
        [
            str(2013 + row),
            *(f"=(Sheet1.{column}{row + 1}-Sheet1.{column}{row})/Sheet1.{column}{row + base}" for column in "BCD"),
        ]
        for row in range(2, 7)
    ]
    return [
        turn("I open the menu.", click("[menu] Sheet", pause=1)),
        turn("A sheet for the changes.", click("[menu-item] Insert Sheet at End...", pause=1)),
        turn("It is called so already.", click(["[dialog] Append Sheet", "[push-button] OK"], pause=1)),
        turn("The headers.", write("\t".join(_HEADERS) + "\n", pause=1), when="Sheet Sheet2"),
        *(
            turn(f"The changes of {row[0]}.", write("\t".join(row) + "\n", pause=1), when=f"A{number} - ")
            for number, row in enumerate(rows, 1)
        ),
    ]


RIGHT = [*_changes(0), DONE | {"when": "D6 - 0.0768"}]
NEAR_MISS = [*_changes(1), DONE | {"when": "D6 - 0.0713"}]
NEAR_MISS_IS = "the changes are in proportion to the later year"
SHELL = False
