"""Encodes screenshots as a profile has them sent."""

from __future__ import annotations

import io
from base64 import b64encode
from dataclasses import dataclass

from rollout_tasks.agents.profiles.profile import Pictures
from rollout_tasks.environments.osworld.screenshot import decoded, size_of


@dataclass(frozen=True, slots=True)
class SentPicture:
    """A screenshot as the model gets it."""

    url: str
    """A data URL."""
    size: tuple[int, int]
    """Width and height in pixels, as sent."""
    screen: tuple[int, int]
    """Those of the screenshot itself."""


def encoded(screenshot: bytes, pictures: Pictures) -> SentPicture:
    """Returns a screenshot as it is sent.

    Args:
        screenshot: A PNG.
        pictures: The profile's rule.

    Raises:
        ValueError: It is no PNG, or cannot be resized.
    """
    screen = size_of(screenshot)
    if pictures.format == "unchanged":
        return SentPicture(_data_url(screenshot, "png"), screen, screen)
    size = screen if pictures.resize is None else pictures.resize.resizing.size(*screen)
    picture = decoded(screenshot)
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    if pictures.size is not None:
        from PIL import Image

        size = pictures.size
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    elif size != screen:
        picture = picture.resize(size)
    file = io.BytesIO()
    quality = {} if pictures.quality is None else {"quality": pictures.quality}
    picture.save(file, pictures.format.upper(), **quality)
    return SentPicture(_data_url(file.getvalue(), pictures.format), size, screen)


def _data_url(picture: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{b64encode(picture).decode()}"
