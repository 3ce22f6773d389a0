"""A slide about telephones that gets a purple background and a note.

The reference has LibreOffice's own purple, and what it writes for each piece of text.
"""

from pptx.dml.color import RGBColor

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

TASK = "841b50aa-df53-47bd-a73a-22d3a9f73160"
_TITLE = "A Library in Your Pocket"


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    slide = titled_slide(deck, 1)
    title, body = slide.placeholders
    text_in(title.text_frame, [_TITLE], 36, centred=True)
    text_in(body.text_frame, ["Renew a loan from the bus", "Ask for a book that is out"], 24, bullet="•")
    if solved:
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = RGBColor(0x80, 0x00, 0x80)
        slide.notes_slide.notes_text_frame.text = "APP"
    return saved(deck)


FILES = {"181_2.pptx": _slides(solved=False), "181_2_Gold.pptx": _slides(solved=True)}
_TAB = "[page-tab] Background"
_NOTE = "[paragraph] Click to add Notes"


def _noted(note: str) -> list[Turn]:
    """The slide gets a purple background and this note."""
    return [
        turn("I open the menu.", click("[menu] Slide @", pause=1), when=f"[paragraph] {_TITLE}"),
        turn("I open the dialog.", click("[menu-item] Slide Properties...", pause=2), when="Slide Properties..."),
        turn("I look at the background.", click(_TAB, pause=1), when=_TAB),
        turn("I take purple.", click("[list-item] Purple", pause=1), when="[list-item] Purple"),
        turn("I confirm.", click(["[dialog]", "[push-button] OK"], pause=1.5)),
        turn("I open the menu.", click("[menu] View @", pause=1)),
        turn("I look at the notes.", click("] Notes @", pause=2), when="] Notes @"),
        turn("I go into the note.", click(_NOTE, num_clicks=2, pause=1), when=_NOTE),
        turn("I write it.", write(note, pause=1), when="[label] TextEdit: Paragraph"),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when=f"[paragraph] {note}"),
        DONE,
    ]


RIGHT = _noted("APP")
NEAR_MISS = _noted("App")
NEAR_MISS_IS = "the note is in small letters but for the first"
SHELL = False
