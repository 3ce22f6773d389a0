from __future__ import annotations

import io
import os
import struct
import zlib

import pytest
from PIL import Image

from rollout_tasks.environments.osworld.screenshot import MOST_PIXELS, as_png, decoded, size_of


def picture(kind: str, size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, kind)
    return file.getvalue()


def png(width: int, height: int, data: bytes = b"", note: bytes = b"") -> bytes:
    """Says that it has so many pixels, and something besides."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    header += chunk(b"teXt", note) if note else b""
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", data or zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_png_stays_as_it_is_and_a_jpeg_becomes_one() -> None:
    assert as_png(given := picture("PNG")) == given
    assert size_of(as_png(picture("JPEG"))) == (40, 30)
    assert decoded(picture("JPEG")).getpixel((5, 5))[0] > 250


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "EPS", "PDF", "PPM", "ICO", "TGA", "WEBP"])
def test_other_decoders_are_not_used(kind: str) -> None:
    with pytest.raises(ValueError, match="not a picture"):
        as_png(picture(kind))


@pytest.mark.parametrize("missing", [1, 8, 12, 40])
def test_a_png_that_breaks_off_is_no_picture(missing: int) -> None:
    with pytest.raises(ValueError, match="the screenshot is not a picture: a PNG that breaks off"):
        as_png(picture("PNG")[:-missing])


def test_a_picture_has_no_more_bytes_than_its_pixels_need() -> None:
    large = png(40, 30, note=bytes(2 << 20))
    for read in (as_png, size_of):
        with pytest.raises(ValueError, match=f"^the screenshot is too large: {len(large)} bytes for 40x30$"):
            read(large)


def test_a_picture_of_noise_that_is_not_packed_is_one() -> None:
    size = (1000, 700)
    file = io.BytesIO()
    Image.frombytes("RGBA", size, os.urandom(size[0] * size[1] * 4)).save(file, "PNG", compress_level=0)

    assert size_of(as_png(file.getvalue())) == size


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(/etc/passwd) (r) file\n%%EOF"
BROKEN = {
    "nothing": b"",
    "only a signature": b"\x89PNG\r\n\x1a\n",
    "no header": b"\x89PNG\r\n\x1a\n" + bytes(40),
    "no pixels": png(0, 5),
    "too many pixels": png(MOST_PIXELS, 2),
    "many on one side": png(1 << 31, 1 << 31),
    "PostScript": EPS,
    "text": b"<html></html>",
}


@pytest.mark.parametrize("given", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_picture_is_said(given: bytes) -> None:
    for read in (as_png, decoded):
        with pytest.raises(ValueError, match="screenshot is"):
            read(given)


@pytest.mark.parametrize(
    "given",
    [png(40, 30), png(40, 30, b"no zlib"), picture("PNG")[:-30], picture("JPEG")[:200], png(7000, 4000)],
    ids=["no data", "no zlib", "cut", "JPEG cut", "large and empty"],
)
def test_what_breaks_off_is_said_when_it_is_decoded(given: bytes) -> None:
    with pytest.raises(ValueError, match="the screenshot is not a picture"):
        decoded(given)


def test_why_it_is_no_picture_names_no_object_of_this_program() -> None:
    with pytest.raises(ValueError, match=r"^the screenshot is not a picture: neither PNG nor JPEG$"):
        decoded(b"GIF89a" + bytes(20))
