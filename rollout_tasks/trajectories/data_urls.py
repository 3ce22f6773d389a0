"""Data URLs of pictures, as messages to a model hold them."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import Any

KINDS = ("png", "jpeg", "webp", "gif")
"""Of pictures: each is the ending of the media type, and of a file's name."""
_PICTURE = re.compile(rf"data:image/({'|'.join(KINDS)});base64,")


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
