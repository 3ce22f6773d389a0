"""A scale of marks above a list of students, whose remarks stay blank; the reference has the grades as texts, not as formulas."""

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "d681960f-7bc3-4286-9913-a8812ba3261a"
_SCALE = [(0, "F", "Repeat"), (50, "D", "Weak"), (60, "C", "Fair"), (70, "B", "Good"), (85, "A", "Excellent")]
_STUDENTS = [
    ("Amara Diallo", 78),
    ("Benedikt Holm", 85),
    ("Chiara Longo", 49),
    ("Devon Reyes", 60),
    ("Emi Tanaka", 93),
    ("Fiona Walsh", 69),
    ("Goran Petrov", 50),
    ("Hala Nasser", 34),
    ("Ivo Kralj", 72),
    ("Juno Abbott", 100),
]
_FIRST_ROW = len(_SCALE) + 4
_LAST_ROW = _FIRST_ROW + len(_STUDENTS) - 1


def _grade(mark: int) -> str:
    return [grade for least, grade, _ in _SCALE if mark >= least][-1]


def _students(*, graded: bool) -> bytes:
    return spreadsheet(
        [
            ["Marks from", "Grade", "Remarks"],
            *_SCALE,
            [],
            ["Student", "Marks", "Grade", "Remarks"],
            *([name, mark, _grade(mark) if graded else None] for name, mark in _STUDENTS),
        ]
    )


FILES = {
    "Student_Grades_and_Remarks.xlsx": _students(graded=False),
    "Student_Grades_and_Remarks_gold.xlsx": _students(graded=True),
}


def _looked_up(column: str, number: int, when: str) -> list[Turn]:
    """What the scale's column of that number has for each student, written once and copied."""
    cells = f"{column}{_FIRST_ROW}:{column}{_LAST_ROW}"
    formula = f"=VLOOKUP(B{_FIRST_ROW},$A$2:$C${len(_SCALE) + 1},{number})"
    copied = keys("alt", "enter", pause=1)
    return [
        turn("I select the cells.", click(["Formula Tool Bar", "[text]"]), write(f"{cells}\n", pause=1), when=when),
        turn("What the scale has.", write(formula), copied, when=f"{len(_STUDENTS)} rows, 1 column"),
    ]


_GRADED = _looked_up("C", 2, f"A{_LAST_ROW} - {_STUDENTS[-1][0]}")
RIGHT = [*_GRADED, DONE | {"when": f"C{_FIRST_ROW} - B"}]
NEAR_MISS = [*_GRADED, *_looked_up("D", 3, f"C{_FIRST_ROW} - B"), DONE | {"when": f"D{_FIRST_ROW} - Good"}]
NEAR_MISS_IS = "remarks are given, too"
SHELL = False
