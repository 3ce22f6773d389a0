"""The worker's application, in a process that dies by its own hand at one named moment, once.

`SABOTAGE` names the moment, `SABOTAGE_ONCE` a file that is made when it has happened.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery.backends.redis import RedisBackend
from kombu.messaging import Producer

from rollout_tasks import celery as app

__all__ = ["app"]


def die_once() -> None:
    try:
        Path(os.environ["SABOTAGE_ONCE"]).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def before_chord_part() -> None:
    """The rollout is committed; its part of the chord is not yet counted."""
    original = RedisBackend.on_chord_part_return

    def on_chord_part_return(self: Any, *args: Any, **kwargs: Any) -> Any:
        die_once()
        return original(self, *args, **kwargs)

    RedisBackend.on_chord_part_return = on_chord_part_return


def before_callback() -> None:
    """All parts are in and joined; the callback is not yet published."""
    original = Producer.publish

    def publish(self: Any, *args: Any, **options: Any) -> Any:
        if (options.get("headers") or {}).get("task") == "finalize_run":
            die_once()
        return original(self, *args, **options)

    Producer.publish = publish


{"before_chord_part": before_chord_part, "before_callback": before_callback}[os.environ["SABOTAGE"]]()
