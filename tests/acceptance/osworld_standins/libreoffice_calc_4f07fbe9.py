"""Measured values, shown with two decimals, and sentences that have them as they are.

The references are the sheet with its formulas, and as it prints, a CSV written here.
"""

from __future__ import annotations

from openpyxl import Workbook

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "4f07fbe9-70de-4927-a4d5-bb28bc12c52c"
_VALUES = [12.5, 7, 103.1, 0.8462, 59.9, 4.3071]
_LAST_ROW = len(_VALUES) + 1
_HEADERS = ["Value", "Text"]
_FIXED = 'TEXT({}, "0.00")'


def _formula(number: str, row: int) -> str:
    return f'="The mean is "&{number.format(f"A{row}")}&" mm."'


def _sheet(number: str) -> bytes:
    book = Workbook()
    sheet = book["Sheet"]
    sheet.title = "Sheet1"
    sheet.append(_HEADERS)
    for row, value in enumerate(_VALUES, 2):
        sheet.append([value, _formula(number, row)])
        sheet.cell(row, 1).number_format = "0.00"
    return saved(book)


def _printed() -> bytes:
    lines = [",".join(_HEADERS), *(f"{value:.2f},The mean is {value:.2f} mm." for value in _VALUES)]
    return "".join(f"{line}\n" for line in lines).encode()


FILES = {
    "Padding_Decimals_In_Formular.xlsx": _sheet("{}"),
    "Padding_Decimals_In_Formular_gold.xlsx": _sheet(_FIXED),
    "Padding_Decimals_In_Formular_gold-Sheet1.csv": _printed(),
}


def _written(number: str, last: str) -> list[Turn]:
    """All sentences have their number by this formula; the last one then begins so."""
    name_box = click(["Formula Tool Bar", "[text]"])
    return [
        turn(
            "I write the first anew.", name_box, write(f"B2\n{_formula(number, 2)}\n", pause=1), when="B2 - The mean is"
        ),
        turn("I select all.", name_box, write(f"B2:B{_LAST_ROW}\n", pause=1), when="[text] B3"),
        turn("I fill them down.", keys("ctrl", "d", pause=1), when=f"{_LAST_ROW - 1} rows, 1 column"),
        DONE | {"when": f"B{_LAST_ROW} - The mean is {last} mm"},
    ]


RIGHT = _written(_FIXED, "4.31")
NEAR_MISS = _written("ROUND({}, 2)", "4.31")
NEAR_MISS_IS = "the numbers are rounded, and end where they end"
SHELL = False
