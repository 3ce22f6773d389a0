"""A slide with a title, a body and a table: all text becomes dark red 2, and the body alone is underlined.

Both files have what LibreOffice writes for each piece of text, as the reference that OSWorld's has been saved with. The evaluator
does not look at the colour of the line under the text.
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
)

TASK = "986fc832-6af2-417c-8845-9272b3a1528b"
_BODY = [
    "Two of the three routes were late on most mornings",
    "Route 7 lost its time at the level crossing",
    "Drivers ask for a second door to be opened at the market",
]
_TABLE = [
    ("Route", "Passengers", "Late", "Stops"),
    ("3", "1,240", "18 %", "14"),
    ("7", "2,015", "31 %", "22"),
    ("12", "860", "6 %", "11"),
]


def _slides(colour: str, *, done: bool = False) -> bytes:
    deck = white_deck()
    slide = titled_slide(deck, 1)
    title, body = slide.placeholders
    body.height = Inches(2.2)
    text_in(title.text_frame, ["Morning Buses in March"], 36, bold=True, centred=True, colour=colour)
    text_in(body.text_frame, _BODY, 20, bullet="•", colour=colour, underline=done)
    table = slide.shapes.add_table(4, 4, Inches(1), Inches(4.2), Inches(8), Inches(2.4)).table
    for row, texts in enumerate(_TABLE):
        for column, text in enumerate(texts):
            text_in(table.cell(row, column).text_frame, [text], 16, bold=row == 0, colour=colour)
    return saved(deck)


FILES = {"154_3.pptx": _slides("1F2A44"), "154_3_Gold.pptx": _slides("C9211E", done=True)}
_DIALOG = "[dialog] Character"
_RED = "[list-item] Dark Red 2"
_DECORATION = "[panel] Text Decoration"


def _dialog(why: str) -> list[Turn]:
    return [
        turn(why, click("[menu] Format", pause=1)),
        turn("I open the dialog.", click("[menu-item] Character...", pause=1.5), when="[menu-item] Character..."),
        turn("I look at the effects.", click([_DIALOG, "[page-tab] Font Effects"], pause=1.5), when=_DIALOG),
    ]


_CONFIRM = turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5))
_COLOURED = [
    turn("I select all on the slide.", keys("ctrl", "a", pause=1), when="[paragraph] Route 7"),
    *_dialog("I open the menu."),
    turn(
        "I look at the colours.", click(["[panel] Font Color", "[toggle-button]"], pause=1), when="[panel] Font Color"
    ),
    turn("I take the red.", click(_RED, pause=1), when=_RED),
    _CONFIRM,
    turn("I select nothing.", keys("esc", pause=1)),
]


def _underlined(text: str) -> list[Turn]:
    return [
        turn("I go into the text.", click(text, pause=1), when=text),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        *_dialog("I open the menu."),
        turn("I look at the lines.", click([_DECORATION, "[toggle-button]"], pause=1), when=_DECORATION),
        turn("I take the single one.", click("[table-cell] Single", pause=1), when="[table-cell] Single"),
        turn("I look at its colours.", click([_DECORATION, "[toggle-button] Automatic @"], pause=1)),
        turn("I take the red.", click(_RED, pause=1), when=_RED),
        _CONFIRM,
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
    ]


_BODY_UNDERLINED = [*_COLOURED, *_underlined("[paragraph] Route 7")]
RIGHT = [*_BODY_UNDERLINED, DONE]
NEAR_MISS = [*_BODY_UNDERLINED, *_underlined("[paragraph] Morning Buses"), DONE]
NEAR_MISS_IS = "the title is underlined too"
SHELL = False
