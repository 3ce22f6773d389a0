"""The scripts of noVNC, the VNC client that runs in a browser, as its package installs them; nothing outside its folder."""

from __future__ import annotations

import re
from pathlib import Path

from rollout_tasks.service.lending.refusal import Refusal

FOLDER = Path("/usr/share/novnc")
"""Where Debian's and Ubuntu's package `novnc` has it."""
_NAME = re.compile(r"(core|vendor)(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}){1,8}\.js")
_LARGEST = 1 << 22
_FIRST = "core/rfb.js"


class NoVNCFiles:
    """The installed package."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Looks at nothing yet."""
        self._folder = folder

    def check(self) -> None:
        """Raises if the package is not installed.

        Raises:
            Refusal: It is not there (501).
        """
        if not (self._folder / _FIRST).is_file():
            raise Refusal(
                501, f"noVNC is not installed where the service runs, in {self._folder}: apt-get install novnc"
            )

    def script(self, name: str) -> bytes:
        """Returns one script.

        Args:
            name: Its path below the folder.

        Raises:
            Refusal: There is no such script (404).
        """
        missing = Refusal(404, "noVNC has no such script")
        if not _NAME.fullmatch(name):
            raise missing
        try:
            top, path = self._folder.resolve(), (self._folder / name).resolve(strict=True)
            if not path.is_relative_to(top) or not path.is_file() or path.stat().st_size > _LARGEST:
                raise missing
            return path.read_bytes()
        except OSError as error:
            raise missing from error
