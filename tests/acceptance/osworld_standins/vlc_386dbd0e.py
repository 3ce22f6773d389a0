"""A lecture note in four pages, whose title the task's setup looks for, and three minutes of slow chords."""

import io

import numpy as np
import pymupdf
import soundfile

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, turn

TASK = "386dbd0e-0241-4a0a-b6a2-6704fba26b1c"


def _note() -> bytes:
    document = pymupdf.open()
    for number, name in enumerate(("Interfaces", "Arrays", "Linked lists", "Dynamic arrays"), 1):
        page = document.new_page()
        page.insert_text((72, 90), f"{number}. {name}", fontsize=20)
        for line in range(24):
            text = f"{name} keep items in order: operation {line + 1} takes time that grows with n, or stays constant."
            page.insert_text((72, 130 + 24 * line), text, fontsize=10)
    document.set_metadata({"title": "6.006 Introduction to Algorithms, Lecture 2: Data Structures"})
    return document.tobytes(no_new_id=True, deflate=True)


def _music() -> bytes:
    rate = 22050
    time = np.arange(4 * rate) / rate
    chords = [(262, 330, 392), (220, 262, 330), (175, 220, 262), (196, 247, 294)]
    fade = np.minimum(1, np.minimum(time, 4 - time))
    bars = [sum(0.2 * np.sin(2 * np.pi * tone * time) for tone in chord) * fade for chord in chords]
    file = io.BytesIO()
    soundfile.write(file, np.tile(np.concatenate(bars), 12), rate, format="MP3")
    return file.getvalue()


FILES = {"lecture_pdf.pdf": _note(), "Colorful-Flowers(chosic.com).mp3": _music()}

_DIALOG = "[dialog] Simple Preferences"
_ACTION = "[table-cell] Play/Pause"
_PLAYER = "[toggle-button] Colorful-Flowers.mp3 - VLC media player"


def _assigned(*cell: str) -> list[Turn]:
    return [
        turn("I leave full screen.", keys("f11", pause=2), when="[document-frame] Document View"),
        turn("I go to the player.", click(_PLAYER, pause=1.5), when=_PLAYER),
        turn("I open the preferences.", keys("ctrl", "p", pause=2), when=f"{_PLAYER} (on)"),
        turn("I go to the keys.", click([_DIALOG, "[check-box] Hotkeys"], pause=2), when=_DIALOG),
        turn("I want another key.", double_click([_DIALOG, _ACTION, *cell], pause=1.5), when=_ACTION),
        turn("I press it.", keys("ctrl", "alt", "p", pause=1.5), when="[label] Press the new key or combination"),
        turn("I save.", click([_DIALOG, "[push-button] Save"], pause=2), when="[table-cell] Ctrl+Alt+p"),
        DONE,
    ]


RIGHT = _assigned("[table-cell]", "[table-cell] @")
NEAR_MISS = _assigned("[table-cell]")
NEAR_MISS_IS = "a key that works in the player's own window only"
SHELL = False
