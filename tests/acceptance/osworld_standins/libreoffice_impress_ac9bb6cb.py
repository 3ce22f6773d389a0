"""A guide of three slides in one layout, each with its number in grey, which becomes red on their master.

OSWorld's check reads the last colour but one of the first master that LibreOffice has saved: the number's, which its slides share.
"""

from __future__ import annotations

import copy
from typing import Any

from pptx.enum.shapes import PP_PLACEHOLDER

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

TASK = "ac9bb6cb-1888-43ab-81e4-a98a547918cd"
_GUIDE = {
    "Posters and Papers": ["Read this before you submit", "Ask the office if in doubt"],
    "Text": ["Two columns, one inch between", "Headings in the same face as the text"],
    "Figures": ["Number them in order", "A caption below each", "No colour in what is printed"],
}


def _number_of(shapes: Any) -> Any:
    return next(one for one in shapes.placeholders if one.placeholder_format.type == PP_PLACEHOLDER.SLIDE_NUMBER)


def _guide() -> bytes:
    deck = white_deck()
    for heading, lines in _GUIDE.items():
        slide = titled_slide(deck, 1)
        title, body = slide.placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
        slide.shapes._spTree.append(copy.deepcopy(_number_of(slide.slide_layout)._element))
    return saved(deck)


FILES = {"saa-format-guide.pptx": _guide()}
_NUMBER = "[paragraph] <number>"
_DIALOG = "[dialog] Character"
_RED = "[list-item] Red"
_CLOSE = "[push-button] Close Master View"


def _changed(tab: str, *turns: Turn) -> list[Turn]:
    """The number on the master, changed by these turns on this page of the dialog."""
    return [
        turn("I go to the master.", click("[push-button] Master View", pause=2), when="[push-button] Master View"),
        turn("I go into the number.", click(_NUMBER, num_clicks=2, pause=1), when=_NUMBER),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I open the menu.", click("[menu] Format", pause=1)),
        turn("I open the dialog.", click("[menu-item] Character...", pause=1.5), when="[menu-item] Character..."),
        turn("I go to the page.", click([_DIALOG, f"[page-tab] {tab}"], pause=1.5), when=_DIALOG),
        *turns,
        turn("I take the red.", click(_RED, pause=1), when=_RED),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5)),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
        turn("I go back to the slides.", click(_CLOSE, pause=2), when=_CLOSE),
        DONE | {"when": "[push-button] Master View"},
    ]


_COLOURS = "[panel] Font Color"
RIGHT = _changed(
    "Font Effects", turn("I look at the colours.", click([_COLOURS, "[toggle-button]"], pause=1), when=_COLOURS)
)
NEAR_MISS = _changed(
    "Highlighting", turn("A colour.", click("[toggle-button] Color", pause=1), when="[toggle-button] Color")
)
NEAR_MISS_IS = "what is behind the number is red"
SHELL = False
