"""Two slides of a walk's plan: the first becomes bold, and its title underlined and larger.

One reference has the body bold, the other the title too. Both have what LibreOffice writes for each piece of text.
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

TASK = "5c1a6c3d-c1b3-47cb-9b01-8d1b7544ffa1"
_BODY = ["Bring water for four hours", "The bridge is closed in the evening", "We meet at the mill at nine"]


def _slides(title_size: int = 36, *, title_bold: bool = False, body_bold: bool = False) -> bytes:
    deck = white_deck()
    for heading in ("Along the River", "The Way Back"):
        first = heading == "Along the River"
        title, body = titled_slide(deck, 1).placeholders
        size = title_size if first else 36
        text_in(title.text_frame, [heading], size, bold=first and title_bold, underline=size == 44, centred=True)
        text_in(body.text_frame, _BODY if first else ["The last bus leaves at six"], 24, bold=first and body_bold)
    return saved(deck)


FILES = {
    "39_2.pptx": _slides(),
    "39_2_Gold.pptx": _slides(44, body_bold=True),
    "39_2_Gold_all_fonts.pptx": _slides(44, title_bold=True, body_bold=True),
}


def _changed(all_of_it: str, title: str) -> list[Turn]:
    """The keys are pressed with Ctrl for the whole slide and for its title; the title becomes larger."""
    text = "[paragraph] Along the River"
    return [
        turn("I select all on the slide.", keys("ctrl", "a", pause=1), when=text),
        turn("I change it.", *(keys("ctrl", key, pause=1) for key in all_of_it)),
        turn("I select nothing.", keys("esc", pause=2)),
        turn("I go into the title.", click(text, num_clicks=2, pause=1), when=text),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        *(turn("I change the title.", keys("ctrl", key, pause=1)) for key in title),
        turn("I choose its size.", click("[text] 36", num_clicks=3, pause=0.5), write("44\n", pause=1)),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when="[text] 44"),
        DONE,
    ]


RIGHT = _changed("b", "u")
NEAR_MISS = _changed("bu", "")
NEAR_MISS_IS = "the text below the title is underlined too"
SHELL = False
