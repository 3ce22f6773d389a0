"""Page numbers at the bottom left: an article of three pages without a footer; the task compares with no reference."""

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, saved, turn

TASK = "0e47de2a-32e0-456c-a366-8c607ef7a9d2"
PAGES = {
    "A word processor that is free": "Anyone may use it, read how it is made and pass it on. {} It opens what others wrote.",
    "Styles before buttons": "A heading is a heading by its style, not by its size. {} Change the style, and all of them follow.",
    "Who keeps it going": "A foundation looks after the name and the servers. {} Many of its makers are paid by firms.",
}


def article() -> bytes:
    """Three headings, each with its own page of paragraphs."""
    document = docx.Document()
    for number, (heading, text) in enumerate(PAGES.items()):
        if number:
            document.add_page_break()
        document.add_heading(heading, 1)
        for about in ("That holds at home.", "That holds at school.", "That holds in an office."):
            document.add_paragraph(text.format(about))
    return saved(document)


FILES = {"LibreOffice_Open_Source_Word_Processing.docx": article()}


def numbered_in(where: str) -> list[Turn]:
    """A header or a footer is added, and a page number in it."""
    return [
        turn("I open the menu.", click("[menu] Insert @", pause=1), when="[heading] A word processor"),
        turn("On to what is on every page.", click("[menu] Header and Footer", pause=1)),
        turn("I choose where.", click(["[menu] Header and Footer", f"[menu] {where}"], pause=1)),
        turn("On all pages.", click([f"[menu] {where}", "[check-menu-item] Default Page Style"], pause=1)),
        turn("I open the menu again.", click("[menu] Insert @", pause=1), when=f"[{where.lower()}] {where}"),
        turn("I insert the number.", click("[menu-item] Page Number @", pause=1)),
    ]


RIGHT = [*numbered_in("Footer"), {**DONE, "when": "[paragraph] 3 @"}]
NEAR_MISS = [*numbered_in("Header"), {**DONE, "when": "[paragraph] 1 @"}]
NEAR_MISS_IS = "the numbers are at the top left"
SHELL = False
