"""Lines separated by commas become a table: a word list for phonics, and the two references that the task allows.

The first reference has the list as a table; the second has the heading above it in the table too.
"""

from collections.abc import Sequence

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn

TASK = "936321ce-5236-426a-9a20-e0e3c5dc536f"
HEADING = "Vowel sounds and their spellings"
INTRODUCTION = (
    "Each line below has a sound, its usual spelling, two words that show it and the week in which we teach it."
)
LINES = [
    ["Sound", "Grapheme", "First word", "Second word", "Week"],
    ["long a", "ai", "rain", "train", "1"],
    ["long a", "ay", "play", "crayon", "1"],
    ["long e", "ee", "green", "sheep", "2"],
    ["long e", "ea", "beach", "dream", "2"],
    ["long i", "igh", "light", "bright", "3"],
    ["long o", "oa", "boat", "toast", "4"],
    ["long o", "ow", "snow", "pillow", "4"],
    ["long u", "ue", "blue", "rescue", "5"],
    ["ar", "ar", "farm", "garden", "6"],
]


def list_as(table: Sequence[Sequence[str]] | None) -> bytes:
    """The document with its list as a table, or as lines."""
    document = docx.Document()
    if table is None or table[0] != [HEADING]:
        document.add_heading(HEADING, 1)
        document.add_paragraph(INTRODUCTION)
    if table is None:
        for line in LINES:
            document.add_paragraph(", ".join(line))
    else:
        made = document.add_table(0, max(map(len, table)))
        for line in table:
            for cell, text in zip(made.add_row().cells, line, strict=False):
                cell.text = text
    return saved(document)


FILES = {
    "Graphemes_Sound_Letter_Patterns.docx": list_as(None),
    "Graphemes_Sound_Letter_Patterns_Gold.docx": list_as(LINES),
    "Graphemes_Sound_Letter_Patterns_Gold_2.docx": list_as([[HEADING], [INTRODUCTION], *LINES]),
}


def converted_at(separator: str) -> list[Turn]:
    """The lines are selected, and converted with this separator."""
    return [
        turn("I click in the first line.", click("[paragraph] Sound, ", x=700, pause=1), when="[paragraph] ar, ar,"),
        turn("I select all lines.", keys("home", pause=1), keys("ctrl", "shift", "end", pause=1)),
        turn("I open the menu.", click("[menu] Table @", pause=1)),
        turn("I want to convert.", click("[menu] Convert @", pause=1)),
        turn("From text.", click("[menu-item] Text to Table...", pause=1.5)),
        turn("I choose.", click(f"[radio-button] {separator}", pause=1), when="[dialog] Convert Text to Table"),
        turn("I confirm.", click("[push-button] OK @", pause=2)),
    ]


RIGHT = [*converted_at("Other:"), turn("I look at it.", keys("ctrl", "home"), when="[table-cell]"), DONE]
NEAR_MISS = [*converted_at("Paragraph"), {**DONE, "when": "[table-cell] A10"}]
NEAR_MISS_IS = "a table of one column, each line in one cell"
SHELL = False
