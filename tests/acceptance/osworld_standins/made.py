"""Files made on the spot, and the turns that scripts have in common."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import openpyxl
import pymupdf

Turn = dict[str, Any]


def spreadsheet(rows: Sequence[Sequence[object]], title: str = "Sheet1") -> bytes:
    """An xlsx file with one sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = title
    for row in rows:
        sheet.append(list(row))
    return saved(book)


def saved(document: Any) -> bytes:
    """The file of anything that has ``save``: a workbook, a Word document, a presentation."""
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def printed(rows: Sequence[Sequence[str]]) -> bytes:
    """A PDF file of one page or more, a line a row, in columns."""
    document = pymupdf.open()
    page = None
    for number, row in enumerate(rows):
        if number % 45 == 0:
            page = document.new_page()
        assert page is not None
        for column, text in enumerate(row):
            page.insert_text((60 + 150 * column, 60 + 16 * (number % 45)), text, fontsize=11)
    return document.tobytes(no_new_id=True, deflate=True)


def turn(text: str, *calls: Turn, when: str = "") -> Turn:
    """One turn; `when` is what must be seen first."""
    return {"text": text, "tool_calls": list(calls)} | ({"when": when} if when else {})


def click(at: str | Sequence[str], **more: object) -> Turn:
    """A click on what is seen, as an element's line in the tree has it."""
    return {"name": "desktop_mouse_click", "arguments": {"at": at if isinstance(at, str) else list(at), **more}}


def double_click(at: str | Sequence[str], **more: object) -> Turn:
    """A double click on what is seen."""
    return click(at, **more) | {"name": "desktop_mouse_double_click"}


def click_xy(x: int, y: int, **more: object) -> Turn:
    """A click at a place."""
    return {"name": "desktop_mouse_click", "arguments": {"x": x, "y": y, **more}}


def keys(*names: str, **more: object) -> Turn:
    """Keys pressed together."""
    return {"name": "desktop_hotkey", "arguments": {"keys": list(names), **more}}


def write(text: str, **more: object) -> Turn:
    """Text as typed; a line break is the Enter key, a tab the Tab key."""
    return {"name": "desktop_type", "arguments": {"text": text, **more}}


DONE = turn("It is done.", {"name": "desktop_control", "arguments": {"action": "done"}})
FAIL = turn("This cannot be done.", {"name": "desktop_control", "arguments": {"action": "fail"}})
LARGER = turn(
    "I make the cells larger.",
    {"name": "desktop_mouse_move", "arguments": {"x": 960, "y": 600}},
    {"name": "desktop_key_hold", "arguments": {"action": "down", "key": "ctrl"}},
    {"name": "desktop_scroll", "arguments": {"dy": 8}},
    {"name": "desktop_key_hold", "arguments": {"action": "up", "key": "ctrl"}},
    when="[document-spreadsheet]",
)
"""A sheet's cells at 100 % are so many that an observation is cut before the tool bars and dialogs."""
