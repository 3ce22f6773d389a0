"""Five thousand people in a file of LibreOffice's, open in Calc beside a terminal; the reference is written here.

OSWorld's check of how it was done looks into the shell's history, which the shell writes when its window is closed. The LibreOffice
that runs does what is asked for in the shell, and nothing is said there.
"""

from __future__ import annotations

import csv
import io
import zipfile
from xml.sax.saxutils import escape

from tests.acceptance.osworld_standins.made import DONE, LARGER, click, keys, turn, write

TASK = "ee9a3c83-f437-4879-8918-be5efbb9fac7"
_NAME = "file_example_ODS_5000"
_FIRST = ("Dulce", "Mara", "Philip", "Kathleen", "Nereida", "Gaston", "Etta", "Earlean", "Vincenza")
_LAST = ("Abril", "Hashimoto", "Gent", "Hanner", "Magwood", "Brumm", "Hurn", "Melgar", "Weiland", "Bradshaw", "O'Dell")
_COUNTRIES = ("United States", "France", "Great Britain", "Korea, South")
_HEADERS: list[object] = [0, "First Name", "Last Name", "Gender", "Country", "Age", "Date", "Id"]


def _person(number: int) -> list[object]:
    date = f"{1 + number % 28:02}/{1 + number % 12:02}/{2014 + number % 4}"
    name = [_FIRST[number % 9], _LAST[number % 11], "Male" if number % 9 in (2, 5) else "Female"]
    return [number, *name, _COUNTRIES[number * number % 7 % 4], 21 + number * 5 % 38, date, 1000 + number * 37 % 8999]


_ROWS = [_HEADERS, *(_person(number) for number in range(1, 5001))]
_SPACE = "urn:oasis:names:tc:opendocument:xmlns:"
_TYPE = "application/vnd.oasis.opendocument.spreadsheet"
_CONTENT = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="{_SPACE}office:1.0" xmlns:table="{_SPACE}table:1.0" xmlns:text="{_SPACE}text:1.0"
 office:version="1.3"><office:body><office:spreadsheet><table:table table:name="Sheet1">
<table:table-column table:number-columns-repeated="{len(_HEADERS)}"/>
{{rows}}</table:table></office:spreadsheet></office:body></office:document-content>
"""
_MANIFEST = f"""<?xml version="1.0" encoding="UTF-8"?>
<manifest:manifest xmlns:manifest="{_SPACE}manifest:1.0" manifest:version="1.3">
<manifest:file-entry manifest:full-path="/" manifest:version="1.3" manifest:media-type="{_TYPE}"/>
<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/>
</manifest:manifest>
"""


def _cell(content: object) -> str:
    kind = f'float" office:value="{content}' if isinstance(content, int) else "string"
    text = escape(str(content))
    return f'<table:table-cell office:value-type="{kind}"><text:p>{text}</text:p></table:table-cell>'


def _sheet() -> bytes:
    rows = "".join(f"<table:table-row>{''.join(map(_cell, row))}</table:table-row>\n" for row in _ROWS)
    parts = {
        "mimetype": _TYPE,
        "content.xml": _CONTENT.format(rows=rows),
        "META-INF/manifest.xml": _MANIFEST,
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in parts.items():
            method = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name), text, method)
    return file.getvalue()


def _printed() -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(_ROWS)
    return text.getvalue().encode()


FILES = {f"{_NAME}.ods": _sheet(), f"{_NAME}.csv": _printed()}
_CALC = f"[toggle-button] {_NAME}.ods - LibreOffice Calc"
_PROMPT = "user@desktop:~/Desktop$ (focused)"
_CONVERT = f"soffice --headless --convert-to csv {_NAME}.ods"
RIGHT = [
    turn("I wait for both, and convert it.", write(f"{_CONVERT}\n", pause=2), when=_PROMPT),
    turn("I look what came of it.", write(f"wc -l {_NAME}.csv\n", pause=1), when=f"{_CONVERT} {_PROMPT}"),
    DONE | {"when": f"{len(_ROWS)} {_NAME}.csv"},
]
NEAR_MISS = [
    turn("I wait for both, and go to Calc.", click(_CALC, pause=2), when=_PROMPT),
    LARGER,
    turn("I save it under another name.", keys("ctrl", "shift", "s", pause=2), when=f"{_CALC} (on)"),
    turn("In place of its name,", keys("ctrl", "a", pause=1), when="[file-chooser] Save"),
    turn("a CSV's.", write(f"/home/user/Desktop/{_NAME}.csv\n", pause=2)),
    turn("In that format.", click("[push-button] Use Text CSV Format", pause=2)),
    turn("That is all.", click(["] Export Text File", "[push-button] OK"], pause=2)),
    DONE | {"when": f"[frame] {_NAME}.csv - LibreOffice Calc"},
]
NEAR_MISS_IS = "saved as text in Calc's own window, not from the command line"
SHELL = True
