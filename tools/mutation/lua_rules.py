"""Small defects in Lua scripts: rules over their tokens. Comments are left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tools.mutation.mutant import Candidate

_TOKEN = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<string>'[^'\n]*'|"[^"\n]*")
    | (?P<number>\d+(?:\.\d+)?(?:e\d+)?)
    | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
    | (?P<operator>\.\.|[=~<>]=|[-+*/%^<>=(){}\[\],;\#.:])
    | (?P<space>\s+)
    """,
    re.VERBOSE,
)
_SWAPS = {
    "==": ("~=",),
    "~=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "/": ("*",),
    "and": ("or",),
    "or": ("and",),
    "not": ("",),
    "math.max": ("math.min",),
    "math.min": ("math.max",),
    "true": ("false",),
    "false": ("true",),
}
_OPEN, _CLOSE = frozenset("({["), frozenset(")}]")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


Change = tuple[int, int, str, str]
"""From and to where in the text, what takes its place, the rule's name."""


def lua_candidates(file: str, source: str) -> Iterator[Candidate]:
    """Yields every place of a script where a rule can plant a defect.

    Args:
        file: Its path in the repository.
        source: Its text.
    """
    tokens = [token for token in _tokens(source) if token.kind not in {"space", "comment"}]
    for start, end, by, kind in _changes(source, tokens):
        line = source.count("\n", 0, start) + 1
        place = (line, start - (source.rfind("\n", 0, start) + 1))
        yield Candidate(file, source, place, kind, partial(_changed, source, start, end, by))


def _changed(source: str, start: int, end: int, by: str) -> str:
    return source[:start] + by + source[end:]


def _tokens(source: str) -> Iterator[_Token]:
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None:
            raise ValueError(f"no Lua token at {source[at : at + 20]!r}")
        yield _Token(str(found.lastgroup), found.group(), at)
        at = found.end()


def _changes(source: str, tokens: Sequence[_Token]) -> Iterator[Change]:
    words = sorted({token.text for token in tokens if token.kind == "string"})
    for at, token in enumerate(tokens):
        if token.kind == "string":
            yield from _other_word(token, words)
            continue
        sign = token.text == "-" and tokens[at - 1].text in {"(", "{", ",", "=", "return"}
        for by in () if sign else _SWAPS.get(token.text, ()):
            yield token.start, token.end, by, f"{token.text} changed"
        if token.kind == "number":
            yield token.start, token.end, str(int(float(token.text)) + 1), "number changed"
        elif token.text == "+" and tokens[at + 1].kind == "number":
            yield token.start, tokens[at + 1].end, "", "increment dropped"
        elif token.text in {"if", "elseif"}:
            then = next(later for later in tokens[at:] if later.text == "then")
            yield token.end, then.start, f" not ({source[token.end : then.start].strip()}) ", "branch negated"
        elif token.kind == "name" and at + 1 < len(tokens) and tokens[at + 1].text == "(":
            yield from _of_call(tokens, at)


def _other_word(token: _Token, words: Sequence[str]) -> Iterator[Change]:
    """A key, a field or a state becomes another one of the same script."""
    kind = _kind_of_word(token.text)
    alike = [word for word in words if _kind_of_word(word) == kind and word != token.text]
    if kind is not None and alike:
        yield token.start, token.end, alike[token.start % len(alike)], f"{kind} swapped"


def _kind_of_word(text: str) -> str | None:
    word = text[1:-1]
    if re.fullmatch(r":\w+:?", word):
        return "key of one thing" if word.endswith(":") else "key"
    if re.fullmatch(r"[01]", word):
        return "flag"
    return "word" if re.fullmatch(r"[a-z_]+", word) else None


def _of_call(tokens: Sequence[_Token], at: int) -> Iterator[Change]:
    """A call: left out where it stands by itself, and without each of the fields that it sets."""
    close = _closing(tokens, at + 1)
    if _stands_alone(tokens, at, close):
        yield tokens[at].start, tokens[close].end, "", "call dropped"
    if tokens[at].text not in {"call", "redis.call"}:
        return
    arguments = list(_arguments(tokens, at + 1, close))
    command = tokens[arguments[0][0]].text[1:-1]
    if command == "HSET" and len(arguments) > 4:
        for first, second in zip(arguments[2::2], arguments[3::2], strict=False):
            yield tokens[first[0] - 1].start, tokens[second[1]].end, "", "field dropped"
    elif command == "HDEL" and len(arguments) > 3:
        for argument in arguments[2:]:
            yield tokens[argument[0] - 1].start, tokens[argument[1]].end, "", "field dropped"


def _stands_alone(tokens: Sequence[_Token], at: int, close: int) -> bool:
    """Whether a call is a statement: begun after a statement's end, and not followed by more of an expression."""
    before = tokens[at - 1] if at else None
    begins = (
        before is None
        or before.text in {"then", "else", "do", "end", ")", "}", "]"}
        or before.kind in {"string", "number", "name"}
    )
    if (
        before is not None
        and before.kind == "name"
        and before.text in {"return", "and", "or", "not", "in", "function", "local"}
    ):
        begins = False
    after = tokens[close + 1] if close + 1 < len(tokens) else None
    return begins and (after is None or after.kind == "name")


def _closing(tokens: Sequence[_Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text in _OPEN) - (tokens[at].text in _CLOSE)
        if depth == 0:
            return at
    raise ValueError(f"nothing closes the parenthesis at {tokens[opening].start}")


def _arguments(tokens: Sequence[_Token], opening: int, close: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last token of each argument."""
    first, depth = opening + 1, 0
    for at in range(opening + 1, close + 1):
        depth += (tokens[at].text in _OPEN) - (tokens[at].text in _CLOSE)
        if (depth == 0 and tokens[at].text == ",") or at == close:
            yield first, at - 1
            first = at + 1
