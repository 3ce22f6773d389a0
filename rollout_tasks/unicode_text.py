"""Text from elsewhere, made such that it can be stored, sent and shown anywhere: JSON may hold what UTF-8 has no bytes for."""

from __future__ import annotations

from typing import Any

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(text: str) -> str:
    """The text with halves of surrogate pairs and NULs replaced; two halves that belong together become their character."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", _REPLACEMENT)


def printable(text: str) -> str:
    """The text with what steers a terminal, or is not shown at all, replaced; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else _REPLACEMENT for one in text)


def storable_json(value: Any, deepest: int) -> Any:
    """JSON values with all their text made storable.

    Args:
        value: As `json.loads` makes it.
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
