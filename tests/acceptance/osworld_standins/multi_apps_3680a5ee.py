"""Words of two columns, in a file of Excel's and in one of LibreOffice's, that make one in every row.

OSWorld's check of how Calc was started looks for the terminal of its process. Three references are right: with nothing around
a row, with quotation marks, and with a blank between the two words.
"""

from __future__ import annotations

from odf.opendocument import OpenDocumentSpreadsheet
from odf.table import Table, TableCell, TableRow
from odf.text import P

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    saved,
    spreadsheet,
    turn,
    write,
)

TASK = "3680a5ee-6870-426a-a997-eba929a0d25c"
_FIRST = ["sun", "rain", "foot", "book", "water", "snow", "black", "light"]
_SECOND = ["flower", "coat", "bridge", "mark", "melon", "man", "bird", "house"]


def _sheet_of_libreoffice(words: list[str]) -> bytes:
    document = OpenDocumentSpreadsheet()
    table = Table(name="Sheet1")
    for word in words:
        row, cell = TableRow(), TableCell(valuetype="string")
        cell.addElement(P(text=word))
        row.addElement(cell)
        table.addElement(row)
    document.spreadsheet.addElement(table)
    return saved(document)


def _rows(form: str) -> bytes:
    pairs = zip(_FIRST, _SECOND, strict=True)
    return "".join(form.format(*pair) for pair in pairs).encode()


FILES = {
    "file1.xlsx": spreadsheet([[word] for word in _FIRST]),
    "file2.ods": _sheet_of_libreoffice(_SECOND),
    "output.csv": _rows("{}{}\n"),
    "output_gold2.csv": _rows('"{}{}"\n'),
    "output_gold3.csv": _rows("{} {}\n"),
}
_PROMPT = "user@desktop:~/Desktop$"
_CONVERT = "soffice --headless --convert-to csv"


def _script(*opened: Turn) -> list[Turn]:
    """Both become text, and their rows one; then Calc is opened in this way."""
    return [
        turn("I make text of the first.", write(f"{_CONVERT} file1.xlsx\n", pause=3), when=_PROMPT),
        turn("And of the second.", write(f"{_CONVERT} file2.ods\n", pause=3), when="file1.csv using filter"),
        turn(
            "I put them together.",
            write("paste -d '' file1.csv file2.csv | tee output.csv\n", pause=1),
            when="file2.csv using filter",
        ),
        *opened,
        turn("It is to be read so.", keys("enter", pause=2), when="[dialog] Text Import"),
        DONE | {"when": "[frame] output.csv - LibreOffice Calc"},
    ]


RIGHT = _script(turn("I open it.", write("soffice --calc output.csv &\n", pause=3), when="lighthouse"))
NEAR_MISS = _script(
    turn("I look at the files.", click("[push-button] Files", pause=2), when="lighthouse"),
    turn("I go to the desktop.", double_click("[label] Desktop", pause=2), when="[frame] Home"),
    turn("I open it.", double_click("[label] output.csv", pause=3), when="[label] output.csv"),
)
NEAR_MISS_IS = "Calc is opened from the file manager"
SHELL = True
