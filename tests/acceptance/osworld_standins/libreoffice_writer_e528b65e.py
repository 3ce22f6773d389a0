"""Every word gets a capital: an essay with hyphens, apostrophes, numbers and accents, and each first letter made a capital."""

import re

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "e528b65e-1107-4b8c-8988-490e4fece599"
PARAGRAPHS = [
    "Geography and magical realism",
    "In these novels a place is never just a backdrop. The town at the river's mouth floods, dries up and floods again,"
    " and nobody who lives there finds it odd.",
    "The well-known rains of the 1960s last four years (some say five), and a priest drinks chocolate and floats."
    " It isn't a trick: “the map,” the narrator says, “doesn’t end where the road ends.”",
    "Writers in América Latina were not alone; think of the north-east of Brazil, of Île-de-France, or of "
    "a city/country that nobody's atlas shows.",
]
FIRST_LETTER = re.compile(r"(?<![\w'’])[^\W\d_]")


def essay(paragraphs: list[str]) -> bytes:
    """A heading and paragraphs."""
    document = docx.Document()
    document.add_heading(paragraphs[0], 1)
    for text in paragraphs[1:]:
        document.add_paragraph(text)
    return saved(document)


FILES = {
    "Geography_And_Magical_Realism.docx": essay(PARAGRAPHS),
    "Geography_And_Magical_Realism_Gold.docx": essay(
        [FIRST_LETTER.sub(lambda one: one[0].upper(), text) for text in PARAGRAPHS]
    ),
}


def changed_by(item: str) -> list[Turn]:
    """All text is selected, and its case changed by this item of the menu."""
    return [
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[heading] Geography and magical realism"),
        turn("I open the menu.", click("[menu] Format @", pause=1)),
        turn("On to how text looks.", click("[menu] Text @", pause=1)),
        turn("I change the case.", click(f"[menu-item] {item} @", pause=1)),
    ]


RIGHT = [
    *changed_by("Capitalize Every Word"),
    turn("I look at it.", keys("ctrl", "home"), when="Magical Realism"),
    DONE,
]
NEAR_MISS = [*changed_by("UPPERCASE"), {**DONE, "when": "MAGICAL REALISM"}]
NEAR_MISS_IS = "every letter is a capital"
SHELL = False
