"""A summer's sales; the reference's pivot table is one as Excel writes it, by openpyxl and over the same cells."""

import io

import openpyxl
from openpyxl.pivot import cache, record, table

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, spreadsheet, turn, write

TASK = "1de60575-bb6e-4c3d-9e6a-2fa699f9f197"
_HEADERS = ["Date", "Web Site", "Product", "Type", "Quantity", "Discount", "Promotion", "Retail Price", "Revenue"]
_SITES = ("northgale.example", "fernbay.example", "ovalmart.example")
_PRODUCTS = (("Sunhat", 18.5), ("Kite", 24), ("Beach towel", 15.25), ("Cooler", 59), ("Paddle set", 12.75))
_PROMOTIONS = ("2 FOR 1", "None", "10% off", "Free shipping")
_COLUMN, _SUMMED = _HEADERS.index("Promotion"), _HEADERS.index("Revenue")


def _sale(number: int) -> list[object]:
    product, price = _PRODUCTS[number * 7 % 5]
    kind = "Sport" if product in {"Kite", "Paddle set"} else "Beach"
    promotion = _PROMOTIONS[number * 3 % 7 % 4]
    discount = 0.1 if promotion == "10% off" else 0
    quantity = 1 + number * 5 % 9
    revenue = round(quantity * price * (1 - discount), 2)
    day = f"2023-{6 + number // 12:02}-{1 + number * 11 % 28:02}"
    return [day, _SITES[number * 2 % 3], product, kind, quantity, discount, promotion, price, revenue]


_SALES = [_sale(number) for number in range(36)]
_PLAIN = spreadsheet([_HEADERS, *_SALES])


def _reference() -> bytes:
    """The promotions are numbered as they come first, and shown by the alphabet."""
    seen = list(dict.fromkeys(str(row[_COLUMN]) for row in _SALES))
    fields = [cache.CacheField(name=name, numFmtId=0, sharedItems=cache.SharedItems()) for name in _HEADERS]
    fields[_COLUMN].sharedItems._fields = [cache.Text(v=one) for one in seen]
    pivot = table.TableDefinition(
        name="PivotTable1",
        cacheId=1,
        dataCaption="Values",
        location=table.Location(ref="A3:E5", firstHeaderRow=1, firstDataRow=2, firstDataCol=1),
        pivotFields=[table.PivotField(showAll=False, dataField=place == _SUMMED) for place in range(len(_HEADERS))],
        colFields=[table.RowColField(x=_COLUMN)],
        dataFields=[table.DataField(name="Sum of Revenue", fld=_SUMMED, baseField=0, baseItem=0)],
    )
    shown = [*(table.FieldItem(x=seen.index(one)) for one in sorted(seen)), table.FieldItem(t="default")]
    pivot.pivotFields[_COLUMN] = table.PivotField(axis="axisCol", showAll=False, items=shown)
    source = cache.WorksheetSource(ref=f"A1:I{len(_SALES) + 1}", sheet="Sheet1")
    pivot.cache = cache.CacheDefinition(
        cacheSource=cache.CacheSource(type="worksheet", worksheetSource=source), cacheFields=fields, id="rId1"
    )
    pivot.cache.records = record.RecordList()
    book = openpyxl.load_workbook(io.BytesIO(_PLAIN))
    book.create_sheet("Sheet2").add_pivot(pivot)
    return saved(book)


FILES = {"EntireSummerSales.xlsx": _PLAIN, "6_EntireSummerSales_gt1.xlsx": _reference()}


def _dragged(field: str, x: int, y: int) -> list[dict]:
    return [
        {"name": "desktop_mouse_move", "arguments": {"at": ["Available Fields", f"[table-cell] {field}"]}},
        {"name": "desktop_mouse_drag", "arguments": {"x": x, "y": y, "pause": 1.5}},
    ]


def _summed(x: int, y: int) -> list[dict]:
    """The pivot table with the promotions where they are dragged to."""
    layout = "[dialog] Pivot Table Layout"
    return [
        turn("I select the sales.", click(["Formula Tool Bar", "[text] A1"]), write("A1:I37\n")),
        turn("I open the menu.", click("[menu] Insert", pause=1), when="37 rows, 9 columns"),
        turn("A pivot table.", click("[menu-item] Pivot Table...", pause=1)),
        turn("Of what is selected.", click(["[dialog] Select Source", "[push-button] OK"], pause=1)),
        turn("The promotions.", *_dragged("Promotion", x, y), when=layout),
        turn("Their revenue.", *_dragged("Revenue", 960, 580)),
        turn("That is all.", click([layout, "[push-button] OK"], pause=1), when="Sum - Revenue"),
        turn("The sheet has another name.", click("[menu] Sheet", pause=1), when="[page-tab] Pivot Table_Sheet1_1"),
        turn("I change it.", click("[menu-item] Rename Sheet...", pause=1)),
        turn("As asked.", keys("ctrl", "a"), write("Sheet2\n", pause=1), when="[dialog] Rename Sheet"),
        DONE | {"when": "[page-tab] Sheet2"},
    ]


RIGHT = _summed(960, 440)
NEAR_MISS = _summed(741, 580)
NEAR_MISS_IS = "the promotions are the rows"
SHELL = False
