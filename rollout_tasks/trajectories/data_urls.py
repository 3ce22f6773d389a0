"""Data URLs of pictures, as messages to a model hold them."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import Any

KINDS = ("png", "jpeg", "webp", "gif")
"""Of pictures: each is the ending of the media type, and of a file's name."""
_BEGINNINGS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "png"),
    (re.compile(rb"\xff\xd8\xff"), "jpeg"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "webp"),
    (re.compile(rb"GIF8[79]a"), "gif"),
)
_PICTURE = re.compile(rf"data:image/({'|'.join(KINDS)});base64,")


def kind_of(picture: bytes) -> str | None:
    """Returns which of `KINDS` a picture's file is, by its first bytes; None for another one."""
    return next((kind for beginning, kind in _BEGINNINGS if beginning.match(picture)), None)


def data_url(picture: bytes, kind: str) -> str:
    """Returns a picture's data URL.

    Args:
        picture: The bytes of its file.
        kind: One of `KINDS`.
    """
    return f"data:image/{kind};base64,{b64encode(picture).decode()}"


def picture_of(url: Any) -> tuple[str, bytes] | None:
    """Returns kind and bytes of a data URL's picture; None for another kind, or base64 that could not be restored exactly."""
    prefix = _PICTURE.match(url) if isinstance(url, str) else None
    if prefix is None:
        return None
    encoded = url[prefix.end() :]
    try:
        picture = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return (prefix[1], picture) if binascii.b2a_base64(picture, newline=False) == encoded.encode() else None
