"""Five slides about lighthouses; on the last, a title and three text boxes become yellow.

One reference has the text boxes yellow, the other the title too. Both have LibreOffice's yellow.
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
)

TASK = "57667013-ea97-417c-9dce-2713091e6e2a"
_TITLE = "Where to Climb One"
_TEXTS = {
    "Lights on the Coast": ["What they were for", "Who still keeps them"],
    "From Fire to Lens": ["An open fire burnt a ton of coal a night", "A lens sends all light one way"],
    "A Light Has a Name": ["Each flashes in its own rhythm", "The rhythm is in every chart"],
    "The Last Keepers": ["Most lights have no keeper since 1990", "A few are lived in"],
}
_BOXES = ["North Head: on Sundays", "Gull Rock: by boat, in summer", "Sandy Point: ask at the museum"]


def _slides(title_colour: str = "333333", box_colour: str = "333333") -> bytes:
    deck = white_deck()
    for heading, lines in _TEXTS.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
    slide = titled_slide(deck, 5)
    text_in(slide.placeholders[0].text_frame, [_TITLE], 36, colour=title_colour, centred=True)
    for at, text in enumerate(_BOXES):
        box = slide.shapes.add_textbox(Inches(1), Inches(2 + 1.5 * at), Inches(8), Inches(1))
        box.text_frame.word_wrap, box.text_frame.auto_size = True, MSO_AUTO_SIZE.NONE
        text_in(box.text_frame, [text], 24, colour=box_colour)
    return saved(deck)


FILES = {
    "1_2.pptx": _slides(),
    "1_2_Gold.pptx": _slides(box_colour="FFFF00"),
    "1_2_Gold_all_fonts.pptx": _slides("FFFF00", "FFFF00"),
}
_DIALOG = "[dialog] Character"
_PANEL = "[panel] Font Color"


def _coloured(colour: str) -> list[Turn]:
    """All on the slide gets this colour."""
    text, choice = f"[paragraph] {_BOXES[0]}", f"[list-item] {colour}"
    return [
        turn("I go to the slide.", click(f"[panel] {_TITLE}", pause=2), when=f"[panel] {_TITLE}"),
        turn("I go into a text.", click(text, num_clicks=2, pause=1), when=text),
        turn("And out of it.", keys("esc", pause=1), keys("esc", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I select all on the slide.", keys("ctrl", "a", pause=1)),
        turn("I open the menu.", click("[menu] Format", pause=1), when="[toggle-button] Character"),
        turn("I open the dialog.", click("[menu-item] Character...", pause=1.5), when="[menu-item] Character..."),
        turn("I look at the effects.", click([_DIALOG, "[page-tab] Font Effects"], pause=1.5), when=_DIALOG),
        turn("I look at the colours.", click([_PANEL, "[toggle-button]"], pause=1), when=_PANEL),
        turn("I take this one.", click(choice, pause=1), when=choice),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5)),
        DONE,
    ]


RIGHT = _coloured("Yellow")
NEAR_MISS = _coloured("Light Yellow 1")
NEAR_MISS_IS = "the texts are of a light yellow"
SHELL = False
