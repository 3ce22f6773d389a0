"""Orders whose columns are in another order; the reference has the same values in the order that is asked for."""

from datetime import date

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "7a4e4bc8-922c-4c84-865c-25ba34136be1"
_BUYERS = [("Greta", "Holm"), ("Idris", "Vance"), ("Paola", "Reyes"), ("Kenji", "Mori"), ("Wanda", "Zielinski")]
_ORDERS = [
    {
        "Order ID": f"N-{4100 + 17 * number}",
        "Date": date(2023, 1 + number // 3, 2 + 5 * number % 26),
        "First Name": _BUYERS[number * 3 % 5][0],
        "Last Name": _BUYERS[number * 3 % 5][1],
        "Sales": 35.5 + number * 47 % 310,
    }
    for number in range(20)
]


def _ordered(*columns: str) -> bytes:
    return spreadsheet([columns, *([order[column] for column in columns] for order in _ORDERS)])


FILES = {
    "Name_Order_Id_move_column.xlsx": _ordered("Order ID", "Date", "First Name", "Last Name", "Sales"),
    "Name_Order_Id_move_column_gold.xlsx": _ordered("Date", "First Name", "Last Name", "Order ID", "Sales"),
}


def _moved(*moves: tuple[str, str]) -> list[Turn]:
    """Columns cut and pasted, each time these to where there is nothing."""
    turns = []
    for source, target in moves:
        box = ["Formula Tool Bar", "[text]"]
        first, last = source[0], source[-1]
        turns += [
            turn("I select some.", click(box), write(f"{first}1:{last}21\n", pause=1)),
            turn("I cut them.", keys("ctrl", "x", pause=1), when=f"21 rows, {ord(last) - ord(first) + 1} column"),
            turn("I go to where they belong.", click(box), write(f"{target}1\n", pause=1)),
            turn("I paste them.", keys("ctrl", "v", pause=1), when=f"[text] {target}1 "),
        ]
    return turns


RIGHT = [*_moved(("A", "G"), ("B:D", "A"), ("G", "D")), DONE | {"when": "D1 - Order ID"}]
NEAR_MISS = [*_moved(("A", "G"), ("B", "A"), ("G", "B")), DONE | {"when": "B1 - Order ID"}]
NEAR_MISS_IS = "only the date and the order's number change places"
SHELL = False
