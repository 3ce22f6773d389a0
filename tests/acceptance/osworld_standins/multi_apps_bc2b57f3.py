"""A workbook of eight sheets, and a document that says what is still to be done in it.

A sheet gets a name and comes first, a column is filled in, and so is the sum of it.
"""

from __future__ import annotations

import openpyxl
from docx import Document

from tests.acceptance.osworld_standins.made import (
    DONE,
    LARGER,
    Turn,
    click,
    double_click,
    keys,
    saved,
    turn,
    write,
)

TASK = "bc2b57f3-686d-4ec9-87ce-edf850b7e442"
_BOOK = "workbook-with-sample-database.xlsx"
_REMINDER = [
    "1. The sheet that is still called Sheet8 gets the name Overview.",
    "2. Overview is the first sheet; the others stay in their order.",
    "3. In Orders, fill in the column Total: quantity times unit price.",
    "4. In Overview, fill in the total of all orders in B2, and how many there are in B3.",
    "5. Leave everything else as it is.",
]
_ORDERS = [
    [5001, "Larkfield", "Lamp", 4, 35],
    [5002, "Northgate", "Desk", 2, 240],
    [5003, "Harbour", "Chair", 12, 85],
    [5004, "Larkfield", "Shelf", 3, 120],
    [5005, "Brightwater", "Lamp", 10, 35],
    [5006, "Harbour", "Desk", 1, 240],
    [5007, "Northgate", "Chair", 6, 85],
    [5008, "Fieldlab", "Blind", 8, 50],
]
_SHEETS: dict[str, list[list[object]]] = {
    "Orders": [["Order", "Customer", "Product", "Quantity", "Unit price", "Total"], *_ORDERS],
    "Customers": [
        ["Customer", "Town", "Since"],
        ["Brightwater", "Leeds", 2017],
        ["Fieldlab", "York", 2020],
        ["Harbour", "Hull", 2012],
        ["Larkfield", "Leeds", 2015],
        ["Northgate", "Durham", 2021],
    ],
    "Products": [
        ["Product", "Group", "Unit price"],
        ["Blind", "Windows", 50],
        ["Chair", "Furniture", 85],
        ["Desk", "Furniture", 240],
        ["Lamp", "Light", 35],
        ["Shelf", "Furniture", 120],
    ],
    "Stock": [["Product", "In stock"], ["Blind", 41], ["Chair", 160], ["Desk", 22], ["Lamp", 97], ["Shelf", 35]],
    "Suppliers": [["Supplier", "Product"], ["Oakline", "Desk"], ["Oakline", "Shelf"], ["Glim", "Lamp"]],
    "Staff": [["Name", "Role"], ["Greta Holm", "Sales"], ["Omar Nasser", "Stock"], ["Lena Ostrow", "Accounts"]],
    "Shipping": [["Town", "Days"], ["Durham", 3], ["Hull", 2], ["Leeds", 1], ["York", 2]],
    "Sheet8": [["What", "Figure"], ["Total of all orders", None], ["Number of orders", None]],
}


def _book(sheets: dict[str, list[list[object]]]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return saved(book)


def _reminder() -> bytes:
    document = Document()
    document.add_heading("What is still to be done", 1)
    for line in _REMINDER:
        document.add_paragraph(line)
    return saved(document)


def _reference() -> bytes:
    orders = [[*row, row[3] * row[4]] for row in _ORDERS]
    head, (total, _), (number, _) = _SHEETS["Sheet8"]
    overview = [head, [total, sum(row[5] for row in orders)], [number, len(orders)]]
    others = {title: rows for title, rows in _SHEETS.items() if title != "Sheet8"}
    return _book({"Overview": overview, **others, "Orders": [_SHEETS["Orders"][0], *orders]})


FILES = {
    _BOOK: _book(_SHEETS),
    "reminder.docx": _reminder(),
    "workbook-with-sample-database_Gold.xlsx": _reference(),
}
_CALC = f"[toggle-button] {_BOOK} - LibreOffice Calc"
_PLACE = ["Formula Tool Bar", "[text] A1"]


def _script(*moved: Turn) -> list[Turn]:
    """The reminder is read, and followed; the sheet is moved so."""
    totals = "".join(f"=D{row}*E{row}\n" for row in range(2, 2 + len(_ORDERS)))
    last = 1 + len(_ORDERS)
    return [
        LARGER,
        turn("I look at the files.", click("[push-button] Files", pause=2)),
        turn("I go to the desktop.", double_click("[label] Desktop", pause=2), when="[frame] Home"),
        turn("I open the reminder.", double_click("[label] reminder.docx", pause=2), when="[label] reminder.docx"),
        turn("I read it, and go to the workbook.", click(_CALC, pause=1.5), when="[paragraph] 5. Leave"),
        turn("I go to the column.", click(_PLACE), write("F2\n", pause=1), when=f"{_CALC} (on)"),
        turn("I fill it in.", write(totals, pause=1), when="[text] F2 "),
        turn("I go to the last sheet.", click("[page-tab] Sheet8", pause=1), when=f"F{last} - 400"),
        turn("I go to the figures.", click(_PLACE), write("B2\n", pause=1), when="[page-tab] Sheet8 (selected)"),
        turn(
            "I fill them in.",
            write(f"=SUM(Orders.F2:F{last})\n=COUNT(Orders.A2:A{last})\n", pause=1),
            when="[text] B2 ",
        ),
        turn("It has another name.", double_click("[page-tab] Sheet8", pause=1), when="B3 - 8"),
        turn("This one.", keys("ctrl", "a"), write("Overview\n", pause=1), when="[dialog] Rename Sheet"),
        *moved,
        DONE | {"when": "[page-tab] Overview (selected)"},
    ]


_MOVE = "[menu-item] Move or Copy Sheet..."
_DIALOG = "[dialog] Move/Copy Sheet"
RIGHT = _script(
    turn("I open the menu.", click("[menu] Sheet @", pause=1), when="[page-tab] Overview"),
    turn("It is to be elsewhere.", click(_MOVE, pause=1), when=_MOVE),
    turn("I move it.", click([_DIALOG, "[radio-button] Move"], pause=0.5), when=_DIALOG),
    turn("It comes before the first.", click([_DIALOG, "[table-cell] Orders"], pause=0.5), when=_DIALOG),
    turn("There.", click([_DIALOG, "[push-button] Move"], pause=1)),
)
NEAR_MISS = _script()
NEAR_MISS_IS = "the sheet that is to be first stays the last"
SHELL = False
