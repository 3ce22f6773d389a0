"""A photo of berries on leaves, as a JPEG that the task saves under the name of a PNG.

As OSWorld has it, the picture is its own reference: mirrored back, the exported one must look like it.
"""

import io
import random

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click, click_xy, turn

TASK = "72f83cdc-bf76-4531-9a1b-eb893a13f8aa"


def _photo() -> bytes:
    chance = random.Random(23)
    picture = Image.new("RGB", (1100, 760), (62, 96, 48))
    draw = ImageDraw.Draw(picture)
    for _ in range(200):
        x, y, size = chance.randrange(1100), chance.randrange(760), chance.randrange(40, 150)
        green = chance.randrange(80, 180)
        draw.ellipse((x, y, x + size, y + size // 3), fill=(green - 50, green, green - 70))
    picture = picture.filter(ImageFilter.GaussianBlur(4))
    draw = ImageDraw.Draw(picture)
    for _ in range(18):
        x, y, size = chance.randrange(80, 450), chance.randrange(100, 560), chance.randrange(60, 95)
        red = chance.randrange(150, 215)
        draw.ellipse((x, y, x + size, y + size), fill=(red, 25, 45), outline=(95, 15, 30), width=3)
        draw.ellipse((x + size // 4, y + size // 5, x + size // 2, y + size // 3), fill=(245, 215, 220))
    picture = picture.filter(ImageFilter.GaussianBlur(1))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


FILES = {"berry.jpeg": _photo()}


def _flipped(y: int) -> list[Turn]:
    return [
        turn("I open the menu.", click("[menu] Image", pause=1.5), when="[frame] [berry] (imported)"),
        turn("I open Transform.", click_xy(431, 305, pause=2), when="[menu] Image (focused)"),
        turn("I flip the picture.", click_xy(745, y, pause=2)),
        DONE,
    ]


RIGHT = _flipped(305)
NEAR_MISS = _flipped(330)
NEAR_MISS_IS = "flipped top to bottom"
SHELL = False
