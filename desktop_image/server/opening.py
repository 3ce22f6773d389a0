"""Opens files as a double click would, and changes the wallpaper."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.parse
from pathlib import Path

from flask import Blueprint, Response, send_file

from . import processes, request_fields, x11
from .polling import wait_until
from .problems import Problem, not_found, too_late

blueprint = Blueprint("opening", __name__)

WINDOW_SECONDS = 120.0
OTHER_TITLE_SECONDS = 8.0
"""After this time, a new window counts as the file's window even if its title does not name the file."""
SETTINGS_SECONDS = 10.0
BACKGROUND = "org.gnome.desktop.background"


@blueprint.post("/setup/open_file")
def open_file() -> str:
    """Opens a file with its usual program, and waits for the window."""
    path = request_fields.expanded(request_fields.text(request_fields.body(), "path"))
    if not os.path.exists(path):
        raise not_found(f"there is no file {path}")
    began = time.monotonic()
    refused_after = 0.0
    with x11.connected() as display:
        before = {window.id for window in x11.normal_windows(display)}
        opener = processes.start(["xdg-open", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def outcome() -> str:
            nonlocal refused_after
            shown = x11.normal_windows(display)
            if any(Path(path).stem.lower() in window.title.lower() for window in shown):
                return "opened"
            after = time.monotonic() - began
            if opener.poll():
                refused_after = refused_after or after
                if after >= 2 * refused_after:  # on a slow machine, an opener may give up late and only miss the start
                    return "refused"
            new = any(window.kind == "normal" and window.id not in before for window in shown)
            return "opened" if new and after > OTHER_TITLE_SECONDS else ""

        found = wait_until(outcome, WINDOW_SECONDS, 0.1)
    if found == "refused":
        raise Problem(f"no program opens {path}")
    if not found:
        raise too_late(f"no window came within {WINDOW_SECONDS:g} s of opening {path}")
    return "File opened successfully"


@blueprint.post("/setup/change_wallpaper")
def change_wallpaper() -> str:
    """Sets another wallpaper."""
    path = request_fields.expanded(request_fields.text(request_fields.body(), "path"))
    if not os.path.isfile(path):
        raise not_found(f"there is no file {path}")
    for key in ("picture-uri", "picture-uri-dark"):
        setting = ["gsettings", "set", BACKGROUND, key, f"file://{urllib.parse.quote(os.path.abspath(path))}"]
        if (done := processes.run(setting, SETTINGS_SECONDS)).returncode:
            raise Problem(f"cannot change the wallpaper: {done.error.strip()}")
    return "Wallpaper changed successfully"


@blueprint.post("/wallpaper")
def wallpaper() -> Response:
    """Returns the wallpaper."""
    done = processes.run(["gsettings", "get", BACKGROUND, "picture-uri"], SETTINGS_SECONDS)
    path = urllib.parse.unquote(done.output.strip().strip("'").removeprefix("file://"))
    if not os.path.isfile(path):
        raise not_found(f"the wallpaper {path or '(none)'} is not there")
    return send_file(path, max_age=0)
