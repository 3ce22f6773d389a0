"""Four slides about a bicycle lamp; the third, about its features, gets an empty table.

LibreOffice puts it in the middle of what its window shows of the slide. The reference has the place that this is in a window
of the whole screen; in one a few pixels smaller, it is another by more than the evaluator allows.
"""

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
    write,
)

TASK = "39be0d19-634d-4475-8768-09c130f5425d"
_TITLE = "Features"
_PLACE = (2052000, 1644480, 5075280, 3599280)
_SLIDES = {
    "The Glow Lamp": ["For those who ride at night"],
    "Who Needs It": ["Couriers", "Nurses on their way home"],
    _TITLE: [],
    "Where to Get It": ["At the market on Saturdays"],
}


def _slides(*, solved: bool) -> bytes:
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        title, *body = titled_slide(deck, 1 if lines else 5).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        if lines:
            text_in(body[0].text_frame, lines, 24, bullet="•")
    if solved:
        deck.slides[2].shapes.add_table(5, 2, *_PLACE)
    return saved(deck)


FILES = {"41_3.pptx": _slides(solved=False), "41_3_Gold.pptx": _slides(solved=True)}
_DIALOG = "[dialog] Insert Table"


def _inserted(rows: int, columns: int) -> list[Turn]:
    return [
        turn("I go to the slide.", click(f"[panel] {_TITLE}", pause=2), when=f"[panel] {_TITLE}"),
        turn("I open the menu.", click("[menu] Insert @", pause=1), when=f"PageShape: {_TITLE}"),
        turn("I want a table.", click("[menu-item] Table...", pause=2), when="[menu-item] Table..."),
        turn("I go to the columns.", double_click([_DIALOG, "[spin-button] 5"], x=990, pause=0.5), when=_DIALOG),
        turn("So many.", write(f"{columns}\t", pause=1), when="[spin-button] 5 (focused)"),
        turn("I go to the rows.", double_click([_DIALOG, "[spin-button] 2"], x=990, pause=0.5)),
        turn("So many.", write(f"{rows}\t", pause=1), when="[spin-button] 2 (focused)"),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=2)),
        DONE | {"when": "[tool-bar] Table"},
    ]


RIGHT = _inserted(5, 2)
NEAR_MISS = _inserted(2, 5)
NEAR_MISS_IS = "two rows and five columns"
SHELL = False
