"""Five receipts, pictures and a PDF file, that are to be entered in a list of what came in and what was paid.

The amounts are those that the task's evaluator asks for.
"""

from __future__ import annotations

import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import (
    DONE,
    LARGER,
    Turn,
    click,
    double_click,
    keys,
    printed,
    spreadsheet,
    turn,
    write,
)

TASK = "8e116af7-7db7-4e35-a68b-b0939c066c78"
_HEAD = ["Date", "Description", "Type", "Amount", "Balance"]
_BEFORE: list[tuple[str, str, str, float, float]] = [
    ("2023-11-27", "Opening balance", "Income", 350, 350),
    ("2023-11-28", "Salary, second half", "Income", 1200, 1550),
    ("2023-11-28", "Rent", "Expense", -640, 910),
    ("2023-11-29", "Bicycle repair", "Expense", -48.5, 861.5),
    ("2023-11-30", "Lunch with Mira", "Expense", -26.5, 835),
    ("2023-12-01", "Telephone", "Expense", -20, 815),
    ("2023-12-02", "Notebooks", "Expense", -25, 790),
]
_RECEIPTS: list[tuple[str, str, str, list[tuple[str, float]], float]] = [
    ("receipt_0.jpeg", "2023-12-04", "Harbour Grocery", [("Groceries", 150.0), ("Wine", 28.03)], 8.9),
    ("receipt_1.jpg", "2023-12-05", "Campus Computers", [("Laptop", 3400.0)], 270.0),
    ("receipt_2.jpg", "2023-12-06", "Tidewater Coffee", [("Cappuccino", 4.2), ("Biscuit", 1.1)], 0.4),
    ("receipt_3.pdf", "2023-12-07", "Quickline Railway", [("Return ticket", 142.65)], 11.41),
    ("receipt_4.jpg", "2023-12-08", "Vale Pharmacy", [("Plasters", 3.1), ("Cough drops", 4.4)], 0.6),
]
"""Of each: file, day, who was paid, what for, and the tax, which comes on top."""


def _net(items: list[tuple[str, float]]) -> float:
    return sum(price for _, price in items)


def _lines(day: str, shop: str, items: list[tuple[str, float]], tax: float) -> list[list[str]]:
    rows = [*items, ("Subtotal", _net(items)), ("Tax", tax), ("TOTAL", _net(items) + tax)]
    return [[shop], [f"Date: {day}"], [], *([name, f"{price:.2f}"] for name, price in rows), [], ["Paid by card"]]


def _picture(rows: list[list[str]], kind: str = "JPEG") -> bytes:
    image = Image.new("RGB", (460, 80 + 34 * len(rows)), (244, 241, 233))
    draw = ImageDraw.Draw(image)
    for number, row in enumerate(rows):
        for column, text in enumerate(row):
            draw.text((40 + 260 * column, 40 + 34 * number), text, fill=(40, 40, 48), font_size=22)
    file = io.BytesIO()
    image.save(file, kind, quality=92)
    return file.getvalue()


def _receipts() -> dict[str, bytes]:
    return {name: (printed if name.endswith(".pdf") else _picture)(_lines(*receipt)) for name, *receipt in _RECEIPTS}


def _after() -> list[tuple[str, str, str, float, float]]:
    rows, balance = [], _BEFORE[-1][-1]
    for _, day, shop, items, tax in _RECEIPTS:
        paid = round(_net(items) + tax, 2)
        balance = round(balance - paid, 2)
        rows.append((day, shop, "Expense", -paid, balance))
    return rows


FILES = {
    "my_bookkeeping.xlsx": spreadsheet([_HEAD, *_BEFORE]),
    "my_bookkeeping Gold.xlsx": spreadsheet([_HEAD, *_BEFORE, *_after()]),
    **_receipts(),
}
_SHEET = "[toggle-button] my_bookkeeping.xlsx - LibreOffice Calc"


def _looks(name: str) -> list[Turn]:
    return [
        turn(f"I read {name}.", double_click(f"[label] {name}", pause=1), when=f"[label] {name}"),
        turn("I close it.", keys("ctrl", "w", pause=1), when=f"[frame] {name}"),
    ]


def _script(amounts: list[float]) -> list[Turn]:
    """The receipts are looked at, and entered with these amounts."""
    rows = [
        [day, shop, "Expense", f"-{amount:.2f}", f"=E{number - 1}+D{number}"]
        for number, ((_, day, shop, _, _), amount) in enumerate(zip(_RECEIPTS, amounts, strict=True), 9)
    ]
    return [
        LARGER,
        turn("I look at the files.", click("[push-button] Files", pause=2)),
        turn("I go to the desktop.", double_click("[label] Desktop", pause=2), when="[frame] Home"),
        *(one for name, *_ in _RECEIPTS for one in _looks(name)),
        turn("I go to the list.", click(_SHEET, pause=1)),
        turn("I go below it.", click(["Formula Tool Bar", "[text] A1"]), write("A9\n", pause=1), when=f"{_SHEET} (on)"),
        turn("I enter them.", write("".join("\t".join(row) + "\n" for row in rows), pause=1), when="[text] A9 "),
        DONE | {"when": f"D13 - {rows[-1][3].rstrip('0')}"},
    ]


RIGHT = _script([_net(items) + tax for *_, items, tax in _RECEIPTS])
NEAR_MISS = _script([_net(items) + (tax if tax > 1 else 0) for *_, items, tax in _RECEIPTS])
NEAR_MISS_IS = "small amounts are without their tax"
SHELL = False
