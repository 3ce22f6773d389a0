"""A real guest is asked what it has, and the command that compares tasks with it is run as its users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from desktop_image.conformance.facts import packed
from desktop_image.conformance.probe import Guest, look
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops
from tests.integration.desktop_image.conftest import Desktop

pytestmark = needs_local_desktops

THERE = [
    ("program", "python"),
    ("program", "gedit"),
    ("module", "pyautogui"),
    ("file", "/usr/bin/sudo"),
    ("file type", ".txt"),
    ("file type", ".json"),
    ("setting", "org.gnome.desktop.interface gtk-theme"),
    ("bus name", "org.a11y.Bus"),
    ("bus name", "org.freedesktop.timedate1"),
]
MISSING = [
    ("program", "code"),
    ("module", "numpy_of_tomorrow"),
    ("file", "/opt/nothing"),
    ("file type", ".blend"),
    ("setting", "org.gnome.desktop.interface colour-of-tomorrow"),
    ("setting", "org.nobody key"),
    ("bus name", "org.nobody"),
    ("port", "1337"),
]


def test_a_guest_says_what_it_has(desktop: Desktop) -> None:
    facts = look(Guest(desktop.url("")), lambda _sentence: None)

    assert [(kind, name) for kind, name in THERE if not facts.has(kind, name)] == []
    assert [(kind, name) for kind, name in MISSING if facts.has(kind, name)] == []
    assert not facts.has("network", "internet")
    assert {"gnome-terminal-server.Gnome-terminal", "gedit.Gedit"} <= facts.classes
    assert any(title.endswith(" - gedit") for title in facts.titles)
    assert {"gedit", "gnome-terminal-server"} <= facts.applications
    assert desktop.windows() == []
    assert len(packed(facts)) < 1_000_000


def test_what_a_double_click_opens_is_what_gnome_says(desktop: Desktop) -> None:
    facts = look(Guest(desktop.url("")), lambda _sentence: None)

    for suffix in (".txt", ".json", ".html", ".png", ".blend", ".csv", ".py", ".xlsx", ".zip"):
        kind = desktop.shell(
            f"touch /tmp/a{suffix}; gio info -a standard::content-type /tmp/a{suffix} | tail -1"
        ).split()[-1]
        by_name = desktop.shell(
            f"python3 -c \"from gi.repository import Gio; print(Gio.content_type_guess('a{suffix}')[0])\""
        )
        opens = "No default" not in desktop.shell(f"gio mime {by_name.strip() or kind}")
        assert facts.has("file type", suffix) == opens, (suffix, kind, by_name)


def test_the_command_says_it_of_every_task(tmp_path: Path) -> None:
    def task(name: str, command: list[str]) -> dict[str, Any]:
        evaluator = {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": command},
            "expected": {"type": "rule"},
        }
        return {"id": name, "question": "Do it.", "answer": "", "config": [], "evaluator": evaluator}

    tasks = tmp_path / "tasks.jsonl"
    listed = [
        task("here", ["ls", "/home/user"]),
        task("gone", ["code", "--version"]),
        task("other", ["cat", "/etc/nothing"]),
    ]
    tasks.write_text("".join(json.dumps(one) + "\n" for one in listed))
    command = [sys.executable, "scripts/build_guest.py", "--check", str(tasks)]
    said: dict[str, Any] = {}
    for _again in range(2):  # the second time from what was kept of the first
        done = subprocess.run([*command, "--json"], cwd=REPOSITORY, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert not said or json.loads(done.stdout) == said
        said = json.loads(done.stdout)
    assert "Booting" not in done.stderr
    assert said["counts"] == {"faithful": 1, "unfaithful": 1, "needs": 1}
    assert [(one["task"], one["verdict"], one["reasons"]) for one in said["tasks"]] == [
        ("here", "faithful", []),
        ("gone", "needs", ["the program code (evaluator.result)"]),
        ("other", "unfaithful", ["it has no /etc/nothing (evaluator.result)"]),
    ]
