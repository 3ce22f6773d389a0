"""Twenty seconds of a planet that turns, with music, and three slides that are to have the music.

The music is stored as samples, which VLC gives back as they are. The reference is the same music in a file of its own.
"""

from __future__ import annotations

import io
import struct
import tempfile
from pathlib import Path

import cv2
import numpy as np
import soundfile

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    click_xy,
    double_click,
    keys,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
    write,
)

TASK = "778efd0a-153f-4842-9214-f05fc176b877"
_SECONDS = 20
_PICTURES = 12
"""A second."""
_RATE = 44100
_DECK = "Minimalist_Business_Slides.pptx"


def _film() -> bytes:
    """Without sound."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "film.mp4")
        writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), _PICTURES, (480, 270))
        for number in range(_SECONDS * _PICTURES):
            picture = np.full((270, 480, 3), (30, 14, 10), np.uint8)
            cv2.circle(picture, (240, 135), 100, (150, 110, 60), -1)
            for spot in range(4):
                turned = number / 18 + spot * np.pi / 2
                if np.cos(turned) > 0:
                    place = (int(240 + 84 * np.sin(turned)), 95 + 25 * spot)
                    cv2.ellipse(picture, place, (1 + int(14 * np.cos(turned)), 11), 0, 0, 360, (90, 160, 120), -1)
            writer.write(picture)
        writer.release()
        return path.read_bytes()


def _music() -> np.ndarray:
    """Chords that come and go, in samples for the left and the right; silent at the end, where VLC leaves out a few."""
    time = np.arange(2 * _RATE) / _RATE
    fade = np.sin(np.pi * time / 1.8).clip(0)
    chords = [(220, 277, 330), (196, 247, 294), (175, 220, 262), (196, 262, 330), (165, 208, 247)]
    bars = [sum(0.2 * np.sin(2 * np.pi * tone * time) for tone in chord) * fade for chord in chords]
    mono = np.tile(np.concatenate(bars), _SECONDS // 10)
    return (np.stack([mono, 0.8 * mono], axis=1) * 32767).astype("<i2")


def _box(kind: str, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">I4s", 8 + len(content), kind.encode()) + content


def _with_sound(film: bytes, samples: np.ndarray) -> bytes:
    """The MP4 file, whose last part is its table of contents, with a second track of samples, one second at a time."""
    at = 0
    while film[at + 4 : at + 8] != b"moov":
        at += struct.unpack_from(">I", film, at)[0]
    table = film[at + 8 :]
    (length,) = struct.unpack_from(">I", table)
    (unit,) = struct.unpack_from(">I", table, 20)
    count = len(samples)
    places = range(at + 8, at + 8 + 4 * count, 4 * _RATE)
    number = struct.Struct(">I").pack
    matrix = struct.pack(">9I", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    sound = _box("sowt", bytes(6), struct.pack(">H8x4HI", 1, 2, 16, 0, 0, _RATE << 16))
    contents = _box(
        "stbl",
        _box("stsd", bytes(4), number(1), sound),
        _box("stts", bytes(4), struct.pack(">3I", 1, count, 1)),
        _box("stsc", bytes(4), struct.pack(">4I", 1, 1, _RATE, 1)),
        _box("stsz", bytes(4), struct.pack(">2I", 4, count)),
        _box("stco", bytes(4), number(len(places)), *map(number, places)),
    )
    media = _box(
        "mdia",
        _box("mdhd", bytes(12), struct.pack(">2I2H", _RATE, count, 0x55C4, 0)),
        _box("hdlr", bytes(8), b"soun", bytes(12), b"Sound\0"),
        _box(
            "minf",
            _box("smhd", bytes(8)),
            _box("dinf", _box("dref", bytes(4), number(1), _box("url ", number(1)))),
            contents,
        ),
    )
    lasts = count * unit // _RATE
    head = _box(
        "tkhd", number(7), bytes(8), struct.pack(">2I", 2, 0), number(lasts), bytes(12), b"\1\0\0\0", matrix, bytes(8)
    )
    header = table[: length - 4] + number(3)
    return film[:at] + _box("mdat", samples.tobytes()) + _box("moov", header, table[length:], _box("trak", head, media))


def _slides() -> bytes:
    deck = white_deck()
    for heading, lines in {
        "Minimalist Business Slides": ["Less on a page, more in mind"],
        "What We Sell": ["Three lamps", "One desk"],
        "What Comes Next": ["A chair in spring", "A second shop in autumn"],
    }.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
    return saved(deck)


def _wav(samples: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, _RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


_SAMPLES = _music()
FILES = {_DECK: _slides(), "planet.mp4": _with_sound(_film(), _SAMPLES), "planet.wav": _wav(_SAMPLES)}
_IMPRESS = f"[toggle-button] {_DECK} - LibreOffice Impress"
_PLAYER = "[toggle-button] planet.mp4 - VLC media player"
_OPEN = "[dialog] Open Media"
_FILE = "[dialog] Select one or multiple files"
_CONVERT = "[dialog] Convert"
_DIALOG = "[file-chooser]"
_SOUND = "[panel] Modify Transition"
_WAV = "/home/user/Desktop/planet.wav"


def _script(*chosen: Turn) -> list[Turn]:
    """The music becomes a file, and the sound of the slide that is chosen so."""
    return [
        turn("I wait for both.", click_xy(1200, 41, pause=1), when=_PLAYER),
        turn("I go to the player.", click(_PLAYER, pause=1), when=f"{_IMPRESS} (on)"),
        turn("I want to convert it.", keys("ctrl", "r", pause=2), when=f"{_PLAYER} (on)"),
        turn("I add a file.", click([_OPEN, "[push-button] Add..."], pause=1.5), when=_OPEN),
        turn("I go to its name.", keys("ctrl", "a", pause=0.5), when=_FILE),
        turn("It is this one.", write("/home/user/Desktop/planet.mp4\n", pause=1.5)),
        turn("I convert it.", click([_OPEN, "[push-button] Convert / Save @"], pause=2)),
        turn("I look at the kinds.", click([_CONVERT, "[combo-box]"], pause=1), when=_CONVERT),
        turn("This one.", write("Audio - CD\n", pause=1)),
        turn("I say where to.", click([_CONVERT, "[push-button] Browse"], pause=2), when="[combo-box] Audio - CD"),
        turn("There.", keys("ctrl", "a", pause=0.5), write(f"{_WAV}\n", pause=1), when="[dialog] Save file"),
        turn(
            "I start.", click([_CONVERT, "[push-button] Start @"], pause=5), when=f"[text] Destination file: - {_WAV}"
        ),
        turn("I go to the slides.", click(_IMPRESS, pause=1), when="[icon] planet.wav"),
        *chosen,
        turn(
            "I look at its transition.",
            click(["[tool-bar] Slide Transition", "[toggle-button]"], pause=2),
            when=f"{_IMPRESS} (on)",
        ),
        turn("I look at the sounds.", click([_SOUND, "[toggle-button] @"], pause=1), when=_SOUND),
        turn("Another one.", click("Other sound", pause=2), when="Other sound"),
        turn("It is on the desktop.", click([_DIALOG, "[label] Desktop"], pause=1), when=_DIALOG),
        turn("This one.", double_click([_DIALOG, "[table-cell] planet.wav"], pause=2), when="[table-cell] planet.wav"),
        turn("Again and again.", click("[check-box] Loop until next sound", pause=1)),
        DONE | {"when": "[check-box] Loop until next sound (on"},
    ]


RIGHT = _script()
NEAR_MISS = _script(turn("I go to this slide.", click("[panel] What We Sell", pause=1), when="[panel] What We Sell"))
NEAR_MISS_IS = "the music begins with the second slide"
SHELL = False
