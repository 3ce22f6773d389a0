"""Incomes of eight years; the reference has the gross profits as numbers and their text on the other sheet as text."""

import io

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, spreadsheet, turn, write

TASK = "035f41ba-6653-43ab-aa63-c86d449d62e5"
_HEADERS = [
    "Year",
    "Sales",
    "Sales Return",
    "Discounts and Allowances",
    "Materials Charges",
    "Labor Charges",
    "Overhead",
]
_YEARS = [
    (2012, 184250.5, 6120.25, 3875, 58930.4, 41200, 22315.75),
    (2013, 196840, 5985.6, 4120.15, 62115.2, 43850, 23108.3),
    (2014, 203115.75, 7240, 4475.5, 64820.9, 45120, 23990),
    (2015, 191470.2, 6615.45, 3990.8, 60245, 44975, 24105.6),
    (2016, 215630, 5870.9, 4610.25, 67390.35, 46840, 24870.15),
    (2017, 228945.9, 8125.3, 5035, 70115.8, 48310, 25640),
    (2018, 241280.35, 7460, 5290.45, 73980.1, 50125, 26715.95),
    (2019, 233710, 9015.75, 4985.6, 71640.5, 51470, 27180.4),
]
_PROFITS = [sales - sum(rest) for _, sales, *rest in _YEARS]
_LAST_ROW = len(_YEARS) + 1


def _reference() -> bytes:
    rows = [[*row, profit] for row, profit in zip(_YEARS, _PROFITS, strict=True)]
    book = openpyxl.load_workbook(io.BytesIO(spreadsheet([[*_HEADERS, "Gross Profit"], *rows])))
    sheet = book.create_sheet("Sheet2")
    sheet.append(["Year_Profit"])
    for (year, *_), profit in zip(_YEARS, _PROFITS, strict=True):
        sheet.append([f"{year}_{int(profit)}"])
    return saved(book)


FILES = {
    "IncomeStatement2.xlsx": spreadsheet([[*_HEADERS, "Gross Profit"], *_YEARS]),
    "5_IncomeStatement2_gt1.xlsx": _reference(),
}


def _told(function: str, last: int) -> list[Turn]:
    """Profits, and years with what the function makes of them; what the last year's profit is then."""
    selected = f"{len(_YEARS)} rows, 1 column"
    copied = keys("alt", "enter", pause=1)
    return [
        turn(
            "I select the profits.",
            click(["Formula Tool Bar", "[text] A1"]),
            write(f"H2:H{_LAST_ROW}\n", pause=1),
            when="[document-spreadsheet]",
        ),
        turn("They are what is left.", write("=B2-C2-D2-E2-F2-G2"), copied, when=selected),
        turn("I open the menu.", click("[menu] Sheet", pause=1), when=f"H2 - {_PROFITS[0]:.2f}".rstrip("0")),
        turn("A sheet more.", click("[menu-item] Insert Sheet at End...", pause=1)),
        turn("It is called so already.", click(["[dialog] Append Sheet", "[push-button] OK"], pause=1)),
        turn("Its header.", write("Year_Profit\n", pause=1), when="Sheet Sheet2"),
        turn(
            "I select the cells below.",
            click(["Formula Tool Bar", "[text] A2"]),
            write(f"A2:A{_LAST_ROW}\n", pause=1),
            when="A1 - Year_Profit",
        ),
        turn("Years and profits.", write(f'=$Sheet1.A2&"_"&{function}($Sheet1.H2)'), copied, when=selected),
        DONE | {"when": f"A{_LAST_ROW} - {_YEARS[-1][0]}_{last}"},
    ]


RIGHT = _told("INT", int(_PROFITS[-1]))
NEAR_MISS = _told("ROUND", round(_PROFITS[-1]))
NEAR_MISS_IS = "profits are rounded, so that some are one too high"
SHELL = False
