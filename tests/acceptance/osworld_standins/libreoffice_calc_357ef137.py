"""Hours of four days, their total a time of 15:20, and a rate of 12.5: the task's own evaluator knows the product."""

from datetime import timedelta

from tests.acceptance.osworld_standins.made import DONE, Turn, click, spreadsheet, turn, write

TASK = "357ef137-7eeb-4c80-a3bb-0951f26a8aff"
_DAYS = [("Monday", 4, 15), ("Tuesday", 3, 50), ("Thursday", 2, 45), ("Friday", 4, 30)]
_TIMES = [timedelta(hours=hours, minutes=minutes) for _, hours, minutes in _DAYS]
_ROWS = [[day, time] for (day, *_), time in zip(_DAYS, _TIMES, strict=True)]
FILES = {
    "Multiply_Time_Number.xlsx": spreadsheet(
        [
            ["Work of a week"],
            ["Day", "Hours", "Total Hours", "Hourly Rate", "Total Earned"],
            [*_ROWS[0], sum(_TIMES, timedelta()), 12.5],
            *_ROWS[1:],
        ]
    )
}


def _earned(formula: str) -> list[Turn]:
    return [
        turn("I go to the cell.", click(["Formula Tool Bar", "[text] A1"]), write("E3\n", pause=1)),
        turn("What was earned.", write(f"{formula}\n", pause=1), when="[text] E3 "),
    ]


RIGHT = [*_earned("=C3*24*D3"), DONE | {"when": "E3 - 191.66"}]
NEAR_MISS = [*_earned("=HOUR(C3)*D3"), DONE | {"when": "E3 - 187.5"}]
NEAR_MISS_IS = "the minutes are not paid"
SHELL = False
