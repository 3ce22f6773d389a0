"""One small, good file of each kind that evaluators read, by name."""

from __future__ import annotations

import io
import json
import sqlite3
import struct
import tempfile
import wave
from functools import lru_cache
from pathlib import Path

import cv2
import fitz
import numpy as np
import openpyxl
from docx import Document
from docx.shared import Pt, RGBColor
from openpyxl.chart import BarChart, Reference
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.util import Inches

from tests.hostile.random_replies.mutations import pack

SCREEN = (640, 400)
A11Y_TREE = """<desktop-frame xmlns:st="https://accessibility.ubuntu.example.org/ns/state"
 xmlns:attr="https://accessibility.ubuntu.example.org/ns/attributes"
 xmlns:cp="https://accessibility.ubuntu.example.org/ns/component"
 xmlns:txt="https://accessibility.ubuntu.example.org/ns/text"
 xmlns:val="https://accessibility.ubuntu.example.org/ns/value" name="main">
<application name="Google Chrome"><frame name="New Tab" st:showing="true" st:visible="true" cp:screencoord="(0, 0)"
 cp:size="(640, 400)"><entry name="Address and search bar" st:showing="true" st:visible="true" st:editable="true"
 cp:screencoord="(40, 10)" cp:size="(500, 20)" st:focused="true">github.com/a</entry>
<push-button name="Reload" st:showing="true" st:visible="true" st:enabled="true" cp:screencoord="(10, 10)" cp:size="(20, 20)"/>
<table name="Sheet 1" st:showing="true" st:visible="true" cp:screencoord="(0, 60)" cp:size="(640, 300)">
<table-cell name="A1" st:showing="true" st:visible="true" cp:screencoord="(0, 60)" cp:size="(60, 20)">1</table-cell>
<table-cell name="B1" st:showing="true" st:visible="true" cp:screencoord="(60, 60)" cp:size="(60, 20)" val:value="2">2</table-cell>
</table><document-frame name="Slides" st:showing="true" st:visible="true" cp:screencoord="(0, 0)" cp:size="(640, 400)"/>
</frame></application></desktop-frame>"""
STATUS_XML = (
    b'<?xml version="1.0" encoding="utf-8" standalone="yes" ?><root><fullscreen>false</fullscreen><state>playing</state>'
    b"<volume>256</volume><information><category name='meta'><info name='filename'>a.mp4</info></category></information></root>"
)
PREFERENCES = {
    "profile": {"name": "user", "content_settings": {}, "default_content_setting_values": {"cookies": 4}},
    "default_search_provider_data": {"template_url_data": {"short_name": "Bing"}},
    "safebrowsing": {"enabled": True, "enhanced": True},
    "webkit": {"webprefs": {"default_font_size": 20}},
    "session": {"restore_on_startup": 5},
    "enable_do_not_track": True,
    "browser": {"theme": {"color_scheme2": 2}},
    "extensions": {"settings": {"a": {"path": "/home/user/a", "manifest": {"name": "A"}}}},
}
BOOKMARKS = {
    "roots": {
        "bookmark_bar": {
            "children": [
                {
                    "type": "folder",
                    "name": "Favorites",
                    "children": [{"type": "url", "url": "https://a.org/", "name": "A"}],
                },
                {"type": "url", "url": "https://b.org/", "name": "B"},
            ]
        }
    }
}
TEXTS: dict[str, bytes] = {
    "a.txt": b"one\ntwo\nthree\nfour 54\n",
    "a.csv": b"name,age,city\nAda,36,London\nGrace,45,New York\n",
    "settings.json": json.dumps({"editor.wordWrapColumn": 50, "workbench.colorTheme": "Dark"}).encode(),
    "keybindings.json": json.dumps([{"key": "ctrl+f", "command": "-list.find", "when": "listFocus"}]).encode(),
    "a.yaml": b"a:\n  b: [1, 2]\n  c: text\n",
    "a.html": b"<html><body style=\"background-image: url('a.png')\"><table><tr><td>1</td></tr></table></body></html>",
    "vlcrc": b"[core]\nqt-bgcone=0\ninput-record-path=/home/user\nqt-max-volume=200\nplay-and-exit=1\n"
    b"qt-slider-colours=153;210;153;20;210;20;255;199;15;245;39;29\nglobal-key-play-pause=\none-instance-when-started-from-file=1\n",
    "gimprc": b'# GIMP\n(undo-levels 100)\n(theme "Dark")\n(default-image\n    (width 1920))\n',
    "registrymodifications.xcu": b'<?xml version="1.0" encoding="UTF-8"?>\n<oor:items xmlns:oor="http://openoffice.org/2001/registry"'
    b' xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\n'
    b'<item oor:path="/org.openoffice.Office.Writer/DefaultFont"><prop oor:name="Standard" oor:op="fuse"><value>Times New Roman'
    b'</value></prop></item>\n<item oor:path="/org.openoffice.Setup/L10N"><prop oor:name="ooSetupSystemLocale" oor:op="fuse">'
    b'<value>en-US</value></prop></item>\n<item oor:path="/org.openoffice.Office.Impress/Misc/Start"><prop'
    b' oor:name="EnablePresenterScreen" oor:op="fuse"><value>false</value></prop></item>\n</oor:items>',
    "prefs.js": b'user_pref("extensions.activeThemeID", "dark");\nuser_pref("mail.x", 5);\nuser_pref("mail.y", true);\n',
    "msgFilterRules.dat": b'version="9"\nlogging="no"\nname="A"\nenabled="yes"\ntype="17"\naction="Forward"\n'
    b'actionValue="a@b.org"\ncondition="AND (from,contains,x)"\n',
    "a.mbox": b"From - Sat Jan  1 00:00:00 2000\nFrom: a@b.org\nSubject: One\n\nText\n\nFrom - Sat Jan  1 00:00:01 2000\n\nTwo\n",
    "a.py": b"def add(a, b):\n    return a + b\n",
    "Preferences": json.dumps(PREFERENCES).encode(),
    "Bookmarks": json.dumps(BOOKMARKS).encode(),
    "Local State": json.dumps(
        {"browser": {"enabled_labs_experiments": ["a@1"]}, "intl": {"app_locale": "en"}}
    ).encode(),
    "a.desktop": b"[Desktop Entry]\nName=Play Puzzle Game 2048\nExec=/opt/x\n",
    "a.svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><image href="file:///etc/passwd"/></svg>',
}


