"""Turns at a host: all processes of a machine together ask one host no more often than once in some seconds."""

from __future__ import annotations

import hashlib
import math
import time

from desktop_image.cache_folder import user_cache_folder
from desktop_image.locks import locked
from rollout_tasks.environments.web.refusal import RefusedForNow

LONGEST_DELAY = 60.0
"""Seconds: the most that a site's own wish counts for."""
_FILES = 3
"""Hexadecimal digits of a file's name: hosts that share a file share its turns, and there are no more files than this."""
_LOCK_SECONDS = 5.0


def wait_for_turn(host: str, delay: float, seconds_left: float) -> None:
    """Waits until the host may be asked again.

    Args:
        host: The host.
        delay: Seconds between two requests.
        seconds_left: The most that may be waited.

    Raises:
        RefusedForNow: The turn would come too late; none is taken.
        OSError: The cache cannot be written to.
    """
    if delay <= 0:
        return
    folder = user_cache_folder() / "web-turns"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(host.encode()).hexdigest()[:_FILES]
    with locked(path, seconds=min(_LOCK_SECONDS, seconds_left)) as alone:
        now = time.time()
        turn = max(now, min(_read(path.read_text(encoding="utf-8")), now + 10 * LONGEST_DELAY)) if alone else now
        if not alone or turn - now > seconds_left:
            raise RefusedForNow(f"{host} is asked by too many at once: try again later")
        path.write_text(f"{turn + min(delay, LONGEST_DELAY):.3f}", encoding="utf-8")
    time.sleep(turn - now)


def _read(text: str) -> float:
    try:
        turn = float(text)
    except ValueError:
        return 0.0
    return turn if math.isfinite(turn) else 0.0
