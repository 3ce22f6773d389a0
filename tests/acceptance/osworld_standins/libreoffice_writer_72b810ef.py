"""The last paragraph of a course outline is struck through: there are a table and a list, and it is partly bold and italic."""

import docx

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, turn

TASK = "72b810ef-4156-4d09-8f08-a0cf57e7cefe"


def outline(*, strike: bool) -> bytes:
    """The outline, its last paragraph struck through or not."""
    document = docx.Document()
    document.add_heading("GEOG2169 Rivers, Coasts and Cities", 0)
    document.add_paragraph("Course outline 2022-23, first semester, 6 credits")
    document.add_heading("What it is about", 1)
    document.add_paragraph(
        "Water shapes the land that we build on. This course follows it from the hills to the harbour and asks how towns"
        " use it, fear it and change it. There are two field trips; sturdy shoes are a must."
    )
    document.add_heading("What you will learn", 1)
    for aim in ("To read a river's past in its banks", "To map a flood plain", "To write about a place with care"):
        document.add_paragraph(aim, style="List Bullet")
    document.add_heading("How it is marked", 1)
    table = document.add_table(1, 2, style="Table Grid")
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Part", "Share"
    for part, share in (("Field notes", "25%"), ("Group map", "35%"), ("Essay", "40%")):
        cells = table.add_row().cells
        cells[0].text, cells[1].text = part, share
    document.add_heading("Rules", 1)
    document.add_paragraph("Work that comes late loses five marks a day. Notes are handed in on paper.")
    last = document.add_paragraph()
    for text, style in (
        ("In short, this course is about ", ""),
        ("water", "bold"),
        (", about the land that it shapes, and about ", ""),
        ("the towns that live with both", "italic"),
        ("; see the reading list for more, and come to the field trips.", ""),
    ):
        run = last.add_run(text)
        if style:
            setattr(run, style, True)
        if strike:
            run.font.strike = True
    return saved(document)


FILES = {
    "GEOG2169_Course_Outline_2022-23.docx": outline(strike=False),
    "GEOG2169_Course_Outline_2022-23_Gold.docx": outline(strike=True),
}


START = turn("I go to the end.", keys("ctrl", "end", pause=1), when="[paragraph] In short, this course")
STRIKE = [
    turn("I select from the start of the paragraph to here.", keys("ctrl", "shift", "up", pause=1)),
    turn("I open the menu.", click("[menu] Format @", pause=1)),
    turn("On to how text looks.", click("[menu] Text @", pause=1)),
    turn("I strike it through.", click("[check-menu-item] Strikethrough", pause=1)),
    DONE,
]
RIGHT = [START, *STRIKE]
NEAR_MISS = [START, turn("I go back by a word or two.", keys("ctrl", "left"), keys("ctrl", "left", pause=1)), *STRIKE]
NEAR_MISS_IS = "the last word is not struck through"
SHELL = False
