"""Values that each process makes for itself, such as connections: what a child inherits over a fork is made again there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Made = TypeVar("_Made")


class per_process(Generic[_Arguments, _Made]):  # noqa: N801 - used as a decorator
    """Has a function make one value for each set of arguments in each process, and return that one from then on."""

    def __init__(self, make: Callable[_Arguments, _Made]) -> None:
        self._make = make
        self._process = os.getpid()
        self._made: dict[tuple[object, ...], _Made] = {}
        update_wrapper(self, make)

    def __call__(self, *args: _Arguments.args, **options: _Arguments.kwargs) -> _Made:
        """The value for these arguments."""
        if self._process != os.getpid():
            self.cache_clear()
            self._process = os.getpid()
        key = (*args, *sorted(options.items()))
        if key not in self._made:
            self._made[key] = self._make(*args, **options)
        return self._made[key]

    def cache_clear(self) -> None:
        """Forgets what was made."""
        self._made = {}
