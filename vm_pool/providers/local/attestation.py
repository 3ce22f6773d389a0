"""Whether a desktop's control server is still the one that was there when the desktop was found healthy, as the host sees it.

The guest is not asked: its processes are looked at in the host's /proc, its files in what was written over its image. Root in the
guest may end the server and start another, or write over its files; both shows. It cannot change the server while that runs: server
and session are hidden from tracers, and root has no right to trace others there (`bundle.CAPABILITIES`).
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
"""How often is looked, where something is not as it was."""
_LISTENING = "0A"
_SHOWN = 100
"""Characters of a command in a sentence."""
NAMED_FILES = 5
"""A sentence names so many altered files at most."""
_WHOLE = ("bin", "lib", "lib64", "etc/ld.so.preload", "usr/lib/guest", "usr/bin/python3")
"""Nothing may be written there, nor below: the server itself, and how programs and libraries are found."""
_SHELLS = ("usr/bin/sh", "usr/bin/dash", "usr/bin/bash")
"""What the server itself starts to run commands."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it was."""

    pid: int
    """In the namespace of the desktop's keeper."""
    began: str
    executable: tuple[int, int]
    """Device and inode."""
    command: str


@dataclass(frozen=True, slots=True)
class Server:
    """Who can answer at the control port: one socket, and the processes that hold it, the session's first one among them."""

    sockets: frozenset[str]
    holders: frozenset[Process]
    libraries: frozenset[str]
    """Files with code that the holders have mapped, as paths without the first slash."""
    python: str
    """As in ``python3.11``; empty where it cannot be told."""


class Attestor:
    """Looks at a running desktop from outside.

    Args:
        inside: The desktop.
        layers: Its image's.
    """

    def __init__(self, inside: DesktopHandles, layers: Sequence[Path]) -> None:
        self._processes, self._session, self._written = inside.processes, inside.session, inside.written
        self._layers = layers

    def healthy_server(self) -> Server:
        """Who can answer at the control port; taken where nothing has happened in the desktop yet."""
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
        """What is not as it was, in sentences; none where nothing is.

        Args:
            healthy: Who could answer when the desktop was found healthy.
        """
        found: list[str] = []
        for _ in range(_LOOKS):
            now = self._server()
            altered = self._altered_files(healthy.python, healthy.libraries)
            found = [*_differences(healthy, now), *altered]
            if not found:
                break
            # For a moment, a program that the server starts is a copy of it.
            time.sleep(_PAUSE_SECONDS)
        return found

    def _listening(self, port: int) -> Iterator[str]:
        """The inodes of the sockets that listen on a port of the guest's network, in IPv4, over which it is reached."""
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
        whole = [*_WHOLE, *_SHELLS, f"usr/bin/{python}", f"usr/lib/{python}", f"etc/{python}", *sorted(libraries)]
        packages = ("usr/lib/python3/dist-packages", f"usr/local/lib/{python}/dist-packages")
        altered = [path for path in dict.fromkeys(whole) if self._is_written(path)]
        altered += islice((path for folder in packages for path in self._replaced_below(folder)), NAMED_FILES + 1)
        if altered:
            named = ", ".join(f"/{path}" for path in altered[:NAMED_FILES])
            yield f"written over: {named}{' and others' if len(altered) > NAMED_FILES else ''}"

    def _is_written(self, path: str) -> bool:
        """Whether anything of a path is not the image's any more, a folder's content included."""
        parts = path.split("/")
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            if not self._exists(above):
                return False
            if not self._leads_on(above):
                return True
        return self._exists(path)

    def _exists(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self._written, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _leads_on(self, path: str) -> bool:
        """Whether something written is a folder in which what the image has there can still be seen."""
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
        """What of the image below a folder was replaced or removed; what was only added there is not meant."""
        if not self._is_written(folder):
            return
        if not self._exists(folder) or not self._leads_on(folder):
            yield folder
            return
        for base, folders, files, _descriptor in os.fwalk(folder, dir_fd=self._written):
            covering = (name for name in folders if not self._leads_on(f"{base}/{name}"))
            for path in (f"{base}/{name}" for name in (*covering, *files)):
                if any(os.path.lexists(layer / path) for layer in self._layers):
                    yield path

    def _text(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
        with os.fdopen(descriptor, "rb") as file:
            return file.read().decode(errors="replace")


def _link(name: str, folder: int) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:  # closed meanwhile
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
