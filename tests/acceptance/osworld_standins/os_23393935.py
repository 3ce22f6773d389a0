"""Photos copied out of nested folders: five small pictures under the names that the task's evaluator looks for."""

import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, turn, write

TASK = "23393935-50c7-4a86-aeea-2b78fd089c5c"


def picture(name: str, number: int) -> bytes:
    """A landscape: a sky, a ground and a sun, each picture's in its place."""
    image = Image.new("RGB", (320, 240), (120, 170 + 10 * number, 230))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 150 + 5 * number, 320, 240), fill=(40, 120 - 10 * number, 60))
    draw.ellipse((40 * number, 20, 40 * number + 40, 60), fill=(250, 220, 90))
    file = io.BytesIO()
    image.save(file, "PNG" if name.endswith(".png") else "JPEG")
    return file.getvalue()


NAMES = [
    "monk252520thailand252520wat252520arun252520scaled25255B225255D.jpg",
    "hong-kong-china.jpg",
    "hk_group_photo.jpg",
    "us_3.png",
    "emnlp2023.jpg",
]
FILES = {name: picture(name, number) for number, name in enumerate(NAMES)}


def copied(search: str, found: str) -> list[Turn]:
    """What a search in the folder of photos finds is selected, copied and pasted into the other folder."""
    return [
        turn("I open the photos.", double_click("[icon] photos", pause=1), when="[icon] cpjpg"),
        turn("I search in all folders.", keys("ctrl", "f", pause=1), when="[label] vacation"),
        turn("I say for what.", write(search, pause=2), when="[frame] photos"),
        turn(
            "I click beside a name.", click("[label] emnlp2023.jpg", x=1100, pause=1), when="[label] vacation/thailand/"
        ),
        turn("I take all of them.", keys("ctrl", "a", pause=1), when="“emnlp2023.jpg” selected"),
        turn("I copy them.", keys("ctrl", "c", pause=1), when=f"{found} items selected"),
        turn("I open the other folder.", double_click("[icon] cpjpg", pause=2)),
        turn("I go there.", click(["[frame] cpjpg", "[label] Folder is Empty"], pause=1)),
        turn("I put them there.", keys("ctrl", "v", pause=3)),
        DONE | {"when": f"[label] {found} items selected"},
    ]


RIGHT = copied(".jpg", "4")
NEAR_MISS = copied(".", "5")
NEAR_MISS_IS = "the one that is a PNG is copied too"
SHELL = False
