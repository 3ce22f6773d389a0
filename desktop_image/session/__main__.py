"""Starts the session; `GUEST_SCREEN` and `GUEST_PASSWORD` come from the environment."""

from __future__ import annotations

import os
import sys

from . import desktop, preparation
from .supervisor import Supervisor


def main() -> int:
    """Runs the session until its display ends or a signal comes."""
    try:
        screen = preparation.screen_size(os.environ.get("GUEST_SCREEN", "1920x1080"))
    except ValueError as error:
        sys.stderr.write(f"guest session: {error}\n")
        return 2
    preparation.prepare(os.environ.get("GUEST_PASSWORD", ""))
    supervisor = Supervisor()
    desktop.start(supervisor, screen)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
