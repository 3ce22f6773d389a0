"""Six slides of a soccer club; the fifth, to which the task's set-up goes, has its list: two of five lines are struck through.

Each line is one row on the slide. The references have what LibreOffice writes for each piece of text.
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
)

TASK = "550ce7e7-747b-495f-b122-acdc4d0b8e54"
_TITLE = "To Do in Spring"
_LIST = ["Book the field", "Order the shirts", "Find a second coach", "Ask for two nets", "Plan the last match"]
_SLIDES = {
    "Spring Training": ["For all who run the club"],
    "Who We Are": ["Forty players in three teams", "Two coaches and a treasurer"],
    "When We Train": ["On Tuesdays at five", "On Fridays at four"],
    "What It Costs": ["Twenty for the season", "Shirts are lent"],
    _TITLE: _LIST,
    "Thank You": ["See you on the field"],
}


def _slides(struck: int = 0) -> bytes:
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
        if heading == _TITLE:
            for paragraph in body.text_frame.paragraphs[:struck]:
                paragraph.runs[0].font._element.set("strike", "sngStrike")
    return saved(deck)


FILES = {
    "New_Club_Spring_2018_Training.data": _slides(),
    "New_Club_Spring_2018_Training_with_strike.data": _slides(2),
    "New_Club_Spring_2018_Training_Gold_all_fonts_1.pptx": _slides(2),
}
_LINE = f"[paragraph] {_LIST[0]}"


def _struck(lines: int) -> list[Turn]:
    """The first lines, so many, are struck through."""
    more = [keys("shift", "down", pause=0.5)] * (lines - 1)
    end = f"Paragraph {lines}, Row {lines}, Column {len(_LIST[lines - 1]) + 1} @"
    return [
        turn("I go into the list.", click(_LINE, num_clicks=2, pause=1), when=_LINE),
        turn("I go to its start.", keys("ctrl", "home", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I select what is done.", *more, keys("shift", "end", pause=1), when="Paragraph 1, Row 1, Column 1 @"),
        turn("I strike it through.", click("[toggle-button] Strikethrough", pause=1), when=end),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when="Strikethrough (on)"),
        DONE,
    ]


RIGHT = _struck(2)
NEAR_MISS = _struck(1)
NEAR_MISS_IS = "the second line is as it was"
SHELL = False
