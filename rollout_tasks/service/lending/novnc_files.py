"""The scripts of noVNC, the VNC client that runs in a browser, as its package installs them; nothing outside its folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rollout_tasks.service.lending.refusal import Refusal

_DATA_FOLDERS = "/usr/local/share:/usr/share"
"""Where programs' data are if XDG_DATA_DIRS does not say; Debian's and Ubuntu's packages have theirs in the latter."""
_NAME = re.compile(r"(core|vendor)(/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}){1,8}\.js")
_LARGEST = 1 << 22
_FIRST = "core/rfb.js"


def novnc_folders() -> list[Path]:
    """Returns the folders where noVNC may be installed, as the XDG Base Directory Specification says."""
    listed = (os.environ.get("XDG_DATA_DIRS") or _DATA_FOLDERS).split(":")
    return [Path(one) / "novnc" for one in listed if one.startswith("/")]


class NoVNCFiles:
    """The installed package. It may be installed while the service runs."""

    def __init__(self, folders: list[Path]) -> None:
        """Looks at nothing yet.

        Args:
            folders: Where it may be: the first that has it counts.
        """
        self._folders = folders

    def folder(self) -> Path:
        """Returns where it is.

        Raises:
            Refusal: It is not installed (501).
        """
        for folder in self._folders:
            if (folder / _FIRST).is_file():
                return folder
        where = " or ".join(map(str, self._folders))
        raise Refusal(501, f"noVNC is not installed where the service runs ({where}): apt-get install novnc")

    def script(self, name: str) -> bytes:
        """Returns one script.

        Args:
            name: Its path below the folder.

        Raises:
            Refusal: There is no such script (404), or no noVNC (501).
        """
        folder = self.folder()
        missing = Refusal(404, "noVNC has no such script")
        if not _NAME.fullmatch(name):
            raise missing
        try:
            top, path = folder.resolve(), (folder / name).resolve(strict=True)
            if not path.is_relative_to(top) or not path.is_file() or path.stat().st_size > _LARGEST:
                raise missing
            return path.read_bytes()
        except OSError as error:
            raise missing from error
