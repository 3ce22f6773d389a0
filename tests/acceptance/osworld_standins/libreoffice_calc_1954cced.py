"""Invoices of several lines each; the reference's pivot table is one as Excel writes it, by openpyxl and over the same cells."""

import io

import openpyxl
from openpyxl.pivot import cache, record, table

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    saved,
    spreadsheet,
    turn,
    write,
)

TASK = "1954cced-e748-45c4-9c26-9855b97fbc5e"
_HEADERS = ["Date", "Invoice No.", "Sales Rep", "Product", "Price", "Units", "Sales"]
_PRODUCTS = (("Sextant", 64.5), ("Globe", 41), ("Compass", 18.75), ("Atlas", 29.9))
_LINES = (3, 1, 4, 2, 1, 5, 2, 3, 1, 2)
"""How many lines each invoice has."""
_COUNTED = _HEADERS.index("Invoice No.")


def _line(invoice: int, number: int) -> list[object]:
    product, price = _PRODUCTS[(invoice * 3 + number) % 4]
    units = 1 + (invoice * 5 + number * 7) % 9
    rep = ("Moira", "Anselm", "Teodor")[invoice % 3]
    return [f"2023-03-{2 + 2 * invoice:02}", 10500 + invoice, rep, product, price, units, round(price * units, 2)]


_INVOICES = [_line(invoice, number) for invoice, lines in enumerate(_LINES) for number in range(lines)]
_LAST_ROW = len(_INVOICES) + 1
_PLAIN = spreadsheet([_HEADERS, *_INVOICES])


def _reference() -> bytes:
    numbers = list(dict.fromkeys(row[_COUNTED] for row in _INVOICES))
    fields = [cache.CacheField(name=name, numFmtId=0, sharedItems=cache.SharedItems()) for name in _HEADERS]
    fields[_COUNTED].sharedItems._fields = [cache.Number(v=one) for one in numbers]
    pivot = table.TableDefinition(
        name="PivotTable1",
        cacheId=1,
        dataCaption="Values",
        location=table.Location(ref=f"A3:B{len(numbers) + 4}", firstHeaderRow=1, firstDataRow=1, firstDataCol=1),
        pivotFields=[table.PivotField(showAll=False) for _ in _HEADERS],
        rowFields=[table.RowColField(x=_COUNTED)],
        dataFields=[
            table.DataField(name="Count of Invoice No.", fld=_COUNTED, subtotal="count", baseField=0, baseItem=0)
        ],
    )
    shown = [*(table.FieldItem(x=place) for place in range(len(numbers))), table.FieldItem(t="default")]
    pivot.pivotFields[_COUNTED] = table.PivotField(axis="axisRow", dataField=True, showAll=False, items=shown)
    source = cache.WorksheetSource(ref=f"A1:G{_LAST_ROW}", sheet="Sheet1")
    pivot.cache = cache.CacheDefinition(
        cacheSource=cache.CacheSource(type="worksheet", worksheetSource=source), cacheFields=fields, id="rId1"
    )
    pivot.cache.records = record.RecordList()
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    book.create_sheet("Sheet2").add_pivot(pivot)
    return saved(book)


FILES = {"Invoices.xlsx": _PLAIN, "8_Invoices_gt1.xlsx": _reference()}
_LAYOUT = "[dialog] Pivot Table Layout"
_OF_A_FIELD = "[dialog] Data Field"
_COUNT = [
    turn("I look at what is done with them.", double_click([_LAYOUT, "[table-cell] Sum - Invoice No."], pause=1)),
    turn("They are counted.", click([_OF_A_FIELD, "[table-cell] Count @"], pause=1), when=_OF_A_FIELD),
    turn("I confirm.", click([_OF_A_FIELD, "[push-button] OK"], pause=1)),
]


def _dragged(field: str, x: int, y: int) -> list[Turn]:
    return [
        {"name": "desktop_mouse_move", "arguments": {"at": ["Available Fields", f"[table-cell] {field}"]}},
        {"name": "desktop_mouse_drag", "arguments": {"x": x, "y": y, "pause": 1.5}},
    ]


def _table(function: str, *changes: Turn) -> list[Turn]:
    """The pivot table of invoices, by this function, which these turns choose."""
    return [
        turn(
            "I select the invoices.",
            click(["Formula Tool Bar", "[text] A1"]),
            write(f"A1:G{_LAST_ROW}\n"),
            when="B2 - 10500",
        ),
        turn("I open the menu.", click("[menu] Insert", pause=1), when=f"{_LAST_ROW} rows, 7 columns"),
        turn("A pivot table.", click("[menu-item] Pivot Table...", pause=1)),
        turn("Of what is selected.", click(["[dialog] Select Source", "[push-button] OK"], pause=1)),
        turn("A row for each invoice.", *_dragged("Invoice No.", 741, 580), when=_LAYOUT),
        turn("Beside it, what is done with them.", *_dragged("Invoice No.", 960, 580)),
        *changes,
        turn("That is all.", click([_LAYOUT, "[push-button] OK"], pause=1), when=f"{function} - Invoice No."),
        turn("The sheet has another name.", click("[menu] Sheet", pause=1), when="[page-tab] Pivot Table_Sheet1_1"),
        turn("I change it.", click("[menu-item] Rename Sheet...", pause=1)),
        turn("As asked.", keys("ctrl", "a"), write("Sheet2\n", pause=1), when="[dialog] Rename Sheet"),
        DONE | {"when": "[page-tab] Sheet2"},
    ]


RIGHT = _table("Count", *_COUNT)
NEAR_MISS = _table("Sum")
NEAR_MISS_IS = "the invoices' numbers are summed"
SHELL = False
