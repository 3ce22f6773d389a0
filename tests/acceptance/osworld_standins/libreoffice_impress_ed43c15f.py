"""Two slides, the second with a picture near its bottom: the picture moves to the top, and all text is underlined.

The evaluator wants the picture higher than in the reference, which has it where it was, and within 5.5 cm from the top.
"""

import io

from PIL import Image, ImageDraw
from pptx.enum.text import MSO_AUTO_SIZE
from pptx.util import Inches

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, text_in, turn, white_deck

TASK = "ed43c15f-00cb-4054-9c95-62c880865d68"
_FIRST = [("A Garden for Bees", 36, 1.0), ("What to sow before the frost ends", 24, 3.5)]
_SECOND = [("Clover flowers from May to October", 24, 3.2)]


def _picture() -> io.BytesIO:
    picture = Image.new("RGB", (400, 200), "#9EC5E8")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 150, 399, 199), fill="#2F6B4F")
    for left in range(40, 400, 80):
        draw.line((left, 150, left, 80), fill="#2F6B4F", width=6)
        draw.ellipse((left - 20, 50, left + 20, 90), fill="#C0392B")
    file = io.BytesIO()
    picture.save(file, "PNG")
    return io.BytesIO(file.getvalue())


def _slides(*, underlined: bool) -> bytes:
    deck = white_deck()
    for texts in (_FIRST, _SECOND):
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        for text, size, top in texts:
            box = slide.shapes.add_textbox(Inches(1), Inches(top), Inches(8), Inches(1))
            box.text_frame.word_wrap, box.text_frame.auto_size = True, MSO_AUTO_SIZE.NONE
            text_in(box.text_frame, [text], size, underline=underlined)
    slide.shapes.add_picture(_picture(), Inches(3), Inches(5), Inches(4), Inches(2))
    return saved(deck)


FILES = {"43_1.pptx": _slides(underlined=False), "43_1_Gold.pptx": _slides(underlined=True)}
_IMAGE = "[image] Picture"


def _underlined(text: str) -> list[Turn]:
    line = f"[paragraph] {text}"
    return [
        turn("I go into the text.", click(line, num_clicks=2, pause=1), when=line),
        turn("I select it all.", keys("ctrl", "a", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I underline it.", keys("ctrl", "u", pause=1)),
        turn("I leave the text.", keys("esc", pause=1), keys("esc", pause=1)),
    ]


def _changed(*where: str) -> list[Turn]:
    """All text is underlined, and the picture aligned to the slide so."""
    return [
        *[one for text, *_ in _FIRST for one in _underlined(text)],
        turn("I go to page 2.", click("[panel] Slide 2", pause=2), when="[panel] Slide 2"),
        *[one for text, *_ in _SECOND for one in _underlined(text)],
        turn("I select the picture.", click(_IMAGE, pause=1.5), when=_IMAGE),
        turn("I open the menu.", click("[menu] Format", pause=1), when="[label] Brightness:"),
        turn("I align it.", click("[menu] Align Objects", pause=1), when="[menu] Align Objects"),
        turn("There.", click(["[menu] Align Objects", *where], pause=1), when=where[-1]),
        DONE,
    ]


RIGHT = _changed("[menu-item] Top")
NEAR_MISS = _changed("[menu-item] Top", "[menu-item] Center")
NEAR_MISS_IS = "the picture is halfway up"
SHELL = False
