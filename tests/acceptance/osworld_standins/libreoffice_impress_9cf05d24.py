"""Three slides about moss, of which the first becomes green.

The reference has LibreOffice's own green.
"""

from pptx.dml.color import RGBColor

from tests.acceptance.osworld_standins.made import DONE, Turn, click, saved, text_in, titled_slide, turn, white_deck

TASK = "9cf05d24-6bd9-4dae-8967-f67d88f5d38a"
_TEXTS = {
    "Moss on Old Walls": ["A walk in four stops"],
    "It Has No Roots": ["Water comes through its leaves", "It lives where soil is thin"],
    "It Can Wait": ["A dry cushion is not dead", "Rain wakes it within minutes"],
}
_FIRST, _SECOND, _ = _TEXTS


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    for heading, lines in _TEXTS.items():
        first = heading == _FIRST
        slide = titled_slide(deck, 0 if first else 1)
        title, body = slide.placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="" if first else "•", centred=first)
        if solved and first:
            slide.background.fill.solid()
            slide.background.fill.fore_color.rgb = RGBColor(0x00, 0xA9, 0x33)
    return saved(deck)


FILES = {"214_9.pptx": _slides(solved=False), "214_9_Gold.pptx": _slides(solved=True)}
_TAB = "[page-tab] Background"
_GREEN = "[list-item] Green"


def _green(heading: str) -> list[Turn]:
    """The slide of this title becomes green."""
    panel, page = f"[panel] {heading}", f"[panel] PageShape: {heading}"
    return [
        turn("I go to the slide.", click(["[document-frame] Slides View", panel], pause=2), when=panel),
        turn("I open the menu.", click("[menu] Slide @", pause=1), when=page),
        turn("I open the dialog.", click("[menu-item] Slide Properties...", pause=2), when="Slide Properties..."),
        turn("I look at the background.", click(_TAB, pause=1), when=_TAB),
        turn("I take green.", click(_GREEN, pause=1), when=_GREEN),
        turn("I confirm.", click(["[dialog]", "[push-button] OK"], pause=1.5)),
        DONE,
    ]


RIGHT = _green(_FIRST)
NEAR_MISS = _green(_SECOND)
NEAR_MISS_IS = "the second slide is green, the first is not"
SHELL = False
