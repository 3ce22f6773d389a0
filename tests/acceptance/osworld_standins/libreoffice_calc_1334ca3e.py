"""A list of stock, seen at 300 %, of which the task asks for less than 260; the reference has the same values."""

import io

import openpyxl

from tests.acceptance.osworld_standins.made import DONE, click, keys, saved, spreadsheet, turn, write

TASK = "1334ca3e-f9e3-4db8-9ca7-b4c653be7d17"
_STOCK = spreadsheet(
    [
        ["Article", "Shelf", "Pieces", "Price"],
        ["Hinge", "A4", 140, 2.35],
        ["Bracket", "A7", 85, 4.1],
        ["Castor", "B2", 62, 6.75],
        ["Drawer slide", "B5", 38, 11.9],
        ["Knob", "C1", 215, 1.8],
        ["Latch", "C3", 97, 3.25],
    ]
)


def _large() -> bytes:
    book = openpyxl.load_workbook(io.BytesIO(_STOCK))
    book["Sheet1"].sheet_view.zoomScale = 300
    return saved(book)


FILES = {"Zoom_Out_Oversized_Cells.xlsx": _large(), "Zoom_Out_Oversized_Cells_gold.xlsx": _STOCK}
RIGHT = [
    turn(
        "I make the cells smaller.",
        {"name": "desktop_mouse_move", "arguments": {"x": 960, "y": 600}},
        {"name": "desktop_key_hold", "arguments": {"action": "down", "key": "ctrl"}},
        {"name": "desktop_scroll", "arguments": {"dy": -6}},
        {"name": "desktop_key_hold", "arguments": {"action": "up", "key": "ctrl"}},
        when="[document-spreadsheet]",
    ),
    DONE | {"when": ", K @ "},
]
NEAR_MISS = [
    turn("I select all.", keys("ctrl", "a", pause=1), when="[document-spreadsheet]"),
    turn("I open the menu.", click("[menu] Format @", pause=1)),
    turn("The columns.", click("[menu] Columns @", pause=1)),
    turn("How wide they are.", click("[menu-item] Width...", pause=1)),
    turn("Narrower.", keys("ctrl", "a"), write("0.5\n", pause=1), when="[dialog] Column Width"),
    DONE,
]
NEAR_MISS_IS = "the columns are narrower, the zoom is as it was"
SHELL = False
