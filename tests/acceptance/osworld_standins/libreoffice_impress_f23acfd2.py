"""A slide of three lines without bullets, which get one each.

The references have the sign of Wingdings as which LibreOffice saves the bullet that it takes unasked, or the usual one; two have it
before the title too.
"""

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    keys,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
)

TASK = "f23acfd2-c485-4b7c-a1e7-d4303ddfe864"
_TITLE = "Before the First Frost"
_LINES = ["Dig up the dahlias", "Cover the roses with straw", "Empty the rain barrel"]


def _slides(title: str = "", body: str = "") -> bytes:
    deck = white_deck()
    above, below = titled_slide(deck, 1).placeholders
    text_in(above.text_frame, [_TITLE], 36, bullet=title, centred=True)
    text_in(below.text_frame, _LINES, 24, bullet=body)
    return saved(deck)


_OWN, _USUAL = "\uf06c", "•"
FILES = {
    "69_4.pptx": _slides(),
    "69_4_Gold.pptx": _slides(body=_OWN),
    "69_4_Gold2.pptx": _slides(body=_USUAL),
    "69_4_Gold_all_fonts_1.pptx": _slides(_OWN, _OWN),
    "69_4_Gold_all_fonts_2.pptx": _slides(_USUAL, _USUAL),
}


def _bulleted(*selecting: Turn) -> list[Turn]:
    """What is selected in the content gets a bullet for each line."""
    text, inside, unordered = f"[paragraph] {_LINES[0]}", "[label] TextEdit: Paragraph", "[menu-item] Unordered List"
    return [
        turn("I go into the content.", click(text, num_clicks=2, pause=1), when=text),
        *selecting,
        turn("I open the menu.", click("[menu] Format @", pause=1), when=inside),
        turn("On to the lists.", click("[menu] Lists", pause=1), when="[menu] Lists"),
        turn("With bullets.", click(unordered, pause=1.5), when=unordered),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
        DONE,
    ]


RIGHT = _bulleted(turn("I select all of it.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"))
NEAR_MISS = _bulleted()
NEAR_MISS_IS = "only the first line has a bullet"
SHELL = False
