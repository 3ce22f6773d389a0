"""Half a minute of a black-and-white video, another picture every second.

A picture is there from half a second before its second to half a second after. The reference has the pictures of the seconds
three to seven, as they are in the video; OSWorld's metric compares its first one only.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn, write

TASK = "2fe4b718-3bd7-46ec-bdce-b184f5653624"
SIZE = (640, 360)
RATE = 10
SECONDS = 30
CLIP = range(3, 8)


def _picture(second: int) -> np.ndarray:
    image = Image.new("L", SIZE, 60 + 5 * second)
    draw = ImageDraw.Draw(image)
    for band in range(9):
        draw.rectangle((0, 40 * band, 80 + 16 * ((band * 7 + second * 5) % 20), 40 * band + 39), fill=20 + 25 * band)
    draw.ellipse((360 + 4 * second, 60, 520 + 4 * second, 220), fill=230)
    draw.text((400 + 4 * second, 80), str(second), fill=16, font=ImageFont.load_default(96))
    return cv2.cvtColor(np.asarray(image), cv2.COLOR_GRAY2BGR)


def _files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "src.mp4"
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), RATE, SIZE)
        for number in range(SECONDS * RATE):
            writer.write(_picture((number + RATE // 2) // RATE))
        writer.release()
        reader = cv2.VideoCapture(str(path))
        frames = [reader.read()[1] for _ in range(SECONDS * RATE)]
        reader.release()
        video = path.read_bytes()
    pictures = (cv2.cvtColor(frames[second * RATE], cv2.COLOR_BGR2RGB) for second in CLIP)
    first, *others = (Image.fromarray(one).convert("L") for one in pictures)
    clip = io.BytesIO()
    first.save(clip, "GIF", save_all=True, append_images=others, duration=1000, loop=0)
    return {"src.mp4": video, "src_clip.gif": clip.getvalue()}


FILES = _files()


def _snapshot(second: int) -> list[Turn]:
    return [
        turn("I go to the second.", keys("ctrl", "t", pause=1)),
        turn("It is this one.", write(f"00000{second}\n", pause=1.5), when="[dialog] Go to Time"),
        turn("I take a picture of it.", keys("shift", "s", pause=1.5), when=f"[label] 00:0{second} @"),
    ]


def _script(name: str) -> list[Turn]:
    return [
        turn("I wait for both.", keys("shift", pause=4), when="[frame] GNU Image Manipulation Program"),
        turn("I go to VLC.", click("[toggle-button] VLC media player", pause=1), when="[frame] VLC media player"),
        turn("I open a file.", keys("ctrl", "o", pause=1)),
        turn("It is this one.", write("/home/user/Desktop/src.mp4\n", pause=0.5), when="[dialog] Select one or more"),
        turn("I pause it.", keys("space", pause=1), when="[label] 00:30"),
        *(one for second in CLIP for one in _snapshot(second)),
        turn("I go to GIMP.", click("[toggle-button] GNU Image Manipulation Program", pause=1)),
        turn("I open layers.", keys("ctrl", "alt", "o", pause=3)),
        turn("The pictures are here.", click("[table-cell] Pictures", pause=2), when="[dialog] Open Image as Layers"),
        turn("I choose them.", click("[table-cell] vlcsnap", pause=1), when="[table-cell] vlcsnap"),
        turn("All of them.", keys("ctrl", "a", pause=1)),
        turn("I open them.", click("[push-button] Open", pause=3)),
        turn("I export the image.", keys("ctrl", "shift", "e", pause=2), when=f"{len(CLIP)} layers"),
        turn("It has no name yet.", keys("ctrl", "a", pause=0.5), when="[dialog] Export Image"),
        turn("It gets this one.", write(f"/home/user/Desktop/{name}.gif", pause=1)),
        turn("I want it there.", keys("enter", pause=4)),
        turn("It is an animation.", keys("alt", "a", pause=1)),
        turn("I export it.", keys("alt", "e", pause=3)),
        DONE | {"when": f"[{name}] (exported)"},
    ]


RIGHT = _script("src_clip")
NEAR_MISS = _script("clip")
NEAR_MISS_IS = "is saved under another name"
SHELL = False
