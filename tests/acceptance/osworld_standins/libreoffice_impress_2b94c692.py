"""Two slides, the second with a picture on the left, which moves to the right.

The evaluator wants it to begin 12 cm from the left or more. The reference is the file itself.
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

TASK = "2b94c692-6abb-48ae-ab0b-b3e8a19cb340"
_TITLE = "The Old Lighthouse"


def _picture() -> io.BytesIO:
    picture = Image.new("RGB", (250, 250), "#9EC5E8")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 200, 249, 249), fill="#2F6B4F")
    draw.polygon([(105, 200), (115, 70), (135, 70), (145, 200)], fill="white")
    draw.rectangle((110, 50, 140, 70), fill="#C0392B")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return io.BytesIO(file.getvalue())


def _slides() -> bytes:
    deck = white_deck()
    for heading, line in (("A Day at the Coast", "Two stops and a long lunch"), (_TITLE, "It was lit until 1978")):
        slide = titled_slide(deck, 1)
        title, body = slide.placeholders
        body.height = Inches(1)
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, [line], 24)
    slide.shapes.add_picture(_picture(), Inches(0.5), Inches(3.5), Inches(2.5), Inches(2.5))
    return saved(deck)


FILES = {"201_6.pptx": _slides(), "201_6_Original.pptx": _slides()}


def _moved(how: str) -> list[Turn]:
    """The picture, the last thing on the slide, is aligned to the page."""
    return [
        turn("I go to page 2.", click(f"[panel] {_TITLE}", pause=2), when=f"[panel] {_TITLE}"),
        turn(
            "I go into its title.", click(f"[paragraph] {_TITLE}", num_clicks=2, pause=1), when=f"[paragraph] {_TITLE}"
        ),
        turn("And out of it.", keys("esc", pause=1), keys("esc", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I select the picture.", keys("shift", "tab", pause=1)),
        turn("I open the menu.", click("[menu] Format", pause=1), when="[label] Brightness:"),
        turn("I align it.", click("[menu] Align Objects", pause=1), when="[menu] Align Objects"),
        turn("There.", click(["[menu] Align Objects", how], pause=1), when=how),
        DONE,
    ]


RIGHT = _moved("[menu-item] Right")
NEAR_MISS = _moved("[menu-item] Center")
NEAR_MISS_IS = "the picture is in the middle"
SHELL = False
