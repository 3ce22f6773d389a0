"""Trains that called at stations in a morning, a line each; the reference has each train once, where it called first.

What is a duplicate is found out in Calc, by a formula and a filter, and what is left is put back into the document.
"""

import random

import docx

from tests.acceptance.osworld_standins.made import DONE, Turn, click, keys, saved, turn, write

TASK = "6f81754e-285d-4ce0-b59e-af7edb02d108"


def _calls() -> list[str]:
    """Lines in the order of time: hour, minute and second; train, station and platform."""
    chance = random.Random(12)
    trains = [f"T{number:03}" for number in (104, 117, 122, 135, 141, 158, 163, 176, 180, 199, 203, 214)]
    seconds = sorted(chance.sample(range(6 * 3600, 12 * 3600), 32))
    called = [*trains, *chance.choices(trains[:9], k=len(seconds) - len(trains))]
    chance.shuffle(called)
    return [
        f"{one // 3600:02}:{one // 60 % 60:02}:{one % 60:02}, {train}, S{chance.randrange(1, 17):02}, "
        f"{chance.randrange(1, 5)}"
        for one, train in zip(seconds, called, strict=True)
    ]


_CALLS = _calls()
_FIRST = [line for at, line in enumerate(_CALLS) if not any(line[8:15] in before for before in _CALLS[:at])]
_ONCE = [line for line in _CALLS if sum(line[8:15] in one for one in _CALLS) == 1]


def _record(lines: list[str]) -> bytes:
    document = docx.Document()
    for line in lines:
        document.add_paragraph(line)
    return saved(document)


FILES = {"HK_train_record.docx": _record(_CALLS), "HK_train_record_Gold.docx": _record(_FIRST)}
_WRITER = "[toggle-button] HK_train_record.docx - LibreOffice Writer"
_CALC = "[frame] Untitled 1 - LibreOffice Calc"
_LAST_ROW = len(_CALLS) + 1
_PLACE = ["Formula Tool Bar", "[text]"]
_DIALOG = "[dialog] Standard Filter"


def _filtered(counted: str, left: list[str]) -> list[Turn]:
    """Lines whose trains are there once in these cells are put into the place of all."""
    formula = f'=COUNTIF({counted},"*"&MID(B2,9,7)&"*")'
    return [
        turn("I select all lines.", keys("ctrl", "a", pause=1), when=f"[paragraph] {_CALLS[0]}"),
        turn("I copy them.", keys("ctrl", "c", pause=1)),
        turn("I open a spreadsheet.", click("[push-button] LibreOffice Calc", pause=3)),
        turn("I write headers.", write("Times\tCall\n", pause=1), when=_CALC),
        turn("I go below the second.", click(_PLACE), write("B2\n", pause=1), when="B1 - Call"),
        turn("I paste the lines.", keys("ctrl", "v", pause=2), when="[text] B2"),
        turn(
            "I go to the other column.", click(_PLACE), write(f"A2:A{_LAST_ROW}\n", pause=1), when=f"B3 - {_CALLS[1]}"
        ),
        turn(
            "I count calls of the same train.",
            write(formula),
            keys("alt", "enter", pause=1),
            when=f"{len(_CALLS)} rows, 1 column",
        ),
        turn("I select it all.", click(_PLACE), write(f"A1:B{_LAST_ROW}\n", pause=1), when="A3 - "),
        turn("I open the menu.", click("[menu] Data @", pause=1), when=f"{_LAST_ROW} rows, 2 columns"),
        turn("I want a filter.", click("[menu] More Filters", pause=1), when="[menu] More Filters"),
        turn("The standard one.", click("[menu-item] Standard Filter...", pause=1), when="Standard Filter..."),
        turn("I look at the values.", click([_DIALOG, "[toggle-button] @ (1225, 486)"], pause=1), when=_DIALOG),
        turn("Once.", click("[table-cell] 1 @", pause=1), when="[table-cell] 1 @"),
        turn("I confirm.", click([_DIALOG, "[push-button] OK"], pause=1.5), when="[text] 1 (focused"),
        turn("I select what is left.", click(_PLACE), write(f"B2:B{_LAST_ROW}\n", pause=1)),
        turn("I copy it.", keys("ctrl", "c", pause=1), when=f"[text] B2:B{_LAST_ROW}"),
        turn("I go to the document.", click(_WRITER, pause=1.5), when=_WRITER),
        turn("I select all lines.", keys("ctrl", "a", pause=1), when=f"{_WRITER} (on)"),
        turn("I paste as text.", keys("ctrl", "alt", "shift", "v", pause=2)),
        DONE | {"when": f"[label] {4 * len(left)} words"},
    ]


RIGHT = _filtered("B$2:B2", _FIRST)
NEAR_MISS = _filtered(f"B$2:B${_LAST_ROW}", _ONCE)
NEAR_MISS_IS = "trains that called more than once are gone altogether"
SHELL = False
