"""Starts the desktop's processes, in the order in which they need each other."""

from __future__ import annotations

import grp
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .preparation import AUTHORITY, GID, GUEST, HOME, RUNTIME, UID, USER, X_SOCKETS, environment
from .shell import shell
from .supervisor import Service, Supervisor

CONTROL_PORT = 5000
WAITING_CONNECTIONS = 1024
START_SECONDS = 30.0


def start(supervisor: Supervisor, screen: tuple[int, int]) -> None:
    """Starts everything, and waits for what other processes need."""
    around = shell()
    user = {**environment(), **around.variables}
    server = {
        **user,
        "PYTHONPATH": f"{GUEST}/python",
        "GUEST_SCREEN": f"{screen[0]}x{screen[1]}",
        "GUEST_XAUTHORITY": str(AUTHORITY),
        # The memory of pictures is freed after use, not kept in every thread's own heap.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "1000000",
    }
    display = (
        *("Xvfb", ":0", "-screen", "0", f"{screen[0]}x{screen[1]}x24", "-dpi", "96", "-nolisten", "tcp"),
        *("-auth", str(AUTHORITY), "-noreset", *around.display_options),
    )
    system_bus = ("dbus-daemon", "--system", "--nofork", "--nopidfile")
    supervisor.start(Service("system bus", system_bus, {"PATH": user["PATH"]}))
    bus = ("dbus-daemon", "--session", "--nofork", "--nopidfile", f"--address=unix:path={RUNTIME}/bus")
    supervisor.start(_user_service("display", display, user, essential=True))
    supervisor.start(_user_service("bus", bus, user))
    # It belongs to root and acts as the user; it imports nothing from the user's files and folders.
    listener = socket.create_server(("", CONTROL_PORT), backlog=WAITING_CONNECTIONS)
    supervisor.start(Service("server", ("/usr/bin/python3", "-sB", "-m", "server"), server, listener=listener))
    for port, to in ((9222, "TCP:127.0.0.1:1337"), (8006, f"EXEC:{GUEST}/vnc")):
        forward = ("socat", f"TCP-LISTEN:{port},fork,reuseaddr", to)
        supervisor.start(_user_service(f"port {port}", forward, user))
    _wait_for(X_SOCKETS / "X0")
    os.chown(X_SOCKETS / "X0", 0, 0)  # otherwise the user could put their own display in its place
    _wait_for(RUNTIME / "bus")
    # Removes the key between Shift and Z of European keyboards: pyautogui uses it for "<" and gets ">".
    subprocess.run(["/usr/bin/xmodmap", "-e", "keycode 94 ="], env=user, check=False, timeout=START_SECONDS)
    supervisor.start(_user_service("accessibility", ("/usr/libexec/at-spi-bus-launcher", "--launch-immediately"), user))
    for name, command in around.programs.items():
        supervisor.start(_user_service(name, command, user))
    if Path("/usr/bin/pulseaudio").exists():
        quiet = ("--daemonize=no", "--exit-idle-time=-1", "--log-level=error", "--realtime=no", "--high-priority=no")
        sound = ("pulseaudio", *quiet, "-n", f"--file={GUEST}/sound.pa")
        supervisor.start(_user_service("sound", sound, user))


def _user_service(
    name: str, command: tuple[str, ...], environment: Mapping[str, str], *, essential: bool = False
) -> Service:
    groups = tuple(group.gr_gid for group in grp.getgrall() if USER in group.gr_mem)
    return Service(name, command, environment, UID, (GID, *groups), str(HOME), essential)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            sys.stderr.write(f"guest session: {path} did not come within {START_SECONDS:.0f} s\n")
            os._exit(1)
        time.sleep(0.005)
