"""Serves port 5000 for ever."""

from __future__ import annotations

import os

import waitress

from . import file_manager, warm
from .app import make_app

THREADS = 24
"""More than the calls that can hang at a time: a hung one ends at its deadline."""
LARGEST_UPLOAD = 8 * 1024**3


def main() -> None:
    """Starts the server."""
    screen = tuple(int(side) for side in os.environ.pop("GUEST_SCREEN").split("x"))
    # What it runs for others finds the user's environment, not the server's own.
    for name in ("PYTHONPATH", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"):
        os.environ.pop(name, None)
    warm.start()
    file_manager.offer()
    waitress.serve(
        make_app((screen[0], screen[1])),
        host="0.0.0.0",  # noqa: S104  the guest has no other network than its own
        port=5000,
        threads=THREADS,
        max_request_body_size=LARGEST_UPLOAD,
        clear_untrusted_proxy_headers=True,
    )


if __name__ == "__main__":
    main()
