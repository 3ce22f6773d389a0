"""A week's timetable on a desktop with a teacher's other files; Wednesday at noon is free, a slot is a cell of two hours.

The references have the lecture in one cell like the others, in both hours' cells, or with its end. Of a cell of two hours,
the evaluator reads the first only.
"""

import docx
import openpyxl
from openpyxl.styles import Alignment, Font, PatternFill

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    printed,
    saved,
    turn,
    write,
)

TASK = "3a93cae4-ad3e-403e-8c12-65303b271818"
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
_HOURS = [f"{hour if hour < 13 else hour - 12}:00 {'AM' if hour < 12 else 'PM'}" for hour in range(9, 18)]
_SLOTS = {"B3": "Lecture", "C5": "Seminar", "D7": "Seminar", "E3": "Lecture", "F8": "Office hours"}
"""What begins where."""


def _timetable(**single: str) -> bytes:
    """With these cells of one hour each, or one that is called `slot` and takes two."""
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.title = "Sheet1"
    sheet.append(["Time", *_DAYS])
    for hour in _HOURS:
        sheet.append([hour])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
        sheet.column_dimensions[cell.column_letter].width = 14
    slot = single.pop("slot", None)
    for place, text in {**_SLOTS, **({"D5": slot} if slot else {})}.items():
        cell = sheet[place]
        cell.value, cell.alignment = text, Alignment("center", "center")
        cell.fill = PatternFill("solid", "DDEBF7")
        sheet.merge_cells(start_row=cell.row, end_row=cell.row + 1, start_column=cell.column, end_column=cell.column)
    for place, text in single.items():
        sheet[place] = text
    return saved(book)


def _page(heading: str, *paragraphs: str) -> bytes:
    document = docx.Document()
    document.add_heading(heading, 1)
    for text in paragraphs:
        document.add_paragraph(text)
    return saved(document)


FILES = {
    "Zheng He .docx": _page("Zheng He", "He sailed west seven times, and brought home a giraffe."),
    "cassie.docx": _page("My Grandmother's Kitchen", "She measured with her hand, so no cake was like another."),
    "case study.docx": _page("A Case Study", "A bakery moved across the street. Half of its customers did not."),
    "irregularrules02.pdf": printed([["Irregular verbs, part 2"], ["seek", "sought", "sought"]]),
    "irregularrules01.pdf": printed([["Irregular verbs, part 1"], ["begin", "began", "begun"]]),
    "fragrules.pdf": printed([["Fragments"], ["A sentence needs a subject and a verb."]]),
    "csfsrules.pdf": printed([["Comma splices and fused sentences"], ["Two clauses need more than a comma."]]),
    "Public Lecture Teaching Plan.docx": _page("Public Lecture", "Ten minutes for the history, thirty for the map."),
    "Course Timetable.xlsx": _timetable(),
    "Course Timetable Gold.xlsx": _timetable(slot="Lecture"),
    "Course Timetable Gold 2.xlsx": _timetable(D5="Lecture", D6="Lecture"),
    "Course Timetable Gold 3.xlsx": _timetable(slot="Lecture (12:00 PM-2:00 PM)"),
}
_ICON = "[icon] Course Timetable.xlsx"


def _added(first: str, second: str) -> list[Turn]:
    """These two cells become one, a lecture."""
    return [
        turn("I open the timetable.", double_click(_ICON, pause=2), when=_ICON),
        turn(
            "I go to the place.",
            click(["Formula Tool Bar", "[text] A1"]),
            write(f"{first}:{second}\n", pause=1),
            when="Office hours",
        ),
        turn("One cell.", click("[push-button] Merge Cells @", pause=1.5), when="2 rows, 1 column"),
        turn("A lecture.", write("Lecture\n", pause=1)),
        DONE | {"when": f"{first} - Lecture"},
    ]


RIGHT = _added("D5", "D6")
NEAR_MISS = _added("E5", "E6")
NEAR_MISS_IS = "the lecture is on Thursday"
SHELL = False
