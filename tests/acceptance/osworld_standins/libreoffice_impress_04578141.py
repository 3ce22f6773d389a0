"""Three text boxes, one above the other, whose texts become yellow, red and green.

The file has them in another order than the slide shows them in. The reference has LibreOffice's colours of these names.
"""

from pptx.util import Inches

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, text_in, turn, white_deck

TASK = "04578141-1d42-4146-b9cf-6fab4ce5fd74"
_TOP, _MIDDLE, _BOTTOM = "Ask before you cross", "Stop at the barrier", "Go when the bell rings"
_ORDER = (_MIDDLE, _BOTTOM, _TOP)
_PLACES = {_TOP: 0.8, _MIDDLE: 3.0, _BOTTOM: 5.2}


def _slides(**colours: str) -> bytes:
    deck = white_deck()
    slide, other = (deck.slides.add_slide(deck.slide_layouts[6]) for _ in range(2))
    for text in _ORDER:
        box = slide.shapes.add_textbox(Inches(1), Inches(_PLACES[text]), Inches(8), Inches(1))
        text_in(box.text_frame, [text], 32, centred=True, colour=colours.get(text.split()[0], "333333"))
    box = other.shapes.add_textbox(Inches(1), Inches(3), Inches(8), Inches(1))
    text_in(box.text_frame, ["Three signs for children"], 32, centred=True)
    return saved(deck)


_GOLD = _slides(Ask="FFFF00", Stop="FF0000", Go="00A933")
FILES = {"45_2.pptx": _slides(), "45_2_Gold.pptx": _GOLD, "45_2_Gold_all_fonts.pptx": _GOLD}
_DIALOG = "[dialog] Character"


def _coloured(*texts: str) -> list[Turn]:
    """These texts in yellow, red and green."""
    turns = [turn("I select nothing.", keys("esc", pause=2), when=f"[paragraph] {texts[0]}")]
    for text, colour in zip(texts, ("Yellow", "Red", "Green"), strict=True):
        line, choice, panel = f"[paragraph] {text}", f"[list-item] {colour}", "[panel] Font Color"
        turns += [
            turn("I go into the text.", click(line, num_clicks=2, pause=1), when=line),
            turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
            turn("I open the menu.", click("[menu] Format", pause=1)),
            turn("I open the dialog.", click("[menu-item] Character...", pause=1.5), when="[menu-item] Character..."),
            turn("I look at the effects.", click([_DIALOG, "[page-tab] Font Effects"], pause=1.5), when=_DIALOG),
            turn("I look at the colours.", click([panel, "[toggle-button]"], pause=1), when=panel),
            turn("I take the colour.", click(choice, pause=1), when=choice),
            turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5)),
            turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
        ]
    return [*turns, DONE]


RIGHT = _coloured(_TOP, _MIDDLE, _BOTTOM)
NEAR_MISS = _coloured(*_ORDER)
NEAR_MISS_IS = "the colours are in the order in which the boxes were made"
SHELL = False
