"""The lower layer of a guest image: Debian's packages, put together by mmdebstrap.

The archive's address, proxies and certificates are the machine's own: its apt configuration is asked where it gets this
release from. Everything runs in namespaces of its own and dies with the process that builds, mounts included.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from vm_pool.guest.errors import GuestBuildError
from vm_pool.guest.profiles import PROFILES

SUITE = "bookworm"
PYTHON = "3.11"
"""The Python of this release of Debian."""

RECIPE = Path(__file__).parent / "recipe"
CUSTOMIZE = RECIPE / "customize.sh"
REQUIREMENTS = RECIPE / "requirements.txt"
PYTHON_PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"

_LEFT_OUT = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/help/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/en*",
    "path-include=/usr/share/locale/locale.alias",
)
_TOOLS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "setpriv": "util-linux"}
_STEP = re.compile(r"^(?:I: (?P<stage>.*)|(?P<verb>Get:\d+|Unpacking|Setting up) .*)$")
_TOTAL = re.compile(r"^\d+ upgraded, (\d+) newly installed")


def digest(profile: str) -> str:
    """Identifies everything this layer is made from, but for the versions that Debian has today."""
    recipe = [(file.name, file.read_text()) for file in sorted(RECIPE.iterdir())]
    made_from = [SUITE, PROFILES[profile], _LEFT_OUT, recipe]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]


def build(profile: str, target: Path, progress: Callable[[str], None]) -> None:
    """Fills `target`, which must not exist; its owners are the guest's own ids.

    Raises:
        GuestBuildError: A tool is missing, or a step fails.
    """
    for command, package in _TOOLS.items():
        if shutil.which(command) is None:
            raise GuestBuildError(f"{command} is not installed: run 'apt-get install {package}', then try again")
    _run_mmdebstrap(profile, target, progress)
    progress("Installing Python packages")
    _install_python_packages(target / PYTHON_PACKAGES)
    compiling = ["chroot", str(target), "python3", "-m", "compileall", "-q", f"/{PYTHON_PACKAGES}"]
    _call(compiling, "compiling the Python packages")


def _run_mmdebstrap(profile: str, target: Path, progress: Callable[[str], None]) -> None:
    sources = _machine_sources()
    command = [
        # Dies with this process, and the kernel then ends all that runs in its namespaces.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--kill-child"),
        *("mmdebstrap", "--mode=root", "--variant=apt", "--format=directory", "--verbose"),
        *(f"--dpkgopt={option}" for option in _LEFT_OUT),
        '--aptopt=Acquire::Languages "none"',
        f"--include={','.join(PROFILES[profile])}",
        f"--customize-hook={CUSTOMIZE}",
        *(SUITE, str(target), *(["-"] if sources else [])),
    ]
    with tempfile.TemporaryFile("w+") as given:
        given.write(sources)
        given.seek(0)
        with subprocess.Popen(  # noqa: S603
            command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as running:
            assert running.stdout is not None  # noqa: S101
            try:
                complaints = _follow(running.stdout, progress)
            except BaseException:
                running.kill()
                raise
    if running.returncode:
        raise GuestBuildError(f"mmdebstrap could not build profile {profile!r}: {complaints}")


def _follow(lines: Iterator[str], progress: Callable[[str], None]) -> str:
    """Reports mmdebstrap's progress; returns what it complained of last."""
    complaints: deque[str] = deque(maxlen=3)
    total, done = 0, {"Unpacking": 0, "Setting up": 0}
    for line in lines:
        if count := _TOTAL.match(line):
            total, done = int(count[1]), dict.fromkeys(done, 0)
        if line.startswith(("E: ", "dpkg: error", "error: ")):
            complaints.append(line.strip())
        if not (step := _STEP.match(line.strip())):
            continue
        if stage := step["stage"]:
            progress(stage[:1].upper() + stage[1:])
        elif (verb := step["verb"]) in done:
            done[verb] += 1
            progress(f"{verb} packages: {done[verb]} of {max(total, done[verb])}")
        elif verb:
            progress(f"Downloading packages: {verb.removeprefix('Get:')}")
    return "; ".join(complaints) or "it gave no reason"


def _machine_sources() -> str:
    """Where this machine gets the release from, as a sources.list; empty where it has another one."""
    fields = ("REPO_URI", "RELEASE", "COMPONENT", "SIGNED_BY")
    listing = subprocess.run(  # noqa: S603
        ["apt-get", "indextargets", "--format", "|".join(f"$({field})" for field in fields), "Created-By: Packages"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = [line.split("|") for line in sorted(set(listing.splitlines())) if line.count("|") == len(fields) - 1]
    wanted = [one for one in found if one[1] in {SUITE, f"{SUITE}-updates", f"{SUITE}-security"} and one[2] == "main"]
    if not any(release == SUITE for _uri, release, _component, _key in wanted):
        return ""
    return "".join(f"deb {uri} {release} {component}\n" for uri, release, component, _key in wanted)


def _install_python_packages(target: Path) -> None:
    uv = shutil.which("uv") or shutil.which(Path(sys.prefix).parent / ".uv" / "bin" / "uv")
    pip = next((python for python in (sys.executable, "/usr/bin/python3") if _has_pip(python)), None)
    if uv:
        command = [uv, "pip", "install", "--quiet", "--python-version", PYTHON]
    elif pip:
        command = [pip, "-m", "pip", "install", "--quiet", "--ignore-installed", "--disable-pip-version-check"]
    else:
        raise GuestBuildError("neither uv nor pip is installed: run 'apt-get install python3-pip', then try again")
    options = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS), "--target", str(target)]
    _call([*command, *options], "installing the guest's Python packages")


def _has_pip(python: str) -> bool:
    asked = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)  # noqa: S603
    return asked.returncode == 0


def _call(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())[-500:]
        raise GuestBuildError(f"{what} failed: {reason or os.strerror(done.returncode)}")
