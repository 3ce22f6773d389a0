"""How work on many items tells whoever waits for it how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Counting(Protocol):
    """Passes things on one by one, and shows how many are done."""

    def __call__(self, doing: str, things: Sequence[T], /) -> Iterable[T]:
        """Passes on all things, in their order.

        Args:
            doing: What is done with each, as in ``"checking items"``.
            things: The things.
        """


def silently(_doing: str, things: Sequence[T], /) -> Iterable[T]:
    """A `Counting` that shows nothing."""
    return things
