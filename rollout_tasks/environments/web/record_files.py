"""The files of a record's folder, which may be a stranger's: opened part by part, so that no link in it leads out of it.

They are written once: of two writers, the first one's file stays.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_ODD = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}
"""What opening says of links, and of a file, folder or device in the place of something else."""


class RecordDamagedError(RuntimeError):
    """What the folder holds is not what was recorded; the message names the file."""


class RecordFiles:
    """Reads and writes a record's files; a file's place is a sequence of names below the folder."""

    def __init__(self, folder: Path) -> None:
        """Touches nothing yet. The folder itself may be a link, as its path is the user's."""
        self._root = folder

    def path(self, place: Sequence[str]) -> Path:
        """Returns a file's path, for messages."""
        return self._root.joinpath(*place)

    def read(self, place: Sequence[str], largest: int) -> bytes | None:
        """Returns a file's content; None if there is no such file.

        Args:
            place: Where it is.
            largest: The most bytes that it may have.

        Raises:
            RecordDamagedError: It is larger, no regular file, or behind a link.
            OSError: It cannot be read; names the path.
        """
        try:
            with self._naming(place), self._folder_of(place) as folder:
                descriptor = os.open(place[-1], _FILE_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            return None
        with self._naming(place), os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._odd(place)
            content = file.read(largest + 1)
        if len(content) > largest:
            raise RecordDamagedError(f"{self.path(place)}: it is larger than a record's file may be")
        return content

    def write_first(self, place: Sequence[str], content: bytes) -> bool:
        """Writes a file that readers see whole or not at all, and whatever is there already stays.

        Returns:
            Whether it was written; False if there is one.

        Raises:
            RecordDamagedError: A folder above it is something else, or behind a link.
            OSError: It cannot be written; names the path.
        """
        name = place[-1]
        mine = f".{name}.{secrets.token_hex(8)}.tmp"
        with self._naming(place), self._folder_of(place, made=True) as folder:
            try:
                with os.fdopen(os.open(mine, _NEW_FILE_FLAGS, 0o644, dir_fd=folder), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(mine, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                os.fsync(folder)
            except FileExistsError:
                return False
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(mine, dir_fd=folder)
        return True

    @contextmanager
    def _folder_of(self, place: Sequence[str], *, made: bool = False) -> Iterator[int]:
        """Opens the folder of a file, one name after the other; makes those that are missing if that is wanted."""
        if made:
            self._root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in place[:-1]:
                if made:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                below = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _naming(self, place: Sequence[str]) -> Iterator[None]:
        """Has errors name the whole path, and those of links and the like say that the record is damaged."""
        try:
            yield
        except OSError as error:
            if error.errno in _ODD:
                raise self._odd(place) from error
            raise OSError(error.errno, error.strerror, str(self.path(place))) from error

    def _odd(self, place: Sequence[str]) -> RecordDamagedError:
        return RecordDamagedError(
            f"{self.path(place)}: it, or a folder above it, is a link or something else than a record has there"
        )
