"""Amounts with up to four decimals; the reference is the sheet as it prints with two, a CSV written here."""

import csv
import io

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, spreadsheet, turn, write

TASK = "6e99a1ad-07d2-4b66-a1ce-ece6d99c20a5"
_HEADERS = ["id", "first_name", "city", "spent"]
_BUYERS = [
    [1, "Ottilie", "Graz", 184.2737],
    [2, "Renzo", "Porto", 96.5],
    [3, "Saskia", "Turku", 1203.118],
    [4, "Emeka", "Leeds", 47],
    [5, "Halina", "Brno, Old Town", 310.0451],
    [6, "Jorik", "Gent", 8.996],
    [7, "Noor", "Delft", 72.3549],
    [8, "Pilar", "Vigo", 655.4],
    [9, "Wendell", "Cork", 0.0785],
    [10, "Zdenka", "Ostrava", 2491.6666],
]
_PLAIN = spreadsheet([_HEADERS, *_BUYERS])


def _reference() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    for cell in book["Sheet1"]["D"][1:]:
        cell.number_format = "0.00"
    return saved(book)


def _printed() -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [_HEADERS, *([*others, f"{spent:.2f}"] for *others, spent in _BUYERS)]
    )
    return text.getvalue().encode()


FILES = {
    "Keep_Two_decimal_points.xlsx": _PLAIN,
    "Keep_Two_decimal_points_gold.xlsx": _reference(),
    "Keep_Two_decimal_points_gold-Sheet1.csv": _printed(),
}


def _formatted(sample: str) -> list[dict]:
    return [
        turn("I select the amounts.", click(["Formula Tool Bar", "[text] A1"]), write("D2:D11\n")),
        turn("I format them.", keys("ctrl", "1", pause=1), when="10 rows, 1 column"),
        turn("As this one looks.", click(["[dialog] Format Cells", f"[table-cell] {sample}"], pause=1)),
        turn("That is all.", click(["[dialog] Format Cells", "[push-button] OK"], pause=1)),
    ]


RIGHT = [*_formatted("-1234.57"), DONE | {"when": "Sum: 5069.43 @"}]
NEAR_MISS = [*_formatted("-1,234.57"), DONE | {"when": "Sum: 5,069.43 @"}]
NEAR_MISS_IS = "thousands have a comma"
SHELL = False
