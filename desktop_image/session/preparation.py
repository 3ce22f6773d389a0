"""Prepares what the desktop needs before it starts: folders, the host's name, the user's password and environment."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import socket
import subprocess
import uuid
from pathlib import Path

USER, UID, GID = "user", 1000, 1000
HOME = Path("/home/user")
GUEST = "/usr/lib/guest"
"""The folder of the project's files in the guest."""
OWN = Path("/run/guest")
"""Files of the session that the user can read, but not change."""
AUTHORITY = OWN / "Xauthority"
RUNTIME = Path("/run/user/1000")
X_SOCKETS = Path("/tmp/.X11-unix")  # noqa: S108
LARGEST_SIDE = 16_384
_PR_SET_DUMPABLE = 4


def screen_size(text: str) -> tuple[int, int]:
    """Returns width and height from a text like ``1920x1080``.

    Raises:
        ValueError: It is not the size of a screen.
    """
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    if not found or not all(200 <= int(side) <= LARGEST_SIDE for side in found.groups()):
        raise ValueError(f"GUEST_SCREEN={text!r}: must look like 1920x1080")
    return int(found[1]), int(found[2])


def prepare(password: str) -> None:
    """Makes the machine ready for its user. An empty password keeps the image's password."""
    _hide_from_tracers()
    _folder(OWN, 0o755, 0)
    _folder(Path("/run/user"), 0o755, 0)
    _folder(RUNTIME, 0o700, UID)
    _folder(Path("/run/lock"), 0o1777, 0)
    _folder(Path("/run/dbus"), 0o755, 0)
    # systemd's tools take this folder as a sign that it runs; those that only need the system's bus then work.
    Path("/run/systemd/system").mkdir(parents=True, exist_ok=True)
    for sockets in (X_SOCKETS, Path("/tmp/.ICE-unix")):  # noqa: S108
        _folder(sockets, 0o1777, 0)
    _name_in_hosts(socket.gethostname())
    _identify(socket.gethostname())
    if password:
        subprocess.run(["/usr/sbin/chpasswd"], input=f"{USER}:{password}", text=True, check=True)
    _let_user_see_display()


def _folder(path: Path, mode: int, owner: int) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    os.chown(path, owner, owner)


def _name_in_hosts(name: str) -> None:
    """Adds the host's name to /etc/hosts: without it, sudo waits for a name server."""
    hosts = Path("/etc/hosts")
    if name not in hosts.read_text().split():
        with hosts.open("a") as file:
            file.write(f"127.0.0.1 {name}\n")


def _identify(name: str) -> None:
    """Gives the machine an id: without one, programs that ask D-Bus's library for it are aborted."""
    identity = Path("/etc/machine-id")
    if not identity.exists() or not identity.read_text().strip():
        identity.write_text(uuid.uuid5(uuid.NAMESPACE_DNS, name).hex + "\n")


def _let_user_see_display() -> None:
    """Writes an authority entry; without one, python-xlib's warnings end up in what programs print.

    The user's file is a copy: even when it is changed, the server can connect to the display.
    """
    entry = ["/usr/bin/xauth", "-q", "-f", str(AUTHORITY), "add", ":0", ".", secrets.token_hex(16)]
    subprocess.run(entry, check=True, stderr=subprocess.DEVNULL)  # noqa: S603
    AUTHORITY.chmod(0o644)
    copy = HOME / ".Xauthority"
    copy.unlink(missing_ok=True)
    copy.touch(0o600, exist_ok=False)
    copy.write_bytes(AUTHORITY.read_bytes())
    os.chown(copy, UID, GID)


def _hide_from_tracers() -> None:
    """Prevents tracing of process 1, which holds the server's listening socket, also by a container guest's root."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "process 1 cannot be hidden from tracers")


def environment() -> dict[str, str]:
    """Returns the user's environment."""
    return {
        "HOME": str(HOME),
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/bash",
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games:/usr/local/sbin:/usr/sbin:/sbin",
        "LANG": "en_US.UTF-8",
        "DISPLAY": ":0",
        "XAUTHORITY": str(HOME / ".Xauthority"),
        "XDG_RUNTIME_DIR": str(RUNTIME),
        "XDG_SESSION_TYPE": "x11",
        "XDG_CURRENT_DESKTOP": "GNOME",
        "XDG_DATA_DIRS": "/usr/local/share:/usr/share",
        "XDG_CONFIG_DIRS": "/etc/xdg",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={RUNTIME}/bus",
        "GNOME_ACCESSIBILITY": "1",
        "QT_ACCESSIBILITY": "1",
        "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
        "SAL_USE_VCLPLUGIN": "gtk3",
        "GSK_RENDERER": "cairo",
        "PYTHONUNBUFFERED": "1",
    }
