"""Waits for programs to finish saving: evaluators press "save" and fetch the file soon after.

Task files wait for about half a second, which is too short on a busy machine. The wait is an additional step in the
guest, after each step that presses keys and after the last step: it ends once all programs are idle, and nothing in the
guest waits for a processor: a dialog, for one, is on its way while the screen's server or the window manager does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AT_MOST_SECONDS = 15.0
"""Programs that are never idle, such as one that plays a video, are not waited for longer than this."""
_KEYS = "pyautogui"
_UNTIL_IDLE = f"""
import glob, os, re, time

KERNEL, OWN = "2", str(os.getpid())
PROGRAMS = re.compile("soffice([.]bin)?|oosplash|gimp(-[0-9.]+)?|thunderbird(-bin|-esr)?|vlc|gedit|code")

def work():
    "Processor time of the programs and of all that they have started, and whether anything runs or wants to."
    stats = {{}}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            line = open(path, errors="replace").read()
        except OSError:
            continue
        rest = line.rpartition(")")[2].split()
        name = line.rpartition(")")[0].partition("(")[2].lower()
        stats[path.split("/")[2]] = (name, rest[1], int(rest[11]) + int(rest[12]), rest[0] in "RD")
    running = any(state and parent != KERNEL and pid != OWN for pid, (_, parent, _, state) in stats.items())
    found = {{}}
    for pid in stats:
        above = pid
        for _ in range(30):  # the process, its parent, and so on
            name, parent = stats.get(above, ("", ""))[:2]
            if PROGRAMS.fullmatch(name):
                found[pid] = stats[pid][2]
                break
            above = parent
    return found, running

end = time.time() + {AT_MOST_SECONDS}
before, idle = work()[0], 0
looks = 2 + min(int(os.getloadavg()[0] / os.cpu_count()), 8)  # on a busy machine, who rests may wait for another
while idle < looks and time.time() < end:
    time.sleep(0.3)
    now, running = work()
    busy = running or any(ticks - before.get(pid, 0) > 3 for pid, ticks in now.items())
    before, idle = now, 0 if busy else idle + 1
"""


def awaiting_saves(task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the task, with waits after the evaluator's steps that press keys: what follows may read what was saved.

    Args:
        task: As `task_config` makes it; is not changed.
    """
    evaluator = task["evaluator"]
    steps = evaluator.get("postconfig") or []
    if not any(map(_presses_keys, steps)):
        return dict(task)
    wait = {"type": "execute", "parameters": {"command": ["python3", "-c", _UNTIL_IDLE]}}
    waiting: list[Any] = []
    for step in steps:
        waiting += [step, wait] if _presses_keys(step) else [step]
    if waiting[-1] is not wait:
        waiting.append(wait)
    return {**task, "evaluator": {**evaluator, "postconfig": waiting}}


def _presses_keys(step: Mapping[str, Any]) -> bool:
    return _KEYS in str(step.get("parameters", {}).get("command", ""))
