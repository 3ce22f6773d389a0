"""Processes whose clock is wrong, by an offset that may change while they run."""

from __future__ import annotations

import subprocess
from pathlib import Path

HOUR = 3600


class WrongClock:
    """A clock that processes started with its `environment` see."""

    def __init__(self, folder: Path, seconds: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._offset = folder / "seconds"
        self._library = _library(folder)
        self.set(seconds)

    def set(self, seconds: int) -> None:
        """Makes it wrong by so many seconds from now on; ahead when positive."""
        new = self._offset.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self._offset)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that has this clock, and of all that it starts."""
        return {"LD_PRELOAD": str(self._library), "WRONG_CLOCK": str(self._offset)}


def _library(folder: Path) -> Path:
    library = folder / "wrong_clock.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source)], check=True)
    return library
