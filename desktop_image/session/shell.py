"""The desktop shell's programs: GNOME Shell when the image has it, otherwise light programs that imitate it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .preparation import GUEST


@dataclass(frozen=True, slots=True)
class Shell:
    """The programs, and what they need of the display."""

    programs: Mapping[str, tuple[str, ...]]
    """The commands that are started as the user, by name."""
    display_options: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every program of the user."""


LIGHT = Shell(
    programs={
        "window manager": ("openbox", "--sm-disable"),
        "panel": ("xfce4-panel", "--disable-wm-check", "--sm-client-disable"),
        "desktop": ("xfdesktop",),
        "wallpaper": (f"{GUEST}/follow-wallpaper",),
        # Pressed alone, the Super key opens the program finder, however long it was held (-t, in milliseconds), as in
        # GNOME. Only -d keeps xcape in the foreground.
        "super key": ("sh", "-c", "exec xcape -d -t 3600000 -e 'Super_L=Alt_L|F1;Super_R=Alt_L|F1' >/dev/null 2>&1"),
    },
    # With GLX, every GTK program would load a software renderer of 100 MB that it does not need.
    display_options=("-extension", "GLX"),
)

GNOME = Shell(
    programs={
        "shell": ("gnome-shell", "--x11", "--sm-disable"),
        "settings": ("/usr/libexec/gsd-xsettings",),
        "media keys": ("/usr/libexec/gsd-media-keys",),
    },
    # The shell draws with OpenGL, in software; programs are told not to.
    display_options=("+extension", "GLX"),
    variables={"GDK_GL": "disable", "XDG_MENU_PREFIX": "gnome-"},
)


def shell() -> Shell:
    """Returns the image's desktop shell."""
    return GNOME if Path("/usr/bin/gnome-shell").exists() else LIGHT
