"""Shifts the owners of a directory tree, so that a user namespace sees it as its own.

Changing a file's owner clears its set-uid bits and file capabilities; both are restored.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

GUEST_ID_SHIFT = 100_000
"""The guest's uid and gid 0 on the host."""
GUEST_ID_COUNT = 65_536
"""How many ids the guest has."""
CAPABILITY = "security.capability"
_REVISION_2, _REVISION_3, _REVISION_MASK = 0x02000000, 0x03000000, 0xFF000000


def shift_owners(root: Path, shift: int, count: int) -> None:
    """Adds `shift` to every owner and group of `root` and below. Ids from `shift` on count as shifted.

    Raises:
        ValueError: An owner is not an id of a namespace with `count` ids.
    """
    _shift(root, shift, count)
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            _shift(Path(folder, name), shift, count)


def _shift(path: Path, shift: int, count: int) -> None:
    found = path.lstat()
    if found.st_uid >= shift:
        return
    if max(found.st_uid, found.st_gid) >= count:
        raise ValueError(f"{path} belongs to {found.st_uid}:{found.st_gid}, which a guest of {count} ids does not have")
    capability = _capability(path) if stat.S_ISREG(found.st_mode) else None
    os.lchown(path, found.st_uid + shift, found.st_gid + shift)
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        path.chmod(stat.S_IMODE(found.st_mode))
    if capability is not None:
        os.setxattr(path, CAPABILITY, for_namespace(capability, shift))


def _capability(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, CAPABILITY)
    except OSError:
        return None


def for_namespace(capability: bytes, root_id: int) -> bytes:
    """Returns a file capability in the form that is valid in the user namespace whose root is `root_id` outside."""
    (magic,) = struct.unpack_from("<I", capability)
    if magic & _REVISION_MASK != _REVISION_2:
        return capability
    return struct.pack("<I", magic & ~_REVISION_MASK | _REVISION_3) + capability[4:20] + struct.pack("<I", root_id)
