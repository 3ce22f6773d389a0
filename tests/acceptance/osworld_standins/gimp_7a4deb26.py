"""A bright photo of someone who sits by a tree.

As OSWorld has it, the picture is its own reference: the exported one must be darker, and look alike once both are as bright.
"""

import io
import random

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click, click_xy, keys, turn, write

TASK = "7a4deb26-d57d-4ea9-9a73-630f66a7b568"


def _photo() -> bytes:
    chance = random.Random(31)
    picture = Image.new("RGB", (1050, 750), (196, 214, 235))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 480, 1050, 750), fill=(150, 190, 110))
    draw.polygon([(610, 0), (760, 0), (740, 560), (800, 620), (580, 620), (640, 560)], fill=(128, 96, 70))
    for _ in range(220):
        x, y, size = chance.randrange(380, 1050), chance.randrange(-60, 190), chance.randrange(40, 120)
        green = chance.randrange(140, 215)
        draw.ellipse((x, y, x + size, y + size // 2), fill=(green - 45, green, green - 70))
    draw.ellipse((500, 310, 580, 400), fill=(228, 190, 165))
    draw.pieslice((490, 295, 590, 400), 180, 360, fill=(70, 48, 40))
    draw.polygon([(490, 400), (590, 400), (620, 600), (460, 600)], fill=(205, 90, 100))
    draw.rectangle((360, 570, 560, 615), fill=(75, 95, 150))
    for _ in range(300):
        x, y = chance.randrange(1050), chance.randrange(610, 745)
        draw.line((x, y, x + 5, y - 22), fill=(110, chance.randrange(150, 205), 80), width=2)
    picture = picture.filter(ImageFilter.GaussianBlur(1))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


FILES = {"woman_sitting_by_the_tree.png": _photo()}


def _brightness(value: int) -> list[Turn]:
    dialog = "[dialog] Brightness-Contrast"
    return [
        turn(
            "I open the menu.", click("[menu] Colors", pause=1.5), when="[frame] [woman_sitting_by_the_tree] (imported)"
        ),
        turn("I open the dialog.", click_xy(570, 353, pause=1.5), when="[menu] Colors (focused)"),
        turn("I go to the brightness, the first number.", click_xy(729, 343, num_clicks=2, pause=0.5), when=dialog),
        turn("I give a number.", keys("ctrl", "a", pause=0.5), write(f"{value}\t", pause=1)),
        turn("I confirm.", click([dialog, "[push-button] OK"], pause=2), when=f"[spin-button] {value} "),
        DONE,
    ]


RIGHT = _brightness(-45)
NEAR_MISS = _brightness(45)
NEAR_MISS_IS = "brighter, not darker"
SHELL = False
