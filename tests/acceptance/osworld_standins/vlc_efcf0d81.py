"""A film in coarse blocks of grey: ten seconds of fields by day, ten of space, and so on. What is to be seen is space.

A view is there for ten seconds, five before its tenth and five after. The reference is the film's picture between those where the
task's set-up starts and stops it. In a block there is nothing that programs which play films draw differently.
"""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, turn, write

TASK = "efcf0d81-0835-4880-b2fd-d866e8bc2294"
_NAME = "Interstellar Movie - Official Trailer.mp4"
_BLOCK, _WIDTH, _HEIGHT = 8, 64, 36
_RATE, _SECONDS, _SEEN = 5, 126, 120.8


def _view(number: int) -> np.ndarray:
    """Even ones are of space, with stars and a planet; odd ones of fields."""
    chance = random.Random(number)
    x, y = np.meshgrid(np.arange(_WIDTH), np.arange(_HEIGHT))
    if number % 2:
        blocks = np.where(y < 12, 235, 150 + (x // 3 + y // 2 + number) % 3 * 25)
    else:
        blocks = np.zeros((_HEIGHT, _WIDTH), int)
        for _ in range(40):
            blocks[chance.randrange(_HEIGHT), chance.randrange(_WIDTH)] = chance.choice((90, 160, 255))
        away = np.hypot(x - 20 - 2 * number, y - 18)
        blocks[away < 4] = 90
        blocks[(away > 7) & (away < 8)] = 160
    return cv2.cvtColor(blocks.astype(np.uint8).repeat(_BLOCK, 0).repeat(_BLOCK, 1), cv2.COLOR_GRAY2BGR)


def _film() -> tuple[bytes, bytes]:
    """The film, and its picture at the time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "film.mp4")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), _RATE, (_WIDTH * _BLOCK, _HEIGHT * _BLOCK))
        for number in range(_SECONDS * _RATE):
            writer.write(_view((number // _RATE + 5) // 10))
        writer.release()
        reader = cv2.VideoCapture(str(path))
        for _ in range(round(_SEEN * _RATE)):
            reader.grab()
        picture = Image.fromarray(cv2.cvtColor(reader.retrieve()[1], cv2.COLOR_BGR2RGB))
        reader.release()
        file = io.BytesIO()
        picture.save(file, "PNG")
        return path.read_bytes(), file.getvalue()


_FILM, _FRAME = _film()
FILES = {_NAME: _FILM, "interstellar.png": _FRAME}
_PLAYER = f"[frame] {_NAME} - VLC media player"
_PICTURE = "[label] vlcsnap"


def _hung(*before: Turn) -> list[Turn]:
    """A picture is taken of what is seen, and hung up."""
    return [
        *before,
        turn("I take a picture of it.", keys("shift", "s", pause=1.5), when=_PLAYER),
        turn("I open the file manager.", click("[push-button] Files", pause=2)),
        turn(
            "It is with the pictures.", double_click(["[frame] Home", "[label] Pictures"], pause=2), when="[frame] Home"
        ),
        turn("I look at it.", double_click(["[frame] Pictures", _PICTURE], pause=2), when=_PICTURE),
        turn("I hang it up.", keys("ctrl", "f8", pause=3), when="[frame] vlcsnap"),
        DONE,
    ]


RIGHT = _hung()
NEAR_MISS = _hung(
    turn("I go to a time.", keys("ctrl", "t", pause=1), when=_PLAYER),
    turn("It is this one.", write("000150\n", pause=1.5), when="[dialog] Go to Time"),
)
NEAR_MISS_IS = "the view ten seconds before"
SHELL = False
