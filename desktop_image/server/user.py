"""Lets the server, a process of root, act as the guest's user: no program of the user can end, trace or replace it.

Its threads access files only with the user's rights (`act_as_user`); programs that it starts are the user's from their
first instruction (`started_by_user`). Ids are set for single threads, by system calls: the C library would set them for
all threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

OWN_VARIABLES = ("GUEST_SCREEN", "GUEST_XAUTHORITY", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "PYTHONPATH")
"""Variables of the server's environment that the user's does not have."""
_PR_SET_DUMPABLE = 4
_SETRESUID = {"x86_64": 117, "aarch64": 147}
_UNCHANGED = -1
_libc = ctypes.CDLL(None, use_errno=True)
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class User:
    """The user that the server acts for."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    environment: Mapping[str, str]


@lru_cache(maxsize=1)
def the_user() -> User:
    """Returns the user that the server's environment named at the first call."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
    known = pwd.getpwnam(environment["USER"])
    return User(known.pw_uid, known.pw_gid, tuple(os.getgrouplist(known.pw_name, known.pw_gid)), environment)


def act_as_user() -> None:
    """Makes this thread, and those it starts, access files as the user does; no process may trace this one.

    It also no longer loads code for name lookups that root may put into /etc/nsswitch.conf later.

    Raises:
        OSError: The process is not root's, or the C library still follows that file.
    """
    user = the_user()
    for database in (b"passwd", b"group", b"initgroups"):
        if _libc.__nss_configure_lookup(database, b"files") != 0:  # after the first, the file is not read again
            raise OSError("the C library cannot be told where to look up names")
    os.setgroups(user.groups)
    _libc.setfsgid(user.gid)
    _libc.setfsuid(user.uid)
    if (_libc.setfsgid(_UNCHANGED), _libc.setfsuid(_UNCHANGED)) != (user.gid, user.uid):
        raise PermissionError("the server must be started by root, to act for its user")
    _hide_from_tracers()


def started_by_user() -> dict[str, Any]:
    """Returns the arguments of `subprocess.Popen` that make a program the user's."""
    user = the_user()
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups, "env": user.environment}


def with_id_of_user(make: Callable[[], _Made]) -> _Made:
    """Calls `make` so that others, such as the other end of a connection, see the user's id.

    It runs in its own thread, whose real id stays root's, so that no program can end it.

    Raises:
        OSError: Whatever `make` raises, or the thread may not have the user's id.
    """
    made: list[_Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            if _libc.syscall(_SETRESUID[platform.machine()], _UNCHANGED, the_user().uid, _UNCHANGED) != 0:
                raise OSError(ctypes.get_errno(), "the server may not have its user's id")
            _hide_from_tracers()
            made.append(make())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            failed.append(error)

    thread = threading.Thread(target=run, name="with the user's id", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _hide_from_tracers() -> None:
    """Hides memory and descriptors from processes without the right to trace all others, even from the guest's root."""
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the process cannot be hidden from tracers")