@lru_cache(maxsize=1)
def samples() -> dict[str, bytes]:
    """All of them; made once."""
    return {
        **TEXTS,
        "a.docx": _docx(),
        "a.odt": _odt(),
        "a.xlsx": _xlsx(),
        "a.pptx": _pptx(),
        "a.png": picture("PNG"),
        "a.jpg": picture("JPEG"),
        "a.gif": picture("GIF"),
        "palette.png": picture("PNG", palette=True),
        "a.pdf": _pdf(),
        "a.zip": pack({"a.txt": TEXTS["a.txt"], "b/c.csv": TEXTS["a.csv"], "a.pdf": _pdf(), "__MACOSX/x": b""}),
        "a.epub": _epub(),
        "a.wav": _wav(),
        "a.mp3": _mp3(),
        "a.avi": _video(),
        "History": _database(
            "CREATE TABLE urls (id INTEGER PRIMARY KEY, url TEXT, title TEXT, last_visit_time INTEGER)",
            "INSERT INTO urls VALUES (1, 'https://youtube.com/', 'Y', 5)",
        ),
        "Cookies": _database(
            "CREATE TABLE cookies (creation INTEGER, host_key TEXT, name TEXT, value TEXT)",
            "INSERT INTO cookies VALUES (1, '.amazon.com', 'a', 'b')",
        ),
    }


