"""Bills whose dates, amounts and shares are shown in other words than they are kept; the reference is a CSV written here."""

import csv
import io
from datetime import date

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, LARGER, Turn, click, keys, saved, spreadsheet, turn, write

TASK = "3aaa4e37-dc91-482e-99af-132a612d40f3"
_HEADERS = ["Bill", "Issued", "Client", "Amount", "Paid"]
_BILLS: list[tuple[int, date, str, float, float]] = [
    (2101, date(2024, 1, 9), "Café Lindgren", 1840.5, 1),
    (2102, date(2024, 1, 17), "Harbour Rowing Club", 312.4567, 0.5),
    (2103, date(2024, 2, 5), "Novák & Sons", 96, 0),
    (2104, date(2024, 2, 21), "Bakery, Old Town", 27415.918, 0.125),
    (2105, date(2024, 3, 12), 'The "Blue" Room', 658.333, 1),
    (2106, date(2024, 3, 30), "Señor Tapas", 1204, 0.3333),
]


def _book() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(spreadsheet([_HEADERS, *map(list, _BILLS)])))
    sheet = book["Sheet1"]
    for column, shown in {"B": "dd/mm/yyyy", "D": "#,##0.00", "E": "0.0%"}.items():
        for cell in sheet[column][1:]:
            cell.number_format = shown
    for column in "BCD":
        sheet.column_dimensions[column].width = 22
    return saved(book)


def _shown() -> bytes:
    text = io.StringIO()
    rows = [(bill, f"{day:%d/%m/%Y}", who, f"{amount:,.2f}", f"{paid:.1%}") for bill, day, who, amount, paid in _BILLS]
    csv.writer(text, lineterminator="\n").writerows([_HEADERS, *rows])
    return text.getvalue().encode()


FILES = {"Export_Calc_to_CSV.xlsx": _book(), "Export_Calc_to_CSV.csv": _shown()}


def _exported(*changes: Turn) -> list[Turn]:
    """The sheet, saved as a CSV with what is changed in the options."""
    return [
        LARGER,
        turn("I save it under another name.", keys("ctrl", "shift", "s", pause=2)),
        turn("In place of its name,", keys("ctrl", "a", pause=1), when="[file-chooser] Save"),
        turn("a CSV's.", write("/home/user/Export_Calc_to_CSV.csv\n", pause=2)),
        turn("In that format.", click("[push-button] Use Text CSV Format", pause=2)),
        *changes,
        turn("That is all.", click(["] Export Text File", "[push-button] OK"], pause=2)),
    ]


RIGHT = [*_exported(), DONE | {"when": "Export_Calc_to_CSV.csv - LibreOffice Calc"}]
NEAR_MISS = [
    *_exported(turn("As it is kept.", click("[check-box] Save cell content as shown", pause=1))),
    DONE | {"when": "Export_Calc_to_CSV.csv - LibreOffice Calc"},
]
NEAR_MISS_IS = "contents are not as they are shown"
SHELL = False
