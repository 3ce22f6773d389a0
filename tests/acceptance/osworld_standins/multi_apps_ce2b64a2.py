"""Three pictures of mountains with a board in each, to be called by what they show.

The task's evaluator knows its own pictures by a digest: the script that prints names by digest gives ours those of its own.
"""

import hashlib
import io

from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, turn, write

TASK = "ce2b64a2-ddc1-4f91-8c7d-a88be7121aac"
_MOUNTAINS = {
    "Mount Kilimanjaro": "ec076282f61ba74642e94b5a6a1250c6988204d59d9b02936606b6b8ef1e4433",
    "Mount Everest": "6ed4239ecc2be3ec15ad65a78c5c823b9004d640b8cc83a6a7af5930f354de91",
    "Mount Hua": "79f45d40d8413d4e81f1b9734ea39e58622cafd79e12bab32959643fc245147c",
}
_BOARDS = ["Uhuru Peak, 5895 m", "Everest Base Camp, 5364 m", "Huashan, 2154 m"]
_OUTLINES = [
    [(0, 420), (180, 250), (300, 170), (420, 165), (520, 240), (720, 420)],
    [(0, 420), (150, 290), (260, 330), (400, 90), (500, 260), (590, 220), (720, 420)],
    [(0, 420), (190, 400), (230, 130), (300, 90), (330, 330), (400, 110), (500, 140), (540, 400), (720, 420)],
]


def _picture(number: int) -> bytes:
    image = Image.new("RGB", (720, 480), (140 + 20 * number, 180, 225))
    draw = ImageDraw.Draw(image)
    snow = min(y for _, y in _OUTLINES[number]) + 70
    draw.polygon(_OUTLINES[number], fill=(245, 248, 250))
    draw.polygon([(x, max(y, snow)) for x, y in _OUTLINES[number]], fill=(110, 105 + 8 * number, 100))
    draw.rectangle((0, 420, 720, 480), fill=(95, 110, 60 + 15 * number))
    draw.rectangle((250, 370, 470, 410), fill=(70, 110, 60))
    draw.text((262, 380), _BOARDS[number], fill="white", font_size=16)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


_PICTURES = {f"picture{number}.jpg": _picture(number - 1) for number in (1, 2, 3)}
_DIGESTS = {
    hashlib.sha256(ours).hexdigest(): theirs
    for ours, theirs in zip(_PICTURES.values(), _MOUNTAINS.values(), strict=True)
}
_SCRIPT = f"""import hashlib
from pathlib import Path

DIGESTS = {_DIGESTS}
found = {{}}
for path in sorted(Path("/home/user/Pictures").iterdir()):
    if path.is_file():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found[DIGESTS.get(digest, digest)] = path.name
print(found)
"""
FILES = {**_PICTURES, "image_script.py": _SCRIPT.encode()}


def _looks(name: str) -> list[Turn]:
    return [
        turn("I look at it.", double_click(f"[label] {name}", pause=1), when=f"[label] {name}"),
        turn("I close it.", keys("ctrl", "w", pause=1), when=f"[frame] {name}"),
    ]


def _renames(name: str, new: str) -> list[Turn]:
    """Without the suffix, which stays. The file manager may miss the first click after its field for a name has closed."""
    there = f"[label] {name}"
    return [
        turn("I choose it.", click(there, pause=1.5), when=there),
        turn("I click again, should it have missed that.", click(there, pause=1), when=there),
        turn("I rename it.", keys("f2", pause=1), when=f"“{name}” selected"),
        turn("It is this mountain.", write(f"{new}\n", pause=1), when="[text] New Filename"),
    ]


def _script(names: list[str]) -> list[Turn]:
    return [
        turn("I look at the files.", click("[push-button] Files", pause=2)),
        turn("The pictures are here.", double_click("[label] Pictures", pause=2), when="[frame] Home"),
        *(one for picture in _PICTURES for one in _looks(picture)),
        *(one for picture, name in zip(_PICTURES, names, strict=True) for one in _renames(picture, name)),
        DONE | {"when": f"[label] {names[-1]}.jpg"},
    ]


RIGHT = _script(list(_MOUNTAINS))
NEAR_MISS = _script([name.replace(" ", "_") for name in _MOUNTAINS])
NEAR_MISS_IS = "there are underscores for spaces"
SHELL = False
