"""A picture of two layers: a photo of a dog on a meadow, which fills it, above an empty layer.

The reference is the photo itself: the exported picture's part that can be seen through nothing must be 512 pixels high and look
like it.
"""

import io
import random

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click, click_xy, double_click, keys, layered, turn, write

TASK = "d16c99dc-2a1e-46f2-b350-d97c86c85c15"
_SIZE = (1000, 800)


def _photo() -> Image.Image:
    chance = random.Random(41)
    picture = Image.new("RGB", _SIZE, (176, 204, 230))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 420, 1000, 800), fill=(104, 150, 72))
    for _ in range(120):
        x, y, size = chance.randrange(-50, 1000), chance.randrange(400, 800), chance.randrange(60, 200)
        green = chance.randrange(110, 170)
        draw.ellipse((x, y, x + size, y + size // 4), fill=(green - 45, green, green - 70))
    draw.ellipse((330, 390, 690, 620), fill=(168, 118, 70))
    for x in (370, 440, 580, 640):
        draw.rectangle((x, 570, x + 36, 720), fill=(150, 102, 60))
    draw.ellipse((620, 250, 790, 430), fill=(178, 128, 78))
    draw.ellipse((740, 330, 830, 400), fill=(196, 150, 100))
    draw.ellipse((805, 345, 832, 370), fill=(40, 32, 30))
    draw.ellipse((720, 305, 740, 325), fill=(30, 25, 25))
    draw.polygon([(640, 270), (600, 400), (660, 390), (690, 290)], fill=(110, 72, 42))
    draw.polygon([(345, 460), (240, 350), (260, 340), (375, 430)], fill=(150, 102, 60))
    return picture.filter(ImageFilter.GaussianBlur(3))


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


_LAYERS = [
    {"name": "dog", "picture": _photo()},
    {"name": "Background", "picture": Image.new("RGBA", _SIZE)},
]
FILES = {
    "dog_with_background.png": _png(_photo()),
    "dog_with_background_two_layers.xcf": layered(*_SIZE, _LAYERS),
}


def _scaled(side: int) -> list[Turn]:
    dialog = "[dialog] Scale Layer"
    return [
        turn("I open the menu.", click("[menu] Layer", pause=1.5), when="[table-cell] dog (selected)"),
        turn("I open the dialog.", click_xy(494, 461, pause=2), when="[menu] Layer (focused)"),
        turn("I go to the number.", double_click([dialog, f"[spin-button] {side}"], pause=0.5), when=dialog),
        turn("I give another.", keys("ctrl", "a", pause=0.5), write("512\t", pause=1)),
        turn("I scale it.", click([dialog, "[push-button] Scale"], pause=2), when="[spin-button] 512 "),
        DONE,
    ]


RIGHT = _scaled(800)
NEAR_MISS = _scaled(1000)
NEAR_MISS_IS = "512 pixels wide, not high"
SHELL = False
