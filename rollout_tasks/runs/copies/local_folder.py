"""A folder whose files are opened without following a link: what it holds may be anybody's, and must not lead elsewhere."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Self

from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.names import has_safe_parts

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PART = ".part"
"""How the names of files end that are being written."""


class Changed(Exception):
    """A file was replaced, moved or written to while it was read."""


def part_of(name: str) -> str:
    """Returns under which name a file is written that gets its own by renaming: as short for every name, and another for each."""
    return f".{hashlib.sha256(name.encode()).hexdigest()[:32]}{PART}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder, as it is without following links."""

    name: str
    mode: int
    changed_ns: int

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file as it was when its hash was computed."""

    name: str
    size: int
    sha256: str
    state: tuple[int, ...]
    """What changes if it is replaced or written to."""


class LocalFolder:
    """A folder; a context manager. Names are relative to it, with ``/`` between their parts."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self.path = path

    def __enter__(self) -> Self:
        self._root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def entries(self, name: str = "") -> list[Entry]:
        """Returns what a folder has, by name; nothing if there is no such folder, or a link.

        Raises:
            OSError: It cannot be read.
        """
        try:
            with self._folder(name) as descriptor, os.scandir(descriptor) as found:
                return sorted(_entries(found), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def names_below(self, name: str) -> Iterator[str]:
        """Yields the names of the regular files in a folder and in those in it, hidden ones not included.

        Raises:
            OSError: A folder cannot be read.
        """
        for entry in self.entries(name):
            below = _joined(name, entry.name)
            if entry.name.startswith(".") or not has_safe_parts(below):
                continue
            if entry.is_file:
                yield below
            elif entry.is_folder:
                yield from self.names_below(below)

    def oddities_below(self, name: str) -> int:
        """Returns how many entries `names_below` leaves out: links, special files, and names that no copy can have.

        Raises:
            OSError: A folder cannot be read.
        """
        count = 0
        for entry in self.entries(name):
            below = _joined(name, entry.name)
            if entry.name.startswith("."):
                continue
            if not has_safe_parts(below) or not (entry.is_file or entry.is_folder):
                count += 1
            elif entry.is_folder:
                count += self.oddities_below(below)
        return count

    def is_file(self, name: str) -> bool:
        """Whether there is a regular file of that name."""
        above, _, last = name.rpartition("/")
        with suppress(OSError), self._folder(above) as descriptor:
            return stat.S_ISREG(os.stat(last, dir_fd=descriptor, follow_symlinks=False).st_mode)
        return False

    def hashed(self, name: str) -> HashedFile:
        """Reads a file, and returns its size and hash.

        Raises:
            Changed: It is not there any more, or is being written to.
            OSError: It cannot be read.
        """
        with self.opened(name) as file:
            before = _state(file)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
            if _state(file) != before:
                raise Changed(name)
        return HashedFile(name, size, digest, before)

    @contextmanager
    def opened(self, name: str, known: HashedFile | None = None) -> Iterator[BufferedReader]:
        """Opens a regular file for the body.

        Args:
            name: Its name.
            known: What it must still be, before the body and after it.

        Raises:
            Changed: It is not there any more, is no regular file, or is not what it was.
            OSError: It cannot be read.
        """
        above, _, last = name.rpartition("/")
        try:
            with self._folder(above) as folder:
                descriptor = os.open(last, _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}:
                raise Changed(name) from error
            raise OSError(error.errno, error.strerror, str(self.path / name)) from error
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or (known and _state(file) != known.state):
                raise Changed(name)
            yield file
            if known and _state(file) != known.state:
                raise Changed(name)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Writes a file that is there once it is whole and synced; makes the folders above it.

        Args:
            name: Its name.
            chunks: Its content; if reading it raises an error, there is no file.

        Raises:
            UserError: It cannot be written, or a folder above it is something else.
        """
        above, _, last = name.rpartition("/")
        temporary = part_of(last)
        with self._writing(name):
            self._make_folders(above)
        with self._folder(above) as folder:
            with self._writing(name):
                file = _new_file(temporary, folder)
            try:
                with file:
                    for chunk in chunks:
                        with self._writing(name):
                            file.write(chunk)
                    with self._writing(name):
                        file.flush()
                        os.fsync(file.fileno())
                with self._writing(name):
                    os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
                    os.fsync(folder)
            finally:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path / name} cannot be written: {error.strerror}") from error

    def _make_folders(self, name: str) -> None:
        made = ""
        for part in filter(None, name.split("/")):
            with self._folder(made) as above, suppress(FileExistsError):
                os.mkdir(part, dir_fd=above)
                os.fsync(above)
            made = _joined(made, part)
        with self._folder(made):  # also where the last one is a link
            pass

    @contextmanager
    def _folder(self, name: str) -> Iterator[int]:
        """Opens a folder, one part of its name after the other."""
        descriptor = os.dup(self._root)
        try:
            for part in filter(None, name.split("/")):
                above, descriptor = descriptor, -1
                try:
                    descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
                finally:
                    os.close(above)
            yield descriptor
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _entries(found: Iterator[os.DirEntry[str]]) -> Iterator[Entry]:
    for one in found:
        with suppress(FileNotFoundError):
            status = one.stat(follow_symlinks=False)
            yield Entry(one.name, status.st_mode, status.st_mtime_ns)


def _new_file(name: str, folder: int) -> BinaryIO:
    """Makes a file in place of what a killed process left."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "wb")


def _joined(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _state(file: BinaryIO) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
