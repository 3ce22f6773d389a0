"""Three invoices and a bank statement, which has another amount for one of them.

The reference is the invoice itself, as in OSWorld.
"""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, printed, turn, write

TASK = "337d318b-aa07-4f4f-b763-89d9a2dd013f"


def _invoice(seller: str, number: str, day: str, items: list[tuple[str, int, float]]) -> list[list[str]]:
    total = sum(count * price for _, count, price in items)
    return [
        [seller],
        [f"Invoice # {number}"],
        ["Date", day],
        ["Bill to", "Larkfield Studio, 14 Mill Lane"],
        [],
        ["Item", "Quantity", "Price", "Amount"],
        *([name, str(count), f"${price:,.2f}", f"${count * price:,.2f}"] for name, count, price in items),
        [],
        ["Total due", "", "", f"${total:,.2f}"],
        ["Payment within 14 days by bank transfer."],
    ]


_STATEMENT = [
    ["Northbank"],
    ["Statement of account 00-4471-92, Larkfield Studio"],
    ["Period", "15 February to 31 March 2022"],
    [],
    ["Date", "Description", "Withdrawal", "Balance"],
    ["15 Feb", "Balance carried forward", "", "$12,400.00"],
    ["21 Feb", "GES-20220215-82", "$1,430.50", "$10,969.50"],
    ["24 Feb", "Invoice 243729", "$890.00", "$10,079.50"],
    ["02 Mar", "Rent", "$2,100.00", "$7,979.50"],
    ["08 Mar", "TII-20220301-90", "$615.25", "$7,364.25"],
]
FILES = {
    "invoice TII-20220301-90.pdf": printed(
        _invoice("Tide Interiors Inc.", "TII-20220301-90", "1 March 2022", [("Shelf", 3, 150.0), ("Lamp", 1, 165.25)])
    ),
    "Invoice # GES-20220215-82.pdf": printed(
        _invoice(
            "Greenway Event Supply", "GES-20220215-82", "15 February 2022", [("Tent", 1, 980.0), ("Chair", 53, 8.5)]
        )
    ),
    "Invoice # 243729.pdf": printed(
        _invoice("Harbour Print House", "243729", "18 February 2022", [("Poster", 120, 5.0), ("Booklet", 40, 8.5)])
    ),
    "Bank-Statement.pdf": printed(_STATEMENT),
}


def _looks(name: str) -> Turn:
    return turn(f"I read {name}.", double_click(f"[label] {name}", pause=1), when=f"[label] {name}")


def _closes(name: str) -> Turn:
    return turn("I close it.", keys("ctrl", "w", pause=1), when=f"[frame] {name}")


def _script(invoice: str) -> list[Turn]:
    return [
        turn("I look at the files.", click("[push-button] Files", pause=3)),
        turn("I go to the desktop.", double_click("[label] Desktop", pause=2), when="[frame] Home"),
        _looks("Bank-Statement.pdf"),
        _closes("Bank-Statement.pdf"),
        _looks(invoice),
        _closes(invoice),
        turn("I make a folder.", keys("ctrl", "shift", "n", pause=2)),
        turn("It has this name.", write("problematic\n", pause=1)),
        turn("I choose the invoice.", click(f"[label] {invoice}", pause=0.5), when="[label] problematic"),
        turn("I cut it.", keys("ctrl", "x", pause=0.5), when=f"“{invoice}” selected"),
        turn("I open the folder.", double_click("[label] problematic", pause=1)),
        turn("I put it there.", keys("ctrl", "v", pause=1), when="[frame] problematic"),
        DONE | {"when": f"[label] {invoice}"},
    ]


RIGHT = _script("Invoice # 243729.pdf")
NEAR_MISS = _script("invoice TII-20220301-90.pdf")
NEAR_MISS_IS = "puts an invoice away that the statement has"
SHELL = False
