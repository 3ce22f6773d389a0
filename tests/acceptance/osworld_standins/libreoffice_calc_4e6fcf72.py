"""Birthdays of employees, whose ages are to be told; the reference has them as formulas, as it is opened and saved on that day."""

from datetime import date

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, spreadsheet, turn, write

TASK = "4e6fcf72-daf3-439f-a232-c434ce416af6"
_HEADERS = ["No.", "Name", "Birthday", "Age", "Phone", "Next review"]
_PEOPLE = [
    ("Adaeze Obi", date(1984, 3, 17)),
    ("Bram Visser", date(1991, 11, 2)),
    ("Carmen Soto", date(1976, 1, 9)),
    ("Dusan Pavlov", date(1999, 12, 30)),
    ("Elif Kaya", date(1988, 7, 21)),
    ("Farid Nouri", date(1969, 5, 4)),
    ("Greta Lund", date(1995, 2, 28)),
    ("Hoang Minh", date(1980, 9, 14)),
    ("Ines Duarte", date(2001, 6, 1)),
    ("Jonas Weber", date(1973, 10, 25)),
    ("Kalina Ilieva", date(1986, 4, 8)),
]
_LAST_ROW = len(_PEOPLE) + 1


def _people(age: str) -> bytes:
    """The list; what an age is, for the cell of the birthday."""
    return spreadsheet(
        [
            _HEADERS,
            *(
                [row - 1, name, birthday, age.format(f"C{row}") or None]
                for row, (name, birthday) in enumerate(_PEOPLE, 2)
            ),
        ]
    )


FILES = {
    "Employee_Age_By_Birthday.xlsx": _people(""),
    "Employee_Age_By_Birthday_gold.xlsx": _people('=DATEDIF({},TODAY(),"y")'),
}


def _told(last_row: int) -> list[Turn]:
    """The ages down to this row."""
    seen = f"{last_row - 1} rows, 1 column"
    return [
        turn("I select the cells.", click(["Formula Tool Bar", "[text] A1"]), write(f"D2:D{last_row}\n", pause=1)),
        turn("Full years.", write('=DATEDIF(C2,TODAY(),"y")'), keys("alt", "enter", pause=1), when=seen),
        DONE | {"when": f"D{last_row} - "},
    ]


RIGHT = _told(_LAST_ROW)
NEAR_MISS = _told(_LAST_ROW + 2)
NEAR_MISS_IS = "two rows without an employee have an age too"
SHELL = False
