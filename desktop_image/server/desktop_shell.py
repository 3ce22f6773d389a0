"""The desktop shell of the image, and whether it is up: GNOME Shell, or light programs that imitate it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import x11

IS_GNOME = Path("/usr/bin/gnome-shell").exists()
PROCESSES = ("gnome-shell",) if IS_GNOME else ("openbox", "xfce4-panel", "xfdesktop", "xcape")
_DRAWS_ICONS = not IS_GNOME or Path("/usr/share/gnome-shell/extensions/ding@rastersoft.com").exists()


def rows_with_clock(display: Any) -> int:
    """Returns how many rows at the top of the screen change by themselves: GNOME Shell's bar has a clock."""
    area = x11.work_area(display) if IS_GNOME else None
    return area[1] if area is not None else 0


def missing(display: Any) -> str:
    """Returns which parts have not come up yet; empty when all have."""
    kinds = {window.kind for window in x11.windows(display)}
    area = x11.work_area(display)
    here = {
        # GNOME Shell's bar is not a separate window, but space kept free of windows.
        "panel": area is not None and area[1] > 0 if IS_GNOME else "dock" in kinds,
        "desktop": "desktop" in kinds or not _DRAWS_ICONS,
    }
    lacking = [what for what, there in here.items() if not there]
    return f"no {' and no '.join(lacking)} yet" if lacking else ""
