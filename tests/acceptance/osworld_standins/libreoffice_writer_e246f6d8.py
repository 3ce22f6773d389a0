"""Larger italics: an essay in size 12 with a few italic words, which the reference has in size 14."""

import re
from collections.abc import Sequence

import docx
from docx.shared import Pt

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "e246f6d8-78d7-44ac-b668-fcf47946cb50"
PARAGRAPHS = [
    "Words that other languages lend us keep their coats on for a while. We write *schadenfreude* at a slant until we"
    " feel it often enough, and then we stand it upright.",
    "Titles never take theirs off. A reader who is told to finish *The Long Ferry* by Monday looks for a book.",
    "Stress is the third reason, and the weakest: what is *really* important does not need to lean.",
]
ITALIC = re.compile(r"\*(.+?)\*")
WORDS = [ITALIC.findall(text)[0] for text in PARAGRAPHS]


def essay(italic_size: float) -> bytes:
    """The essay; what is between stars is italic, and of this size."""
    document = docx.Document()
    for text in PARAGRAPHS:
        paragraph = document.add_paragraph()
        for number, part in enumerate(ITALIC.split(text)):
            run = paragraph.add_run(part)
            run.font.size = Pt(italic_size if number % 2 else 12)
            run.italic = True if number % 2 else None
    return saved(document)


FILES = {"Y22-2119-assign4.docx": essay(12), "Y22-2119-assign4_Gold.docx": essay(14)}


def enlarged(words: Sequence[str]) -> list[Turn]:
    """Each of these is looked for, and gets another size from the tool bar."""
    turns = []
    for number, word in enumerate(words):
        turns += [
            turn("I look for it.", keys("ctrl", "f", pause=1), when="[text] 14" if number else "[paragraph] Stress is"),
            turn("I find it.", write(f"{word}\n", pause=1), when="[tool-bar] Find"),
            turn("I close the search; it stays selected.", keys("esc", pause=1)),
            turn("I choose the size.", click("[text] 12", num_clicks=3, pause=0.5), write("14\n", pause=1)),
        ]
    return [*turns, DONE | {"when": "[text] 14"}]


RIGHT = enlarged(WORDS)
NEAR_MISS = enlarged(WORDS[:2])
NEAR_MISS_IS = "one italic word stays as it is"
SHELL = False
