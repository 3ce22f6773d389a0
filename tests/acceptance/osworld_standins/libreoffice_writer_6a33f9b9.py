"""Words marked in yellow are marked no more: a script for telephone calls with a heading, a list and marks up to its end."""

from odf.opendocument import OpenDocumentText
from odf.style import Style, TextProperties
from odf.text import H, List, ListItem, P, Span

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "6a33f9b9-0a56-4844-9c3f-96ec3ffb3ba2"
_HEADING = "Script for a first call"
_MARK = "|"
_PARAGRAPHS = [
    "Hello, may I speak to |Ms Calder|? This is Robin Vale of the Harbour Museum; you wrote to us about the night tours.",
    "Is this |a good time| for a talk of about |ten minutes|? If not, I will gladly call again tomorrow.",
]
_QUESTIONS = [
    "What do you like about |showing people round|?",
    "On which evenings could you be here?",
    "Have you |worked with groups| of children before?",
]
_END = "Thank you. We will write to you |within a week|, whatever we decide."


def _script(*, marked: bool) -> bytes:
    document = OpenDocumentText()
    yellow = Style(name="T1", family="text")
    yellow.addElement(TextProperties(backgroundcolor="#ffff00"))
    document.automaticstyles.addElement(yellow)

    def paragraph(text: str) -> P:
        element = P()
        for number, piece in enumerate(text.split(_MARK)):
            if number % 2 and marked:
                element.addElement(Span(stylename=yellow, text=piece))
            else:
                element.addText(piece)
        return element

    document.text.addElement(H(outlinelevel=1, text=_HEADING))
    for text in _PARAGRAPHS:
        document.text.addElement(paragraph(text))
    questions = List()
    for text in _QUESTIONS:
        question = ListItem()
        question.addElement(paragraph(text))
        questions.addElement(question)
    document.text.addElement(questions)
    document.text.addElement(paragraph(_END))
    return saved(document)


FILES = {
    "sample-recruitment-phone-script.odt": _script(marked=True),
    "sample-recruitment-phone-script_Gold.odt": _script(marked=False),
}
_BUTTON = "[push-button] Character Highlighting Color"


def _cleared(*selected: Turn) -> list[Turn]:
    """What is selected is marked no more."""
    return [
        *selected,
        turn("I look at the colours of marks.", click(_BUTTON, x=938, pause=1), when="[label] Selected: "),
        turn("I take none.", click("[push-button] No Fill", pause=1), when="[push-button] No Fill"),
        DONE,
    ]


RIGHT = _cleared(turn("I select it all.", keys("ctrl", "a", pause=1), when=f"[heading] {_HEADING}"))
NEAR_MISS = _cleared(
    turn("I go to the end.", keys("ctrl", "end", pause=1), when=f"[heading] {_HEADING}"),
    turn("I go up to the line before.", keys("ctrl", "up", pause=0.5), keys("left", pause=0.5)),
    turn("I select from the start to there.", keys("ctrl", "shift", "home", pause=1)),
)
NEAR_MISS_IS = "the mark in the last paragraph stays"
SHELL = False
