"""A heading is centred: the first lines of a club's rules; the task compares with no reference."""

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "3ef2b351-8a84-4ff2-8724-d86eae9b842e"


def rules() -> bytes:
    """A heading and what is below it, all at the left."""
    document = docx.Document()
    document.add_heading("Constitution of the Rowing Club", 1)
    for text in (
        "Put your club's name where ours is, and strike what you do not need.",
        "The club is open to all who can swim. Nobody needs a boat to join.",
        "A committee of five looks after boats and money. It is chosen in March, for a year.",
        "These rules change when two thirds of those present want it.",
    ):
        document.add_paragraph(text)
    return saved(document)


FILES = {"Constitution_Template_With_Guidelines.docx": rules()}


def centred(line: str) -> list[Turn]:
    """The line is centred."""
    return [
        turn("I click in the line.", click(line, pause=1), when="[paragraph] These rules change"),
        turn("I centre it.", keys("ctrl", "e", pause=1)),
        DONE,
    ]


RIGHT = centred("[heading] Constitution of")
NEAR_MISS = centred("[paragraph] Put your club's")
NEAR_MISS_IS = "the line below the heading is centred"
SHELL = False
