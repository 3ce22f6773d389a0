"""A screenshot put where the cursor is: steps for students with one picture already, and one that is missing.

The reference has both pictures in their places; the cursor is eight lines below the top, in the empty paragraph.
"""

import io

import docx
from docx.shared import Inches
from PIL import Image, ImageDraw

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "6ada715d-3aae-4a32-a6a7-429b2e43fb93"


def screenshot(title: str, lines: int) -> bytes:
    """A window with a title and lines of text in it, as a PNG."""
    image = Image.new("RGB", (640, 320), (236, 238, 242))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 640, 36), fill=(30, 70, 130))
    draw.text((12, 12), title, fill=(255, 255, 255))
    for number in range(lines):
        draw.rectangle((20, 56 + 24 * number, 300 + 37 * number % 300, 66 + 24 * number), fill=(150, 160, 175))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


FIRST, SECOND = screenshot("Student portal", 5), screenshot("Class schedule", 9)


def steps(*, solved: bool) -> bytes:
    """The steps, with the first screenshot or an empty paragraph for it."""
    document = docx.Document()
    document.add_heading("Viewing your class schedule and textbooks", 1)
    for text in (
        "Open the student portal and sign in.",
        "Click on the tile with the name Records.",
        "A page with your data opens.",
        "Choose the term in the list at the top.",
        "Confirm with the button below the list.",
        "Wait until the page has changed.",
        "The portal then looks like this:",
    ):
        document.add_paragraph(text)
    place = document.add_paragraph()
    if solved:
        place.add_run().add_picture(io.BytesIO(FIRST), width=Inches(4))
    document.add_paragraph("Click on a class to see its books. The schedule looks like this:")
    document.add_picture(io.BytesIO(SECOND), width=Inches(4))
    document.add_paragraph("Print the list of books, or send it to your own address.")
    return saved(document)


FILES = {
    "Viewing_Your_Class_Schedule_and_Textbooks.docx": steps(solved=False),
    "Viewing_Your_Class_Schedule_and_Textbooks_Gold.docx": steps(solved=True),
    "1.png": FIRST,
}


def inserted(*before: Turn) -> list[Turn]:
    """The picture is inserted where the cursor is then, from the folder of the desktop."""
    return [
        *before,
        turn("I open the menu.", click("[menu] Insert @", pause=1), when="[paragraph] The portal then looks"),
        turn("I want a picture.", click("[menu-item] Image...", pause=2)),
        turn("I go to the desktop.", click(["[file-chooser] Insert Image", "[label] Desktop"], pause=2)),
        turn("I choose the picture.", click("[table-cell] 1.png", pause=1)),
        turn("I insert it.", click(["[file-chooser] Insert Image", "[push-button] Open @"], pause=2)),
        DONE | {"when": "[tool-bar] Image @"},
    ]


RIGHT = inserted()
NEAR_MISS = inserted(
    turn("I go to the end.", keys("ctrl", "end", pause=1), when="[paragraph] The portal then looks"),
)
NEAR_MISS_IS = "the picture is at the end of the text"
SHELL = False
