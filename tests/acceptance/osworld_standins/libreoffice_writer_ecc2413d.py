"""A blank page after the first: a declaration of five short pages; the task counts page breaks and has no reference."""

import docx
from docx.enum.text import WD_BREAK

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "ecc2413d-8a48-416e-a3a2-d30106ca36cb"
PAGES = {
    "Statutory declaration": ["I, the undersigned, of ____________________, declare what follows."],
    "What is declared": ["1. I have lived at this address since ____________________."],
    "What is enclosed": ["A copy of the lease, and three letters that came by post."],
    "Before whom": ["Declared before me, in the town of ____________________."],
    "Notes": ["Who declares what is not true may be fined.", "Sign every page."],
}
LAST_LINE = "Continued overleaf."


def declaration() -> bytes:
    """A heading and lines on each page; the break is at the start of the heading, where Writer keeps it."""
    document = docx.Document()
    for heading, lines in PAGES.items():
        place = document.add_heading("", 1)
        if heading != "Statutory declaration":
            place.add_run().add_break(WD_BREAK.PAGE)
        place.add_run(heading)
        for line in lines:
            document.add_paragraph(line)
        if heading == "Statutory declaration":
            document.add_paragraph(LAST_LINE)
    return saved(document)


FILES = {"Sample_Statutory_Declaration.docx": declaration()}


def broken(times: int) -> list[Turn]:
    """The page is broken so often after its last line."""
    return [
        turn("I click in the last line.", click(f"[paragraph] {LAST_LINE}", pause=1)),
        turn("I go to its end.", keys("end", pause=1)),
        *(turn("I break the page.", keys("ctrl", "enter", pause=1)) for _ in range(times)),
        DONE | {"when": f"Page {1 + times} of {5 + times} @"},
    ]


RIGHT = broken(1)
NEAR_MISS = broken(2)
NEAR_MISS_IS = "two blank pages"
SHELL = False
