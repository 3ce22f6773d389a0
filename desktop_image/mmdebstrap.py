"""Runs mmdebstrap to fetch packages of the guest's release and put them into a folder.

Proxies and certificates are those of the machine. Everything runs in its own namespaces and ends with the process that
builds, including mounts.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from desktop_image import build_programs
from desktop_image.errors import GuestBuildError
from desktop_image.release import BOOKWORM, Release

_TOOLS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "setpriv": "util-linux"}
_WITH_OWN_TEMPORARY_FILES = 'mount -t tmpfs tmpfs /dev/shm && TMPDIR=/dev/shm exec "$@"'
_NO_NAMESPACE = "unshare: "
_STEP = re.compile(r"^(?:I: (?P<stage>.*)|(?P<verb>Get:\d+|Unpacking|Setting up) .*)$")
_TOTAL = re.compile(r"^\d+ upgraded, (\d+) newly installed")


def run(
    what: str, target: Path, options: Sequence[str], progress: Callable[[str], None], release: Release = BOOKWORM
) -> None:
    """Fills `target`, which must not exist.

    Args:
        what: What is being built, for messages.
        target: The folder.
        options: The variant and other options of mmdebstrap.
        progress: Called with a sentence for each step.
        release: The release that the packages come from.

    Raises:
        GuestBuildError: A tool is missing, or mmdebstrap fails.
    """
    for command, package in _TOOLS.items():
        if shutil.which(command) is None:
            raise GuestBuildError(f"{command} is not installed: run 'apt-get install {package}', then try again")
    sources = release.sources()
    full = [
        # Ends with this process; the kernel then ends everything in its namespaces.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--kill-child"),
        *("sh", "-c", _WITH_OWN_TEMPORARY_FILES, "sh"),
        *("mmdebstrap", "--mode=root", "--format=directory", "--verbose", *options),
        '--aptopt=Acquire::Languages "none"',
        *([f"--keyring={release.keyring}"] if release.keyring else []),
        *(release.suite, str(target), *(["-"] if sources else [])),
    ]
    with tempfile.TemporaryFile("w+") as given:
        given.write(sources)
        given.seek(0)
        with build_programs.running(full, stdin=given) as program:
            assert program.stdout is not None  # noqa: S101
            errors = _follow(program.stdout, progress)
    if program.returncode and errors.startswith(_NO_NAMESPACE):
        raise GuestBuildError(
            "building a guest image needs the right to make namespaces and to mount, which root lacks in a container"
            f" that is not --privileged ({errors})"
        )
    if program.returncode:
        raise GuestBuildError(f"mmdebstrap could not build {what}: {errors}")


def _follow(lines: Iterator[str], progress: Callable[[str], None]) -> str:
    """Reports mmdebstrap's progress; returns its last errors, and what was said before the first of them."""
    errors: deque[str] = deque(maxlen=3)
    said: deque[str] = deque(maxlen=3)
    total, done = 0, {"Unpacking": 0, "Setting up": 0}
    for line in lines:
        if count := _TOTAL.match(line):
            total, done = int(count[1]), dict.fromkeys(done, 0)
        if line.startswith(("E: ", "dpkg: error", "error: ", _NO_NAMESPACE)):
            errors.append(line.strip())
        elif not errors and not _STEP.match(line.strip()) and line.strip():
            said.append(line.strip()[:300])
        if not (step := _STEP.match(line.strip())):
            continue
        if stage := step["stage"]:
            progress(stage[:1].upper() + stage[1:])
        elif (verb := step["verb"]) in done:
            done[verb] += 1
            progress(f"{verb} packages: {done[verb]} of {max(total, done[verb])}")
        elif verb:
            progress(f"Downloading packages: {verb.removeprefix('Get:')}")
    before = f" (before that: {'; '.join(said)})" if said and errors else ""
    return f"{'; '.join(errors)}{before}" if errors else "it gave no reason"
