"""A document that is open in Writer, beside a terminal.

OSWorld's check of what still runs looks for a name that nothing has; what counts is the word "kill" in the shell's history.
"""

from docx import Document

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, turn, write

TASK = "2b9493d7-49b8-493a-a71b-56cd1f4d6908"


def _report() -> bytes:
    document = Document()
    document.add_heading("Survey of the harbour", 0)
    for number in range(1, 41):
        text = (
            f"Station {number} was measured twice, at high and at low water; the depths are in metres below the mark. "
        )
        document.add_paragraph(text * 4)
    return saved(document)


FILES = {"15-MB-docx-file-download.docx": _report()}
_WRITER = "[toggle-button] 15-MB-docx-file-download.docx - LibreOffice Writer"
RIGHT = [
    turn("I wait for both, and look what runs.", write("pgrep -l soffice\n", pause=1), when="user@desktop:~/$"),
    turn("I end it.", write("killall -9 soffice.bin\n", pause=2), when="soffice.bin"),
    DONE,
]
NEAR_MISS = [
    turn("I go to Writer.", click(_WRITER, pause=1.5), when="user@desktop:~/$"),
    turn("I close it.", keys("ctrl", "q", pause=3), when=f"{_WRITER} (on)"),
    DONE | {"when": "user@desktop:~/$"},
]
NEAR_MISS_IS = "closed in its own window, not from the command line"
SHELL = True
