"""Compares what a task touches with what the guest has: the verdict is ``faithful``, ``needs`` or ``unfaithful``."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from desktop_image.conformance.facts import Facts
from desktop_image.conformance.touches import Touch

Name = Literal["faithful", "needs", "unfaithful"]
_NEEDS = {
    "account": "an account: {name}",
    "internet": "the internet: {name}",
    "package": "the internet: the package {name}",
    "module": "the Python package {name}",
    "program": "the program {name}",
    "proxy": "{name}",
}
"""Kinds that can be added to a guest, and their messages."""
_LACKS = {
    "application": "no program calls itself {name} in the accessibility tree",
    "bus name": "nothing on its buses is called {name}",
    "file": "it has no {name}",
    "file type": "no program there opens {name}",
    "older program": "what was infeasible can be done there, since {name}",
    "pasted picture": "a pasted picture is compared byte by byte with one that {name} has saved, and others add transparency",
    "placed object": "where a new object is on a slide is compared, and depends on the window's size, which differs under {name}",
    "port": "Chrome started from its dock cannot be asked on port {name}",
    "rendering": "a picture is compared pixel by pixel with one that {name} has rendered",
    "setting": "it has no setting {name}",
    "window class": "no window there has the class {name}",
    "window title": "no window there is titled {name}",
}
_MERGED = re.compile(r"^(/bin|/sbin|/lib)/")
"""Folders that are links into /usr on every current system."""
_SHELL_SETTINGS = "org.gnome.shell"


@dataclass(frozen=True, slots=True)
class ConformanceVerdict:
    """How reliable a task's score is in a guest."""

    name: Name
    reasons: tuple[str, ...] = ()
    """What the task needs, or where the guest differs; each with the place in the task."""

    def __str__(self) -> str:
        return self.name if not self.reasons else f"{self.name}: {'; '.join(self.reasons)}"


def verdict_of(touches: Sequence[Touch], facts: Facts) -> ConformanceVerdict:
    """Compares a task with a guest. Differences are reported only if nothing that the task needs is missing."""
    missing = [touch for touch in touches if not _is_there(touch, facts)]
    needs = [_said(_NEEDS, touch) for touch in missing if touch.kind in _NEEDS]
    if needs:
        return ConformanceVerdict("needs", tuple(needs))
    differs = [_said(_LACKS, touch) for touch in missing]
    differs += [
        f"its dock is not GNOME Shell's and does not follow {touch.name} ({touch.place})"
        for touch in touches
        if touch.kind == "setting" and touch.name.startswith(_SHELL_SETTINGS) and not _has_shell(facts)
    ]
    return ConformanceVerdict("unfaithful", tuple(differs)) if differs else ConformanceVerdict("faithful")


def counts(verdicts: Iterable[str]) -> dict[str, int]:
    """Returns how many tasks got each verdict, the best one first."""
    counted = Counter(verdicts)
    return {name: counted[name] for name in ("faithful", "unfaithful", "needs")}


def _has_shell(facts: Facts) -> bool:
    return facts.has("program", "gnome-shell")


def _is_there(touch: Touch, facts: Facts) -> bool:
    if touch.kind == "account":
        return False
    if touch.kind == "window title":
        return _has_title(touch.name, facts)
    if touch.kind == "window class":
        return any(touch.name.lower() in known_as.lower() for known_as in facts.classes)
    if touch.kind == "application":
        return touch.name in facts.applications
    if touch.kind in {"internet", "proxy"}:
        return _reaches(touch, facts)
    if touch.kind == "package":
        return _has_package(touch.name, facts)
    if touch.kind == "file":
        return _has_file(touch.name, facts)
    if touch.kind in {"pasted picture", "rendering"}:
        return facts.has("version", touch.name)
    if touch.kind == "placed object":
        return facts.has("program", touch.name)
    if touch.kind == "older program":
        return _is_older(touch.name, facts)
    return facts.has(touch.kind, touch.name)


def _reaches(touch: Touch, facts: Facts) -> bool:
    """Whether guests can reach the whole internet, or the host that a task needs."""
    reached = facts.there.get("network", frozenset())
    return any(
        host in {"internet", touch.name} or (host.startswith("*.") and touch.name.endswith(host[1:]))
        for host in reached
    )


def _is_older(program_and_version: str, facts: Facts) -> bool:
    """Whether the guest's program is older than a version, or missing."""
    program, _, version = program_and_version.partition(" ")
    found = [one.partition(" ")[2] for one in facts.there.get("version", ()) if one.partition(" ")[0] == program]
    return all(_number(one) < _number(version) for one in found)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _has_package(name: str, facts: Facts) -> bool:
    """Whether a program or module with the package's name exists, or the package can be fetched."""
    is_there = facts.has("program", name) or facts.has("module", name.replace("-", "_"))
    return is_there or facts.has("network", "internet")


def _has_file(name: str, facts: Facts) -> bool:
    """Whether the file exists; if the name is a pattern, whether any file matches."""
    path = _MERGED.sub(r"/usr\1/", name).rstrip("/")
    if glob.has_magic(path):
        return any(fnmatch.filter(facts.there.get("file", ()), path))
    return facts.has("file", path)


def _has_title(wanted: str, facts: Facts) -> bool:
    """Whether a program's windows have this title: the whole, or the part after or before the open file's name."""
    program = wanted.rpartition(" - ")[2].lower()
    titles = [title.lower() for title in facts.titles]
    if any(program in title for title in titles) or any(program in known_as.lower() for known_as in facts.classes):
        return True
    file, dash, _own_title = wanted.partition(" — ")
    return bool(dash) and facts.has("file type", PurePosixPath(file).suffix.lower())


def _said(sentences: Mapping[str, str], touch: Touch) -> str:
    return f"{sentences[touch.kind].format(name=touch.name)} ({touch.place})"
