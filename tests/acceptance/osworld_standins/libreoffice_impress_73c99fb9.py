"""Three slides of a book's outline; the content of the second and the third is empty.

The new text looks as the slide's layout has it, which the reference says in so many words, as LibreOffice writes it.
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
    write,
)

TASK = "73c99fb9-f828-43ce-b87a-01dc07faa224"
_TEXTS = {"A Book of Tides": ["Three chapters", "A map for each"], "The Harbour": [], "The Estuary": []}
_SECOND, _THIRD = "The Harbour", "The Estuary"
_NEW = "Page 1"


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    for heading, lines in _TEXTS.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        if lines:
            text_in(body.text_frame, lines, 24, bullet="•")
        elif solved and heading == _SECOND:
            text_in(body.text_frame, [_NEW], 32, colour="000000", bullet="•")
            body.text_frame.paragraphs[0].runs[0].font.name = "Calibri"
    return saved(deck)


FILES = {"109_4.pptx": _slides(solved=False), "109_4_Gold.pptx": _slides(solved=True)}


def _added(heading: str) -> list[Turn]:
    """The text is written into the content of the slide with this title."""
    panel, text = f"[panel] {heading}", f"[paragraph] {heading}"
    return [
        turn("I go to the slide.", click(["[document-frame] Slides View", panel], pause=2), when=panel),
        turn("I go into its title.", click(text, num_clicks=2, pause=1), when=text),
        turn("And on into its content.", keys("ctrl", "enter", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I write.", write(_NEW, pause=1)),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when=f"[paragraph] {_NEW}"),
        DONE,
    ]


RIGHT = _added(_SECOND)
NEAR_MISS = _added(_THIRD)
NEAR_MISS_IS = "the text is on the slide after it"
SHELL = False
