"""Screenshots as this project keeps them: PNG, with a size known without decoding it."""

from __future__ import annotations

import io
import struct

_PNG = b"\x89PNG\r\n\x1a\n"


def as_png(image: bytes) -> bytes:
    """The picture as PNG; some guests send JPEG.

    Raises:
        ValueError: It is no picture.
    """
    if image.startswith(_PNG):
        return image
    from PIL import Image, UnidentifiedImageError

    file = io.BytesIO()
    try:
        with Image.open(io.BytesIO(image)) as opened:
            opened.save(file, "PNG", compress_level=1)
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"the screenshot is no picture: {error}") from error
    return file.getvalue()


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height.

    Raises:
        ValueError: It is no PNG.
    """
    if len(png) < 24 or not png.startswith(_PNG):
        raise ValueError("the screenshot is no PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height
