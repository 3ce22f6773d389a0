"""Python with little room for nested calls: what would need many shows it soon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fewer_calls(most: int) -> Iterator[None]:
    """Has Python allow so few nested calls: a chain as deep as the usual number may take a minute to make."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(most)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)
