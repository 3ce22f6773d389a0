"""Three slides about an old clock, all in Arial; the last one's title and body become Times New Roman.

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

TASK = "edb61b14-a854-4bf5-a075-c8075c11293a"
_FONT = "Times New Roman"
_TITLE, _BODY = "Where to See It", ["The tower is open on Saturdays", "It strikes at noon"]
_SLIDES = {
    "The Town Clock": ["It was made in 1784", "It has one hand"],
    "How It Is Wound": ["Two people turn the crank", "It runs for eight days"],
    _TITLE: _BODY,
}


def _slides(font: str = "Arial") -> bytes:
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
    for shape in (title, body):
        for paragraph in shape.text_frame.paragraphs:
            paragraph.runs[0].font.name = font
    return saved(deck)


FILES = {"24_8.pptx": _slides(), "24_8_Gold.pptx": _slides(_FONT)}


def _changed(*texts: str) -> list[Turn]:
    """The texts on the last slide that begin so get the font, one after the other."""
    turns = [turn("I go to the last slide.", click(f"[panel] {_TITLE}", pause=2), when=f"[panel] {_TITLE}")]
    for text in texts:
        line = f"[paragraph] {text}"
        turns += [
            turn("I go into the text.", click(line, num_clicks=2, pause=1), when=line),
            turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
            turn("I name the font.", click("[text] Arial @", num_clicks=3, pause=0.5), write(f"{_FONT}\n", pause=1)),
            turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when=f"[text] {_FONT}"),
        ]
    return [*turns, DONE]


RIGHT = _changed(_TITLE, _BODY[0])
NEAR_MISS = _changed(_BODY[0])
NEAR_MISS_IS = "the title keeps its font"
SHELL = False
