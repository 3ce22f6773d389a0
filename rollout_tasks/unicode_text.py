"""Makes foreign text safe to store, send and show: JSON may contain characters that UTF-8 cannot encode."""

from __future__ import annotations

from typing import Any

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(text: str) -> str:
    """Returns the text with lone surrogates and NULs replaced; surrogate pairs become their character."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", _REPLACEMENT)


def printable(text: str) -> str:
    """Returns the text with control and invisible characters replaced; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else _REPLACEMENT for one in text)


def one_line(text: str) -> str:
    """Returns the text printable and on one line, for output with one line for each message: it cannot pass for several."""
    return printable(" ".join(text.split()))


def printable_line(text: str, longest: int) -> str:
    """Returns a text of a record storable, printable, on one line and cut; one that was recorded so stays as it is.

    Args:
        text: The text.
        longest: The most characters of it that are kept.
    """
    return (text if text.isprintable() else one_line(storable(text)))[:longest]


def storable_json(value: Any, deepest: int) -> Any:
    """Returns JSON values with all their text made storable.

    Args:
        value: As `json.loads` returns it.
        deepest: How deeply lists and objects may be nested.

    Raises:
        ValueError: They are nested deeper.
    """
    if isinstance(value, str):
        return storable(value)
    if not isinstance(value, list | dict):
        return value
    if deepest == 0:
        raise ValueError("lists and objects are nested too deeply")
    if isinstance(value, list):
        return [storable_json(one, deepest - 1) for one in value]
    return {storable(key): storable_json(one, deepest - 1) for key, one in value.items()}
