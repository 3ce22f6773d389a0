"""The calls of a UI-TARS reply as text: ``click(start_box='(1,2)')``, with all the quoting that models get wrong.

Read by hand in one pass, since the text is Python only in appearance: typed text holds unescaped quotes and line breaks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    written = _Written(text)
    position = _skip(text, 0)
    while position < len(text):
        found = _CALL.match(text, position)
        if found and found[1] in NAMES:
            arguments, position = written.arguments(found)
            yield TextCall(found[1], {argument.key: argument.text for argument in arguments})
        elif found and not found[2]:
            raise UnusableReplyError(f"The action {shown(found[1])} is unknown.")
        else:
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        position = _skip(text, position)


def last_outside_calls(heading: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Returns the last heading of calls; one in the text of a call after another heading does not count. Reads the
    text once.

    Args:
        heading: Its first group is the heading's word.
        text: The reply.

    Raises:
        UnendedTextError: A call before the last heading does not end.
    """
    written = _Written(text)
    found = heading.search(text)
    while found is not None:
        position = found.end()
        next_heading = heading.search(text, position)
        while next_heading is not None and (position := _skip(text, position)) < next_heading.start(1):
            position = _past(written, position, next_heading.start(1))
            while next_heading is not None and next_heading.start(1) < position:
                next_heading = heading.search(text, position)
        if next_heading is None:
            return found
        found = next_heading
    return None


def _past(written: _Written, position: int, most: int) -> int:
    """Returns where a call ends, or else a line of prose: at most at the place `most`."""
    found = _CALL.match(written.text, position)
    if found and found[1] in NAMES:
        try:
            return written.arguments(found)[1]
        except UnendedTextError:
            raise
        except UnusableReplyError:
            pass
    end = written.text.find("\n", position, most)
    return most if end < 0 else end


def _skip(text: str, position: int) -> int:
    return _end(_SKIPPED, text, position)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


class _Argument(NamedTuple):
    """An argument of a call, not unescaped before it is asked for."""

    key: str
    written: str
    start: int
    end: int
    quoted: bool

    @property
    def text(self) -> str:
        """What is meant."""
        text = self.written[self.start : self.end]
        return _ESCAPE.sub(_unescaped, text) if self.quoted else text


class _Written:
    """A text in which calls are read. Each of its places is read once, however many calls begin before it and do not end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: set[int] = set()
        """Where arguments began. One that is reached again is of a call that could not be read: only then is text read again."""
        self._ends: dict[str, _Ends] = {}

    def arguments(self, found: re.Match[str]) -> tuple[list[_Argument], int]:
        """Returns a call's arguments, and where the call ends.

        Raises:
            UnusableReplyError: They are not written as they must be.
        """
        name, position = found[1], found.end()
        arguments: list[_Argument] = []
        while position not in self._read:
            self._read.add(position)
            position = _skip(self.text, position)
            if self.text.startswith(")", position):
                return arguments, position + 1
            argument = _ARGUMENT.match(self.text, position)
            if argument is None:
                break
            key = _SAME.get(argument[1], argument[1])
            value, position = self._value(argument.end(), name, key)
            arguments.append(value)
        raise UnusableReplyError(f"The arguments of {name} are not written as name='value', or do not end.")

    def _value(self, position: int, name: str, key: str) -> tuple[_Argument, int]:
        quote = self.text[position : position + 1]
        if quote in _QUOTES:
            end = self._closing(quote).after(position, free=key in _FREE_TEXT)
            if end is None:
                raise UnendedTextError(f"The argument {key} of {name} does not end.")
            return _Argument(key, self.text, position + 1, end, True), end + 1
        bare = _TAGGED.match(self.text, position) or _WORD.match(self.text, position)
        if bare is not None:
            return _Argument(key, self.text, position, bare.end(), False), bare.end()
        bracketed = _BRACKETS.match(self.text, position)
        if bracketed is not None:
            end = bracketed.end() + len(bracketed[1])
            if not self.text[bracketed.end() : end].strip(")]"):
                return _Argument(key, self.text, position, end, False), end
        raise UnusableReplyError(f"The argument {key} of {name} has no value.")

    def _closing(self, quote: str) -> _Ends:
        if quote not in self._ends:
            self._ends[quote] = _Ends(self.text, quote)
        return self._ends[quote]


class _Ends:
    """Where the texts in one kind of quotes may end, in the order of the text."""

    def __init__(self, text: str, quote: str) -> None:
        self._of_value: list[int] = []
        """Quotes that a comma or a bracket follows."""
        self._of_call: list[int] = []
        """Quotes that end the call, if nothing follows but another call, its heading, or nothing."""
        self._before_prose: list[int] = []
        """Quotes that end the call, if a comment or prose follows."""
        for found in _QUOTES[quote].finditer(text):
            if found[0] == quote:
                self._sort(text, found.start(), _end(_SPACE, text, found.end()))

    def after(self, start: int, *, free: bool) -> int | None:
        """Returns the quote that closes the one at a place.

        Args:
            start: The place.
            free: Whether the text may hold quotes, so that it ends where the call ends.
        """
        if not free:
            return _first_after(self._of_value, start)
        end = _first_after(self._of_call, start)
        return _first_after(self._before_prose, start) if end is None else end

    def _sort(self, text: str, place: int, bracket: int) -> None:
        if text.startswith((",", ")"), bracket):
            self._of_value.append(place)
        if not text.startswith(")", bracket):
            return
        next_place = _end(_SPACE, text, bracket + 1)
        between = text[bracket + 1 : next_place]
        next_call = _CALL.match(text, next_place)
        if (
            next_place == len(text)
            or between.count("\n") > 1
            or (next_call and next_call[1] in NAMES)
            or ("\n" in between and text.startswith(_HEADING, next_place))
        ):
            self._of_call.append(place)
        elif text[next_place] in ",;#" or "\n" in between:
            self._before_prose.append(place)


def _first_after(places: Sequence[int], start: int) -> int | None:
    index = bisect_right(places, start)
    return places[index] if index < len(places) else None


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return _MEANT.get(escape[1], escape[1])
    code = int(escape[2], 16)
    return escape[0] if 0xD800 <= code <= 0xDFFF or code == 0 else chr(code)
