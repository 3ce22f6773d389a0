"""Lets the bus start a file manager when the desktop's icons need one: to open, rename or remove their files.

If the bus knew one from the start, the starting desktop would start it needlessly; so the bus is told only after the
desktop has looked for one. The desktop has done that once it notes the places of its icons.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .atspi.bus import Bus, BusError
from .atspi.dbus_format import Call
from .desktop_icons import NOTES
from .polling import wait_until

SERVICE = "org.xfce.FileManager"
STARTS_IT = f"[D-BUS Service]\nName={SERVICE}\nExec=/usr/bin/Thunar --daemon\n"
DESKTOP_SECONDS = 30.0
"""Longest wait for the desktop; then the bus is told anyway."""
BUS_SECONDS = 5.0
_LOOK_SECONDS = 0.02


def offer() -> None:
    """Tells the bus in a thread, once the desktop has looked for a file manager; returns at once."""
    threading.Thread(target=_offer, name="file manager", daemon=True).start()


def _offer() -> None:
    wait_until((Path.home() / NOTES).exists, DESKTOP_SECONDS, _LOOK_SECONDS)
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / "dbus-1" / "services"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{SERVICE}.service").write_text(STARTS_IT)
        bus = Bus(os.environ["DBUS_SESSION_BUS_ADDRESS"])
        reload = Call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ReloadConfig")
        bus.ask([reload], time.monotonic() + BUS_SECONDS)
        bus.close()
    except (OSError, BusError) as error:
        print(f"the desktop's icons have no file manager: {error}", flush=True)  # noqa: T201 (the console is its log)
