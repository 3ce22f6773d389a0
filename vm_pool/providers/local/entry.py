"""Makes a desktop's user namespace and image mounts, then becomes its keeper (`keeper.sh`).

This is a separate program that imports nothing from this project: ``python -I -S entry.py MOUNT_POINT SETTINGS
COMMAND...`` as the first process of a PID namespace, in its own mount namespace. SETTINGS is JSON, see `EntrySettings`. When
the command starts, the mount point has:

- ``users``: the user namespace. Its owner is an id that owns no other one, so that what the kernel counts by owner, it
  counts for this desktop alone; and no further namespaces can be made in it.
- ``0``, ``1`` ...: the image's layers, read-only, with their owners shifted to the namespace's ids if requested.

The command, and all that it starts, has the requested limits.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import TypedDict

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
"""Numbers of system calls, the same on all architectures."""
_AT_FDCWD, _AT_EMPTY_PATH, _CLONE, _CLOSE_ON_EXEC, _FROM_EMPTY_PATH = -100, 0x1000, 1, 0o2000000, 4
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_SHIFTED = 0x1, 0x100000
_BIND, _REMOUNT, _READ_ONLY, _NO_SUID, _NO_DEVICES = 0x1000, 0x20, 0x1, 0x2, 0x4
_NEW_USER = 0x10000000
_SET_SECURE_BITS, _KEEP_RIGHTS = 28, 1 << 2
_libc = ctypes.CDLL(None, use_errno=True)


class EntrySettings(TypedDict):
    """What to make."""

    owner: int
    """The host id that owns the user namespace."""
    first: int
    """The host id of its root."""
    count: int
    """How many ids it has."""
    stored: int
    """The id of the image's root on disk; the same as `first` where nothing is shifted."""
    layers: list[str]
    """The image's folders, topmost first."""
    limits: dict[str, list[int]]
    """Soft and hard limits, by their names in `resource`; a lower existing limit is kept."""


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("namespace", ctypes.c_uint64),
    )


def main() -> None:
    """Makes them and runs the command; on failure prints the reason in one line and ends with exit code 1."""
    place, settings = sys.argv[1], json.loads(sys.argv[2])
    try:
        prepare(place, settings)
    except OSError as error:
        print(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)  # noqa: T201
        sys.exit(1)
    os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606


def prepare(place: str, settings: EntrySettings) -> None:
    """Makes the namespace and the mounts in a folder.

    Raises:
        OSError: This machine cannot make them; the message says which.
    """
    _limit(settings["limits"])
    _mount(b"parts", place, b"tmpfs", _NO_SUID | _NO_DEVICES, b"size=64k,nr_inodes=64,mode=711")
    _keep_namespace(settings, f"{place}/users")
    shift = _shifting_namespace(settings) if settings["stored"] != settings["first"] else None
    for number, layer in enumerate(settings["layers"]):
        folder = f"{place}/{number}"
        os.mkdir(folder, 0o711)  # noqa: PTH102 (pathlib takes longer to load than all this)
        if shift is None:
            _mount(layer.encode(), folder, None, _BIND, None)
            _mount(b"", folder, None, _BIND | _REMOUNT | _READ_ONLY, None)
        else:
            _mount_shifted(layer, folder, shift)


def _limit(limits: dict[str, list[int]]) -> None:
    for name, wanted in limits.items():
        kind = getattr(resource, name)
        now = resource.getrlimit(kind)
        resource.setrlimit(kind, (_lower(wanted[0], now[1]), _lower(wanted[1], now[1])))


def _lower(one: int, other: int) -> int:
    return one if other == resource.RLIM_INFINITY else min(one, other)


def _keep_namespace(settings: EntrySettings, place: str) -> None:
    """Makes the desktop's user namespace, and mounts it to keep it."""
    with _Namespace(settings["owner"], 0, settings["first"], settings["count"]) as namespace:
        _write(place, "")
        _mount(f"/proc/{namespace.pid}/ns/user".encode(), place, None, _BIND, None)


def _shifting_namespace(settings: EntrySettings) -> int:
    """Returns a descriptor of a user namespace that maps the ids on disk to the desktop's."""
    with _Namespace(settings["owner"], settings["stored"], settings["first"], settings["count"]) as namespace:
        return os.open(f"/proc/{namespace.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


class _Namespace:
    """A user namespace, kept by a process that only waits."""

    def __init__(self, owner: int, inside: int, outside: int, count: int) -> None:
        """Makes it, with `count` ids from `inside` on mapped to those from `outside` on."""
        told, tell = os.pipe()
        wait, self._release = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _hold(owner, tell, wait)
        os.close(tell)
        os.close(wait)
        try:
            said = os.read(told, 1000).decode()
            if said != "made":
                raise OSError(0, f"cannot make a user namespace of {owner}: {said}")
            for kind in ("uid_map", "gid_map"):
                _write(f"/proc/{self.pid}/{kind}", f"{inside} {outside} {count}\n")
            os.write(self._release, b"m")
            if (said := os.read(told, 1000).decode()) != "closed":
                raise OSError(0, f"cannot forbid further user namespaces: {said}")
        except BaseException:
            self.__exit__()
            raise
        finally:
            os.close(told)

    def __enter__(self) -> _Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._release)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _hold(owner: int, tell: int, wait: int) -> None:
    """Runs in the process that makes a namespace, until it is killed."""
    try:
        _checked(
            _libc.prctl(_SET_SECURE_BITS, _KEEP_RIGHTS, 0, 0, 0)
        )  # keeps the right to make one, where only privileged users may
        os.setresgid(owner, owner, owner)
        os.setresuid(owner, owner, owner)
        _checked(_libc.unshare(_NEW_USER))
        os.write(tell, b"made")
        if os.read(wait, 1):
            _write("/proc/sys/user/max_user_namespaces", "0")
            os.write(tell, b"closed")
            os.read(wait, 1)
    except OSError as error:
        os.write(tell, (error.strerror or "no reason given").encode())
    finally:
        os._exit(1)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _mount_shifted(layer: str, folder: str, namespace: int) -> None:
    tree = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, layer.encode(), ctypes.c_uint(_CLONE | _CLOSE_ON_EXEC)), layer)
    try:
        wanted = _Attributes(_ATTRIBUTE_READ_ONLY | _ATTRIBUTE_SHIFTED, 0, 0, namespace)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size), layer)
        _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, folder.encode(), _FROM_EMPTY_PATH), folder)
    finally:
        os.close(tree)


def _mount(what: bytes, where: str, kind: bytes | None, flags: int, options: bytes | None) -> None:
    _checked(_libc.mount(what, where.encode(), kind, ctypes.c_ulong(flags), options), where)


def _checked(outcome: int, about: str = "") -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about or None)
    return outcome


if __name__ == "__main__":
    main()
