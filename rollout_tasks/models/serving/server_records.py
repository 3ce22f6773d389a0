"""Records of the servers that `rollouts model serve` has started and not yet ended, in this machine's temporary folder.

A server's engine holds the GPU's memory. It writes its title where its environment was, and outlives a server that is
killed: its session alone tells later whose it is. So a record has the server, whose process id its session has, and who
started it.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from vm_pool.processes import has_ended, machine, name_of, this_process

logger = logging.getLogger(__name__)

_LONGEST = 4_096
"""Bytes of a record."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server, and the process that started it: names of `vm_pool.processes`."""

    server: str
    """The leader of its session."""
    started_by: str

    @property
    def left_alone(self) -> bool:
        """Whether the process that would end it has ended."""
        return has_ended(self.started_by)


def write_record(server: int) -> Path | None:
    """Records a server of this process; returns the record's file, None if none can be written.

    Args:
        server: Its process id, which is that of its session.
    """
    record = ServerRecord(name_of(server), this_process())
    folder = _folder(os.geteuid())
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not _is_of(folder, os.geteuid()):
            raise PermissionError(f"{folder} is not this user's")
        _remove_ended(folder)
        path = folder / f"{server}.json"
        new = path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(asdict(record)), encoding="utf-8")
        return new.replace(path)
    except OSError as error:
        logger.warning(
            "server %d is not recorded, and will not be known as ours if it is ever left over: %s", server, error
        )
        return None


def record_of(process: int, user: int) -> ServerRecord | None:
    """Returns the record of the server that a process belongs to; None for a process of no such server.

    Args:
        process: Its id.
        user: Its user's id; what others have recorded does not count.
    """
    try:
        session = os.getsid(process)
    except (ProcessLookupError, PermissionError):
        return None
    record = _read(_folder(user) / f"{session}.json", user)
    if record is None or not record.server.startswith(f"{machine()}:{session}:"):
        return None
    # While a process has it as its session, the id is nobody else's; a leader that lives is compared.
    return record if name_of(session) in ("", record.server) else None


def _folder(user: int) -> Path:
    return Path(tempfile.gettempdir()) / f"rollouts-servers-{user}"


def _is_of(folder: Path, user: int) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user


def _read(path: Path, user: int) -> ServerRecord | None:
    """Returns what a user has recorded there; None where there is no whole record of theirs."""
    try:
        if not _is_of(path.parent, user):
            return None
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != user or found.st_size > _LONGEST:
                return None
            told = json.loads(file.read(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    server, started_by = told.get("server"), told.get("started_by")
    return ServerRecord(server, started_by) if isinstance(server, str) and isinstance(started_by, str) else None


def _remove_ended(folder: Path) -> None:
    """Removes the records of this machine's servers of which no process is left."""
    sessions = set()
    for process in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            sessions.add(os.getsid(process))
    for path in folder.glob("*.json"):
        record = _read(path, os.geteuid())
        here = record is not None and machine() and record.server.startswith(f"{machine()}:")
        if here and path.stem.isdecimal() and int(path.stem) not in sessions:
            path.unlink(missing_ok=True)
