"""Draws the guest's wallpaper: evening colours over three ranges of hills. Runs in the guest: wallpaper.py PATH."""

import math
import sys

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 1920, 1080
SKY_TOP, SKY_BOTTOM = (27, 38, 79), (239, 167, 120)
HILLS = (
    ((92, 84, 122), 700, 60, 520, 0.4),
    ((58, 62, 96), 790, 46, 380, 2.1),
    ((32, 40, 66), 880, 36, 270, 4.0),
)


def main(path: str) -> None:
    """Writes the picture to `path`."""
    picture = Image.new("RGB", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(picture)
    for y in range(HEIGHT):
        share = min(y / 820, 1.0) ** 1.4
        colour = tuple(round(top + (bottom - top) * share) for top, bottom in zip(SKY_TOP, SKY_BOTTOM, strict=True))
        draw.line(((0, y), (WIDTH, y)), fill=colour)
    for colour, base, height, length, phase in HILLS:
        ridge = [
            (x, base + height * (math.sin(x / length + phase) + 0.4 * math.sin(2.7 * x / length + 2 * phase)))
            for x in range(0, WIDTH + 8, 8)
        ]
        draw.polygon([*ridge, (WIDTH, HEIGHT), (0, HEIGHT)], fill=colour)
    picture.save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
