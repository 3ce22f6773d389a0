"""A picture of two layers: a black ring above a white one. It is square, as the evaluator swaps its sides.

There is no reference but the picture as it was: where it was not black, the exported one must be more green than red or blue.
"""

import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, click_xy, double_click, keys, layered, turn, write

TASK = "734d6579-c07d-47a8-9ae2-13339795476b"
_SIZE = (600, 600)
_WHITE = Image.new("RGBA", _SIZE, "white")


def _ring() -> Image.Image:
    picture = Image.new("RGBA", _SIZE)
    ImageDraw.Draw(picture).ellipse((180, 200, 420, 440), outline=(0, 0, 0, 255), width=50)
    return picture


def _seen() -> bytes:
    file = io.BytesIO()
    Image.alpha_composite(_WHITE, _ring()).save(file, "PNG")
    return file.getvalue()


FILES = {
    "white_background_with_object.png": _seen(),
    "white_background_with_object.xcf": layered(
        *_SIZE, [{"name": "Object", "picture": _ring()}, {"name": "Background", "picture": _WHITE}]
    ),
}


def _filled(colour: str) -> list[Turn]:
    dialog = "[dialog] Change Foreground Color"
    return [
        turn("I choose the layer.", click("[table-cell] Background", pause=1), when="[table-cell] Object (selected)"),
        turn("I choose a colour.", click_xy(287, 282, pause=2), when="[table-cell] Background (selected)"),
        turn("I go to its notation.", double_click([dialog, "[text] 000000"], pause=0.5), when=dialog),
        turn("Its number.", keys("ctrl", "a", pause=0.5), write(f"{colour}\t", pause=1)),
        turn("I take it.", click([dialog, "[push-button] OK"], pause=1), when=f"[text] {colour}"),
        turn("I fill the layer.", keys("ctrl", ",", pause=2)),
        DONE | {"when": "[frame] *white_background_with_object"},
    ]


RIGHT = _filled("00ff00")
NEAR_MISS = _filled("00ffff")
NEAR_MISS_IS = "a colour as blue as green"
SHELL = False
