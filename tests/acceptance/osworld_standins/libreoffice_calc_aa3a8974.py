"""A plan of a project, too wide and too long for one page; the reference is a page with its texts, as LibreOffice prints them."""

import pymupdf

from tests.acceptance.osworld_standins.made import (
    DONE,
    LARGER,
    Turn,
    click,
    double_click,
    keys,
    spreadsheet,
    turn,
    write,
)

TASK = "aa3a8974-2e85-438b-b29e-a64df44deb4b"
_HEAD = ["Task", "Owner", "Start", "End", "State", "Risk", "After", "Remark", "Hours", "Rate", "Budget", "Spent"]
_OWNERS = ["Ines", "Marco", "Tova", "Yusuf", "Lene"]
_STATES = ["Done", "Open", "Late"]
_RISKS = ["Low", "Medium", "High"]


def _rows() -> list[list[object]]:
    rows: list[list[object]] = [[*_HEAD]]
    for number in range(1, 71):
        hours, rate = 4 + number * 7 % 37, 45 + number % 4 * 10
        rows.append(
            [
                f"Task {number}",
                _OWNERS[number % 5],
                f"Day {number // 4 + 1}",
                f"Day {number // 4 + 2 + number % 3}",
                _STATES[number % 3],
                _RISKS[number * number % 3],
                f"Task {number // 2}" if number > 1 else "None",
                "Checked" if number % 4 else "New",
                hours,
                rate,
                hours * rate,
                hours * rate * (number % 3) // 2,
            ]
        )
    return rows


def _page() -> bytes:
    document = pymupdf.open()
    page = document.new_page()
    for number, row in enumerate(_rows()):
        for column, value in enumerate(row):
            page.insert_text((40 + 44 * column, 50 + 10 * number), str(value), fontsize=5)
    return document.tobytes(no_new_id=True, deflate=True)


FILES = {"Resize_Cells_Fit_Page.xlsx": spreadsheet(_rows()), "Resize_Cells_Fit_Page_gt.pdf": _page()}
_STYLE, _FILE = "[dialog] Page Style", "[file-chooser] Export"
_PDF, _SCALE = "[push-button] Export Directly as PDF", "[panel] Scale"
_FIT = "[table-cell] Fit print range(s) on number of pages"


def _exported(*scaled: Turn) -> list[Turn]:
    """The page's style is changed so, and the sheet exported."""
    return [
        LARGER,
        turn("I open the menu.", click("[menu] Format @", pause=1)),
        turn("I open the dialog.", click("[menu-item] Page Style...", pause=2), when="[menu-item] Page Style..."),
        turn("I go to what is printed.", click([_STYLE, "[page-tab] Sheet"], pause=1), when=_STYLE),
        *scaled,
        turn("I confirm.", click([_STYLE, "[push-button] OK"], pause=2)),
        turn("I export it.", click(_PDF, pause=2)),
        turn("I name it.", keys("ctrl", "a", pause=0.5), when=_FILE),
        turn("So.", write("/home/user/Resize_Cells_Fit_Page.pdf\n", pause=3)),
        DONE,
    ]


RIGHT = _exported(
    turn("I look at the modes.", click([_SCALE, "[toggle-button]"], pause=1), when=_SCALE),
    turn("On one page.", click(_FIT, pause=1), when=_FIT),
)
NEAR_MISS = _exported(
    turn("I go to the scale.", double_click([_SCALE, "[spin-button] 100%"], x=905, pause=0.5), when=_SCALE),
    turn("It is smaller.", write("70\t", pause=1)),
)
NEAR_MISS_IS = "smaller, but still several pages"
SHELL = False
