"""A black-and-white film of a valley, another view every second, and slides without pictures.

A view is there from half a second before its second to half a second after; its first picture is stored whole, as one in
twelve is. The reference is the eighth second's, as it is in the film. What moves, and where colours meet, is drawn a little
differently by programs that play films; what is grey and stands still is not.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
    write,
)

TASK = "47f7c0ce-a5fb-4100-a5e6-65cd0e7429e5"
_SIZE = (960, 540)
_RATE = 24
_SECONDS = 20
_SECOND = 8
_DECK = "Robotic_Workshop_Infographics.pptx"


def _view(second: int) -> np.ndarray:
    """Three ridges, one behind the other, a river and the sun; each elsewhere than a second before."""
    image = Image.new("L", _SIZE, 215)
    draw = ImageDraw.Draw(image)
    x = np.arange(0, _SIZE[0] + 1, 8)
    draw.ellipse((760 - 24 * second, 50, 840 - 24 * second, 130), fill=245)
    for number, (height, tone) in enumerate(((210, 170), (290, 120), (370, 75))):
        at = x / 90 + second * (0.2 + 0.1 * number) + 2 * number
        ridge = height + 45 * np.sin(at) + 18 * np.sin(2.7 * at)
        draw.polygon([(0, _SIZE[1]), *zip(x.tolist(), ridge.tolist(), strict=True), _SIZE], fill=tone)
    river = 300 + 12 * second
    draw.polygon([(river, 420), (river + 30, 420), (river + 260, 540), (river - 120, 540)], fill=200)
    return cv2.cvtColor(np.asarray(image), cv2.COLOR_GRAY2BGR)


def _film() -> tuple[bytes, bytes]:
    """The film, and its picture at the second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "landscape.mp4")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), _RATE, _SIZE)
        for number in range(_SECONDS * _RATE):
            writer.write(_view((number + _RATE // 2) // _RATE))
        writer.release()
        reader = cv2.VideoCapture(str(path))
        frames = [reader.read()[1] for _ in range(_SECOND * _RATE + 1)]
        reader.release()
        picture = Image.fromarray(cv2.cvtColor(frames[-1], cv2.COLOR_BGR2RGB))
        file = io.BytesIO()
        picture.save(file, "PNG")
        return path.read_bytes(), file.getvalue()


def _slides() -> bytes:
    deck = white_deck()
    for heading, lines in {
        "Robotic Workshop": ["Four afternoons for beginners"],
        "What We Build": ["A cart that follows a line", "An arm that sorts by colour"],
        "What You Bring": ["Curiosity", "A laptop, if you have one"],
    }.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
    return saved(deck)


_FILM, _FRAME = _film()
FILES = {"landscape.mp4": _FILM, "landscape.png": _FRAME, _DECK: _slides()}
_IMPRESS = f"{_DECK} - LibreOffice Impress"
_DIALOG = "[file-chooser]"
_PICTURE = "[table-cell] vlcsnap"


def _script(heading: str) -> list[Turn]:
    """The slide of that heading gets the picture."""
    slide = f"[panel] {heading}"
    return [
        turn("I pause it.", keys("space", pause=1), when="[frame] landscape.mp4 - VLC media player"),
        turn("I go to the second.", keys("ctrl", "t", pause=1)),
        turn("It is this one.", write(f"00000{_SECOND}\n", pause=1.5), when="[dialog] Go to Time"),
        turn("I take a picture of it.", keys("shift", "s", pause=1.5), when=f"[label] 00:0{_SECOND} @"),
        turn("I go to the slides.", click(f"[toggle-button] {_IMPRESS}", pause=1)),
        turn("I go to this one.", click(slide, pause=1), when=slide),
        turn("I open the menu.", click("[menu] Slide @", pause=1), when=f"[paragraph] {heading}"),
        turn("I want a picture.", click("] Set Background Image", pause=2), when="] Set Background Image"),
        turn("They are here.", click([_DIALOG, "[label] Pictures"], pause=1), when=_DIALOG),
        turn("It is this one.", double_click([_DIALOG, _PICTURE], pause=2), when=_PICTURE),
        DONE,
    ]


RIGHT = _script("What We Build")
NEAR_MISS = _script("What You Bring")
NEAR_MISS_IS = "the third slide gets it"
SHELL = False
