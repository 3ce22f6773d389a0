"""Writes a file that readers see whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

_BUFFER_BYTES = 1 << 18


def remove_leftovers(path: Path) -> None:
    """Removes temporary files that killed processes left; a process that is still writing the file then fails."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a whole file or nothing.

    Raises:
        OSError: The folder cannot be written to, or is full; names the path.
    """
    with WholeFile(path) as file:
        file.write(content)
        file.publish()


class WholeFile:
    """Writes a file; a context manager. Without `publish`, nothing changes.

    Text is written in UTF-8, half of a surrogate pair as its JSON escape.
    """

    def __init__(self, path: Path) -> None:
        """Opens nothing yet; `path` is the file's final place."""
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")

    def __enter__(self) -> Self:
        with self._naming_the_path():
            self._file = open(
                self._temporary,
                "wb",
                buffering=_BUFFER_BYTES,
                opener=lambda path, flags: os.open(path, flags, 0o644),
            )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a file that was not published is not needed
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def write(self, content: str | bytes) -> None:
        """Appends to the file.

        Raises:
            OSError: The folder cannot be written to, or is full; names the path.
        """
        with self._naming_the_path():
            self._file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)

    def publish(self) -> None:
        """Makes the file durable and moves it to its path.

        Raises:
            OSError: As for `write`.
        """
        with self._naming_the_path():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)

    @contextmanager
    def _naming_the_path(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error


def sync_file(path: Path) -> None:
    """Makes durable what was written to a file by other means.

    Raises:
        OSError: It cannot be opened or synced.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(path: Path) -> None:
    """Makes durable which files a folder has.

    Raises:
        OSError: It cannot be opened or synced.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
