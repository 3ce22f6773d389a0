"""A slide that gets a purple background, and its title as its note.

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

TASK = "8979838c-54a5-4454-a2b8-3d135a1a5c8f"
_TITLE = "Lavender in Dry Summers"


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    slide = titled_slide(deck, 1)
    title, body = slide.placeholders
    text_in(title.text_frame, [_TITLE], 36, centred=True)
    text_in(body.text_frame, ["Plant it on a slope", "Water it in the first year only"], 24, bullet="•")
    if solved:
        slide.background.fill.solid()
        slide.background.fill.fore_color.rgb = RGBColor(0x80, 0x00, 0x80)
        slide.notes_slide.notes_text_frame.text = _TITLE
    return saved(deck)


FILES = {"186_3.pptx": _slides(solved=False), "186_3_Gold.pptx": _slides(solved=True)}
_TAB = "[page-tab] Background"


def _coloured(colour: str) -> list[Turn]:
    """The slide gets this background, and its title as a note."""
    return [
        turn("I open the menu.", click("[menu] Slide @", pause=1), when=f"[paragraph] {_TITLE}"),
        turn("I open the dialog.", click("[menu-item] Slide Properties...", pause=2), when="Slide Properties..."),
        turn("I look at the background.", click(_TAB, pause=1), when=_TAB),
        turn("I take this one.", click(f"[list-item] {colour}", pause=1), when=f"[list-item] {colour}"),
        turn("I confirm.", click(["[dialog]", "[push-button] OK"], pause=1.5)),
        turn("I open the menu.", click("[menu] View @", pause=1)),
        turn("I look at the notes.", click("] Notes @", pause=2), when="] Notes @"),
        turn("I go to the picture of the slide.", keys("tab", pause=1)),
        turn("I go to the note.", keys("tab", pause=1)),
        turn("I go into it.", keys("f2", pause=1)),
        turn("I write the title.", write(_TITLE, pause=1), when="[label] TextEdit: Paragraph"),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
        DONE,
    ]


RIGHT = _coloured("Purple")
NEAR_MISS = _coloured("Dark Purple 2")
NEAR_MISS_IS = "the background is a dark purple"
SHELL = False
