"""Prints facts about a guest; runs inside it, with the guest's Python: guest_facts.py > FACTS.

Facts are JSON, compressed and in base64: the names of everything found, by kind. Most kinds are `touches.Touch`'s.
"""

from __future__ import annotations

import base64
import json
import os
import pkgutil
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

ANSWER_SECONDS = 60
SYSTEM_FOLDERS = ("/etc", "/opt", "/snap", "/usr", "/var/lib")
"""Folders whose files tasks may name; the user's files come with a task."""
LEFT_OUT = frozenset({"/usr/share/doc", "/usr/share/locale", "/usr/share/man", "/var/lib/dpkg"})
"""Folders that hold many files and that no task names."""
CHROME_ENTRY = Path("/usr/share/applications/google-chrome.desktop")
DEBUGGING = "--remote-debugging-port="


def said(*command: str) -> str:
    """Returns what a program prints; empty when it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def programs() -> set[str]:
    """Returns the programs that a shell can start by name."""
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(":") if os.path.isdir(folder)]  # noqa: PTH112
    found = (entry for folder in folders for entry in os.scandir(folder))
    return {entry.name for entry in found if entry.is_file() and os.access(entry.path, os.X_OK)}


def settings() -> set[str]:
    """Returns ``SCHEMA KEY`` for each of GNOME's settings."""
    lines = (line.split(None, 2) for line in said("gsettings", "list-recursively").splitlines())
    return {" ".join(words[:2]) for words in lines if len(words) > 1}


def modules() -> set[str]:
    """Returns the modules that Python can import."""
    return {module.name for module in pkgutil.iter_modules()} | set(sys.builtin_module_names)


def file_types() -> set[str]:
    """Returns the suffixes of files that a double click opens in a program."""
    from gi.repository import Gio  # comes with every guest that has an accessibility tree

    patterns = Path("/usr/share/mime/globs2").read_text(encoding="utf-8").splitlines()
    suffixes = {line.split(":")[2][1:].lower() for line in patterns if line.count(":") > 1 and ":*." in line}
    content_types = {suffix: Gio.content_type_guess("a" + suffix, None)[0] for suffix in suffixes}
    return {suffix for suffix, kind in content_types.items() if Gio.AppInfo.get_default_for_type(kind, False)}


def bus_names() -> set[str]:
    """Returns the names that are taken, or can be started, on the session's or the system's bus."""
    asking = ("--dest", "org.freedesktop.DBus", "--object-path", "/org/freedesktop/DBus", "--method")
    found = set()
    for bus in ("--session", "--system"):
        for method in ("ListActivatableNames", "ListNames"):
            found |= set(said("gdbus", "call", bus, *asking, f"org.freedesktop.DBus.{method}").split("'")[1::2])
    return {name for name in found if not name.startswith(":")}


def ports() -> set[str]:
    """Returns the ports on which Chrome listens when started by its icon."""
    try:
        lines = CHROME_ENTRY.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    starts = [line for line in lines if line.startswith("Exec=")]
    listening = [{word[len(DEBUGGING) :] for word in line.split() if word.startswith(DEBUGGING)} for line in starts]
    return set.intersection(*listening) if listening else set()


def files() -> Iterator[str]:
    """Yields every file and folder of the system."""
    for top in SYSTEM_FOLDERS:
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if f"{folder}/{name}" not in LEFT_OUT]
            yield from (f"{folder}/{name}" for name in (*below, *names))


def networks() -> set[str]:
    """Returns ``internet`` when the guest has a default route."""
    try:
        routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return set()
    return {"internet"} if any(line.split()[1] == "00000000" for line in routes if line.split()) else set()


def versions() -> set[str]:
    """Returns ``PROGRAM MAJOR.MINOR`` for the programs whose version may matter."""
    found = set()
    for program in ("gimp", "google-chrome", "libreoffice", "thunderbird", "vlc"):
        if number := re.search(r"\d+\.\d+", said(program, "--version")):
            found.add(f"{program} {number[0]}")
    return found


FACTS = {
    "bus name": bus_names,
    "file": files,
    "file type": file_types,
    "module": modules,
    "network": networks,
    "port": ports,
    "program": programs,
    "setting": settings,
    "version": versions,
}

if __name__ == "__main__":
    text = json.dumps({kind: sorted(found()) for kind, found in FACTS.items()})
    sys.stdout.write(base64.b64encode(zlib.compress(text.encode(errors="replace"))).decode())
