"""Titles of films in odd letters and with spaces around and amid; the reference has the clean ones as text, not as formulas."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "a9f325aa-8c05-4e4f-8341-9e4358565f4f"
_TITLES = [
    "  the   tin LANTERN",
    "A NIGHT in    lisbon  ",
    "  seven  doors  DOWN ",
    "MidWinter",
    "   the LAST   tram home",
    "Orchard   Of    glass   ",
    "who paints   THE  sea",
    "  RED KITE,   blue kite ",
    "harbour   lights   2",
    "THE  quiet   cartographer ",
]
_HEADERS = ["Garbage Movie Titles", "Clean Movie Titles"]
FILES = {
    "Movie_titles_garbage_clean.xlsx": spreadsheet([_HEADERS, *([title] for title in _TITLES)]),
    "Movie_titles_garbage_clean_gold.xlsx": spreadsheet(
        [_HEADERS, *([title, " ".join(title.split()).title()] for title in _TITLES)]
    ),
}


def _cleaned(formula: str) -> list[Turn]:
    """Each title by the first row's formula, which is copied."""
    return [
        turn("I select the blanks.", click(["Formula Tool Bar", "[text] A1"]), write("B2:B11\n")),
        turn("I clean the titles.", write(formula), keys("alt", "enter", pause=1), when="10 rows, 1 column"),
    ]


RIGHT = [*_cleaned("=PROPER(TRIM(A2))"), DONE | {"when": "B11 - The Quiet Cartographer"}]
NEAR_MISS = [*_cleaned("=PROPER(A2)"), DONE | {"when": "B11 - The  Quiet   Cartographer"}]
NEAR_MISS_IS = "the spaces are left"
SHELL = False
