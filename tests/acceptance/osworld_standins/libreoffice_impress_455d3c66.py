"""A project's plan on one slide, and the slide as a picture, drawn here and not by LibreOffice.

The evaluator gives the likeness of the two pictures, and 1 only for the very same pixels. LibreOffice's letters and edges cannot
be drawn the same here: the slide shows the plan as a picture of its own width.
"""

import io
from collections.abc import Iterator

from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.util import Emu

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "455d3c66-7dc6-4537-a39a-36d3e9119df7"
_PIXEL = 9525
_WIDTH, _HEIGHT = 1248, 720
_Box = tuple[int, int, int, int, str]
_PHASES = {
    "Discover": ["Interview ten teams", "Map today's steps", "Agree on the scope"],
    "Design": ["Sketch two variants", "Test with five users", "Choose one"],
    "Build": ["Set up the service", "Move the data", "Train the trainers"],
    "Run": ["Open in March", "Ask again in June", "Close the project"],
}


def _boxes() -> Iterator[_Box]:
    yield 48, 24, 1152, 72, "1F4E79"
    for at in range(4):
        left = 48 + 288 * at
        yield left, 120, 264, 48, ["2E75B6", "548235", "BF8F00", "843C0C"][at]
        yield left, 192, 264, 336, "DEEBF7"
    yield 48, 576, 1152, 96, "E7E6E6"


def _drawing() -> Image.Image:
    picture = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    draw = ImageDraw.Draw(picture)
    for left, top, width, height, colour in _boxes():
        draw.rectangle((left, top, left + width - 1, top + height - 1), fill=f"#{colour}")
    draw.text((72, 40), "Project Plan on a Page", fill="white", font=ImageFont.load_default(32))
    for column, (phase, steps) in enumerate(_PHASES.items()):
        draw.text((60 + 288 * column, 130), phase, fill="white", font=ImageFont.load_default(24))
        for row, text in enumerate(steps):
            draw.text((60 + 288 * column, 220 + 60 * row), text, fill="black", font=ImageFont.load_default(20))
    draw.text(
        (72, 600), "Owner: the programme office. Next review: March.", fill="black", font=ImageFont.load_default(20)
    )
    return picture


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _plan() -> bytes:
    deck = Presentation()
    deck.slide_width, deck.slide_height = Emu(_WIDTH * _PIXEL), Emu(_HEIGHT * _PIXEL)
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.shapes.add_picture(io.BytesIO(_png(_drawing())), Emu(0), Emu(0), deck.slide_width, deck.slide_height)
    return saved(deck)


FILES = {"wssf-project-plan-on-a-page.pptx": _plan(), "wssf-project-plan-on-a-page.png": _png(_drawing())}


def _exported(name: str) -> list[Turn]:
    options = "[dialog] PNG Options"
    window = "[document-presentation] wssf-project-plan-on-a-page"
    return [
        turn("I open the menu.", click("[menu] File", pause=1), when=window),
        turn("I export.", click("[menu-item] Export...", pause=1.5), when="[menu-item] Export..."),
        turn(
            "I name the picture.",
            keys("ctrl", "a", pause=0.5),
            write(f"{name}\n", pause=2),
            when="[text] wssf-project-plan-on-a-page",
        ),
        turn("I keep the settings.", click([options, "[push-button] OK"], pause=2), when=options),
        DONE,
    ]


RIGHT = _exported("res.png")
NEAR_MISS = _exported("result.png")
NEAR_MISS_IS = "the picture has another name"
SHELL = False
