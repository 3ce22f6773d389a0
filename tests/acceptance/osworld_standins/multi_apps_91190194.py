"""A picture of a bottle, of which only the lower four fifths are wanted."""

import io
import random

from PIL import Image, ImageDraw, ImageFilter

from tests.acceptance.osworld_standins.made import DONE, Turn, click_xy, double_click, keys, turn, write

TASK = "91190194-f406-4cd6-b3f9-c43fac942b22"


def _photo() -> Image.Image:
    chance = random.Random(17)
    picture = Image.new("RGB", (600, 500), (214, 190, 160))
    draw = ImageDraw.Draw(picture)
    for _ in range(260):
        x, y, size = chance.randrange(600), chance.randrange(500), chance.randrange(12, 60)
        tone = chance.randrange(150, 240)
        draw.ellipse((x, y, x + size, y + size), fill=(tone, tone - 20, tone - 50))
    draw.rectangle((275, 30, 325, 130), fill=(60, 30, 25))
    draw.polygon([(275, 130), (325, 130), (370, 220), (370, 470), (230, 470), (230, 220)], fill=(70, 34, 28))
    draw.rectangle((230, 270, 370, 380), fill=(200, 30, 40))
    draw.text((262, 305), "COLA", fill="white", font_size=32)
    return picture.filter(ImageFilter.GaussianBlur(1))


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


FILES = {"cola.png": _png(_photo()), "cropped_gold.png": _png(_photo().crop((0, 100, 600, 500)))}


def _cropped(*then: Turn) -> list[Turn]:
    """The crop tool's frame is drawn around all, made lower, and then what is told."""
    return [
        turn("I start GIMP.", write("gimp Desktop/cola.png\n", pause=3), when="user@desktop:~$"),
        turn("I want it large.", keys("winleft", "up", pause=2), when="[frame] [cola] (imported)"),
        turn("I take the tool that crops.", keys("shift", "c", pause=1)),
        turn(
            "I draw a frame around all.",
            {"name": "desktop_mouse_move", "arguments": {"x": 260, "y": 160, "pause": 0.5}},
            {"name": "desktop_mouse_drag", "arguments": {"x": 1650, "y": 950, "pause": 1}},
        ),
        turn("I go to its height.", double_click(["[spin-button] 600", "[spin-button] 500"], pause=0.5)),
        turn("It is four fifths.", keys("ctrl", "a", pause=0.5), write("400\t", pause=1)),
        *then,
        turn("I crop the picture.", click_xy(955, 580, pause=2), when="[spin-button] 400"),
        turn("I export it.", keys("ctrl", "shift", "e", pause=2), when="600x400"),
        turn("It has another name.", keys("ctrl", "a", pause=0.5), when="[dialog] Export Image"),
        turn("It is this one.", write("/home/user/Desktop/cropped.png", pause=1)),
        turn("I want it there.", keys("enter", pause=4)),
        turn("I export it.", keys("alt", "e", pause=3)),
        DONE | {"when": "(exported)"},
    ]


RIGHT = _cropped(
    turn("I go to its place from above.", double_click(["[spin-button] 0", "[spin-button] 0"], pause=0.5)),
    turn("I move it down.", keys("ctrl", "a", pause=0.5), write("100\t", pause=1)),
)
NEAR_MISS = _cropped()
NEAR_MISS_IS = "the bottom is cropped off, not the top"
SHELL = False
