"""Screenshots as this project keeps them: PNG, whose size is known without decoding. A guest may send anything."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 7680 * 4320
_BYTES_BESIDES = 1 << 20
"""How much a picture may have besides its pixels (four bytes for each, and one for each row), which need not be packed."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_HEADER = struct.Struct(">I4sII")
_FORMATS = ("PNG", "JPEG")


def as_png(image: bytes) -> bytes:
    """Returns the picture as PNG; some guests send JPEG. A PNG is not decoded: only its beginning and its end are looked at.

    Raises:
        ValueError: It is not a picture, or too large, or a PNG that breaks off.
    """
    if image.startswith(_PNG):
        size_of(image)
        if not image.endswith(_PNG_END):
            raise ValueError("the screenshot is not a picture: a PNG that breaks off")
        return image
    file = io.BytesIO()
    decoded(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


def size_of(png: bytes) -> tuple[int, int]:
    """Returns width and height.

    Raises:
        ValueError: It is not a PNG, or too large, also for its pixels: whatever else is in it would be kept with it.
    """
    if not png.startswith(_PNG) or len(png) < len(_PNG) + _HEADER.size:
        raise ValueError("the screenshot is not a PNG")
    length, kind, width, height = _HEADER.unpack_from(png, len(_PNG))
    if (length, kind) != (13, b"IHDR") or not width or not height:
        raise ValueError("the screenshot is not a PNG")
    _checked(width, height)
    if len(png) > (4 * width + 1) * height + _BYTES_BESIDES:
        raise ValueError(f"the screenshot is too large: {len(png)} bytes for {width}x{height}")
    return width, height


def decoded(image: bytes) -> Image.Image:
    """Decodes a PNG or JPEG. Other decoders are not used: they read what is not a picture, and start programs for it.

    Raises:
        ValueError: It is not a picture, or too large.
    """
    from PIL import Image, UnidentifiedImageError  # here, because it is optional: only desktops need it

    try:
        with Image.open(io.BytesIO(image), formats=_FORMATS) as picture:
            _checked(*picture.size)
            picture.load()
            return picture.copy()
    except UnidentifiedImageError as error:
        raise ValueError("the screenshot is not a picture: neither PNG nor JPEG") from error
    except Exception as error:  # decoders may raise anything
        raise ValueError(f"the screenshot is not a picture: {' '.join(str(error).split())[:200]}") from error


def _checked(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise ValueError(f"the screenshot is too large: {width}x{height}")
