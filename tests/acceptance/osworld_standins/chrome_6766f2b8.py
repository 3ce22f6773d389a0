"""An extension of three small files, in a folder of its own in the archive, loaded on Chrome's page of extensions."""

import io
import json
import zipfile

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, turn, write

TASK = "6766f2b8-8a72-417f-a9e5-56fcaa735837"
_NAME = "Friendly Greeter"
_PARTS = {
    "manifest.json": json.dumps(
        {
            "manifest_version": 3,
            "name": _NAME,
            "description": "Says good day.",
            "version": "1.0",
            "action": {"default_title": "Good day", "default_popup": "greeting.html"},
        },
        indent=2,
    ),
    "greeting.html": '<!doctype html>\n<title>Good day</title>\n<p id="greeting"></p>\n<script src="greeting.js"></script>\n',
    "greeting.js": 'document.getElementById("greeting").textContent = "Good day!";\n',
}


def _packed() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in _PARTS.items():
            archive.writestr(zipfile.ZipInfo(f"helloExtension/{name}", (2024, 3, 1, 12, 0, 0)), text)
    return file.getvalue()


# Chrome's own file dialog is not in the tree; while it is open, the button of the window behind it is not pressed.
FILES = {"helloExtension.zip": _packed()}
_FOLDER = "/home/user/Desktop/helloExtension"


def _developing(*then: Turn) -> list[Turn]:
    return [
        turn("A window as large as the screen.", keys("alt", "f10", pause=1), when="Google Chrome"),
        turn("I go to the extensions.", keys("ctrl", "l", pause=0.5), write("chrome://extensions\n", pause=2)),
        turn(
            "I want a developer's buttons.",
            click("[toggle-button] Developer mode", pause=1),
            when="[toggle-button] Developer mode",
        ),
        *then,
    ]


RIGHT = _developing(
    turn("I load a folder.", click("[push-button] Load unpacked", pause=2), when="[push-button] Load unpacked"),
    turn(
        "It is this one.",
        keys("ctrl", "l", pause=1),
        write(_FOLDER, pause=1),
        keys("alt", "o", pause=2),
        when="[toggle-button] Extensions - Google Chrome @",
    ),
    DONE | {"when": _NAME},
)
NEAR_MISS = _developing(
    turn("I pack it.", click("[push-button] Pack extension", pause=1), when="[push-button] Pack extension"),
    turn("It is in this folder.", write(f"{_FOLDER}\n", pause=2), when="Extension root directory"),
    DONE | {"when": "helloExtension.crx"},
)
NEAR_MISS_IS = "its folder is packed into one file, and not loaded"
SHELL = False
