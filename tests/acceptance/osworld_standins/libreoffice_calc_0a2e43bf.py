"""Sales of six people by month; the reference has their sums as numbers, and a chart by openpyxl that shows them by month."""

import io

import openpyxl
from openpyxl.chart import LineChart, Reference

from tests.acceptance.osworld_standins.made import DONE, LARGER, Turn, click, keys, saved, spreadsheet, turn, write

TASK = "0a2e43bf-b26c-4631-a966-af9dfa12c9e5"
_HEADERS = ["Sales Rep", "Jan", "Feb", "Mar", "Apr", "May", "Jun"]
_SALES = [
    ["Albin", 12450, 13810, 12975, 14620, 15130, 14890],
    ["Dorota", 9870, 10240, 11315, 10980, 11760, 12405],
    ["Faisal", 15320, 14775, 16240, 15890, 16905, 17380],
    ["Kirsten", 8640, 9125, 8930, 9480, 10115, 9760],
    ["Matteo", 11205, 11690, 12340, 11875, 12960, 13425],
    ["Yuki", 13780, 13265, 14510, 14935, 14270, 15640],
]


def _reference() -> bytes:
    sums = [sum(row[month] for row in _SALES) for month in range(1, 7)]
    book = openpyxl.load_workbook(io.BytesIO(spreadsheet([_HEADERS, *_SALES, ["Total", *sums]])))
    sheet = book["Sheet1"]
    chart = LineChart()
    chart.add_data(Reference(sheet, min_col=1, max_col=7, min_row=8), titles_from_data=True, from_rows=True)
    chart.set_categories(Reference(sheet, min_col=2, max_col=7, min_row=1))
    for series in chart.series:
        series.val.numRef.f, series.cat.numRef.f = (  # openpyxl puts the sheet's name in quotes, which Excel does not
            one.numRef.f.replace("'", "") for one in (series.val, series.cat)
        )
    sheet.add_chart(chart, "B11")
    return saved(book)


FILES = {"SalesRep.xlsx": spreadsheet([_HEADERS, *_SALES]), "5_SalesRep_gt1.xlsx": _reference()}


def _charted(*kind: Turn) -> list[Turn]:
    """The new row, and a chart of it, of the kind that these turns choose."""
    wizard = "[push-button] Next >"
    return [
        LARGER,
        turn("I go below the sales.", click(["Formula Tool Bar", "[text] A1"]), write("A8\n", pause=1)),
        turn(
            "The sums.",
            write("\t".join(["Total", *(f"=SUM({column}2:{column}7)" for column in "BCDEFG")]) + "\n", pause=1),
            when="[text] A8 ",
        ),
        turn("I open the menu.", click("[menu] Insert", pause=1), when="G8 - 83500"),
        turn("A chart.", click("[menu-item] Chart...", pause=2)),
        *kind,
        turn("That kind.", click(["[frame] Chart Type", wizard], pause=1)),
        turn(
            "It shows the months and the sums.",
            click(["[frame] Data Range", "[text] $Sheet1.$A$1"]),
            keys("ctrl", "a"),
            write("$Sheet1.$A$1:$G$1,$Sheet1.$A$8:$G$8"),
            click("[radio-button] Data series in rows", pause=1),
        ),
        turn("That is all.", click(["[frame] Data Range", "[push-button] Finish"], pause=2)),
        DONE | {"when": "[document-frame] Chart"},
    ]


RIGHT = _charted(
    turn("One of lines.", click(["[frame] Chart Type", "] Line @"], pause=1)),
    turn("Without points.", click("[list-item] Lines Only", pause=1)),
)
NEAR_MISS = _charted()
NEAR_MISS_IS = "the chart has columns"
SHELL = False
