"""Exceptions of signals' handlers that Python prints and ignores, as it does in a weak reference's callback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def noticed_if_ignored(kind: type[BaseException], notice: Callable[[], None]) -> Iterator[None]:
    """While entered, an exception of exactly this kind that Python ignores calls `notice` and is not printed."""
    report = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if ignored.exc_type is kind:
            notice()
        else:
            report(ignored)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report
