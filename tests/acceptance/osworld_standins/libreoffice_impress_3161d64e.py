"""Fifteen slides of a walking club's year; the fourteenth has two text boxes, which get other sizes.

The reference has what LibreOffice writes for each piece of text. The boxes have room for it and keep their sizes.
"""

from pptx.enum.text import MSO_AUTO_SIZE
from pptx.util import Inches

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

TASK = "3161d64e-3120-47b4-aaad-6a764a92493b"
_HEADING = "A Year on Foot"
_MONTHS = {
    "January": "Round the frozen lake",
    "February": "Along the railway",
    "March": "To the spring in the wood",
    "April": "Past the orchards",
    "May": "Over both bridges",
    "June": "Up to the tower, at night",
    "July": "Down the valley to the mill",
    "August": "Along the shore, barefoot",
    "September": "Through the vineyards",
    "October": "To the old quarry",
    "November": "From church to church",
    "December": "Into town, by lantern light",
}
_FIRST, _SECOND = "Come Along", "We meet on first Sundays"


def _slides(first: int, second: int) -> bytes:
    deck = white_deck()
    for heading, line in ((_HEADING, "Twelve walks of the club"), *_MONTHS.items()):
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, [line], 24)
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    for top, text, size in ((1.5, _FIRST, first), (4, _SECOND, second)):
        box = slide.shapes.add_textbox(Inches(1), Inches(top), Inches(8), Inches(1.5))
        box.text_frame.word_wrap, box.text_frame.auto_size = True, MSO_AUTO_SIZE.NONE
        text_in(box.text_frame, [text], size)
    (title,) = titled_slide(deck, 5).placeholders
    text_in(title.text_frame, ["Maps and Buses"], 36, centred=True)
    return saved(deck)


FILES = {"45_1.pptx": _slides(44, 20), "45_1_Gold.pptx": _slides(60, 28)}


def _sized(first: int, second: int) -> list[Turn]:
    """The two text boxes get these sizes."""
    turns = [
        turn(
            "I look further down the slides.",
            {"name": "desktop_mouse_move", "arguments": {"at": f"[panel] {_HEADING}"}},
            {"name": "desktop_scroll", "arguments": {"dy": -30, "pause": 2}},
            when=f"[panel] {_HEADING}",
        ),
        turn("I go to slide 14.", click("[panel] Slide 14", pause=2), when="[panel] Slide 14"),
    ]
    for text, size, new in ((_FIRST, 44, first), (_SECOND, 20, second)):
        line = f"[paragraph] {text}"
        turns += [
            turn("I go into the text.", click(line, num_clicks=2, pause=1), when=line),
            turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
            turn("I choose its size.", click(f"[text] {size} pt", num_clicks=3, pause=0.5), write(f"{new}\n", pause=1)),
            turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when=f"[text] {new} pt"),
        ]
    return [*turns, DONE]


RIGHT = _sized(60, 28)
NEAR_MISS = _sized(28, 60)
NEAR_MISS_IS = "the first box has the size that is for the second, and the second that for the first"
SHELL = False
