"""A poster that is in the trash, put back by the file manager."""

import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn

TASK = "5ea617a3-0e86-4ba6-aab2-dac9aa2e8d57"
_NAME = "poster_party_night.webp"


def _poster() -> bytes:
    image = Image.new("RGB", (480, 640), (40, 20, 70))
    draw = ImageDraw.Draw(image)
    for number in range(12):
        draw.line((40 * number, 0, 480 - 40 * number, 640), fill=(90 + 12 * number, 40, 160), width=6)
    draw.ellipse((150, 80, 330, 260), fill=(220, 220, 240))
    draw.text((90, 420), "PARTY NIGHT", fill=(255, 230, 90), font_size=48)
    file = io.BytesIO()
    image.save(file, "WEBP")
    return file.getvalue()


FILES = {_NAME: _poster()}


def _chosen(*then: Turn) -> list[Turn]:
    poster = f"[label] {_NAME}"
    return [
        turn("I open the file manager.", click("[push-button] Files", pause=2), when="[push-button] Files"),
        turn("I look into the trash.", click(["[frame] Home", "[label] Trash"], pause=1), when="[frame] Home"),
        turn("I choose the poster.", click(["[frame] Trash", poster], pause=1), when="[frame] Trash"),
        *then,
    ]


_ASKED = {
    "name": "desktop_mouse_right_click",
    "arguments": {"at": ["[frame] Trash", f"[label] {_NAME}"], "pause": 1},
}
RIGHT = _chosen(
    turn("I ask what can be done.", _ASKED, when=f"“{_NAME}” selected"),
    turn("I put it back.", click("Restore From Trash", pause=2), when="Restore From Trash"),
    DONE | {"when": "Trash is Empty"},
)
NEAR_MISS = _chosen(
    turn("I cut it.", keys("ctrl", "x", pause=1), when=f"“{_NAME}” selected"),
    turn("I go home.", click(["[frame] Trash", "[label] Home"], pause=1)),
    turn("I put it there.", keys("ctrl", "v", pause=2), when="[frame] Home"),
    DONE | {"when": f"[label] {_NAME}"},
)
NEAR_MISS_IS = "taken out of the trash, but to the home folder"
SHELL = False
