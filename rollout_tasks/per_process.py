"""Values that each process makes for itself, such as connections: a forked child makes them again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made")


class per_process(Generic[_Arguments, _Made]):  # noqa: N801 - used as a decorator
    """Makes a function return one value for each set of arguments in each process, made at the first call."""

    def __init__(self, make: Callable[_Arguments, _Made]) -> None:
        self._make = make
        self._process = os.getpid()
        self._made: dict[tuple[object, ...], _Made] = {}
        update_wrapper(self, make)

    def __call__(self, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
        """Returns the value for these arguments."""
        if self._process != os.getpid():
            self.cache_clear()
            self._process = os.getpid()
        key = (*args, *sorted(options.items()))
        if key not in self._made:
            self._made[key] = self._make(*args, **options)
        return self._made[key]

    def cache_clear(self) -> None:
        """Forgets the values."""
        self._made = {}
