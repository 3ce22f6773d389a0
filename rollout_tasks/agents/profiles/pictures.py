"""Encodes screenshots as a profile has them sent."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from rollout_tasks.agents.profiles.actions import Point
from rollout_tasks.agents.profiles.profile import Pictures
from rollout_tasks.environments.osworld.screenshot import decoded, size_of
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.trajectories.data_urls import data_url

_EMPTY = 64
"""Pixels of each side."""


@dataclass(frozen=True)
class SentPicture:
    """A screenshot as the model gets it."""

    url: str
    """A data URL."""
    size: tuple[int, int]
    """Width and height in pixels, as sent."""
    screen: tuple[int, int]
    """Those of the screenshot itself."""

    @cached_property
    def part(self) -> dict[str, Any]:
        """The picture as a part of a message in Chat Completions; not to be changed."""
        return {"type": "image_url", "image_url": {"url": self.url}}

    @cached_property
    def block(self) -> dict[str, Any]:
        """The picture as a part of a message in the Messages API; not to be changed. The URL is split once, not in each prompt."""
        head, _, data = self.url.partition(";base64,")
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
        return {"type": "image", "source": source}


def encoded(screenshot: bytes, pictures: Pictures) -> SentPicture:
    """Returns a screenshot as it is sent.

    Args:
        screenshot: A PNG.
        pictures: The profile's rule.

    Raises:
        ValueError: It is not a PNG, or cannot be resized.
    """
    screen = size_of(screenshot)
    if pictures.format == "unchanged":
        return SentPicture(data_url(screenshot, "png"), screen, screen)
    size = screen if pictures.resize is None else pictures.resize.resizing.size(*screen)
    picture = decoded(screenshot)
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    if pictures.size is not None:
        from PIL import Image  # here, because it is optional: only desktops need it

        size = pictures.size
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    elif size != screen:
        picture = picture.resize(size)
    file = io.BytesIO()
    quality = {} if pictures.quality is None else {"quality": pictures.quality}
    picture.save(file, pictures.format.upper(), **quality)
    return SentPicture(data_url(file.getvalue(), pictures.format), size, screen)


@cache
def empty_picture() -> str:
    """Returns the data URL of a small grey PNG, for an API that wants a picture where there is nothing to show."""
    from PIL import Image  # here, because it is optional: only desktops need it

    file = io.BytesIO()
    Image.new("L", (_EMPTY, _EMPTY), 128).save(file, "PNG")
    return data_url(file.getvalue(), "png")


def part_of(screenshot: bytes, left_top: Point, right_bottom: Point) -> SentPicture:
    """Returns a part of a screenshot in full resolution.

    Args:
        screenshot: A PNG.
        left_top: Pixels of the screen.
        right_bottom: The last pixel that belongs to the part.

    Raises:
        ValueError: It is not a picture.
    """
    screen = size_of(screenshot)
    part = decoded(screenshot).crop((left_top[0], left_top[1], right_bottom[0] + 1, right_bottom[1] + 1))
    file = io.BytesIO()
    part.save(file, "PNG")
    return SentPicture(data_url(file.getvalue(), "png"), part.size, screen)


@contextmanager
def decodable() -> Iterator[None]:
    """Makes a picture that cannot be decoded the VM's failure: until then only the start and the end of a PNG are checked."""
    try:
        yield
    except ValueError as error:
        problem = f"the VM's screenshot cannot be decoded, so something else may have answered instead of it: {error}"
        raise RolloutFailure(FailureClass.VM_LOST, problem) from error
