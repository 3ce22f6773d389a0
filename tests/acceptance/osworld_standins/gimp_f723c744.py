"""A pale photo of berries on leaves.

As OSWorld has it, the picture is its own reference: the exported one must differ more from its mean, and look alike. It is a PNG:
GIMP and the evaluator decode a JPEG to slightly different pixels, so that one that was left alone may score 1, too.
"""

import io
import random

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click, click_xy, keys, turn, write

TASK = "f723c744-e62c-4ae6-98d1-750d3cd7d79d"


def _photo() -> bytes:
    chance = random.Random(11)
    picture = Image.new("RGB", (1200, 800), (150, 158, 140))
    draw = ImageDraw.Draw(picture)
    for _ in range(160):
        x, y, size = chance.randrange(1200), chance.randrange(800), chance.randrange(40, 160)
        green = chance.randrange(120, 175)
        draw.ellipse((x, y, x + size, y + size // 3), fill=(green - 25, green, green - 40))
    picture = picture.filter(ImageFilter.GaussianBlur(4))
    draw = ImageDraw.Draw(picture)
    for _ in range(24):
        x, y, size = chance.randrange(300, 900), chance.randrange(150, 600), chance.randrange(50, 80)
        red = chance.randrange(135, 165)
        draw.ellipse((x, y, x + size, y + size), fill=(red, 85, 95), outline=(115, 75, 82), width=3)
        draw.ellipse((x + size // 4, y + size // 5, x + size // 2, y + size // 3), fill=(205, 185, 188))
    picture = picture.filter(ImageFilter.GaussianBlur(1))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


FILES = {"file_1X42_kOanL74vu_p6QdcZuiyzDQi3kA7F.jpg": _photo()}


def _contrast(value: int) -> list[Turn]:
    dialog = "[dialog] Brightness-Contrast"
    return [
        turn("I open the menu.", click("[menu] Colors", pause=1.5), when="[frame] [berries] (imported)"),
        turn("I open the dialog.", click_xy(570, 310, pause=1.5)),
        turn("I go to the contrast, the second number.", click_xy(729, 327, num_clicks=2, pause=0.5), when=dialog),
        turn("I give a number.", keys("ctrl", "a", pause=0.5), write(f"{value}\t", pause=1)),
        turn("I confirm.", click([dialog, "[push-button] OK"], pause=2), when=f"[spin-button] {value} "),
        DONE,
    ]


RIGHT = _contrast(40)
NEAR_MISS = _contrast(-40)
NEAR_MISS_IS = "less contrast, not more"
SHELL = False
