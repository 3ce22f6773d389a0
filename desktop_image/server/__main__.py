"""Runs the server on the listening socket that it gets as standard input, until it is stopped."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import waitress

from . import file_manager, user, warm
from .app import make_app
from .callers import Listener

THREADS = 24
"""More than the calls that can hang at the same time: a hung call ends at its deadline."""
LARGEST_UPLOAD = 8 * 1024**3
LARGEST_ANSWER_IN_MEMORY = 64 * 1024**2
"""Larger answers are put into /tmp, which the user may have filled."""


def main() -> None:
    """Starts the server."""
    listener = Listener(fileno=os.dup(0))
    user.the_user()
    screen = tuple(int(side) for side in os.environ["GUEST_SCREEN"].split("x"))
    # The user can change their own file, and lock the server out of the display.
    os.environ["XAUTHORITY"] = os.environ["GUEST_XAUTHORITY"]
    for name in user.OWN_VARIABLES:
        os.environ.pop(name, None)
    app = make_app((screen[0], screen[1]))
    warm.start()
    user.act_as_user()
    # The server must not import what root may install later.
    sys.path[:] = [folder for folder in sys.path if folder not in ("", "/") and not folder.endswith("dist-packages")]
    with suppress(OSError):  # the user may have removed it
        os.chdir(os.environ["HOME"])  # where relative paths start
    file_manager.offer()
    waitress.serve(
        app,
        sockets=[listener],
        threads=THREADS,
        max_request_body_size=LARGEST_UPLOAD,
        outbuf_overflow=LARGEST_ANSWER_IN_MEMORY,
        clear_untrusted_proxy_headers=True,
    )


if __name__ == "__main__":
    main()
