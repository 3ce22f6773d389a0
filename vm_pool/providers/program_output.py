"""What programs wrote before they failed, in a form for one line of an error message."""

from __future__ import annotations

import os
import re
from pathlib import Path

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_READ = 4000
"""Bytes of a file's end that are looked at."""
_SHOWN = 500
"""Characters of a message, at most."""


def in_one_line(text: str) -> str:
    """Returns text without colours and line breaks, and not at length."""
    return " ".join(_COLOURS.sub("", text).split())[:_SHOWN]


def ending(written: bytes, most: int) -> str:
    """Returns the last lines of what was written that are not empty, joined by bars; an empty string if there are none."""
    lines = [line.strip() for line in _COLOURS.sub("", written[-_READ:].decode(errors="replace")).splitlines()]
    return " | ".join([line for line in lines if line][-most:])[-_SHOWN:]


def last_lines(file: Path, most: int) -> str:
    """Returns the last lines of a file, as `ending` does; an empty string if it cannot be read."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _READ))  # a guest may have written much
            return ending(opened.read(_READ), most)
    except OSError:
        return ""
