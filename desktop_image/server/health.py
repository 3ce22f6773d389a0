"""Health check for the machine's host: whether the desktop works, and what runs on it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from flask import Blueprint, Response, current_app, jsonify

from . import desktop_shell, screen, x11
from .problems import Problem

blueprint = Blueprint("health", __name__)

NEEDED = ("Xvfb", "at-spi-bus-laun", "dbus-daemon")


@blueprint.get("/health")
def health() -> Response:
    """Returns the state of the desktop."""
    running = sorted(_process_names())
    size, titles = [0, 0], list[str]()
    missing = [name for name in (*NEEDED, *desktop_shell.PROCESSES) if name not in running]
    failed = f"{' and '.join(missing)} not running" if missing else ""
    try:
        with x11.connected() as display:
            here = display.screen()
            size = [here.width_in_pixels, here.height_in_pixels]
            titles = [window.title for window in x11.normal_windows(display)]
            if not (failed or screen.has_started()):
                failed = desktop_shell.missing(display)
    except Problem as problem:
        failed = str(problem)
    if not failed and size != list(current_app.config["SCREEN"]):
        failed = f"the screen is {size[0]}x{size[1]}"
    return jsonify(ok=not failed, failed=failed, screen=size, processes=running, windows=titles)


@blueprint.get("/platform")
def platform_name() -> str:
    """Returns the operating system's name."""
    return platform.system()


def _process_names() -> Iterator[str]:
    """Yields the names of all processes except the kernel's own."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if (folder / "cmdline").read_bytes():
                yield (folder / "comm").read_text().strip()
        except OSError:
            continue
