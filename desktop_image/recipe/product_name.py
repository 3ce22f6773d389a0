"""Renames Chromium in its window titles, which OSWorld's tasks look for: product_name.py LOCALE.pak

A pak is a header, a table of (id, offset) with an entry for the end, a table of aliases, and the texts one after another.
"""

import struct
import sys
from pathlib import Path

HEADER = struct.Struct("<IB3xHH")
ENTRY = struct.Struct("<HI")
ALIAS_BYTES = 4
VERSION = 5
OLD, NEW = b"Chromium", b"Google Chrome"


def renamed(pak: bytes) -> bytes:
    """The same pak with the product's name and the titles that end with it changed."""
    version, encoding, count, aliases = HEADER.unpack_from(pak)
    if version != VERSION:
        raise SystemExit(f"the browser's texts are of version {version}, not {VERSION}")
    table = [ENTRY.unpack_from(pak, HEADER.size + ENTRY.size * number) for number in range(count + 1)]
    alias_table = HEADER.size + ENTRY.size * (count + 1)
    start = alias_table + ALIAS_BYTES * aliases
    texts, entries, end, changed = [], [], start, 0
    for (key, begins), (_, ends) in zip(table, table[1:]):
        text = pak[begins:ends]
        if text == OLD or text.endswith(b" - " + OLD):
            text, changed = text.replace(OLD, NEW), changed + 1
        entries.append(ENTRY.pack(key, end))
        texts.append(text)
        end += len(text)
    if not changed:
        raise SystemExit("the browser's texts do not have its name")
    entries.append(ENTRY.pack(table[-1][0], end))
    header = HEADER.pack(version, encoding, count, aliases)
    return b"".join([header, *entries, pak[alias_table:start], *texts])


path = Path(sys.argv[1])
path.write_bytes(renamed(path.read_bytes()))
