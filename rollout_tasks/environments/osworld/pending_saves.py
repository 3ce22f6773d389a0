"""Waits for programs to finish saving: evaluators press "save" and fetch the file soon after.

Task files wait for about half a second, which is too short on a busy machine. The wait is an additional step in the
guest, after each step that presses keys and after the last step: it ends once all programs are idle, and nothing in the
guest waits for a processor: a dialog, for one, is on its way while the screen's server or the window manager does.

Chrome writes down what it was told seconds later, unless it is closed. A step before all others waits for that, where the
evaluator reads Chrome's files; OSWorld's own runner waits for twenty seconds before every evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout_tasks.environments.osworld.task import results_of

AT_MOST_SECONDS = 15.0
"""Programs that are never idle, such as one that plays a video, are not waited for longer than this."""
CHROME_SECONDS = 12
"""Ten are the longest that Chrome keeps settings and history to itself."""
COOKIE_SECONDS = 32
"""Thirty are the longest that it keeps cookies to itself."""
CHROMES_FILES = frozenset(
    """bookmarks chrome_color_scheme chrome_font_size chrome_language cookie_data data_delete_automacally
    default_search_engine enable_do_not_track enable_enhanced_safety_browsing enable_safe_browsing enabled_experiments
    extensions_installed_from_shop find_installed_extension_name find_unpacked_extension_path history new_startup_page
    profile_name""".split()  # noqa: SIM905
)
"""Getters that read what Chrome has written."""
_COOKIES = "cookie_data"
_UNTIL_CHROME_HAS_ENDED = "timeout {seconds} sh -c 'while pgrep -x \"chrome|chromium\" >/dev/null; do sleep 0.3; done'"
_KEYS = "pyautogui"
_UNTIL_IDLE = f"""
import glob, os, re, time

KERNEL, OWN_PID = "2", str(os.getpid())
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
    running = any(state and parent != KERNEL and pid != OWN_PID for pid, (_, parent, _, state) in stats.items())
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
    """Returns the task, with waits among its evaluator's steps wherever what follows may read what is being saved.

    Args:
        task: As `task_config` makes it; is not changed.
    """
    evaluator = task["evaluator"]
    steps = evaluator.get("postconfig") or []
    waiting: list[Any] = []
    if read := CHROMES_FILES & {getter.get("type") for getter in results_of(evaluator)}:
        seconds = COOKIE_SECONDS if _COOKIES in read else CHROME_SECONDS
        command = _UNTIL_CHROME_HAS_ENDED.format(seconds=seconds)
        waiting.append({"type": "execute", "parameters": {"command": command, "shell": True}})
    wait = {"type": "execute", "parameters": {"command": ["python3", "-c", _UNTIL_IDLE]}}
    for step in steps:
        waiting += [step, wait] if _presses_keys(step) else [step]
    if any(map(_presses_keys, steps)) and waiting[-1] is not wait:
        waiting.append(wait)
    if len(waiting) == len(steps):
        return dict(task)
    return {**task, "evaluator": {**evaluator, "postconfig": waiting}}


def _presses_keys(step: Mapping[str, Any]) -> bool:
    return _KEYS in str(step.get("parameters", {}).get("command", ""))
