"""Six slides about a lighthouse; the third has a picture, which becomes 20 cm high, and the last has text boxes, set in 40 pt.

Of the two references, one has the text boxes alone in 40 pt and one the title, too. In both, the picture is as wide as before.
"""

import io

from PIL import Image, ImageDraw
from pptx.enum.text import MSO_AUTO_SIZE
from pptx.util import Cm, Inches

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

TASK = "e4ef0baf-4b52-4590-a47e-d4d464cca2d7"
_SLIDES = {
    "A Lamp above the Bay": ["What a keeper wrote down"],
    "The Years of the Tower": ["1862: the first stone", "1931: the lamp is electric", "1988: nobody lives there"],
    "Seen from the Boat": [],
    "A Keeper's Night": ["Wind the clockwork every four hours", "Write down each ship"],
    "What Is Left": ["The lens, in a museum", "The stairs, 212 of them"],
}
_LAST = "Come and See"
_BOXES = ["Boats leave at ten", "Wear good shoes"]


def _picture() -> io.BytesIO:
    picture = Image.new("RGB", (300, 400), "#9EC5E8")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 330, 299, 399), fill="#2F5B7A")
    draw.polygon([(130, 120), (170, 120), (185, 340), (115, 340)], fill="#F4F1EA")
    draw.rectangle((126, 90, 174, 120), fill="#E0B040")
    draw.polygon([(120, 90), (150, 60), (180, 90)], fill="#C0392B")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return io.BytesIO(file.getvalue())


def _slides(height: float, title_size: int, size: int) -> bytes:
    """The picture has this height in centimetres; the last slide's title and its text boxes have these sizes."""
    deck = white_deck()
    for heading, lines in _SLIDES.items():
        slide = titled_slide(deck, 1 if lines else 5)
        text_in(slide.placeholders[0].text_frame, [heading], 36, centred=True)
        if lines:
            text_in(slide.placeholders[1].text_frame, lines, 24, bullet="•")
        else:
            slide.shapes.add_picture(_picture(), Cm(8), Cm(5), Cm(9), Cm(height))
    slide = titled_slide(deck, 5)
    text_in(slide.placeholders[0].text_frame, [_LAST], title_size, centred=True)
    for top, text in zip((2.5, 4.5), _BOXES, strict=True):
        box = slide.shapes.add_textbox(Inches(1), Inches(top), Inches(8), Inches(1.2))
        box.text_frame.word_wrap, box.text_frame.auto_size = True, MSO_AUTO_SIZE.NONE
        text_in(box.text_frame, [text], size)
    return saved(deck)


FILES = {
    "42_2.pptx": _slides(12, 36, 24),
    "42_2_Gold.pptx": _slides(20, 36, 40),
    "42_2_Gold_all_fonts.pptx": _slides(20, 40, 40),
}
_IMAGE = "[image] Picture"
_DIALOG = "[dialog] Position and Size"
_HEIGHT = "[spin-button] 4.72″"
"""12 cm, in inches."""


def _changed(*boxes: str) -> list[Turn]:
    """The picture becomes 20 cm high, and these text boxes are set in 40 pt."""
    turns = [
        turn("I go to slide 3.", click("[panel] Seen from the Boat", pause=2), when="[panel] Seen from the Boat"),
        turn("I select the picture.", click(_IMAGE, pause=1.5), when=_IMAGE),
        turn("I look at its size.", keys("f4", pause=2), when="[label] Brightness:"),
        turn("I go to its height.", click([_DIALOG, _HEIGHT], x=825, pause=1), when="[check-box] Keep ratio"),
        turn("It is 20 cm.", keys("ctrl", "a", pause=0.5), write("20 cm\t", pause=1), when=f"{_HEIGHT} (focused"),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=2), when="[spin-button] 7.87″"),
        turn("I go to slide 6.", click(f"[panel] {_LAST}", pause=2), when=f"[panel] {_LAST}"),
    ]
    for text in boxes:
        line = f"[paragraph] {text}"
        turns += [
            turn("I go into the text.", click(line, num_clicks=2, pause=1), when=line),
            turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
            turn("I choose its size.", click("[text] 24 pt", num_clicks=3, pause=0.5), write("40\n", pause=1)),
            turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1), when="[text] 40 pt"),
        ]
    return [*turns, DONE]


RIGHT = _changed(*_BOXES)
NEAR_MISS = _changed(_BOXES[0])
NEAR_MISS_IS = "the second text box keeps its size"
SHELL = False
