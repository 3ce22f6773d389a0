"""A program of a killed build that has not ended keeps the next build of the same part out; most end with their build."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from desktop_image import namespace
from desktop_image.cache import part
from tests.virtual_machines import wait_until

REPOSITORY = Path(__file__).parents[3]
WAITING = "Another process is building this image, or what a killed one started has not ended; waiting for it"
BUILDER = """
import sys
from pathlib import Path
from desktop_image import disk, extension_layer, mmdebstrap, namespace, packages_layer
from desktop_image.cache import part
from desktop_image.release import Release

def build(target):
    target.mkdir()
    {step}

part("thing-1", build, lambda sentence: print(sentence, flush=True))
"""
SLOW = """#!/bin/sh
echo going >"$TEST/going"
until [ -e "$TEST/go" ]; do sleep 0.02; done
[ -d "$TEST/computer-use-rollouts/guest/thing-1.partial" ] && echo theirs >"$TEST/ended"
"""
LOOKING = """#!/bin/sh
ls -l /proc/self/fd >"$TEST/descriptors"
exit 1
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache, temporary files and programs of the test's own; none of its programs goes on afterwards."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("TEST", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    yield
    (tmp_path / "go").touch()


def program(folder: Path, name: str, code: str) -> None:
    (folder / "bin" / name).write_text(code)
    (folder / "bin" / name).chmod(0o755)


def builder(step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER.format(step=step)]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_next_build_waits_until_what_a_killed_one_started_has_ended(tmp_path: Path) -> None:
    program(tmp_path, "uv", SLOW)
    killed = builder('packages_layer._install_python_packages("3.11", target)')
    wait_until((tmp_path / "going").exists)
    killed.kill()
    killed.wait()
    seen: list[bool] = []

    def progress(sentence: str) -> None:
        assert sentence == WAITING
        (tmp_path / "go").touch()

    def build(target: Path) -> None:
        seen.append((tmp_path / "ended").exists())
        target.mkdir()

    finished = part("thing-1", build, progress)

    assert seen == [True]
    assert list(finished.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("uv", 'packages_layer._install_python_packages("3.11", target)'),
        ("cp", 'disk._call(["cp"])'),
        ("apt-get", 'extension_layer._fetch(["hello"], Release(), target, target / "own", target / "debs")'),
        ("setpriv", 'mmdebstrap.run("this", target, [], print)'),
        ("setpriv", "extension_layer._apply(target, [], target, print)"),
        ("any", 'namespace.run(["ls", "-l", "/proc/self/fd"], on_line=print)'),
    ],
)
def test_the_programs_of_a_build_hold_its_lock(tmp_path: Path, name: str, step: str) -> None:
    (seen := tmp_path / "descriptors").touch()
    program(tmp_path, name, LOOKING)

    said, failed = builder(step).communicate(timeout=60)

    assert "/thing-1.lock" in seen.read_text() + said, failed


def test_nothing_is_run_as_a_namespaces_root_for_a_process_that_was_killed_before_it_said_so(tmp_path: Path) -> None:
    made = tmp_path / "made"
    script = ["sh", "-c", namespace._AS_ITS_ROOT, "sh", "touch", str(made)]

    subprocess.run(script, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)

    assert not made.exists()
