"""Three slides of a library's report, the last with a table below its title, which moves to the bottom.

The evaluator wants it to begin 10 cm from the top or more. The reference is the file itself.
"""

from pptx.util import Inches

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    keys,
    saved,
    text_in,
    titled_slide,
    turn,
    white_deck,
)

TASK = "ac1b39ff-ee4d-4483-abce-c117e98942f0"
_TITLE = "Loans by Branch"
_TEXTS = {
    "A Year at the Library": ["Three branches and a bus", "Longer hours since May"],
    "What Readers Asked For": ["More tables with sockets", "Books in large print", "A box for returns at night"],
}
_LOANS = [
    ("Branch", "Loans", "Readers"),
    ("Old Town", "48,210", "3,905"),
    ("Harbour", "31,077", "2,640"),
    ("The bus", "9,864", "1,120"),
]


def _slides() -> bytes:
    deck = white_deck()
    for heading, lines in _TEXTS.items():
        title, body = titled_slide(deck, 1).placeholders
        text_in(title.text_frame, [heading], 36, centred=True)
        text_in(body.text_frame, lines, 24, bullet="•")
    slide = titled_slide(deck, 5)
    text_in(slide.placeholders[0].text_frame, [_TITLE], 36, centred=True)
    table = slide.shapes.add_table(4, 3, Inches(1), Inches(1.8), Inches(8), Inches(2)).table
    for row, texts in enumerate(_LOANS):
        for column, text in enumerate(texts):
            text_in(table.cell(row, column).text_frame, [text], 16, bold=row == 0)
    return saved(deck)


FILES = {"55_10.pptx": _slides(), "55_10_Original.pptx": _slides()}


def _moved(*how: str) -> list[Turn]:
    """The table, the last thing on the slide, is aligned to the page."""
    return [
        turn("I go to page 3.", click(f"[panel] {_TITLE}", pause=2), when=f"[panel] {_TITLE}"),
        turn(
            "I go into its title.", click(f"[paragraph] {_TITLE}", num_clicks=2, pause=1), when=f"[paragraph] {_TITLE}"
        ),
        turn("And out of it.", keys("esc", pause=1), keys("esc", pause=1), when="[label] TextEdit: Paragraph"),
        turn("I select the table.", keys("shift", "tab", pause=1)),
        turn("I open the menu.", click("[menu] Format", pause=1), when="[toggle-button] Table Design"),
        turn("I align it.", click("[menu] Align Objects", pause=1), when="[menu] Align Objects"),
        turn("There.", click(["[menu] Align Objects", *how], pause=1), when=how[-1]),
        DONE,
    ]


RIGHT = _moved("[menu-item] Bottom")
NEAR_MISS = _moved("[menu-item] Top", "[menu-item] Center")
NEAR_MISS_IS = "the table is halfway down"
SHELL = False
