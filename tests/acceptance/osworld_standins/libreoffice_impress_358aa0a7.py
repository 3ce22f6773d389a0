"""Three slides in one font, which all become another.

All text is of one weight, so that the dialog shows a style and keeps it. The reference has what LibreOffice writes.
"""

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

TASK = "358aa0a7-6677-453f-ae35-e440f004c31e"
_FONT = "Liberation Sans Narrow"
_SLIDES = {
    "Notes That Help": ["Write less than you hear", "Leave room at the side"],
    "While You Listen": ["One line for each thought", "A mark where you were lost"],
    "On the Same Day": ["Read it once more", "Ask what the marks were about"],
}


def _slides(font: str) -> bytes:
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        slide = titled_slide(deck, 1)
        title, body = slide.placeholders
        body.height = Inches(2.5)
        box = slide.shapes.add_textbox(Inches(1), Inches(5.5), Inches(8), Inches(0.8))
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
        text_in(box.text_frame, ["Learning Centre, room 12"], 18, centred=True)
        for shape in (title, body, box):
            for paragraph in shape.text_frame.paragraphs:
                paragraph.runs[0].font.name = font
    return saved(deck)


FILES = {"note-taking-strategies.file": _slides("Arial"), "note-taking-strategies_Gold.pptx": _slides(_FONT)}
_DIALOG = "[dialog] Character"
_FAMILY = [_DIALOG, "[text] English", "[text] @", "[text] @", "[text] @"]
"""The field has no name, and stands after those of language, size and style."""


def _changed(*headings: str) -> list[Turn]:
    """All on each of these slides gets the font."""
    turns: list[Turn] = []
    for heading in headings:
        text = f"[paragraph] {heading}"
        turns += [
            turn("I go to the slide.", click(f"[panel] {heading}", pause=2), when=f"[panel] {heading}"),
            turn("I go into its title.", click(text, num_clicks=2, pause=1), when=text),
            turn("And out of it.", keys("esc", pause=1), keys("esc", pause=1), when="[label] TextEdit: Paragraph"),
            turn("I select all on the slide.", keys("ctrl", "a", pause=1)),
            turn("I open the menu.", click("[menu] Format", pause=1)),
            turn("I open the dialog.", click("[menu-item] Character...", pause=1.5), when="[menu-item] Character..."),
            turn("I look at the font.", click([_DIALOG, "[page-tab] Font"], pause=1.5), when=_DIALOG),
            turn("I name another.", click(_FAMILY, num_clicks=3, pause=0.5), write(_FONT, pause=1)),
            turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5), when=f"[text] {_FONT}"),
        ]
    return [*turns, DONE]


RIGHT = _changed(*_SLIDES)
NEAR_MISS = _changed(*list(_SLIDES)[:2])
NEAR_MISS_IS = "the last slide keeps its font"
SHELL = False
