"""An attempt's files on the worker's side: downloads, desktop-env's log, the recording. All are limited in size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rollout_tasks.cells.output_log import OutputLog
from rollout_tasks.environments.osworld.downloads import DownloadCache
from rollout_tasks.environments.osworld.guest_http import LARGEST_FILE

RECORDING_NAME = "recording.mp4"
LOG_NAME = "desktop-env.log"


class WorkerFiles:
    """The files of one attempt."""

    def __init__(self, directory: Path) -> None:
        """Touches nothing yet.

        Args:
            directory: The attempt's folder.
        """
        self._directory = directory
        self._log = OutputLog(directory / LOG_NAME)

    def place(self, url: str, target: Path) -> None:
        """Copies the file of a URL to a path.

        Raises:
            DownloadError: It cannot be downloaded.
        """
        DownloadCache().copy(url, target)

    def log(self, text: str) -> None:
        """Adds text to the log."""
        self.log_bytes(text.encode(errors="replace"))

    def log_bytes(self, content: bytes) -> None:
        """Adds bytes of any kind to the log."""
        self._log.add(content)

    @contextmanager
    def recording(self) -> Iterator[Callable[[bytes], None]]:
        """Takes the recording in pieces; at the end the whole file exists, or nothing.

        Raises:
            RuntimeError: It is too large.
        """
        partial = self._directory / f".{RECORDING_NAME}.part"
        size = 0

        def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            if size > LARGEST_FILE:
                raise RuntimeError(f"the recording has more than {LARGEST_FILE >> 20} MiB")
            if size == len(piece):
                self._directory.mkdir(parents=True, exist_ok=True)
            with partial.open("ab") as file:
                file.write(piece)

        try:
            yield take
            if size:
                partial.replace(self._directory / RECORDING_NAME)
        finally:
            partial.unlink(missing_ok=True)
