"""An essay that is to be handed in as a PDF file and as it was written, both in one archive.

The reference's PDF is set here, not by LibreOffice: OSWorld's metric compares what is written in the two.
"""

from __future__ import annotations

import io
import textwrap
import zipfile

from docx import Document

from tests.acceptance.osworld_standins.made import DONE, Turn, click, double_click, keys, printed, saved, turn, write

TASK = "8df7e444-8e06-4f93-8a1a-c5c974269d82"
_NAME = "Recruitment_and_retention_of_health_professionals_across_Europe"
_TITLE = "Recruitment and retention of health professionals across Europe"
_ESSAY = [
    "Nurses and doctors are scarce in most countries of Europe. In 2013 a study asked 34 of them what they do about it.",
    "Pay is what is spoken of first. Yet those who leave name other reasons: nights without relief, no say in rosters, "
    "forms that nobody reads. Where wards plan their own hours, as in two Dutch hospitals, half as many gave notice.",
    "Villages have a harder task. Norway trains students where they are to stay; of those who began in Finnmark, "
    "two in three still work there. France pays for studies and asks for years in return; many buy themselves out.",
    "Recruiting abroad moves the gap elsewhere. Romania lost a third of its doctors between 2011 and 2013. A code of "
    "the World Health Organization asks for restraint; it binds nobody.",
    "Keeping people is cheaper than finding them: a vacancy costs about half a year's pay. Countries that count who "
    "leaves, and ask why, have something to act upon. Few do.",
]
_REMINDER = [
    "Essays are due on Friday, 6 p.m. Later ones are not read.",
    "Hand in two files: your essay as a .docx file, and the same exported as a .pdf file of the same name.",
    "Put both into one archive, not in a folder in it. Its name is essay_submission.zip.",
    "Leave the archive in your home folder, /home/user, where it will be collected.",
]


def _written(title: str, paragraphs: list[str]) -> bytes:
    document = Document()
    document.add_heading(title, 1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    return saved(document)


def _archive(**files: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for suffix, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"{_NAME}.{suffix}"), content)
    return file.getvalue()


_DOCUMENT = _written(_TITLE, _ESSAY)
_PRINTED = printed([[line] for paragraph in [_TITLE, *_ESSAY] for line in textwrap.wrap(paragraph, 84)])
FILES = {
    f"{_NAME}.docx": _DOCUMENT,
    "reminder.docx": _written("Essays", _REMINDER),
    f"{_NAME}.zip": _archive(docx=_DOCUMENT, pdf=_PRINTED),
}
_WRITER = "LibreOffice Writer"
_PDF = f"[label] {_NAME}.pdf"


def _script(pattern: str, selected: str) -> list[Turn]:
    """The essay is exported, and all files of such names are put into an archive."""
    return [
        turn("I read it, and look for the essay.", click("[push-button] Files", pause=2), when="[paragraph] Leave the"),
        turn("I want to see all.", keys("winleft", "up", pause=1), when="[frame] Home"),
        turn("I open it.", double_click(f"[label] {_NAME}.docx", pause=2), when=f"[label] {_NAME}.docx"),
        turn(
            "I export it.",
            click("[push-button] Export Directly as PDF", pause=2),
            when=f"[frame] {_NAME}.docx - {_WRITER}",
        ),
        turn("Its name is right.", keys("enter", pause=2), when="[file-chooser] Export"),
        turn("I go back to the files.", click("[toggle-button] Home", pause=1)),
        turn("I select by name.", keys("ctrl", "s", pause=1), when=_PDF),
        turn("These.", write(f"{pattern}\n", pause=1), when="[dialog] Select Items Matching"),
        turn(
            "I open the menu.",
            {"name": "desktop_mouse_right_click", "arguments": {"at": _PDF, "pause": 1}},
            when=f"[label] {selected} selected",
        ),
        turn("I compress them.", click("[menu-item] Compress…", pause=1), when="[menu-item] Compress…"),
        turn("It has this name.", write("essay_submission", pause=1), when="[text] Archive name"),
        turn("I make it.", click("[push-button] Create @", pause=1), when="[text] Archive name - essay_submission"),
        DONE | {"when": "[label] essay_submission.zip"},
    ]


RIGHT = _script("Recruitment*", "2 items")
NEAR_MISS = _script("Recruitment*.pdf", f"“{_NAME}.pdf”")
NEAR_MISS_IS = "the essay as it was written is not in the archive"
SHELL = False
