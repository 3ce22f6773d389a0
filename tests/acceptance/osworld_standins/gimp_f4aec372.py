"""A picture of two layers: a yellow triangle with a dark rim, at the left and low, above a white one.

There is no reference: of the exported picture's colours the second rarest, the yellow, must have its middle near the picture's.
"""

import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, layered, turn

TASK = "f4aec372-4fb0-4df5-a52b-79e0e2a5d6ce"
_SIZE = (900, 600)
_PLACE = (40, 330)
"""The triangle's middle, that of its three corners, is at (160, 473)."""


def _triangle() -> Image.Image:
    picture = Image.new("RGBA", (240, 220))
    draw = ImageDraw.Draw(picture)
    draw.polygon([(120, 10), (230, 210), (10, 210)], fill=(250, 220, 50, 255), outline=(110, 80, 10, 255), width=4)
    return picture


_WHITE = Image.new("RGBA", _SIZE, "white")


def _seen() -> bytes:
    picture = _WHITE.copy()
    picture.alpha_composite(_triangle(), _PLACE)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


_LAYERS = [
    {"name": "Triangle", "picture": _triangle(), "at": _PLACE},
    {"name": "Background", "picture": _WHITE},
]
FILES = {"Triangle_On_The_Side.png": _seen(), "Triangle_On_The_Side.xcf": layered(*_SIZE, _LAYERS)}


def _moved(x: int, y: int) -> list[Turn]:
    """The triangle's layer moved by so many pixels: the picture is shown as large as it is."""
    active = "[radio-button] Move the active layer"
    return [
        turn("I take the tool that moves.", keys("m", pause=1), when="[table-cell] Triangle (selected)"),
        turn("I let it move the chosen layer.", click(active, pause=1), when=active),
        turn(
            "I drag the triangle.",
            {"name": "desktop_mouse_move", "arguments": {"x": 665, "y": 720, "pause": 0.5}},
            {"name": "desktop_mouse_drag", "arguments": {"x": 665 + x, "y": 720 + y, "pause": 2}},
            when=f"{active} (on",
        ),
        DONE,
    ]


RIGHT = _moved(290, -173)
NEAR_MISS = _moved(290, 0)
NEAR_MISS_IS = "it is in the middle between left and right only"
SHELL = False
