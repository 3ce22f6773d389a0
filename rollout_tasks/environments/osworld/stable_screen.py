"""Waits until a desktop shows what its task's setup has started: until the screen has changed and is then stable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image, ImageChops

from rollout_tasks.environments.osworld.screenshot import decoded

CHANGE_SECONDS = 8.0
"""A program that shows nothing by then has no window, or takes too long."""
STILL_SECONDS = 1.0
AT_MOST_SECONDS = 20.0
"""A screen that never becomes stable, as with a video, is taken as it is after this time."""
LOOK_SECONDS = 0.3
UNNOTICED = 1_500
"""Pixels that may differ, as a cursor blinks."""
_WITHOUT_WINDOW = frozenset({"socat", "pkill", "killall"})


def shows_something(task: Mapping[str, Any]) -> bool:
    """Returns whether the task's setup opens a window."""
    return any(
        step["type"] == "open" or (step["type"] == "launch" and _program(step) not in _WITHOUT_WINDOW)
        for step in task["config"]
    )


def wait_until_stable(look: Callable[[], bytes | None], before: bytes) -> None:
    """Returns once the screen differs from `before` and is stable, or when that takes too long.

    Raises:
        ValueError: A screenshot is not a picture.
    """
    began = time.monotonic()
    first = decoded(before).convert("L")
    last, still_since, changed = first, began, False
    while True:
        time.sleep(LOOK_SECONDS)
        seen = look()
        now = time.monotonic()
        picture = last if seen is None else decoded(seen).convert("L")
        if _differ(picture, last):
            still_since = now
        changed = changed or _differ(picture, first)
        last = picture
        if changed and now - still_since >= STILL_SECONDS:
            return
        if now - began >= (AT_MOST_SECONDS if changed else CHANGE_SECONDS):
            return


def _program(step: Mapping[str, Any]) -> str:
    command = step["parameters"].get("command", "")
    words = command.split() if isinstance(command, str) else [str(word) for word in command]
    return words[0].rsplit("/", 1)[-1] if words else ""


def _differ(one: Image.Image, other: Image.Image) -> bool:
    if one is other:
        return False
    if one.size != other.size:
        return True
    histogram = ImageChops.difference(one, other).histogram()
    return sum(histogram[8:]) > UNNOTICED
