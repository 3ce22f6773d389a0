"""Another font for the whole text: a page about a zoo, all in Arial, partly bold; the task compares with no reference."""

import docx
from docx.shared import Pt

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "0e763496-b6bb-4508-a427-fad0b6c3e195"


def introduction() -> bytes:
    """A heading and paragraphs with a bold word each."""
    document = docx.Document()
    for number, (before, bold, after) in enumerate(
        (
            ("The zoo ", "in the park", ""),
            ("It is open on ", "every day", " of the year, and quietest on wet mornings in November."),
            ("Seals are fed at ", "half past two", "; the penguins would rather be fed at any time."),
            ("A tram stops at the ", "north gate", ", five minutes from the elephants."),
        )
    ):
        paragraph = document.add_paragraph() if number else document.add_heading("", 1)
        for text in (before, bold, after):
            if text:
                run = paragraph.add_run(text)
                run.font.name, run.font.size, run.bold = "Arial", Pt(12 if number else 16), text == bold
    return saved(document)


FILES = {"Dublin_Zoo_Intro.docx": introduction()}


def set_font(*before: Turn) -> list[Turn]:
    """What is selected then gets the font, from the tool bar."""
    return [
        *before,
        turn("I name another font.", click("[text] Arial", num_clicks=3, pause=1), write("Times New Roman\n", pause=1)),
        DONE | {"when": "[text] Times New Roman"},
    ]


RIGHT = set_font(turn("I select it all.", keys("ctrl", "a", pause=1), when="[paragraph] A tram stops"))
NEAR_MISS = set_font(
    turn("I go below the heading.", click("[paragraph] It is open on", pause=1), when="[paragraph] A tram stops"),
    turn("I select the rest.", keys("home", pause=1), keys("ctrl", "shift", "end", pause=1)),
)
NEAR_MISS_IS = "the heading keeps its font"
SHELL = False
