"""Double line spacing for two paragraphs: a heading and four paragraphs, all at one and a half lines.

The first reference counts paragraphs below the heading; the second counts the heading too.
"""

from collections.abc import Sequence

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, saved, turn

TASK = "0810415c-bde4-4443-9047-d5f70165a697"
PARAGRAPHS = [
    "What a novel is",
    "A novel is long, made up and in prose. Each of the three has been denied by somebody who wrote one. We read four of"
    " them this term, and each denies at least one.",
    "The first is short: it can be read on one train, and its author did so before he sent it off. Mark what you would"
    " ask him, in pencil, and bring the marks.",
    "The second is in verse. Read it aloud, if those around you let you, and notice where you have to breathe.",
    "The third and the fourth are about the same street. Nobody in either book has heard of the other.",
]


def introduction(double: Sequence[int]) -> bytes:
    """The text, the paragraphs of these numbers double spaced."""
    document = docx.Document()
    for number, text in enumerate(PARAGRAPHS):
        paragraph = document.add_paragraph(text) if number else document.add_heading(text, 1)
        paragraph.paragraph_format.line_spacing = 2.0 if number in double else 1.5
    return saved(document)


FILES = {
    "Novels_Intro_Packet.docx": introduction(()),
    "Novels_Intro_Packet_Gold.docx": introduction((1, 2)),
    "Novels_Intro_Packet_Gold_2.docx": introduction((0, 1)),
}


def spaced(numbers: Sequence[int]) -> list[Turn]:
    """The paragraphs of these numbers are double spaced, from the menu."""
    turns = []
    for number in numbers:
        turns += [
            turn("I go into the paragraph.", click(f"[paragraph] {PARAGRAPHS[number][:20]}", pause=1)),
            turn("I open the menu.", click("[menu] Format @", pause=1)),
            turn("On to the spacing.", click("[menu] Spacing", pause=1)),
            turn("I choose it.", click("Line Spacing: 2 @", pause=1)),
        ]
    return turns


RIGHT = [*spaced((1, 2)), DONE]
NEAR_MISS = [*spaced((1, 2, 3)), DONE]
NEAR_MISS_IS = "the third paragraph is double spaced too"
SHELL = False
