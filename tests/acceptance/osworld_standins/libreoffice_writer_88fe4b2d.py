"""Guidelines whose first paragraph has four sentences, each of which gets a paragraph of its own and an empty line after it.

The references differ in the spaces that were between the sentences: left at the end, left out, left at the beginning.
"""

from collections.abc import Sequence

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "88fe4b2d-3040-4c70-9a70-546a47764b48"
_SENTENCES = [
    "Each tutorial begins with a question that one of you has brought.",
    "Read the text of the week before you come, with a pencil at hand.",
    "Whoever leads the talk sends three questions to all by Tuesday noon.",
    "A tutorial that you miss can be made up for by a page about its text.",
]
_REST = [
    "Marks are given for what you ask, not for how long you speak. A good question is short.",
    "Essays are due in week 9. They have about 1500 words, and say on their first page what they argue.",
]


def _guidelines(*first: str) -> bytes:
    document = docx.Document()
    for text in [*first, *_REST]:
        document.add_paragraph(text)
    return saved(document)


def _apart(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences[:-1] for line in (sentence, "")] + [sentences[-1]]


_NAME = "CCCH9003_Tutorial_guidelines"
_FIRST, *_, _LAST = _SENTENCES
FILES = {
    f"{_NAME}.docx": _guidelines(" ".join(_SENTENCES)),
    f"{_NAME}_Gold_1.docx": _guidelines(*_apart([*(f"{one} " for one in _SENTENCES[:-1]), _LAST])),
    f"{_NAME}_Gold_2.docx": _guidelines(*_apart(_SENTENCES)),
    f"{_NAME}_Gold_3.docx": _guidelines(*_apart([_FIRST, *(f" {one}" for one in _SENTENCES[1:])])),
}
_DIALOG = "[dialog] Find and Replace"
_REGULAR, _SELECTED = "[check-box] Regular expressions", "[check-box] Current selection only"


def _replaced(*boxes: str) -> list[Turn]:
    """With these boxes, what is between two sentences becomes two ends of a paragraph."""
    text = f"[paragraph] {_FIRST}"
    return [
        turn("I go into the paragraph.", click(text, pause=1), when=text),
        turn("I select it all.", keys("ctrl", "home", pause=1), keys("ctrl", "shift", "down", pause=1)),
        turn("I want to replace.", keys("ctrl", "h", pause=2), when="[label] Selected: "),
        turn(
            "A full stop and a space.",
            click([_DIALOG, "[text]"], num_clicks=3, pause=0.5),
            write(r"\. ", pause=1),
            when=_DIALOG,
        ),
        turn("I get two ends.", click([_DIALOG, "[label] Replace:", "[text]"], pause=0.5), write(r".\n\n", pause=1)),
        *(turn("I tick this.", click(f"{box} @", pause=1)) for box in boxes),
        turn("I replace them.", click([_DIALOG, "[push-button] Replace All"], pause=2), when=f"{boxes[-1]} (on"),
        turn("I close the dialog.", click([_DIALOG, "[push-button] Close"], pause=1.5), when=f"[paragraph] {_LAST}"),
        DONE,
    ]


RIGHT = _replaced(_REGULAR, _SELECTED)
NEAR_MISS = _replaced(_REGULAR)
NEAR_MISS_IS = "the other paragraphs' sentences are separated too"
SHELL = False
