"""The default font: a form letter in another one; the task looks at Writer's settings."""

import docx
from docx.shared import Pt

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, saved, turn, write

TASK = "f178a4a9-d090-4b56-bc4c-4b72a61a035d"


def letter() -> bytes:
    """A letter of authorization to be filled in."""
    document = docx.Document()
    document.add_heading("Letter of authorization", 1)
    for text in (
        "Date: ____________________",
        "To the harbour office, counter for sealed goods",
        "We, the undersigned, authorize the person named below to hand in the papers of one shipment in our name. This"
        " letter is valid once, and for that shipment only.",
        "Name: ____________________",
        "Number of the shipment: ____________________",
        "We answer for what the person named does with this letter, and for the fees that arise from it.",
        "Signature and stamp: ____________________",
    ):
        document.add_paragraph().add_run(text).font.size = Pt(11)
    return saved(document)


FILES = {"loa-one-time-submission-sealand.docx": letter()}


def set_font(*field: str) -> list[Turn]:
    """One of the fonts in Writer's settings is changed."""
    return [
        turn("I open the menu.", click("[menu] Tools @", pause=1), when="[heading] Letter of authorization"),
        turn("The settings.", click("[menu-item] Options...", pause=2)),
        turn("Those of Writer.", double_click("[table-cell] LibreOffice Writer", pause=2), when="[dialog] Options"),
        turn("Its fonts.", click("[table-cell] Basic Fonts (Western)", pause=2)),
        turn(
            "I name another font.",
            click(["[dialog] Options", *field], num_clicks=3, pause=1),
            write("Times New Roman", pause=1),
            when="[label] Heading: @",
        ),
        turn("I confirm.", click(["[dialog] Options", "[push-button] OK"], pause=2), when="[text] Times New Roman"),
        DONE,
    ]


RIGHT = set_font("[text] Liberation Sans", "[text] Cambria")
NEAR_MISS = set_font("[text] Liberation Sans")
NEAR_MISS_IS = "the font of headings is changed"
SHELL = False
