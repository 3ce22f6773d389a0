"""Parts of a page's text: the places where something is said, and one part after the other."""

from __future__ import annotations

import re

MOST_PLACES = 10
AROUND = 300
"""Characters shown before and after a place."""
LONGEST_PLACE = 1_500
PART = 8_000
"""Characters of one part."""


def places(text: str, wanted: str) -> tuple[int, list[tuple[int, str]]]:
    """Finds a text, whatever its case and the blanks and line ends between its words.

    Args:
        text: Where to look.
        wanted: What to look for; has at least one word.

    Returns:
        How often it is there, and the first places, those close to each other as one: where each begins, and what is said there.
    """
    pattern = re.compile(r"\s+".join(map(re.escape, wanted.split())), re.IGNORECASE)
    found = [match.span() for match in pattern.finditer(text)]
    shown: list[tuple[int, int]] = []
    for start, end in found:
        begin, stop = max(0, start - AROUND), min(len(text), end + AROUND)
        if shown and begin <= shown[-1][1]:
            shown[-1] = (shown[-1][0], min(stop, shown[-1][0] + LONGEST_PLACE))
        elif len(shown) < MOST_PLACES:
            shown.append((begin, stop))
        else:
            break
    return len(found), [(begin, text[begin:stop]) for begin, stop in shown]


def part(text: str, start: int) -> str:
    """Returns the part that begins at a position; shorter, or empty, at the end of the text."""
    return text[start : start + PART]
