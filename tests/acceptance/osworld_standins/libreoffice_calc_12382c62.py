"""A chart of weekly sales and costs on a sheet of its own: the reference's chart is openpyxl's, over the same cells."""

import io

import openpyxl
from openpyxl.chart import BarChart, Reference

from tests.acceptance.osworld_standins.made import DONE, LARGER, click, keys, saved, spreadsheet, turn, write

TASK = "12382c62-0cd1-4bf2-bdc8-1d20bf9b2371"
_SALES = spreadsheet(
    [
        ["Week", "Sales", "COGS"],
        [1, 21840, 12670],
        [2, 23515, 14022],
        [3, 19870.5, 11344.25],
        [4, 26410, 15903],
        [5, 25125.75, 14410],
        [6, 22960, 13275.5],
        [7, 28340, 16890],
        [8, 27015, 15720.25],
        [9, 24680, 14118],
        [10, 29955.5, 17602],
    ]
)


def _reference() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_SALES))
    chart = BarChart()
    chart.type, chart.grouping, chart.title = "col", "clustered", "Sales & COGS"
    chart.add_data(Reference(book["Sheet1"], min_col=2, max_col=3, min_row=1, max_row=11), titles_from_data=True)
    chart.set_categories(Reference(book["Sheet1"], min_col=1, min_row=2, max_row=11))
    for series in chart.series:
        series.val.numRef.f, series.cat.numRef.f = (  # openpyxl puts the sheet's name in quotes, which Excel does not
            one.numRef.f.replace("'", "") for one in (series.val, series.cat)
        )
    book.create_sheet("Sheet2").add_chart(chart, "B2")
    return saved(book)


FILES = {"WeeklySales.xlsx": _SALES, "13_WeeklySales_gt1.xlsx": _reference()}


def _charted(columns: str) -> list[dict]:
    wizard = "[push-button] Next >"
    return [
        LARGER,
        turn("I open the menu.", click("[menu] Sheet", pause=1)),
        turn("A sheet for the chart.", click("[menu-item] Insert Sheet at End...", pause=1)),
        turn("It is called so already.", click(["[dialog] Append Sheet", "[push-button] OK"], pause=1)),
        turn("I open the menu.", click("[menu] Insert", pause=1), when="Sheet Sheet2"),
        turn("A chart of columns.", click("[menu-item] Chart...", pause=2)),
        turn("It is of columns.", click(["[frame] Chart Type", wizard], pause=1)),
        turn(
            "It shows what the other sheet has.",
            click(["[frame] Data Range", "[text] $Sheet2.$A$1"]),
            keys("ctrl", "a"),
            write(f"$Sheet1.$A$1:${columns}$11"),
            click("[radio-button] Data series in columns", pause=1),
        ),
        turn("These are it.", click(["[frame] Data Range", wizard], pause=1)),
        turn("The series are right.", click(["[frame] Data Series", wizard], pause=1)),
        turn(
            "Its title.",
            write("Sales & COGS"),
            click(["[frame] Chart Elements", "[push-button] Finish"], pause=2),
        ),
    ]


RIGHT = [*_charted("C"), DONE | {"when": "[document-frame] Chart"}]
NEAR_MISS = [*_charted("B"), DONE | {"when": "[document-frame] Chart"}]
NEAR_MISS_IS = "the chart has the sales only"
SHELL = False
