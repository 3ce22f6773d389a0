"""Attestation: whether a desktop's control server is still the one from when the desktop was found healthy.

The host checks from outside, without asking the guest: its processes in the host's /proc, its files in the layer
written over its image. Root in the guest may end the server and start another, or overwrite its files; both are
detected. It cannot change the running server: server and session are hidden from tracers, and root has no right to
trace other processes there (`bundle.CAPABILITIES`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vm_pool.providers.guest_server import PORTS
from vm_pool.providers.local.handles import DesktopHandles

_LOOKS, _PAUSE_SECONDS = 5, 0.05
"""How often to check again when something has changed, and the pause between checks."""
_LISTENING = "0A"
_SHOWN = 100
"""Longest part of a command in a message, in characters."""
NAMED_FILES = 5
"""The most altered files that a message names."""
_WHOLE = ("bin", "lib", "lib64", "etc/ld.so.preload", "usr/lib/guest", "usr/bin/python3")
"""Nothing may be written to or below these: the server itself, and where programs and libraries are found."""
_SHELLS = ("usr/bin/sh", "usr/bin/dash", "usr/bin/bash")
"""The shells with which the server runs commands."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process at the time of a check."""

    pid: int
    """In the PID namespace of the desktop's keeper."""
    began: str
    executable: tuple[int, int]
    """Device and inode."""
    command: str


@dataclass(frozen=True, slots=True)
class Server:
    """The server at the control port: one socket, and the processes that hold it, including the session's first."""

    sockets: frozenset[str]
    holders: frozenset[Process]
    libraries: frozenset[str]
    """Files with code that the holders have mapped, as paths without the leading slash."""
    python: str
    """For example ``python3.11``; empty where unknown."""