def picture(kind: str, size: tuple[int, int] = SCREEN, *, palette: bool = False) -> bytes:
    """A picture with something on it."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    width, height = size
    draw.rectangle((width // 10, height // 10, width // 2, height // 2), "navy")
    draw.polygon(
        [(width // 2, height // 2), (width * 3 // 4, height // 2), (width * 5 // 8, height * 3 // 4)], "yellow"
    )
    file = io.BytesIO()
    (image.quantize(16) if palette else image).save(file, kind)
    return file.getvalue()


def _docx() -> bytes:
    document = Document()
    document.add_heading("Title", 0)
    run = document.add_paragraph("A line with ").add_run("a red word")
    run.font.color.rgb = RGBColor(255, 0, 0)
    run.font.size = Pt(14)
    run.italic = True
    document.add_page_break()
    table = document.add_table(2, 2)
    table.cell(0, 0).text = "cell"
    document.add_picture(io.BytesIO(picture("PNG", (16, 16))))
    document.sections[0].footer.paragraphs[0].text = "1"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _odt() -> bytes:
    content = (
        b'<?xml version="1.0" encoding="UTF-8"?><office:document-content'
        b' xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
        b' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:automatic-styles/><office:body><office:text>'
        b"<text:p>One</text:p><text:p>Two</text:p></office:text></office:body></office:document-content>"
    )
    manifest = (
        b'<?xml version="1.0" encoding="UTF-8"?><manifest:manifest'
        b' xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry manifest:full-path="/"'
        b' manifest:media-type="application/vnd.oasis.opendocument.text"/><manifest:file-entry'
        b' manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
    )
    kind = b"application/vnd.oasis.opendocument.text"
    return pack({"mimetype": kind, "content.xml": content, "META-INF/manifest.xml": manifest})


def _xlsx() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sheet1"
    for row in [["name", "age"], ["Ada", 36], ["Grace", 45], ["Sum", "=SUM(B2:B3)"]]:
        sheet.append(row)
    sheet["A1"].font = openpyxl.styles.Font(bold=True, name="Arial")
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = "A1:B3"
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    sheet.add_chart(chart, "D2")
    book.create_sheet("Sheet2")
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _pptx() -> bytes:
    slides = Presentation()
    for number in range(2):
        slide = slides.slides.add_slide(slides.slide_layouts[5])
        slide.shapes.title.text = f"Slide {number}"
        slide.shapes.add_picture(io.BytesIO(picture("PNG", (16, 16))), Inches(1), Inches(1))
        box = slide.shapes.add_textbox(Inches(2), Inches(2), Inches(2), Inches(1))
        box.text_frame.text = "Text in a box"
        slide.notes_slide.notes_text_frame.text = "Notes"
    file = io.BytesIO()
    slides.save(file)
    return file.getvalue()


def _pdf() -> bytes:
    document = fitz.open()
    page = document.new_page(width=200, height=200)
    page.insert_text((20, 50), "Some text\n1. A\n2. B")
    page.insert_image(fitz.Rect(20, 80, 60, 120), stream=picture("PNG", (8, 8)))
    return bytes(document.tobytes())


def _epub() -> bytes:
    return pack(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": b'<container><rootfiles><rootfile full-path="content.opf"/></rootfiles></container>',
            "content.opf": b"<package><metadata/></package>",
            "toc.ncx": b"<ncx><navMap/></ncx>",
            "a.xhtml": b"<html><body><p>Text</p></body></html>",
        }
    )


def _wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"".join(struct.pack("<h", (n * 300) % 20000 - 10000) for n in range(4000)))
    return file.getvalue()


def _mp3() -> bytes:
    """A few frames of silence, behind a tag."""
    title = b"\0Missing You"
    frame = b"TIT2" + struct.pack(">I", len(title)) + b"\0\0" + title
    tag = b"ID3\3\0\0" + bytes([0, 0, 0, len(frame)]) + frame
    return tag + (b"\xff\xfb\x90\xc4" + bytes(413)) * 10


def _video() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "a.avi"))
        writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
        for number in range(6):
            writer.write(np.full((48, 64, 3), number * 40, np.uint8))
        writer.release()
        return Path(path).read_bytes()


def _database(*statements: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content
