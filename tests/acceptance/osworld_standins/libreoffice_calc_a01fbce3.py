"""Numbers shown with a decimal comma: measurements with up to four decimals; the reference is what Calc prints in such a locale."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, spreadsheet, turn, write

TASK = "a01fbce3-2793-461f-ab86-43680ccbae25"
_ROWS: list[list[object]] = [
    ["Station", "Rain", "Wind", "Pressure", "Days"],
    ["Harbour", 12.5, 3.75, 1013.25, 14],
    ["Airport", 9.84, 5.125, 1012.9, 11],
    ["Old town", 11.0625, 2.4, 1013.05, 13],
    ["Ridge", 18.3, 8.65, 987.4, 19],
    ["Lake", 14.75, 4.2, 1002.125, 16],
    ["Forest", 16.05, 1.85, 995.7, 17],
    ["Valley", 7.6, 2.35, 1009.8, 9],
]


def _printed() -> bytes:
    """The sheet as text, with commas between cells, and quotes round those that have one."""
    lines = [[f'"{cell}"'.replace(".", ",") if isinstance(cell, float) else str(cell) for cell in row] for row in _ROWS]
    return "".join(f"{','.join(line)}\n" for line in lines).encode()


_BOOK = spreadsheet(_ROWS)
FILES = {
    "Set_Decimal_Separator_Dot.xlsx": _BOOK,
    "Set_Decimal_Separator_Dot_gold_ru.xlsx": _BOOK,
    "Set_Decimal_Separator_Dot_gold_ru.csv": _printed(),
}


def _set_by(*turns: Turn) -> list[Turn]:
    """The settings of languages, with what is changed there."""
    return [
        turn("I open the menu.", click("[menu] Tools @", pause=1), when="[document-spreadsheet]"),
        turn("The settings.", click("[menu-item] Options...", pause=2)),
        turn("Those of languages.", double_click("[table-cell] Language Settings", pause=2), when="[dialog] Options"),
        turn("The first of them.", click("[table-cell] Languages", pause=2)),
        *turns,
        turn("I confirm.", click(["[dialog] Options", "[push-button] OK"], pause=2)),
    ]


_LOCALE = ("[dialog] Options", "[panel] Formats", "[toggle-button]", "[toggle-button]")
RIGHT = [
    *_set_by(
        turn("I open the list of locales.", click(_LOCALE, pause=2), when="[label] Locale setting:"),
        turn("I choose one with a comma.", write("Russian", pause=2)),
        turn("That one.", keys("enter", pause=2), when="[table-cell] Russian (selected"),
    ),
    turn("I have read that.", click(["[alert] Information", "[push-button] OK"], pause=1), when="D6 - 1002,125"),
    DONE,
]
NEAR_MISS = [
    *_set_by(turn("I change the key.", click("[check-box] Same as locale setting ( . )", pause=1))),
    DONE,
]
NEAR_MISS_IS = "only the key for the separator is changed"
SHELL = False
