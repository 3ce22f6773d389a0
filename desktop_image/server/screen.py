"""Screenshots with the pointer, the screen's size, and the pointer's position.

Every request takes its own picture, so that concurrent requests cannot mix. There are no pictures until the desktop has
drawn itself for the first time: the first one shows a whole desktop.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any

from flask import Blueprint, Response, current_app, jsonify, request
from PIL import Image, ImageGrab

from . import desktop_shell, x11
from .polling import wait_until
from .problems import Problem

blueprint = Blueprint("screen", __name__)

START_SECONDS = 8.0
"""Longest wait of a request for a desktop that is starting; then the request fails."""
SETTLE_SECONDS = 2.0

_started = threading.Event()
_starting = threading.Lock()


@blueprint.get("/screenshot")
def screenshot() -> Response:
    """Returns the screen as PNG, with the pointer; with ``?without=clock``, only what does not change by itself."""
    require_started()
    picture = _grab()
    with x11.connected() as display:
        _draw_pointer(picture, display)
        if request.args.get("without") == "clock" and (rows := desktop_shell.rows_with_clock(display)):
            picture = picture.crop((0, rows, *picture.size))
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return Response(file.getvalue(), mimetype="image/png", headers={"Cache-Control": "no-store"})


@blueprint.post("/screen_size")
def screen_size() -> Response:
    """Returns width and height in pixels."""
    with x11.connected() as display:
        here = display.screen()
        return jsonify(width=here.width_in_pixels, height=here.height_in_pixels)


@blueprint.get("/cursor_position")
def cursor_position() -> Response:
    """Returns the pointer's position: ``[x, y]``."""
    with x11.connected() as display:
        pointer = display.screen().root.query_pointer()
        return jsonify([pointer.root_x, pointer.root_y])


def has_started() -> bool:
    """Whether the whole desktop has been seen once."""
    return _started.is_set()


def require_started() -> None:
    """Waits for the desktop's first whole picture.

    Raises:
        Problem: It does not come in time.
    """
    if _started.is_set():
        return
    with _starting:
        if _started.is_set():
            return
        missing = wait_until(lambda: _Nothing(_missing()), START_SECONDS).what
        if missing:
            raise Problem(f"the desktop is still starting: {missing}", 503)
        with x11.connected() as display:
            x11.press_first_key(display)
        before = b""

        def settled() -> bool:
            nonlocal before
            last, before = before, bytes(_grab().tobytes())
            return last == before

        wait_until(settled, SETTLE_SECONDS)
        _started.set()


class _Nothing:
    """True when nothing is missing."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __bool__(self) -> bool:
        return not self.what


def _missing() -> str:
    try:
        with x11.connected() as display:
            here = display.screen()
            size = (here.width_in_pixels, here.height_in_pixels)
            if size != current_app.config["SCREEN"]:
                return f"its screen is {size[0]}x{size[1]}"
            return desktop_shell.missing(display)
    except Problem as problem:
        return str(problem)


def _grab() -> Image.Image:
    try:
        return ImageGrab.grab(xdisplay=os.environ["DISPLAY"])
    except OSError as error:
        raise Problem("the display does not answer", 503) from error


def _draw_pointer(picture: Image.Image, display: Any) -> None:
    display.xfixes_query_version()
    pointer = display.xfixes_get_cursor_image(display.screen().root)
    pixels = b"".join(
        bytes((pixel >> 16 & 255, pixel >> 8 & 255, pixel & 255, pixel >> 24)) for pixel in pointer.cursor_image
    )
    # X gives colours that are already multiplied by their opacity.
    shape = Image.frombuffer("RGBa", (pointer.width, pointer.height), pixels, "raw", "RGBa", 0, 1).convert("RGBA")
    picture.paste(shape, (pointer.x - pointer.xhot, pointer.y - pointer.yhot), shape)
