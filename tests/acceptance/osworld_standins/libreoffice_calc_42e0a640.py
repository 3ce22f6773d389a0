"""Revenue and expenses of a year, month by month; the reference has their sums as numbers, not as formulas."""

import io

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, Turn, click, saved, spreadsheet, turn, write

TASK = "42e0a640-4f19-4b28-973d-729602b5a4a7"
_HEADERS = ["Month", "Revenue", "Materials", "Wages", "Total Expenses", "Net Income"]
_MONTHS = [
    ["Jan", 18420, 6210, 5300],
    ["Feb", 17255, 5980, 5300],
    ["Mar", 21310, 7145, 5300],
    ["Apr", 20675, 6890, 5450],
    ["May", 23940, 8025, 5450],
    ["Jun", 22180, 7410, 5450],
    ["Jul", 19865, 6675, 5450],
    ["Aug", 18790, 6320, 5450],
    ["Sep", 24515, 8190, 5600],
    ["Oct", 25230, 8465, 5600],
    ["Nov", 27105, 9080, 5600],
    ["Dec", 31640, 10725, 6900],
]
_PLAIN = spreadsheet(
    [_HEADERS, *([*row, row[2] + row[3], row[1] - row[2] - row[3]] for row in _MONTHS)],
)
_SUMS = ["Total Revenue", "Total Expenses"]
_REVENUE, _MATERIALS, _WAGES = (sum(row[column] for row in _MONTHS) for column in (1, 2, 3))


def _reference() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    sheet = book.create_sheet("Sheet2")
    sheet.append(_SUMS)
    sheet.append([_REVENUE, _MATERIALS + _WAGES])
    return saved(book)


FILES = {"NetIncome.xlsx": _PLAIN, "2_NetIncome_gt1.xlsx": _reference()}


def _summed(expenses: str) -> list[Turn]:
    """The new sheet, with the sums of the revenue and of this column."""
    sums = [f"=SUM(Sheet1.{column}2:{column}13)" for column in ("B", expenses)]
    return [
        turn("I open the menu.", click("[menu] Sheet", pause=1)),
        turn("A sheet for the sums.", click("[menu-item] Insert Sheet at End...", pause=1)),
        turn("It is called so already.", click(["[dialog] Append Sheet", "[push-button] OK"], pause=1)),
        turn("The headers.", write("\t".join(_SUMS) + "\n", pause=1), when="Sheet Sheet2"),
        turn("The sums.", write("\t".join(sums) + "\n", pause=1), when="B1 - Total Expenses"),
    ]


RIGHT = [*_summed("E"), DONE | {"when": f"B2 - {_MATERIALS + _WAGES}"}]
NEAR_MISS = [*_summed("C"), DONE | {"when": f"B2 - {_MATERIALS}"}]
NEAR_MISS_IS = "the expenses are those for materials only"
SHELL = False
