"""Orders without their numbers; the reference has them, a text in each row, and nothing below the last."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, spreadsheet, turn, write

TASK = "7efeb4b1-3d19-4762-b163-63328d66303b"
_HEADERS = ["Seq No.", "Date", "Customer", "Item", "Units", "Price", "Total"]
_CUSTOMERS = ("Harlow & Sons", "Brightside", "Oakmoor", "Pell Street Stores", "Quay Traders")
_ITEMS = (("Lantern", 18.5), ("Kettle", 24), ("Blanket", 31.25), ("Stove", 79.9))
_ORDERS = 24


def _order(number: int) -> list[object]:
    item, price = _ITEMS[number * 3 % 4]
    units = 1 + number * 7 % 12
    return [f"2023-05-{number:02}", _CUSTOMERS[number * 2 % 5], item, units, price, units * price]


_ROWS = [_order(number) for number in range(1, _ORDERS + 1)]
FILES = {
    "Order_Sales_Serial#.xlsx": spreadsheet([_HEADERS, *([None, *row] for row in _ROWS)]),
    "Order_Sales_Serial#_gold.xlsx": spreadsheet(
        [_HEADERS, *([f"No. {number}", *row] for number, row in enumerate(_ROWS, 1))]
    ),
}
_DIALOG = "[dialog] Fill Series"


def _numbered(first: str) -> list[Turn]:
    """The first order's number is this, and the rest follow from it."""
    name_box = click(["Formula Tool Bar", "[text]"])
    return [
        turn("I write the first.", name_box, write(f"A2\n{first}\n", pause=1), when="A1 - Seq No."),
        turn("I select all.", name_box, write(f"A2:A{_ORDERS + 1}\n", pause=1), when=f"A2 - {first}"),
        turn("I open the menu.", click("[menu] Sheet", pause=1), when=f"{_ORDERS} rows, 1 column"),
        turn("I look how to fill cells.", click("[menu] Fill Cells", pause=1), when="[menu] Fill Cells"),
        turn("As a series.", click("[menu-item] Fill Series...", pause=1), when="[menu-item] Fill Series..."),
        turn("By itself.", click([_DIALOG, "[radio-button] AutoFill"], pause=1), when=_DIALOG),
        turn("That is all.", click([_DIALOG, "[push-button] OK"], pause=1), when="[radio-button] AutoFill"),
        DONE | {"when": f"A6 - {first[:-1]}5"},
    ]


RIGHT = _numbered("No. 1")
NEAR_MISS = _numbered("No.1")
NEAR_MISS_IS = "the numbers have no space before them"
SHELL = False
