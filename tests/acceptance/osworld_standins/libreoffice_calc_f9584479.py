"""Sales of products by zone and month, without their sums; the reference has the sums as numbers, not as formulas."""

from tests.acceptance.osworld_standins.made import DONE, click, keys, spreadsheet, turn, write

TASK = "f9584479-3d0d-4c79-affa-9ad7afdd8850"
_HEADERS = ["Product", "North Zone", "South Zone", "East Zone", "West Zone", "Total"]
_SALES = [
    ["Desk lamp", 1240.5, 980.25, 1105, 1320.75],
    ["Bookcase", 3310, 2875.4, 2990.1, 3120.2],
    ["Armchair", 4125.3, 3980.6, 4410.9, 3875],
    ["Side table", 1875.05, 1640.15, 1720.25, 1902.35],
    ["Wardrobe", 6240, 5895.75, 6012.5, 6388.25],
    ["Mirror", 745.99, 810.49, 699.95, 778.45],
]
_ZONES = [sum(row[zone] for row in _SALES) for zone in range(1, 5)]
FILES = {
    "Quarterly_Product_Sales_by_Zone.xlsx": spreadsheet([_HEADERS, *_SALES, ["Total"]]),
    "Quarterly_Product_Sales_by_Zone_gold.xlsx": spreadsheet(
        [_HEADERS, *([*row, sum(row[1:])] for row in _SALES), ["Total", *_ZONES, sum(_ZONES)]]
    ),
}


def _summed(last_row: int) -> list[dict]:
    """The sums of the products up to a row and of the zones, each written once and copied."""
    return [
        turn("I go to the first total.", click(["Formula Tool Bar", "[text] A1"]), write(f"F2:F{last_row}\n")),
        turn("The products' sums.", write("=SUM(B2:E2)"), keys("alt", "enter"), when=f"{last_row - 1} rows, 1 column"),
        turn("I go to the zones.", click(["Formula Tool Bar", "[text]"]), write("B8:F8\n"), when="F2 - 4646.5"),
        turn("The zones' sums.", write("=SUM(B2:B7)"), keys("alt", "enter"), when="1 row, 5 columns"),
    ]


RIGHT = [*_summed(7), DONE | {"when": "Sum: 136086.36"}]
NEAR_MISS = [*_summed(6), DONE | {"when": "Sum: 133051.48"}]
NEAR_MISS_IS = "the last product has no total"
SHELL = False
