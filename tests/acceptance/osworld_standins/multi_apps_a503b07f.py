"""A photo of a receipt in the home folder, opened in GIMP and exported as a PDF file.

The reference is a page with the same picture, made here: OSWorld's metric compares how the pictures in the two files look.
"""

import io
import random
import time

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn, write

TASK = "a503b07f-9119-456b-b75d-f5146737d24f"
_LINES = [
    ("2 bread rolls", "1.30"),
    ("1 butter 250 g", "2.49"),
    ("6 eggs", "2.19"),
    ("1 coffee 500 g", "5.99"),
    ("4 oranges", "1.96"),
    ("TOTAL", "13.93"),
    ("Cash", "20.00"),
    ("Change", "6.07"),
]


def _photo() -> bytes:
    chance = random.Random(31)
    picture = Image.new("RGB", (474, 632), (96, 70, 52))
    draw = ImageDraw.Draw(picture)
    for y in range(0, 632, 4):
        tone = chance.randrange(-10, 10)
        draw.rectangle((0, y, 474, y + 3), fill=(96 + tone, 70 + tone, 52 + tone))
    draw.polygon([(96, 40), (384, 28), (398, 600), (82, 606)], fill=(246, 244, 238))
    draw.text((150, 60), "HARBOUR GROCER", fill=(30, 30, 30), font_size=20)
    draw.text((168, 92), "12 Quay Street", fill=(60, 60, 60), font_size=16)
    for number, (what, price) in enumerate(_LINES):
        y = 150 + 44 * number
        draw.text((116, y), what, fill=(40, 40, 40), font_size=18)
        draw.text((316, y), price, fill=(40, 40, 40), font_size=18)
    for left in range(120, 360, 5):
        draw.line((left, 530, left, 580), fill=(20, 20, 20), width=chance.randrange(1, 4))
    file = io.BytesIO()
    picture.filter(ImageFilter.GaussianBlur(0.6)).save(file, "JPEG", quality=88)
    return file.getvalue()


def _page(picture: bytes) -> bytes:
    file = io.BytesIO()
    then = time.gmtime(0)
    Image.open(io.BytesIO(picture)).save(file, "PDF", creationDate=then, modDate=then)
    return file.getvalue()


FILES = {"OIP.jpg": _photo(), "receipt_Gold.pdf": _page(_photo())}
_GIMP = "GNU Image Manipulation Program"


def _exported(name: str) -> list[Turn]:
    """The photo is opened in GIMP, and exported under this name."""
    return [
        turn("I start GIMP.", click(f"[push-button] {_GIMP}", pause=3), when=f"[push-button] {_GIMP}"),
        turn("I open a picture.", keys("ctrl", "o", pause=2), when=f"[frame] {_GIMP}"),
        turn("I look in the home folder.", click(["Places", "[table-cell] user"], pause=2), when="[dialog] Open Image"),
        turn("It is this one.", click("[table-cell] OIP.jpg", pause=1.5), when="[table-cell] OIP.jpg"),
        turn("I open it.", click(["[dialog] Open Image", "[push-button] Open @"], pause=3)),
        turn("I export it.", keys("ctrl", "shift", "e", pause=3), when="[frame] [OIP] (imported)"),
        turn(
            "It has another name.", click(["[dialog] Export Image", "[text] OIP.jpg"], pause=0.5), when="[text] OIP.jpg"
        ),
        turn("I write it.", keys("ctrl", "a", pause=0.5), write(name, pause=1.5)),
        turn("I want it there.", keys("enter", pause=3), when=f"[text] {name}"),
        turn("I export it.", keys("alt", "e", pause=3), when="[dialog] Export Image as PDF"),
        DONE | {"when": "(exported)"},
    ]


RIGHT = _exported("/home/user/Desktop/receipt.pdf")
NEAR_MISS = _exported("receipt.pdf")
NEAR_MISS_IS = "the file is beside the photo, not on the desktop"
SHELL = False