class Attestor:
    """Checks a running desktop from outside.

    Args:
        inside: The desktop's handles.
        layers: The layers of its image.
    """

    def __init__(self, inside: DesktopHandles, layers: Sequence[Path]) -> None:
        self._processes, self._session, self._written = inside.processes, inside.session, inside.written
        self._layers = layers

    def healthy_server(self) -> Server:
        """Returns the server at the control port; call this before anything has happened in the desktop."""
        before = self._server()
        for _ in range(_LOOKS):
            now = self._server()
            if now == before:
                break
            before = now
            time.sleep(_PAUSE_SECONDS)
        return before

    def _server(self) -> Server:
        sockets = frozenset(self._listening(PORTS["control"]))
        marks = {f"socket:[{inode}]" for inode in sockets}
        with os.scandir(self._processes) as entries:
            pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
        holders = frozenset(process for pid in pids if self._holds(pid, marks) and (process := self._process(pid)))
        libraries = frozenset(path for process in holders for path in self._mapped(process.pid))
        names = [Path(path).name for path in libraries if re.fullmatch(r"usr/bin/python3\.\d+", path)]
        return Server(sockets, holders, libraries, names[0] if names else "")

    def alterations(self, healthy: Server) -> list[str]:
        """Returns a sentence for each change; empty when nothing has changed.

        Args:
            healthy: The server from when the desktop was found healthy.
        """
        found: list[str] = []
        for _ in range(_LOOKS):
            now = self._server()
            altered = self._altered_files(healthy.python, healthy.libraries)
            found = [*_differences(healthy, now), *altered]
            if not found:
                break
            # A program that the server starts is a copy of it for a moment.
            time.sleep(_PAUSE_SECONDS)
        return found

    def _listening(self, port: int) -> Iterator[str]:
        """Yields the inodes of the sockets that listen on a port of the guest's network, in IPv4, which clients use."""
        for line in self._text(f"{self._session}/net/tcp").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]

    def _holds(self, pid: int, marks: Collection[str]) -> bool:
        try:
            folder = os.open(f"{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._processes)
        except OSError:
            return False
        try:
            with os.scandir(folder) as entries:
                return any(_link(entry.name, folder) in marks for entry in entries)
        except OSError:
            return False
        finally:
            os.close(folder)

    def _process(self, pid: int) -> Process | None:
        try:
            began = self._text(f"{pid}/stat").rpartition(") ")[2].split()[19]
            file = os.stat(f"{pid}/exe", dir_fd=self._processes)
            command = " ".join(self._text(f"{pid}/cmdline").split("\0")).strip()
        except (OSError, IndexError):
            return None
        return Process(pid, began, (file.st_dev, file.st_ino), command)

    def _mapped(self, pid: int) -> Iterator[str]:
        with suppress(OSError):
            for line in self._text(f"{pid}/maps").splitlines():
                _addresses, rights, *_where, path = [*line.split(maxsplit=5), ""][:6]
                if "x" in rights and path.startswith("/"):
                    yield path.removesuffix(" (deleted)").lstrip("/")

    def _altered_files(self, python: str, libraries: Collection[str]) -> Iterator[str]:
        before_library = f"usr/lib/{python.replace('.', '')}.zip"  # Python looks there first
        of_python = (f"usr/bin/{python}", f"usr/lib/{python}", f"etc/{python}", before_library)
        whole = [*_WHOLE, *_SHELLS, *of_python, *sorted(libraries)]
        packages = ("usr/lib/python3/dist-packages", f"usr/local/lib/{python}/dist-packages")
        altered = [path for path in dict.fromkeys(whole) if self._is_written(path)]
        altered += islice((path for folder in packages for path in self._replaced_below(folder)), NAMED_FILES + 1)
        if altered:
            named = ", ".join(f"/{path}" for path in altered[:NAMED_FILES])
            yield f"written over: {named}{' and others' if len(altered) > NAMED_FILES else ''}"

    def _is_written(self, path: str) -> bool:
        """Whether any part of a path no longer comes from the image, a folder's content included."""
        return self._is_replaced(path) or self._exists(path)

    def _is_replaced(self, path: str) -> bool:
        """Whether the image's content cannot be seen at a path any more. Follows no link: the guest's lead into the host."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            part = "/".join(parts[:depth])
            if not self._exists(part):
                return False
            if not self._leads_on(part):
                return True
        return False

    def _exists(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self._written, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _leads_on(self, path: str) -> bool:
        """Whether a written path is a folder through which the image's content can still be seen."""
        if not stat.S_ISDIR(os.stat(path, dir_fd=self._written, follow_symlinks=False).st_mode):
            return False
        try:
            os.getxattr(f"/proc/self/fd/{self._written}/{path}", "trusted.overlay.opaque", follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            return True
        return False

    def _replaced_below(self, folder: str) -> Iterator[str]:
        """Yields the image's files below a folder that were replaced or removed; added files do not count.

        It lists the image's folders, not the guest's: root there may make those as deep and as full as the disk allows.
        """
        if self._is_replaced(folder):
            yield folder
            return
        written = [folder] if self._exists(folder) else []
        while written:
            path = written.pop()
            if self._leads_on(path):
                names = sorted({name for layer in self._layers for name in _names_in(layer / path)}, reverse=True)
                written += [below for name in names if self._exists(below := f"{path}/{name}")]
            else:
                yield path

    def _text(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
        with os.fdopen(descriptor, "rb") as file:
            return file.read().decode(errors="replace")


def _names_in(folder: Path) -> list[str]:
    """Returns the names in a folder of the image; none where that layer has no such folder."""
    return [path.name for path in folder.iterdir()] if folder.is_dir() and not folder.is_symlink() else []


def _link(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # closed since
        return ""


def _differences(healthy: Server, now: Server) -> Iterator[str]:
    port = PORTS["control"]
    if now.sockets != healthy.sockets:
        yield f"another socket listens on port {port}" if now.sockets else f"nobody listens on port {port}"
    if loaded := sorted(now.libraries - healthy.libraries):
        yield f"the server has loaded /{loaded[0][:_SHOWN]}"  # it loads all that it needs before it answers
    for gone in sorted(healthy.holders - now.holders, key=lambda process: process.pid):
        yield f"process {gone.pid} does not listen on port {port} any more: {gone.command[:_SHOWN]}"
    for new in sorted(now.holders - healthy.holders, key=lambda process: process.pid):
        yield f"process {new.pid} listens on port {port}: {new.command[:_SHOWN]}"
