"""Names and ranks of employees in one field, `First Last, Rank`; the reference has each part as text in a column of its own."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "37608790-6147-45d0-9f20-1137bb35703d"
_HEADERS = ["Employee", "First Name", "Last Name", "Rank"]
_EMPLOYEES = [
    ("Nora", "Vance", "Director"),
    ("Idris", "Castellan", "Clerk"),
    ("Mei", "Okafor", "Supervisor"),
    ("Anselm", "Drury", "Clerk"),
    ("Lucia", "Ferrer", "Manager"),
    ("Joost", "Kuiper", "Trainee"),
    ("Hala", "Nasser", "Manager"),
    ("Dagny", "Ferro", "Clerk"),
    ("Teodor", "Quill", "Supervisor"),
    ("Amara", "Holm", "Trainee"),
]


def _employees(*, split: bool) -> bytes:
    return spreadsheet(
        [_HEADERS, *([f"{one[0]} {one[1]}, {one[2]}", *(one if split else [None] * 3)] for one in _EMPLOYEES)]
    )


FILES = {
    "Employee_Roles_and_Ranks.xlsx": _employees(split=False),
    "Employee_Roles_and_Ranks_gold.xlsx": _employees(split=True),
}
_LAST_ROW = len(_EMPLOYEES) + 1
_DIALOG = "[dialog] Text to Columns"


def _split(*options: str) -> list[Turn]:
    """What is in the one field is copied to the first column for its parts, and split with these options."""
    name_box = click(["Formula Tool Bar", "[text]"])
    return [
        turn("I select what is mixed.", name_box, write(f"A2:A{_LAST_ROW}\n", pause=1), when="A2 - Nora Vance"),
        turn("I copy it.", keys("ctrl", "c", pause=1), when=f"{len(_EMPLOYEES)} rows, 1 column"),
        turn("I go to the next column.", name_box, write("B2\n", pause=1)),
        turn("I paste it.", keys("ctrl", "v", pause=1), when="[text] B2"),
        turn("I open the menu.", click("[menu] Data @", pause=1), when="B2 - Nora Vance"),
        turn("I want to split it.", click("[menu-item] Text to Columns...", pause=1.5), when="Text to Columns..."),
        *(
            turn("I tick an option.", click([_DIALOG, f"[check-box] {one}"], pause=1), when=f"[check-box] {one}")
            for one in options
        ),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5), when=f"[check-box] {options[-1]} (on"),
    ]


RIGHT = [*_split("Comma", "Space", "Merge delimiters"), DONE | {"when": f"D{_LAST_ROW} - {_EMPLOYEES[-1][2]}"}]
NEAR_MISS = [*_split("Comma", "Space"), DONE | {"when": f"E{_LAST_ROW} - {_EMPLOYEES[-1][2]}"}]
NEAR_MISS_IS = "the ranks are one column too far to the right"
SHELL = False
