"""A primer's word list in two tables, whose words become red or blue by their first letters.

The palette's own Blue is another than that of the task's evaluator, which is found by its number. The evaluator fails at words
without a colour; they are black in the file.
"""

import docx
from docx.shared import RGBColor

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "8472fece-c7dd-4241-8d65-9b3cd1a0b568"
_HEADING = "Dolch Sight Words: Primer"
_TEXT = (
    "all am are at ate be black brown but came did do eat four get good have he into like must new no now on our out please"
    " pretty ran ride saw say she so soon that there they this too under want was well went what white who will with yes"
)
_WORDS = _TEXT.split()
_COLUMNS = 4
_RED, _BLUE, _BLACK = "ff0000", "0000ff", "000000"


def _list(*, coloured: bool) -> bytes:
    document = docx.Document()
    document.add_heading(_HEADING, 1)
    for number, words in enumerate((_WORDS[:28], _WORDS[28:]), 1):
        document.add_paragraph(f"Part {number}")
        table = document.add_table(0, _COLUMNS, style="Table Grid")
        for start in range(0, len(words), _COLUMNS):
            for cell, word in zip(table.add_row().cells, words[start : start + _COLUMNS], strict=True):
                run = cell.paragraphs[0].add_run(word)
                colour = (_RED if word[0] in "aeiou" else _BLUE) if coloured else _BLACK
                run.font.color.rgb = RGBColor.from_string(colour.upper())
    document.add_paragraph("Read a row a day.")
    return saved(document)


FILES = {
    "Dolch_Sight_Words_Primer.docx": _list(coloured=False),
    "Dolch_Sight_Words_Primer_Gold.docx": _list(coloured=True),
}
_SEARCH, _CHARACTER, _PICK = "[dialog] Find and Replace", "[dialog] Character", "[dialog] Pick a Color"


def _coloured(vowels: str) -> list[Turn]:
    turns = []
    for number, (letters, colour) in enumerate(((f"[{vowels}]", _RED), (f"[^{vowels}\\W]", _BLUE))):
        turns += [
            turn("I select nothing.", keys("ctrl", "home", pause=1), when=f"[heading] {_HEADING}"),
            turn("I look for words.", keys("ctrl", "h", pause=2)),
            turn("By these letters.", keys("ctrl", "a", pause=0.5), write(f"\\b{letters}\\w*", pause=1), when=_SEARCH),
        ]
        if not number:
            turns.append(turn("It is a pattern.", click([_SEARCH, "[check-box] Regular expressions"], pause=1)))
        turns += [
            turn("I find all.", click([_SEARCH, "[push-button] Find All"], pause=2), when=letters),
            turn("I close the search.", click([_SEARCH, "[push-button] Close"], pause=1)),
            turn("I open the menu.", click("[menu] Format @", pause=1)),
            turn("I open the dialog.", click("[menu-item] Character...", pause=2), when="[menu-item] Character..."),
            turn("I look at the effects.", click([_CHARACTER, "[page-tab] Font Effects"], pause=1.5), when=_CHARACTER),
            turn("I look at the colours.", click(["[panel] Font Color", "[toggle-button]"], pause=1)),
            turn("It is another.", click("Custom Color", pause=2), when="Custom Color"),
            turn("It is this one.", click([_PICK, "[text]"], pause=1), when=_PICK),
            turn("I write it.", keys("ctrl", "a", pause=0.5), write(f"{colour}\t", pause=1)),
            turn("That one.", click([_PICK, "[push-button] OK"], pause=1), when=f"[text] {colour} "),
            turn("I confirm.", click([_CHARACTER, "[push-button] OK"], pause=2)),
        ]
    return [*turns, DONE]


RIGHT = _coloured("aeiou")
NEAR_MISS = _coloured("aeio")
NEAR_MISS_IS = "the word that begins with u is blue"
SHELL = False
