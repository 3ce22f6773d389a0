"""Asks a running guest which of the things that tasks touch it has, through the HTTP server of OSWorld's guests."""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import httpx

from desktop_image.conformance.facts import Facts, FactsUnreadable, by_kind, unpacked_json

WINDOW_SECONDS = 120.0
"""Longest wait until a program's windows are open and no longer change."""
SETTLE_SECONDS = 3.0
"""Pause after a program's first window: the next may follow, and a title may still change."""
ANSWER_SECONDS = 150.0
_FACTS = Path(__file__).with_name("guest_facts.py")
_STARTED_WITH: Mapping[str, tuple[str, ...]] = {
    "google-chrome": ("google-chrome",),
    "libreoffice": ("libreoffice --calc", "libreoffice --writer", "libreoffice --impress"),
    "gimp": ("gimp",),
    "gnome-terminal": ("gnome-terminal",),
    "nautilus": ("nautilus",),
    "thunderbird": ("thunderbird",),
    "vlc": ("vlc",),
    "gedit": ("gedit",),
    "evince": ("evince",),
    "eog": ("eog",),
    "code": ("code",),
}
"""Programs whose windows tasks name, and the commands that open them; Impress starts with a dialog that stays open."""
_LATER: Mapping[str, tuple[str, ...]] = {
    "thunderbird": ("Account Settings", "Address Book", "Filter Rules", "Message Filters"),
}
"""Titles of windows that a program opens only when a user asks for them."""


class ProbeError(RuntimeError):
    """The guest does not answer a request; the message names it."""


@dataclass(slots=True)
class Guest:
    """Client of a guest's control server.

    Args:
        url: The server's address, without a path.
        sleep: Waits for a number of seconds; a custom one can stop early.
    """

    url: str
    sleep: Callable[[float], None] = time.sleep
    _client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=ANSWER_SECONDS, trust_env=False))

    def shell(self, command: str) -> str:
        """Runs a shell command and returns what it prints.

        Raises:
            ProbeError: The guest does not answer, or cannot run it.
        """
        answer = self._post("/execute", {"command": command, "shell": True})
        if answer.get("status") != "success":
            raise ProbeError(f"the guest at {self.url} cannot run {command[:60]!r}: {answer.get('message')}")
        return str(answer.get("output", ""))

    def launch(self, command: str) -> None:
        """Starts a program and leaves it running."""
        self.shell(f"setsid {command} >/dev/null 2>&1 &")

    def tree(self) -> str:
        """Returns the accessibility tree's XML; empty if it cannot be read."""
        try:
            return str(self._client.get(f"{self.url}/accessibility").json().get("AT", ""))
        except (httpx.HTTPError, ValueError):
            return ""

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        try:
            answer = self._client.post(f"{self.url}{path}", json=body).json()
        except (httpx.HTTPError, ValueError) as error:
            raise ProbeError(f"the guest at {self.url} does not answer {path}: {error}") from error
        return answer if isinstance(answer, dict) else {}


def look(guest: Guest, progress: Callable[[str], None]) -> Facts:
    """Asks a guest what it has; this starts and ends its programs, so use a guest that is reset afterwards.

    Raises:
        ProbeError: It does not answer.
    """
    progress("Asking the guest what it has")
    there = _listed(guest)
    titles: set[str] = set()
    classes: set[str] = set()
    applications: set[str] = set()
    for program, commands in _STARTED_WITH.items():
        if program not in there.get("program", ()):
            continue
        progress(f"Looking at the windows of {program}")
        for command in commands:
            for known_as, title in _windows_of(guest, command):
                titles.add(title)
                classes.add(known_as)
        titles |= set(_LATER.get(program, ()))
        applications |= _applications(guest)
        _end(guest, program)
    return Facts(there, frozenset(titles), frozenset(classes), frozenset(applications))


def _listed(guest: Guest) -> dict[str, frozenset[str]]:
    source = base64.b64encode(_FACTS.read_bytes()).decode()
    said = guest.shell(
        f"echo {source} | base64 -d >/tmp/guest_facts.py; python3 /tmp/guest_facts.py; rm -f /tmp/guest_facts.py"
    )
    try:
        return by_kind(unpacked_json(said.strip()))
    except FactsUnreadable as error:
        raise ProbeError(f"the guest at {guest.url} gave no facts: {said[:200]!r}") from error


def _windows(guest: Guest) -> set[tuple[str, str]]:
    """Returns class and title of each window on a desktop."""
    rows = [line.split(maxsplit=4) for line in guest.shell("wmctrl -lx").splitlines()]
    return {(row[2], row[4] if len(row) > 4 else "") for row in rows if len(row) > 3 and row[1] != "-1"}


def _windows_of(guest: Guest, command: str) -> set[tuple[str, str]]:
    """Runs a command and returns the windows that it opens, once they no longer change."""
    before = seen = _windows(guest)
    guest.launch(command)
    deadline = time.monotonic() + WINDOW_SECONDS
    while time.monotonic() < deadline:
        guest.sleep(SETTLE_SECONDS if seen - before else 0.5)
        if (now := _windows(guest)) == seen and now - before:
            break
        seen = now
    return seen - before


def _applications(guest: Guest) -> set[str]:
    try:
        tree = ElementTree.fromstring(guest.tree())  # noqa: S314 (made by the guest's own server before any task ran in it)
    except ElementTree.ParseError:
        return set()
    return {name for program in tree.iter("application") if (name := program.get("name"))}


def _end(guest: Guest, program: str) -> None:
    """Ends a program, and waits until its windows are gone."""
    guest.shell(
        f"pkill -f {shlex.quote('[' + program[0] + ']' + program[1:])}; pkill soffice.bin; pkill -x chrome; true"
    )
    guest.shell(
        "for id in $(wmctrl -l | awk '$2 != -1 {print $1}'); do timeout 5 xkill -id $id; done >/dev/null 2>&1; true"
    )
    deadline = time.monotonic() + WINDOW_SECONDS
    while _windows(guest) and time.monotonic() < deadline:
        guest.sleep(0.5)
