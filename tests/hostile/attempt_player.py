"""A worker as far as attempts go: children that play one after the other, and say what each left. attempt_player.py SOCKET CHILDREN

The children share a template of cells, as those of a worker do. What they are told and what they say are lines of JSON.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import psutil

from benchmark.items import Item
from rollout_tasks.attempt import Attempt
from rollout_tasks.config import parse_config
from rollout_tasks.environments.osworld.sessions import preload
from rollout_tasks.heartbeat import Pulse
from rollout_tasks.interruption import Interruption
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.temporary import use_own_folder
from rollout_tasks.unicode_text import printable

SETTLE_SECONDS = 8.0
"""Threads that only close a connection may take a moment."""


def played(told: dict[str, Any]) -> dict[str, Any]:
    """One attempt's end, and what is there after it."""
    item = Item.from_dict(told["item"])
    folder = RunFolder(Path(told["folder"]))
    name = f"{item.id}#0"
    attempt = Attempt("random", name, 1, item, parse_config(told["config"]), folder.attempt(name, 1), "worker@here")
    began = time.monotonic()
    said: dict[str, Any] = {}
    try:
        folder.begin_attempt(name, 1)
        verdict = attempt.run(Pulse("random", name, "token", Interruption(), None))
        folder.write_attempt(verdict)
        settled = folder.settle(verdict, written=True)
        said["verdict"] = settled.as_dict()
        said["printable"] = printable(verdict.error) == verdict.error
    except BaseException:  # noqa: BLE001 (what got out is what the test is about)
        said["escaped"] = traceback.format_exc()
    return {**said, "seconds": time.monotonic() - began, "alarm": signal.getitimer(signal.ITIMER_REAL)[0], **after(told)}


def after(told: dict[str, Any]) -> dict[str, Any]:
    """What this process has, once it has come to rest."""
    until = time.monotonic() + SETTLE_SECONDS
    expected = told.get("before") or {}
    while True:
        found = {
            "threads": sorted(thread.name for thread in threading.enumerate()),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "children": [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)],
            "temporary": sorted(os.listdir(tempfile.gettempdir())),
        }
        over = not expected or all(
            found[name] <= expected[name] if name == "descriptors" else found[name] == expected[name] for name in found
        )
        if over or time.monotonic() > until:
            break
        time.sleep(0.1)
    gc.collect()
    found["rss"] = psutil.Process().memory_info().rss
    found["most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return found


def child(place: str) -> None:
    """Plays what it is told until nobody tells it any more."""
    faulthandler.register(signal.SIGUSR1)
    own = tempfile.mkdtemp(prefix="child-")
    os.environ["TMPDIR"] = tempfile.tempdir = own
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        with connection.makefile("rw", encoding="utf-8") as lines:
            lines.write(json.dumps({"pid": os.getpid()}) + "\n")
            lines.flush()
            for line in lines:
                lines.write(json.dumps(played(json.loads(line))) + "\n")
                lines.flush()


def main() -> None:
    """Forks the children, and waits for them."""
    place, children = sys.argv[1], int(sys.argv[2])
    use_own_folder("player-")
    preload()
    pids = []
    for _ in range(children):
        pid = os.fork()
        if pid == 0:
            try:
                child(place)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
