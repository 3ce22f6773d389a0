"""Screenshots as this project keeps them: PNG, with a size known without decoding it. What comes from a guest may be anything."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 7680 * 4320
_PNG = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">I4sII")
_FORMATS = ("PNG", "JPEG")


def as_png(image: bytes) -> bytes:
    """The picture as PNG; some guests send JPEG.

    Raises:
        ValueError: It is no picture, or too large.
    """
    if image.startswith(_PNG):
        size_of(image)
        return image
    file = io.BytesIO()
    decoded(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height.

    Raises:
        ValueError: It is no PNG, or too large.
    """
    if not png.startswith(_PNG) or len(png) < len(_PNG) + _HEADER.size:
        raise ValueError("the screenshot is no PNG")
    length, kind, width, height = _HEADER.unpack_from(png, len(_PNG))
    if (length, kind) != (13, b"IHDR") or not width or not height:
        raise ValueError("the screenshot is no PNG")
    return _checked(width, height)


def decoded(image: bytes) -> Image.Image:
    """The picture, decoded by one of two decoders: others read what is no picture, and start programs for it.

    Raises:
        ValueError: It is no picture, or too large.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(image), formats=_FORMATS) as picture:
            _checked(*picture.size)
            picture.load()
            return picture.copy()
    except Exception as error:  # decoders raise whatever they run into
        raise ValueError(f"the screenshot is no picture: {' '.join(str(error).split())[:200]}") from error


def _checked(width: int, height: int) -> tuple[int, int]:
    if width * height > MOST_PIXELS:
        raise ValueError(f"the screenshot is too large: {width}x{height}")
    return width, height
