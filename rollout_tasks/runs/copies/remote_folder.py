"""A folder at a URL, by fsspec: objects are written whole, read up to a bound, and what a network fails is tried again."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from benchmark.whole_file import sync_file
from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.local_folder import PART, part_of
from rollout_tasks.unicode_text import one_line
from rollout_tasks.validation_messages import shown

RETRY_SECONDS = 300.0
Say = Callable[[str], None]
T = TypeVar("T")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_AT_ONCE = 8
"""Files that are on their way at a time."""
_IN_MEMORY_BYTES = 8 << 20
"""Larger files are sent from the disk, and read in blocks."""
_BLOCK_BYTES = 4 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_LOCAL = frozenset({"file", "local"})
_HERE = _LOCAL | {"memory"}
_BY_RENAME = _LOCAL | {"sftp", "ssh"}
"""Protocols whose files have their names before they are whole. Objects of others get theirs when they are."""
_FINAL = (NotImplementedError, ImportError, TypeError, AttributeError, ValueError, PermissionError, FileNotFoundError)
"""Errors that another try does not help. Those of a missing bucket, refused keys and addresses that are none are among them."""
_FINAL_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
_FINAL_NAMES = frozenset(
    {
        "DefaultCredentialsError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "ParamValidationError",
        "AuthenticationException",
        "BadHostKeyException",
    }
)
"""As above, of packages that may not be installed."""


class RemoteError(UserError):
    """The target refused, or could not be reached for too long."""


def is_url(text: str) -> bool:
    """Whether a text has a URL's scheme."""
    return _URL.match(text) is not None


class RemoteFolder:
    """A folder at a URL. Its methods may be called from several threads."""

    def __init__(self, url: str, say: Say, *, retry_seconds: float = RETRY_SECONDS) -> None:
        """Connects, where the protocol has connections.

        Args:
            url: Without a password or a query.
            say: Called with a sentence about what is waited for.
            retry_seconds: How long to try again what the network fails.

        Raises:
            UserError: The URL is wrong, or a package is missing.
            RemoteError: It refuses, or cannot be reached for too long.
        """
        _check(url)
        self.url = url.rstrip("/")
        self.say = say
        self._retry_seconds = retry_seconds
        self._stop = threading.Event()
        self._has_connection = False
        """Whether it may have a single connection, as by SFTP: one thread at a time can use it, and none once it has failed."""
        self._files, self._root = self._tried("connect", lambda: _opened(url))
        protocol = self._files.protocol
        protocols = {protocol} if isinstance(protocol, str) else {*protocol}
        self._has_connection = not (self._files.async_impl or _HERE & protocols)
        self._by_rename = not _BY_RENAME.isdisjoint(protocols)
        self.local_path = None if _LOCAL.isdisjoint(protocols) else Path(self._root)
        """Where it is, if it is on this machine."""

    def sizes(self) -> dict[str, int]:
        """Returns the size of each object, by its name in the folder; none if there is no folder.

        Objects that stand for folders do not count, nor do files that are being written.

        Raises:
            RemoteError: It cannot be listed.
        """

        def find() -> dict[str, int]:
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._root, detail=True)
            except FileNotFoundError:
                return {}
            above = self._root.rstrip("/") + "/"
            return {
                path.removeprefix(above): int(about.get("size") or 0)
                for path, about in found.items()
                if path.startswith(above) and not path.endswith("/") and not _is_part(path)
            }

        return self._tried("list what is there", find)

    def write(self, name: str, content: bytes) -> None:
        """Writes a small object, whole.

        Raises:
            RemoteError: It cannot be written.
        """
        self._put(name, lambda path: self._files.pipe_file(path, content))

    def put(self, name: str, file: BinaryIO, size: int) -> None:
        """Writes an object with the content of an open file, whole.

        Raises:
            OSError: The file cannot be read.
            RemoteError: The object cannot be written.
        """
        if size <= _IN_MEMORY_BYTES:
            file.seek(0)
            self.write(name, file.read(size))
        else:  # by the descriptor: nobody can put another file in its place
            self._put(name, lambda path: self._files.put_file(f"/proc/self/fd/{file.fileno()}", path))

    def read(self, name: str, most: int) -> bytes:
        """Returns the content of an object that is not empty, or the first bytes of a longer one.

        Args:
            name: Its name in the folder.
            most: How many bytes at most.

        Raises:
            RemoteError: It cannot be read.
        """
        return self._tried(
            f"read {shown(name)}", lambda: bytes(self._files.cat_file(self._path(name), start=0, end=most))
        )

    def fetch(self, name: str, size: int, take: Callable[[BinaryIO], T]) -> T:
        """Reads an object.

        Args:
            name: Its name in the folder.
            size: How long it is to be.
            take: Gets the open object, and is to read no more than a byte over its size. Called again if the network fails.

        Returns:
            What `take` returned.

        Raises:
            RemoteError: It cannot be read.
        """
        if size <= _IN_MEMORY_BYTES:
            return take(BytesIO(self.read(name, size + 1) if size else b""))

        def act() -> T:
            with self._files.open(self._path(name), "rb", block_size=_BLOCK_BYTES) as opened:
                return take(opened)

        return self._tried(f"read {shown(name)}", act)

    def remove(self, name: str) -> None:
        """Removes an object, if it is there.

        Raises:
            RemoteError: It cannot be removed.
        """

        def act() -> None:
            path = self._path(name)
            for one in (path, *([_part_of(path)] if self._by_rename else [])):
                with suppress(FileNotFoundError):
                    self._files.rm_file(one)

        self._tried(f"remove {shown(name)}", act)

    def each(self, act: Callable[[T], Any], things: Iterable[T]) -> None:
        """Calls a function with each of some things, several at a time; its first error ends the rest."""
        self._stop.clear()
        with ThreadPoolExecutor(1 if self._has_connection else _AT_ONCE) as threads:
            futures = [threads.submit(act, thing) for thing in things]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                raise

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _put(self, name: str, act: Callable[[str], Any]) -> None:
        path = self._path(name)

        def by_rename() -> None:
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            temporary = _part_of(path)
            act(temporary)
            if self.local_path is not None:
                sync_file(Path(temporary))
            self._files.mv(temporary, path)

        self._tried(f"write {shown(name)}", by_rename if self._by_rename else lambda: act(path))

    def _tried(self, what: str, act: Callable[[], T]) -> T:
        """Does something, again and again while the network fails it.

        Raises:
            RemoteError: It was refused, or failed for too long.
        """
        first, pause = None, _FIRST_PAUSE
        while True:
            try:
                return act()
            except UserError:
                raise
            except Exception as error:  # noqa: BLE001 - each package behind fsspec has its own errors
                problem = error
            first = time.monotonic() if first is None else first
            if _is_final(problem):
                raise RemoteError(f"{self.url}: cannot {what}: {_said(problem)}") from problem
            failing = time.monotonic() - first
            if failing + pause > self._retry_seconds or self._stop.is_set():
                raise RemoteError(
                    f"{self.url}: cannot {what}, tried for {failing:.0f} s: {_said(problem)}; what is there stays:"
                    " give the same command again to go on"
                ) from problem
            self.say(f"waits for {self.url}: cannot {what}: {_said(problem)}")
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            if self._has_connection:
                with suppress(Exception):  # else the next try fails, too
                    self._files = _opened(self.url)[0]


