"""Five years of figures from PDF files, in a new spreadsheet with a rate in percent.

The reference's csv is what Calc prints of the reference's xlsx, which is by openpyxl.
"""

from tests.acceptance.osworld_standins.made import (
    DONE,
    Turn,
    click,
    double_click,
    keys,
    printed,
    spreadsheet,
    turn,
    write,
)

TASK = "7e287123-70ca-47b9-8521-47db09b69b14"
SCHOOLS = ["Harbour University", "Peak University", "Lantau Institute", "Kowloon College"]
PANELS = ["Biology and Medicine", "Computing Science", "Engineering", "Physical Sciences"]
HEAD = ["Year", "#Applied", "#Supported", "Success Rate"]


def _numbers(kind: int, year: int, panel: int) -> list[tuple[int, int]]:
    """Applied and supported, school by school."""
    applied = [kind * (31 + (year * 7 + panel * 5 + school * 11) % 23) for school in range(len(SCHOOLS))]
    return [(one, one * (27 + (year + panel + school) % 9) // 100) for school, one in enumerate(applied)]


def _report(name: str, kind: int, year: int) -> bytes:
    rows = [[f"{name} 20{year}: applications and results"], []]
    for panel, title in enumerate(PANELS):
        numbers = _numbers(kind, year, panel)
        rows += [[title, "Applied", "Supported"]]
        rows += [[school, *map(str, pair)] for school, pair in zip(SCHOOLS, numbers, strict=True)]
        rows += [["Total", *(str(sum(column)) for column in zip(*numbers, strict=True))], []]
    return printed(rows)


def _totals(kind: int) -> list[tuple[int, int, int]]:
    """Year, applied and supported."""
    found = []
    for year in range(19, 24):
        applied, supported = zip(*_numbers(kind, year, PANELS.index("Computing Science")), strict=True)
        found.append((2000 + year, sum(applied), sum(supported)))
    return found


ROWS = [[year, applied, supported, f"{supported / applied:.2%}"] for year, applied, supported in _totals(2)]
FILES = {
    **{f"ecs{year}.pdf": _report("Early Career Scheme", 1, year) for year in range(15, 24)},
    **{f"grf{year}.pdf": _report("General Research Fund", 2, year) for year in range(15, 24)},
    "customer-information-sheet-for-inward-payments-to-hong-kong.pdf": printed(
        [["Inward payments"], ["Bank code", "004"], ["Currency", "HKD"]]
    ),
    "GRF-p5y.bak.xlsx": spreadsheet([HEAD, *ROWS]),
    "GRF-p5y.bak-Sheet1.csv": "".join(f"{','.join(map(str, row))}\n" for row in [HEAD, *ROWS]).encode(),
}


def _script(folder: str) -> list[Turn]:
    kind = {"ecs": 1, "grf": 2}[folder]
    cells = "\t".join(HEAD) + "\n"
    for row, (year, applied, supported) in enumerate(_totals(kind), 2):
        cells += f"{year}\t{applied}\t{supported}\t=C{row}/B{row}\n"
    return [
        turn("I look at the last year's figures.", click("[push-button] Files", pause=3)),
        turn("I open the folder.", double_click("[table-cell] Documents", pause=2), when="[frame] Home"),
        turn(
            "In it, the one of the schemes.", double_click("[table-cell] Fundings", pause=2), when="[frame] Documents"
        ),
        turn("And this one's.", double_click(f"[table-cell] {folder}", pause=2), when="[frame] Fundings"),
        turn("I open a report.", double_click(f"] {folder}23.pdf", pause=1)),
        turn("I open a spreadsheet.", click("[push-button] LibreOffice Calc"), when=f"[frame] {folder}23.pdf"),
        turn("I write the totals of the panel.", write(cells, pause=1), when="A1 (focused)"),
        turn("I select the rates.", click("[table-cell] D2", pause=0.5)),
        turn("All of them.", keys("ctrl", "shift", "down", pause=0.5)),
        turn("I show them in percent.", keys("ctrl", "shift", "5", pause=1)),
        turn("I save them.", keys("ctrl", "s", pause=4), when="%"),
        turn("On the desktop.", write("/home/user/Desktop/GRF-p5y.xlsx\n", pause=2)),
        DONE | {"when": "GRF-p5y.xlsx - LibreOffice Calc"},
    ]


RIGHT = _script("grf")
NEAR_MISS = _script("ecs")
NEAR_MISS_IS = "has the figures of the other scheme"
SHELL = False
