"""Sales in no order; the reference has them by time, and a chart by openpyxl that shows their quantities."""

import io
from collections.abc import Sequence
from datetime import datetime, timedelta

import openpyxl
from openpyxl.chart import LineChart, Reference

from tests.acceptance.osworld_standins.made import DONE, LARGER, Turn, click, keys, saved, spreadsheet, turn, write

TASK = "3a7c8185-25c1-4941-bd7b-96e823c9f21f"
_HEADERS = ["Date Time", "Web Site", "Product", "Type", "Quantity", "Discount"]
_SITES = ("northgale.example", "fernbay.example", "ovalmart.example")
_COUNT = 14
_LAST_ROW = _COUNT + 1


def _sale(number: int) -> list[object]:
    time = datetime.fromisoformat("2023-04-03 10:05") + timedelta(
        days=(4 + number * 9) % _COUNT, minutes=number * 37 % 480
    )
    product = ("Bellen", "Sunset", "Carlota", "Quad")[number * 3 % 4]
    return [
        time,
        _SITES[number * 2 % 3],
        product,
        "Adult" if number % 3 else "Junior",
        2 + (5 + number * 3) % _COUNT,
        number % 4 * 5 / 100,
    ]


_SALES = [_sale(number) for number in range(_COUNT)]
_BY_TIME = sorted(_SALES, key=lambda row: str(row[0]))
_BY_QUANTITY = sorted(_SALES, key=lambda row: int(str(row[4])))


def _book(rows: Sequence[Sequence[object]]) -> openpyxl.Workbook:
    book = openpyxl.load_workbook(io.BytesIO(spreadsheet([_HEADERS, *rows])))
    for column in "ABCDEF":
        book["Sheet1"].column_dimensions[column].width = 20
    return book


def _reference() -> bytes:
    book = _book(_BY_TIME)
    sheet = book["Sheet1"]
    chart = LineChart()
    chart.add_data(Reference(sheet, min_col=5, min_row=1, max_row=_LAST_ROW), titles_from_data=True)
    chart.set_categories(Reference(sheet, min_col=1, min_row=2, max_row=_LAST_ROW))
    for series in chart.series:
        series.val.numRef.f, series.cat.numRef.f = (  # openpyxl puts the sheet's name in quotes, which Excel does not
            one.numRef.f.replace("'", "") for one in (series.val, series.cat)
        )
    sheet.add_chart(chart, "H2")
    return saved(book)


FILES = {"BoomerangSales.xlsx": saved(_book(_SALES)), "6_BoomerangSales_gt1.xlsx": _reference()}


def _charted(column: str, first: Sequence[object]) -> list[Turn]:
    """The sales sorted by a column, and the chart; the sale that is the first then."""
    wizard = "[push-button] Next >"
    return [
        turn(
            "I go to the column.",
            click(["Formula Tool Bar", "[text] A1"]),
            write(f"{column}2\n", pause=1),
            when="[document-spreadsheet]",
        ),
        turn("I sort by it.", click("[push-button] Sort Ascending", pause=1), when=f"[text] {column}2 "),
        LARGER | {"when": f"A2 - {first[0]}"},
        turn("I open the menu.", click("[menu] Insert", pause=1)),
        turn("A chart.", click("[menu-item] Chart...", pause=2)),
        turn("One of lines.", click(["[frame] Chart Type", "] Line @"], pause=1)),
        turn("Without points.", click("[list-item] Lines Only", pause=1)),
        turn("That kind.", click(["[frame] Chart Type", wizard], pause=1)),
        turn(
            "It shows times and quantities.",
            click(["[frame] Data Range", "[text] $Sheet1.$A$1"]),
            keys("ctrl", "a"),
            write(f"$Sheet1.$A$1:$A${_LAST_ROW},$Sheet1.$E$1:$E${_LAST_ROW}"),
            click("[radio-button] Data series in columns", pause=1),
        ),
        turn("That is all.", click(["[frame] Data Range", "[push-button] Finish"], pause=2)),
        DONE | {"when": "[document-frame] Chart"},
    ]


RIGHT = _charted("A", _BY_TIME[0])
NEAR_MISS = _charted("E", _BY_QUANTITY[0])
NEAR_MISS_IS = "sorted by quantity"
SHELL = False
