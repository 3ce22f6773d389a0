"""A template of two slides, and six pictures: it becomes a presentation of six slides that have a picture each.

The reference has the pictures on blank slides of the template.
"""

import io

from PIL import Image, ImageDraw
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

TASK = "bf4e9888-f10f-47af-8dba-76413038b73c"
_HEADINGS = ("Title of the Presentation", "Heading of a Slide")
_COLOURS = ("#2F6B4F", "#9EC5E8", "#C0392B", "#E0B040", "#6A4C93", "#3A6EA5")


def _picture(number: int) -> bytes:
    picture = Image.new("RGB", (800, 600), _COLOURS[number - 1])
    draw = ImageDraw.Draw(picture)
    for at in range(number):
        draw.ellipse((60 + 115 * at, 250, 160 + 115 * at, 350), fill="white")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


_PICTURES = {f"pic{number}.png": _picture(number) for number in range(1, 7)}


def _template() -> bytes:
    deck = white_deck()
    for layout, heading in enumerate(_HEADINGS):
        title, body = titled_slide(deck, layout).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, ["Text"], 24)
    return saved(deck)


def _album() -> bytes:
    deck = white_deck()
    for picture in _PICTURES.values():
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        slide.shapes.add_picture(io.BytesIO(picture), Inches(1), Inches(0.75), Inches(8), Inches(6))
    return saved(deck)


FILES = {
    "4.3-Template_4.29.2016.pptx": _template(),
    "4.3-Template_4.29.2016_Gold.pptx": _album(),
    **_PICTURES,
}
_DIALOG = "[dialog] Create Photo Album"
_INSERTED = [
    turn("I open the menu.", click("[menu] Insert", pause=1), when=f"[panel] {_HEADINGS[1]}"),
    turn("I look at the media.", click("[menu] Media", pause=1), when="[menu] Media"),
    turn("An album.", click("[menu-item] Photo Album @", pause=1.5), when="[menu-item] Photo Album @"),
    turn("I add pictures.", click([_DIALOG, "[push-button] Add"], pause=2), when=_DIALOG),
    turn("They are on the desktop.", click(["[file-chooser]", "[label] Desktop"], pause=2), when="[file-chooser]"),
    turn("I go to the first.", click("[table-cell] pic1.png", pause=1), when="[table-cell] pic1.png"),
    turn("I choose them all.", keys("ctrl", "a", pause=1)),
    turn("I open them.", click(["[file-chooser]", "[push-button] Open @"], pause=2)),
    turn("I insert them.", click([_DIALOG, "[push-button] Insert Slides"], pause=3), when="pic6"),
]


def _without(*headings: str) -> list[Turn]:
    """The album, without these slides of the template."""
    turns = [*_INSERTED]
    for heading in headings:
        turns += [
            turn("I go to a slide.", click(f"[panel] {heading}", pause=2), when=f"[panel] {heading}"),
            turn("I open the menu.", click("[menu] Slide @", pause=1)),
            turn("I delete it.", click("[menu-item] Delete Slide", pause=2), when="[menu-item] Delete Slide"),
        ]
    return [*turns, DONE | {"when": f"of {8 - len(headings)} @"}]


RIGHT = _without(*_HEADINGS)
NEAR_MISS = _without(_HEADINGS[1])
NEAR_MISS_IS = "the template's first slide is still there"
SHELL = False
