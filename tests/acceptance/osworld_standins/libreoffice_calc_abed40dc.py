"""Full names, some of them more than once, some that begin like another; the reference has each once, as openpyxl writes them."""

from tests.acceptance.osworld_standins.made import DONE, LARGER, click, click_xy, spreadsheet, turn, write

TASK = "abed40dc-063f-4598-8ba5-9fe749c0615d"
_NAMES = [
    "Mara Lindqvist",
    "Tobias Okoro",
    "Mara Lindqvist",
    "Ines Castellan",
    "Per Halloran",
    "Ines Castellan",
    "Yusuf Amberg",
    "Mara",
    "Tobias Okoro",
    "Beatrix Quill",
    "Per Halloran",
    "Anselm Drury",
    "Yusuf Amberg",
    "Chiara Novotny",
    "Mara Lindqvist",
    "Ines",
    "Anselm Drury",
    "Okon Whitlock",
    "Beatrix Quill",
    "Dagny Ferro",
    "Okon Whitlock",
    "Mara",
    "Chiara Novotny",
    "Lars Penrose",
]
_UNIQUE = list(dict.fromkeys(_NAMES))
_HEADERS = ["Names with duplicates", "Unique Names"]
FILES = {
    "Names_Duplicate_Unique.xlsx": spreadsheet([_HEADERS, *([name] for name in _NAMES)]),
    "Names_Duplicate_Unique_gold.xlsx": spreadsheet(
        [_HEADERS, *([name, *_UNIQUE[row : row + 1]] for row, name in enumerate(_NAMES))]
    ),
}
RIGHT = [
    LARGER,
    turn("I select the names.", click(["Formula Tool Bar", "[text] A1"]), write("A2:A25\n")),
    turn("I open the menu.", click("[menu] Data", pause=1), when="24 rows, 1 column"),
    turn("A filter can copy them.", click("[menu] More Filters", pause=1)),
    turn("The standard one.", click("[menu-item] Standard Filter...", pause=1)),
    turn("I look at the values.", click(["[dialog] Standard Filter", "[toggle-button] @ (1225, 486)"], pause=1)),
    turn("All that is there.", click("[table-cell] Not Empty", pause=1)),
    turn("There are more options.", click_xy(655, 647, pause=1), when="[toggle-button] Options"),
    turn("Each once, elsewhere.", click("[check-box] No duplications"), click("[check-box] Copy results to:")),
    turn("In the other column.", click("[text] Copy results to"), write("B2")),
    turn("That is all.", click(["[dialog] Standard Filter", "[push-button] OK"], pause=1)),
    DONE | {"when": "B2 - Mara Lindqvist"},
]
NEAR_MISS = [
    LARGER,
    turn("I go to the column.", click(["Formula Tool Bar", "[text] A1"]), write("B2\n")),
    turn("I write them by the alphabet.", write("\n".join([*sorted(_UNIQUE), ""])), when="[text] B2"),
    DONE | {"when": "B2 - Anselm Drury"},
]
NEAR_MISS_IS = "the names are by the alphabet"
SHELL = False
