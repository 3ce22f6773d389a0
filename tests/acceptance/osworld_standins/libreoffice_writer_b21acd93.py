"""Line spacing by part: an essay of three paragraphs, all spaced as Word does it; in the reference 1, 2 and 1.5 lines."""

from collections.abc import Sequence

import docx
from docx.shared import Pt

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "b21acd93-60fd-4127-8a43-2f5178f4a830"
PARAGRAPHS = [
    "A city is read from its pavements. Who walks on them, what is sold from them and how long one may stand still on them"
    " tell us whom a street is for. This essay walks along three streets and asks what each allows.",
    "The first has benches, and they are taken by noon. The second lost its benches when the tram came, and people lean"
    " against the windows of the shops instead. The third never had any: its steps do as well, and nobody has told those"
    " who sit there to move on. In all three, the width of the pavement matters less than the reasons to stay on it.",
    "Streets are used as they are looked after. Where a place to sit is kept, people keep the place; where it is taken away,"
    " they pass through. A city that wants to be lived in should begin with its benches.",
]


def essay(spacings: Sequence[float], size: float) -> bytes:
    """The essay with each paragraph's line spacing, in a font of this size."""
    document = docx.Document()
    for text, spacing in zip(PARAGRAPHS, spacings, strict=True):
        paragraph = document.add_paragraph()
        paragraph.add_run(text).font.size = Pt(size)
        paragraph.paragraph_format.line_spacing = spacing
    return saved(document)


FILES = {
    "CCHU9045_Course_Outline_2019-20.docx": essay([1.15, 1.15, 1.15], 11),
    "CCHU9045_Course_Outline_2019-20_Gold.docx": essay([1, 2, 1.5], 12),
}


def spaced(*spacings: str) -> list[Turn]:
    """The whole text in size 12, and each paragraph's line spacing, from the menu."""
    turns = [
        turn("I select all.", keys("ctrl", "a", pause=1), when="[paragraph] Streets are used"),
        turn("I choose the size.", click("[text] 11", num_clicks=3), write("12\n", pause=1)),
    ]
    for text, spacing in zip(PARAGRAPHS, spacings, strict=True):
        turns += [
            turn("I go into the paragraph.", click(f"[paragraph] {text[:20]}", pause=1), when="[text] 12"),
            turn("I open the menu.", click("[menu] Format @", pause=1)),
            turn("On to the spacing.", click("[menu] Spacing", pause=1)),
            turn("I choose it.", click(f"Line Spacing: {spacing}", pause=1)),
        ]
    return turns


RIGHT = [*spaced("1 @", "2 @", "1.5"), DONE]
NEAR_MISS = [*spaced("1 @", "1.5", "2 @"), DONE]
NEAR_MISS_IS = "the spacings of body and conclusion are exchanged"
SHELL = False
