"""Files made on the spot, and the turns that scripts have in common."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import openpyxl
import pymupdf
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import PP_ALIGN
from pptx.oxml import parse_xml
from pptx.util import Pt

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


def text_in(
    frame: Any,
    lines: Sequence[str],
    size: int,
    *,
    colour: str = "333333",
    bold: bool = False,
    underline: bool = False,
    bullet: str = "",
    centred: bool = False,
) -> None:
    """A text frame's lines on a slide, with what LibreOffice writes for each: font, size, weight, colour, place, bullet."""
    for at, line in enumerate(lines):
        paragraph = frame.paragraphs[0] if at == 0 else frame.add_paragraph()
        run = paragraph.add_run()
        run.text = line
        run.font.name, run.font.size, run.font.bold = "Arial", Pt(size), bold
        run.font.underline = underline or None
        run.font.color.rgb = RGBColor.from_string(colour)
        layout = paragraph._p.get_or_add_pPr()
        if centred:
            paragraph.alignment = PP_ALIGN.CENTER
        layout.set("marL", "342900" if bullet else "0")
        layout.set("indent", "-342900" if bullet else "0")
        space = "http://schemas.openxmlformats.org/drawingml/2006/main"
        tag = f'<a:buChar xmlns:a="{space}" char="{bullet}"/>' if bullet else f'<a:buNone xmlns:a="{space}"/>'
        layout.append(parse_xml(tag))


def white_deck() -> Any:
    """A presentation without slides, its background white as LibreOffice writes it."""
    deck = Presentation()
    fill = deck.slide_masters[0].background.fill
    fill.solid()
    fill.fore_color.rgb = RGBColor(0xFF, 0xFF, 0xFF)
    return deck


def titled_slide(deck: Any, layout: int) -> Any:
    """A slide of the deck's layout of that number; its placeholders have places of their own, as LibreOffice writes them."""
    slide = deck.slides.add_slide(deck.slide_layouts[layout])
    for shape in slide.placeholders:
        shape.left, shape.top, shape.width, shape.height = shape.left, shape.top, shape.width, shape.height
    return slide


def layered(width: int, height: int, layers: Sequence[Mapping[str, Any]]) -> bytes:
    """GIMP's own file of a picture in layers, the topmost first and active.

    A layer has `name`; `picture`, an RGBA image of PIL's; `at`, its place, (0, 0) unless told; `parasites`, texts by name.
    """
    tile = 64
    file = io.BytesIO()
    file.write(
        b"gimp xcf file\0" + struct.pack(">3I", width, height, 0) + struct.pack(">2IB2I2f", 17, 1, 0, 19, 8, 72, 72)
    )

    def number(*numbers: int) -> None:
        file.write(struct.pack(f">{len(numbers)}i", *numbers))

    def hole() -> int:
        number(0)
        return file.tell() - 4

    def fill(place: int) -> None:
        end = file.seek(0, io.SEEK_END)
        file.seek(place)
        number(end)
        file.seek(end)

    number(0, 0)
    places = [hole() for _ in layers]
    number(0, 0)
    for place, layer in zip(places, layers, strict=True):
        fill(place)
        picture, name = layer["picture"].convert("RGBA"), layer["name"].encode() + b"\0"
        number(*picture.size, 1, len(name))
        file.write(name)
        if layer is layers[0]:
            number(2, 0)
        number(6, 4, 255, 8, 4, 1, 15, 8, *layer.get("at", (0, 0)))
        for key, text in layer.get("parasites", {}).items():
            content = text.encode() + b"\0"
            key = key.encode() + b"\0"
            number(21, 12 + len(key) + len(content), len(key))
            file.write(key + struct.pack(">2I", 1, len(content)) + content)
        number(0, 0)
        pixels = hole()
        number(0)
        fill(pixels)
        number(*picture.size, 4)
        level = hole()
        number(0)
        fill(level)
        number(*picture.size)
        corners = [(x, y) for y in range(0, picture.height, tile) for x in range(0, picture.width, tile)]
        tiles = [hole() for _ in corners]
        number(0)
        for one, (x, y) in zip(tiles, corners, strict=True):
            fill(one)
            file.write(picture.crop((x, y, min(x + tile, picture.width), min(y + tile, picture.height))).tobytes())
    return file.getvalue()


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
