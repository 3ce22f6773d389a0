"""What draws the desktop around programs: GNOME Shell where the image has it, else light programs in its likeness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .preparation import GUEST


@dataclass(frozen=True, slots=True)
class Shell:
    """The programs, and what they need of the display."""

    programs: Mapping[str, tuple[str, ...]]
    """By name: what is started, as the user."""
    display_options: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of every program of the user's."""


LIGHT = Shell(
    programs={
        "window manager": ("openbox", "--sm-disable"),
        "panel": ("xfce4-panel", "--disable-wm-check", "--sm-client-disable"),
        "desktop": ("xfdesktop",),
        "wallpaper": (f"{GUEST}/follow-wallpaper",),
        # Pressed and let go by itself, the Super key finds programs, as GNOME's does. Only -d keeps it in the foreground.
        "super key": ("sh", "-c", "exec xcape -d -e 'Super_L=Alt_L|F1;Super_R=Alt_L|F1' >/dev/null 2>&1"),
    },
    # Every program of GTK would load a software renderer of 100 MB for what it draws without one.
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
    """The image's."""
    return GNOME if Path("/usr/bin/gnome-shell").exists() else LIGHT
