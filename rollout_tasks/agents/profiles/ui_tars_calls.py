"""The calls of a UI-TARS reply as text: ``click(start_box='(1,2)')``, with all the quoting that models get wrong.

Read by hand in one pass, since the text is Python only in appearance: typed text holds unescaped quotes and line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rollout_tasks.agents.profiles.reply import UnusableReplyError, shown

_NAMES = """
    click left_single left_double right_single hover drag select scroll hotkey press keydown keyup release type wait finished
    call_user error_env
"""
NAMES = frozenset(_NAMES.split())
_FREE_TEXT = frozenset({"content"})
"""Arguments that may hold quotes: they end where the call ends."""
_SAME = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}

_CALL = re.compile(r"(?:[A-Za-z_]\w{0,40}\.)?([A-Za-z_]\w{0,40})([ \t]{0,20})\(")
_ARGUMENT = re.compile(r"([A-Za-z_]\w{0,40})\s*=\s*")
_TAGGED = re.compile(r"<point>[^<>]{1,100}</point>|<bbox>[^<>]{1,100}</bbox>|<\|box_start\|>[^<>]{1,100}<\|box_end\|>")
_BRACKETS = re.compile(r"([\[(]{1,3})[-+\d.,\s]{1,100}")
_WORD = re.compile(r"[^\s,()\[\]'\"]{1,100}")
_SPACE = re.compile(r"\s*")
_SKIPPED = re.compile(r"[\s,;]*")
_QUOTES = {quote: re.compile(rf"\\.|{quote}", re.DOTALL) for quote in "'\""}
_ESCAPE = re.compile(r"\\(?:([ntr'\"\\])|u([0-9a-fA-F]{4}))")
_HEADING = "Action:"
_MEANT = {"n": "\n", "t": "\t", "r": "\r"}


class UnendedTextError(UnusableReplyError):
    """A call whose text does not end: what follows may be part of it."""


@dataclass(frozen=True, slots=True)
class TextCall:
    """One call as it was written, its arguments by name and without their quotes."""

    name: str
    arguments: Mapping[str, str]


def read_calls(text: str) -> Iterator[TextCall]:
    """Yields the calls; lines of prose between them are skipped.

    Raises:
        UnusableReplyError: A call that is unknown or does not end.
    """
    position = _skip(text, 0)
    while position < len(text):
        found = _CALL.match(text, position)
        if found and found[1] in NAMES:
            call, position = _call(text, found)
            yield call
        elif found and not found[2]:
            raise UnusableReplyError(f"The action {shown(found[1])} is unknown.")
        else:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        position = _skip(text, position)


def last_outside_calls(heading: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Returns the last heading of calls; one in the text of a call after another heading is none. Reads the text once.

    Args:
        heading: Its first group is the heading's word.
        text: The reply.

    Raises:
        UnendedTextError: A call before the last heading does not end.
    """
    found = heading.search(text)
    while found is not None:
        position = found.end()
        following = heading.search(text, position)
        while following is not None and (position := _skip(text, position)) < following.start(1):
            position = _past(text, position, following.start(1))
            while following is not None and following.start(1) < position:
                following = heading.search(text, position)
        if following is None:
            return found
        found = following
    return None


def _past(text: str, position: int, most: int) -> int:
    """Returns where a call ends, or a line of prose, which is no longer than to a place."""
    found = _CALL.match(text, position)
    if found and found[1] in NAMES:
        try:
            return _call(text, found)[1]
        except UnendedTextError:
            raise
        except UnusableReplyError:
            pass
    end = text.find("\n", position, most)
    return most if end < 0 else end


def _skip(text: str, position: int) -> int:
    return _end(_SKIPPED, text, position)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


def _call(text: str, found: re.Match[str]) -> tuple[TextCall, int]:
    name, position = found[1], found.end()
    arguments: dict[str, str] = {}
    while True:
        position = _skip(text, position)
        if text.startswith(")", position):
            return TextCall(name, arguments), position + 1
        argument = _ARGUMENT.match(text, position)
        if argument is None:
            raise UnusableReplyError(f"The arguments of {name} are not written as name='value', or do not end.")
        key = _SAME.get(argument[1], argument[1])
        value, position = _value(text, argument.end(), name, key)
        arguments[key] = value


def _value(text: str, position: int, name: str, key: str) -> tuple[str, int]:
    quote = text[position : position + 1]
    if quote in _QUOTES:
        end = _free_text_end(text, position, quote) if key in _FREE_TEXT else _quoted_end(text, position, quote)
        if end is None:
            raise UnendedTextError(f"The argument {key} of {name} does not end.")
        return _ESCAPE.sub(_unescaped, text[position + 1 : end]), end + 1
    bare = _TAGGED.match(text, position) or _WORD.match(text, position)
    if bare is not None:
        return bare[0], bare.end()
    bracketed = _BRACKETS.match(text, position)
    if bracketed is not None:
        end = bracketed.end() + len(bracketed[1])
        if not text[bracketed.end() : end].strip(")]"):
            return text[position:end], end
    raise UnusableReplyError(f"The argument {key} of {name} has no value.")


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return _MEANT.get(escape[1], escape[1])
    code = int(escape[2], 16)
    return escape[0] if 0xD800 <= code <= 0xDFFF or code == 0 else chr(code)


def _quoted_end(text: str, start: int, quote: str) -> int | None:
    """Returns where the closing quote is: the first that a comma or a bracket follows."""
    for found in _QUOTES[quote].finditer(text, start + 1):
        if found[0] == quote and text.startswith((",", ")"), _end(_SPACE, text, found.end())):
            return found.start()
    return None


def _free_text_end(text: str, start: int, quote: str) -> int | None:
    """Returns where the closing quote is: the first after which nothing follows but another call, its
    heading, a comment or prose."""
    before_prose = None
    for found in _QUOTES[quote].finditer(text, start + 1):
        bracket = _end(_SPACE, text, found.end())
        if found[0] != quote or not text.startswith(")", bracket):
            continue
        following = _end(_SPACE, text, bracket + 1)
        between = text[bracket + 1 : following]
        next_call = _CALL.match(text, following)
        if following == len(text) or between.count("\n") > 1 or (next_call and next_call[1] in NAMES):
            return found.start()
        if "\n" in between and text.startswith(_HEADING, following):
            return found.start()
        if text[following] in ",;#" or "\n" in between:
            before_prose = found.start() if before_prose is None else before_prose
    return before_prose
