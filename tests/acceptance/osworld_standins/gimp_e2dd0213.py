"""A picture of two layers: a text in black, right of the middle, above an orange one.

There is no reference: something dark must be within the leftmost 5 % of the exported picture.
"""

from PIL import Image, ImageDraw, ImageFont

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, layered, turn

TASK = "e2dd0213-26db-4349-abe5-d5667bfd725c"
_SIZE = (900, 600)
_TEXT = "Autumn fair"
_IS_TEXT = f"""(text "{_TEXT}")
(font "Sans-serif")
(font-size 64.000000)
(font-size-unit pixels)
(antialias yes)
(language "en-us")
(base-direction ltr)
(color (color-rgb 0.000000 0.000000 0.000000))
(justify left)
(box-mode dynamic)
(box-unit pixels)
(hinting yes)
"""


def _text() -> Image.Image:
    font = ImageFont.load_default(64)
    _, _, width, height = font.getbbox(_TEXT)
    picture = Image.new("RGBA", (int(width) + 2, int(height) + 12))
    ImageDraw.Draw(picture).text((0, 0), _TEXT, fill=(0, 0, 0, 255), font=font)
    return picture


FILES = {
    "orange_background.xcf": layered(
        *_SIZE,
        [
            {"name": _TEXT, "picture": _text(), "at": (450, 260), "parasites": {"gimp-text-layer": _IS_TEXT}},
            {"name": "Background", "picture": Image.new("RGB", _SIZE, (245, 150, 40))},
        ],
    )
}


def _moved(layer: str) -> list[Turn]:
    active = "[radio-button] Move the active layer"
    return [
        turn("I take the tool that moves.", keys("m", pause=1), when=f"[table-cell] {_TEXT} (selected)"),
        turn("I let it move the chosen layer.", click(active, pause=1), when=active),
        turn("I choose the layer.", click(f"[table-cell] {layer}", pause=1), when=f"{active} (on"),
        turn(
            "I drag it to the left.",
            {"name": "desktop_mouse_move", "arguments": {"x": 960, "y": 700, "pause": 0.5}},
            {"name": "desktop_mouse_drag", "arguments": {"x": 535, "y": 700, "pause": 2}},
            when=f"[table-cell] {layer} (selected)",
        ),
        DONE,
    ]


RIGHT = _moved(_TEXT)
NEAR_MISS = _moved("Background")
NEAR_MISS_IS = "the layer beneath was moved"
SHELL = False
