"""A picture that is one white layer."""

from PIL import Image

from tests.acceptance.osworld_standins.made import DONE, click, double_click, keys, layered, turn, write

TASK = "b148e375-fe0b-4bec-90e7-38632b0d73c2"
FILES = {
    "white_background.xcf": layered(
        800, 600, [{"name": "Background", "picture": Image.new("RGB", (800, 600), "white")}]
    )
}
_WHEN = "[table-cell] Background (selected)"
_DIALOG = "[dialog] New Layer"
RIGHT = [
    turn("I open the dialog.", keys("shift", "ctrl", "n", pause=2), when=_WHEN),
    turn("I go to the name.", double_click([_DIALOG, "[text] Layer"], pause=0.5), when=_DIALOG),
    turn("I give another.", keys("ctrl", "a", pause=0.5), write("Square", pause=1)),
    turn("I add the layer.", click([_DIALOG, "[push-button] OK"], pause=2), when="[text] Square"),
    turn("It is there.", DONE["tool_calls"][0], when="[table-cell] Square (selected)"),
]
NEAR_MISS = [
    turn("I edit the layer's name.", double_click(_WHEN, pause=1), when=_WHEN),
    turn("I give another.", keys("ctrl", "a", pause=0.5), write("Square\n", pause=1)),
    turn("It is there.", DONE["tool_calls"][0], when="[table-cell] Square (selected)"),
]
NEAR_MISS_IS = "the layer that was there was named so"
SHELL = False