def _check(url: str) -> None:
    """Checks a URL as it is given.

    Raises:
        UserError: It has a password, or what fsspec would take for something else; does not repeat it.
    """
    rest = url.partition("://")[2]
    if ":" in rest.rpartition("@")[0]:
        raise UserError("URL: must not contain a password, which others could see: set it in the environment")
    if "?" in url:
        raise UserError("URL: must not have a query: credentials and settings come from the environment")
    if not url.isprintable() or re.search(r"[*\[\]\\]|::", url) or ".." in rest.split("/") or not rest.strip("/"):
        raise UserError(f"URL: must look like s3://bucket/folder, got {shown(url)}")


def _opened(url: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, and its path there.

    Raises:
        UserError: A package is missing, or fsspec knows no such protocol.
    """
    try:
        from fsspec.core import url_to_fs  # here, because it is optional
    except ImportError as error:
        raise UserError("copies at a URL need the package fsspec: uv pip install fsspec") from error
    protocol = url.partition("://")[0]
    try:
        files, path = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise UserError(f"{protocol}:// needs a package that is not installed: {_said(error)}") from error
    except ValueError as error:
        raise UserError(f"URL: {protocol}:// cannot be used: {_said(error)}") from error
    return files, str(path)


def _part_of(path: str) -> str:
    """Returns under which name a file is written that gets its own by renaming."""
    above, _, last = path.rpartition("/")
    return f"{above}/{part_of(last)}"


def _is_part(path: str) -> bool:
    last = path.rpartition("/")[2]
    return last.startswith(".") and last.endswith(PART)


def _is_final(error: Exception) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return isinstance(error, _FINAL) or number in _FINAL_NUMBERS or type(error).__name__ in _FINAL_NAMES


def _said(error: Exception) -> str:
    """Returns an error in a clause, without what may be a secret in an address."""
    text = re.sub(r"(?<=://)[^/\s]*@", "", one_line(str(error)))
    text = re.sub(r"\?\S*", "", text).strip()[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
