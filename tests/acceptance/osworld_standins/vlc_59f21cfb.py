"""A film of four minutes in which coloured discs dance; it has no sound."""

import tempfile
from pathlib import Path

import cv2
import numpy as np

from tests.acceptance.osworld_standins.made import DONE, click, double_click, keys, turn

TASK = "59f21cfb-0120-4326-b255-a5b827b38967"
_NAME = "Rick Astley - Never Gonna Give You Up (Official Music Video).mp4"


def _film() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "film.mp4")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 5, (320, 240))
        for number in range(4 * 60 * 5):
            picture = np.full((240, 320, 3), (60, 40 + number % 60, 30), np.uint8)
            for disc in range(3):
                x = 160 + int(110 * np.sin(number / 9 + 2 * disc))
                y = 120 + int(70 * np.cos(number / 7 + disc))
                cv2.circle(picture, (x, y), 30, (80 * disc + 60, 200 - 50 * disc, 240 - 90 * disc), -1)
            writer.write(picture)
        writer.release()
        return path.read_bytes()


FILES = {_NAME: _film()}

_DIALOG = "[dialog] Select one or more files to open"
_DESKTOP = [_DIALOG, "[table-cell] Desktop"]
_CHOSEN = [_DIALOG, f"[table-cell] {_NAME}"]
_PLAYS = f"[frame] {_NAME} - VLC media player"
_OPENED = [
    turn("I open the dialog.", keys("ctrl", "o", pause=2), when="[frame] VLC media player"),
    turn("I go home.", click([_DIALOG, "[list-item] user"], pause=1.5), when=_DIALOG),
    turn("I go to the desktop.", double_click(_DESKTOP, pause=1.5), when=_DESKTOP[1]),
    turn("I choose the film.", click(_CHOSEN, pause=1), when=_CHOSEN[1]),
    turn("I open it.", click([_DIALOG, "[push-button] Open @"], pause=3), when=f"{_CHOSEN[1]} (selected"),
]

RIGHT = [*_OPENED, turn("It plays.", DONE["tool_calls"][0], when=_PLAYS)]
NEAR_MISS = [*_OPENED, turn("I touch the space bar.", keys("space", pause=1), when=_PLAYS), DONE]
NEAR_MISS_IS = "opened, but paused"
SHELL = False
