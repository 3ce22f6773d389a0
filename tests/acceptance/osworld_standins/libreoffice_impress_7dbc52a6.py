"""Three slides about a tide mill; the second's title becomes bold, and its note.

The reference has what LibreOffice writes for each piece of text.
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

TASK = "7dbc52a6-11e0-4c9a-a2cb-1e36cfda80d8"
_TITLE = "How the Tide Grinds Flour"
_SLIDES = {
    "The Mill at Harbour Point": ["Built in 1804, mended in 1911"],
    _TITLE: ["The pond fills as the water rises", "Gates hold it until the ebb", "Then it turns the wheel"],
    "When to Come": ["On Saturdays, two hours after high water"],
}


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        slide = titled_slide(deck, 1)
        title, body = slide.placeholders
        chosen = solved and heading == _TITLE
        text_in(title.text_frame, [heading], 36, bold=chosen, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
        if chosen:
            slide.notes_slide.notes_text_frame.text = heading
    return saved(deck)


FILES = {"164_3.pptx": _slides(solved=False), "164_3_Gold.pptx": _slides(solved=True)}
_PAGE = f"[panel] {_TITLE}"
_LINE = f"[paragraph] {_TITLE}"
_NOTE = "[paragraph] Click to add Notes"


def _noted(note: str) -> list[Turn]:
    """The second slide's title becomes bold, and this is its note."""
    return [
        turn("I go to page 2.", click(_PAGE, pause=2), when=_PAGE),
        turn("I go into its title.", click(_LINE, num_clicks=2, pause=1), when=_LINE),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I make it bold.", keys("ctrl", "b", pause=1)),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when="[toggle-button] Bold (on"),
        turn("I open the menu.", click("[menu] View @", pause=1)),
        turn("I look at the notes.", click("] Notes @", pause=2), when="] Notes @"),
        turn("I go into the note.", click(_NOTE, num_clicks=2, pause=1), when=_NOTE),
        turn("I write it.", write(note, pause=1), when="[label] TextEdit: Paragraph"),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when=f"[paragraph] {note}"),
        DONE,
    ]


RIGHT = _noted(_TITLE)
NEAR_MISS = _noted(_TITLE.capitalize())
NEAR_MISS_IS = "the note has a capital at its start alone"
SHELL = False
